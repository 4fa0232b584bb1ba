"""SimGrid platform files as ElastiSim uses them.

Our machine has nodes of one kind, each with a link of its own, and one shared file system. What a
platform file says beyond that (latencies, backbones, unequal nodes) is left out, and the notes say so.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.readers.values import Notes, read_file

_LIMIT = 20_000_000  # bytes
_MOST_NODES = 10_000_000
_PREFIXES: Mapping[str, float] = {
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
_SPEEDS = {"f": 1.0, "flops": 1.0}
_BANDWIDTHS = {"Bps": 1.0, "bps": 0.125}
_QUANTITY = re.compile(r"\s*([+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_MODELLED = {"platform", "zone", "AS", "cluster", "cabinet", "host", "prop", "link", "link_ctn", "route",
             "zoneRoute", "ASroute", "config"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ElastisimPlatform:
    """A machine, and what only the reader of applications wants to know of it."""

    platform: Platform
    gpus: int = 0
    flops_per_gpu: float = 0.0
    #: bytes per second of a node's own burst buffer, or None
    burst_read: float | None = None
    burst_write: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """What is gathered on the way through the file."""

    #: (how many, operations per second, bytes per second, properties) of each group of compute nodes
    groups: list[tuple[int, float, float | None, dict[str, str]]] = field(default_factory=list)
    links: dict[str, float] = field(default_factory=dict)
    #: hosts and zones of the file system
    storage: set[str] = field(default_factory=set)
    notes: Notes = field(default_factory=Notes)


def load_platform(
    path: Path, read_links: Iterable[str] = (), write_links: Iterable[str] = ()
) -> ElastisimPlatform:
    """A platform file. ``read_links`` and ``write_links`` name the file system's links, if that is known."""
    try:
        return _platform(_parse(read_file(path, _LIMIT)), tuple(read_links), tuple(write_links))
    except InputError as error:
        name = one_line(str(path))
        raise error if error.where.startswith(name) else error.at(name) from None


def _parse(data: bytes) -> ElementTree.Element:
    """UTF-8 and nothing else, whatever the file says of itself: no other encoding can hide definitions."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("", f"not text: byte {error.start} is not UTF-8") from None
    for unwanted in ("\0", "<!ENTITY", "<!ELEMENT", "<!ATTLIST", "<!NOTATION"):
        if unwanted in text:
            line = text[: text.index(unwanted)].count("\n") + 1
            raise InputError(
                f"line {line}", f"found {shown(unwanted)}", "no definitions; <!DOCTYPE platform ...> is"
            )
    try:
        parser = ElementTree.XMLParser(encoding="utf-8")
        return ElementTree.fromstring(text.encode(), parser)
    except ElementTree.ParseError as error:
        line = error.position[0]
        raise InputError(f"line {line}", f"not XML: {one_line(str(error)).split(':')[0]}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError("", f"not XML: {one_line(str(error))[:80]}") from None


def quantity(text: str | None, units: Mapping[str, float], where: str) -> float:
    """``"100Gbps"`` or ``"1.5Tf"``; a bare number is in the base unit, as in SimGrid."""
    if text is None:
        raise InputError(where, "is missing")
    match = _QUANTITY.fullmatch(text)
    if match:
        for unit, scale in (*units.items(), ("", 1.0)):
            prefix = match[2].removesuffix(unit) if unit else match[2]
            if match[2].endswith(unit) and prefix in _PREFIXES and (unit or not prefix):
                value = float(match[1]) * _PREFIXES[prefix] * scale
                if value < inf:
                    return value
    words = ", ".join(f"100G{unit}" for unit in units)
    raise InputError(where, f"found {shown(text)}", f"a quantity such as {words}")


def _radical(text: str | None, where: str) -> int:
    """How many hosts ``"0-127"`` or ``"1,5-9"`` stands for."""
    count = 0
    for part in (text or "").split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(where, f"found {shown(text)}", "ranges such as 0-127 or 1,5-9")
        count += int(match[2] or match[1]) - int(match[1]) + 1
    return count


def _properties(element: ElementTree.Element) -> dict[str, str]:
    return {prop.get("id", ""): prop.get("value", "") for prop in element.iterfind("prop")}


def _is(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() in ("true", "1", "yes")


def _platform(
    root: ElementTree.Element, read_links: tuple[str, ...], write_links: tuple[str, ...]
) -> ElastisimPlatform:
    if root.tag != "platform":
        raise InputError(shown(root.tag), "is not a platform", "<platform>")
    found = _Found()
    left_out = sorted({str(element.tag) for element in root.iter()} - _MODELLED)
    if left_out:
        found.notes.add(f"elements of the platform left out: {shown(', '.join(left_out))}")
    _links(root, found)
    _hosts(root, found)
    if not found.groups:
        raise InputError("platform", "has no compute nodes", "a cluster, or hosts that are neither "
                         "batch_system nor pfs_host")  # fmt: skip
    nodes = sum(group[0] for group in found.groups)
    if nodes > _MOST_NODES:
        raise InputError("platform", f"{nodes:,} nodes", f"at most {_MOST_NODES:,}")
    speed = _one("speed", (group[1] for group in found.groups), found)
    if speed == 0:
        raise InputError("platform", "a compute node has speed 0", "more than 0")
    link = _node_link(found)
    file_system = _file_system(root, found, read_links, write_links)
    properties = found.groups[0][3]
    if any(group[3] != properties for group in found.groups):
        found.notes.add("nodes differ in GPUs or burst buffers: those of the first are taken")
    if any(element.get("lat") or element.get("latency") for element in root.iter()):
        found.notes.add("latencies are not modelled")
    platform = Platform(nodes=nodes, speed=speed, link=link, file_system=file_system)
    gpus, flops = _gpus(properties)
    read, write = _burst_buffer(properties, found)
    return ElastisimPlatform(platform, gpus, flops, read, write, tuple(found.notes))


def _links(root: ElementTree.Element, found: _Found) -> None:
    for link in root.iter("link"):
        name = link.get("id", "")
        found.links[name] = quantity(link.get("bandwidth"), _BANDWIDTHS, f"link {shown(name)}: bandwidth")
        if found.links[name] == 0:
            raise InputError(f"link {shown(name)}: bandwidth", "found 0", "more than 0")


def _hosts(root: ElementTree.Element, found: _Found) -> None:
    for element in root.iter():
        if element.tag not in ("host", "cluster", "cabinet"):
            continue
        name = element.get("id", "")
        where = f"{element.tag} {shown(name)}"
        properties = _properties(element)
        if _is(properties, "pfs_host"):
            found.storage.add(name)
        if _is(properties, "pfs_host") or _is(properties, "batch_system"):
            continue
        speed = quantity((element.get("speed") or element.get("power") or "").split(",")[0] or None,
                         _SPEEDS, f"{where}: speed")  # fmt: skip
        if element.get("core", "1") != "1":
            found.notes.add("cores of a node are not modelled: its speed is taken as it is")
        if element.tag == "host":
            found.groups.append((1, speed, None, properties))
            continue
        if element.get("bb_bw"):
            found.notes.add("the backbone of a cluster is not modelled")
        bandwidth = quantity(element.get("bw"), _BANDWIDTHS, f"{where}: bw")
        if bandwidth == 0:
            raise InputError(f"{where}: bw", "found 0", "more than 0")
        count = _radical(element.get("radical"), f"{where}: radical")
        found.groups.append((count, speed, bandwidth, properties))
    for zone in root.iter():
        if zone.tag in ("zone", "AS") and any(
            host.get("id") in found.storage for host in zone.iterfind("host")
        ):
            found.storage.add(zone.get("id", ""))


def _one(what: str, values: Iterable[float], found: _Found) -> float:
    different = sorted(set(values))
    if len(different) > 1:
        found.notes.add(f"nodes differ in {what}: all are taken to have {different[0]:g}, the least")
    return different[0]


def _node_link(found: _Found) -> float:
    known = [group[2] for group in found.groups if group[2] is not None]
    if known:
        return _one("link bandwidth", known, found)
    if found.links:
        found.notes.add("hosts outside clusters: each is taken to have a link like the slowest there is")
        return min(found.links.values())
    return inf


def _file_system(
    root: ElementTree.Element, found: _Found, read_links: tuple[str, ...], write_links: tuple[str, ...]
) -> float:
    """One bandwidth for both ways: ours does not tell reading from writing."""
    rates: list[float | None] = []
    for way, named in (("src", read_links), ("dst", write_links)):
        for name in named:
            if name not in found.links:
                raise InputError(
                    "platform", f"has no link {shown(name)}", ", ".join(sorted(found.links))[:200]
                )
        if named:
            rates.append(sum(found.links[name] for name in named))
        else:
            rates.append(_route_rate(list(_routes(root, found, way)), found))
    known = [rate for rate in rates if rate is not None]
    if not known:
        if found.storage:
            found.notes.add("no link leads to the file system: only the nodes' own links limit it")
        else:
            found.notes.add("the platform has no file system: only the nodes' own links limit it")
        return inf
    if min(known) != max(known):
        found.notes.add(
            f"the file system reads {rates[0]:g} and writes {rates[1]:g} B/s: both are taken to share "
            f"{min(known):g}"
        )
    else:
        found.notes.add("reading and writing share the file system's bandwidth")
    return min(known)


def _routes(root: ElementTree.Element, found: _Found, way: str) -> Iterator[list[str]]:
    """The links of each route to (``dst``) or from (``src``) the file system."""
    for route in root.iter():
        if route.tag not in ("route", "zoneRoute", "ASroute"):
            continue
        ends = {route.get(way, "")}
        if route.get("symmetrical", "YES").upper() != "NO":
            ends |= {route.get("src", ""), route.get("dst", "")}
        if ends & found.storage:
            yield [
                str(part.get("id")) for part in route.iterfind("link_ctn") if part.get("id") in found.links
            ]


def _route_rate(routes: list[list[str]], found: _Found) -> float | None:
    """Links that all routes share are the bottleneck; routes with none in common add up."""
    routes = [route for route in routes if route]
    if not routes:
        return None
    common = set(routes[0]).intersection(*routes[1:])
    if common:
        return min(found.links[name] for name in common)
    return sum(min(found.links[name] for name in route) for route in routes)


def _gpus(properties: Mapping[str, str]) -> tuple[int, float]:
    text = properties.get("num_gpus", "0").strip()
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII):
        raise InputError("num_gpus", f"found {shown(text)}", "a whole number")
    if int(text) == 0:
        return 0, 0.0
    flops = quantity(properties.get("flops_per_gpu"), _SPEEDS, "flops_per_gpu")
    if flops == 0:
        raise InputError("flops_per_gpu", "found 0", "more than 0")
    return int(text), flops


def _burst_buffer(properties: Mapping[str, str], found: _Found) -> tuple[float | None, float | None]:
    if not _is(properties, "node_local_bb"):
        return None, None
    if _is(properties, "wide_striping"):
        found.notes.add("wide striping of burst buffers is not modelled: each node uses its own")
    rates = []
    for name in ("bb_read_bw", "bb_write_bw"):
        rate = quantity(properties.get(name), _BANDWIDTHS, name)
        if rate == 0:
            raise InputError(name, "found 0", "more than 0")
        rates.append(rate)
    return rates[0], rates[1]
