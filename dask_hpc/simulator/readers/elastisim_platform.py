"""SimGrid platform files as ElastiSim uses them.

Our machine has nodes of one kind, each with a link of its own, and one shared file system. What a
platform file says beyond that (backbones, unequal nodes) is left out, and the notes say so.

Of latencies we have what lasts: a stream of data over a route sends at most one TCP window in twice the
latency of the route; the window is 4 MiB unless the file's ``network/TCP-gamma`` says otherwise. ElastiSim
runs on SimGrid's model for parallel tasks (``ptask_L07``), which has this bound and none of the factors that
SimGrid's default model has for TCP (LV08: 0.97 of the bandwidth, 13.01 times the latency): bandwidths and
latencies are as the file says. A node has one stream to each host of the file system that it uses, and one
to each node it sends to. Of a route to the file system only the part beside it counts, and the node's own
link. Each task waits for one latency before it sends anything.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

from dask_hpc.model.errors import InputError, one_line, shown, within
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.values import Notes, read_file

_LIMIT = 20_000_000  # bytes
_MOST_NODES = 10_000_000
_PREFIXES: Mapping[str, float] = {
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
_SPEEDS = {"f": 1.0, "flops": 1.0}
_SECONDS: Mapping[str, float] = {
    "": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12, "m": 60.0, "h": 3600.0, "d": 86400.0,
    "w": 604800.0,
}  # fmt: skip
_WINDOW = 4194304.0  # bytes
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
    #: bytes per second from one node to another one, however free the links are
    stream: float = inf
    #: seconds from one node to another one, and to or from the file system
    latency: float = 0.0
    file_latency: float = 0.0


def load_platform(
    path: Path, read_links: Iterable[str], write_links: Iterable[str], notes: Notes
) -> ElastisimPlatform:
    """A platform file. ``read_links`` and ``write_links`` name the file system's links, if that is known."""
    with within(one_line(str(path))):
        return _PlatformFile(_parse(read_file(path, _LIMIT)), notes).machine(read_links, write_links)


def _parse(data: bytes) -> ElementTree.Element:
    """UTF-8 and nothing else, whatever the file says of itself: no other encoding can hide definitions."""
    try:
        text = data.decode("utf-8-sig")
        for unwanted in ("\0", "<!ENTITY", "<!ELEMENT", "<!ATTLIST", "<!NOTATION"):
            if unwanted in text:
                line = text[: text.index(unwanted)].count("\n") + 1
                allowed = "no definitions; <!DOCTYPE platform ...> is"
                raise InputError(f"line {line}", f"found {shown(unwanted)}", allowed)
        return ElementTree.fromstring(text.encode(), ElementTree.XMLParser(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InputError("", f"not text: byte {error.start} is not UTF-8") from None
    except ElementTree.ParseError as error:
        found = f"not XML: {one_line(str(error)).split(':')[0]}"
        raise InputError(f"line {error.position[0]}", found) from None
    except InputError:
        raise
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


def seconds(text: str | None, where: str) -> float:
    """``"50us"``; nothing is no latency, and a bare number is in seconds."""
    match = _QUANTITY.fullmatch(text or "0")
    if match is None or match[2] not in _SECONDS or float(match[1]) == inf:
        raise InputError(where, f"found {shown(text)}", "a time such as 50us or 1ms")
    return float(match[1]) * _SECONDS[match[2]]


def _rate(text: str | None, units: Mapping[str, float], where: str) -> float:
    value = quantity(text, units, where)
    if value == 0:
        raise InputError(where, "found 0", "more than 0")
    return value


def _count(radical: str, where: str) -> int:
    """How many hosts ``"0-127"`` or ``"1,5-9"`` stands for."""
    count = 0
    for part in radical.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(where, f"found {shown(radical)}", "ranges such as 0-127 or 1,5-9")
        count += int(match[2] or match[1]) - int(match[1]) + 1
    return count


def _is(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() in ("true", "1", "yes")


class _Nodes(NamedTuple):
    """So many compute nodes alike: operations per second, bytes per second of a link if it says,
    latencies and properties."""

    nodes: int
    speed: float
    link: float | None
    #: seconds from a node to the edge of its cluster, and to another node in it
    latency: float
    between: float
    properties: Mapping[str, str]


class _PlatformFile:
    """What is gathered on the way through one file."""

    def __init__(self, root: ElementTree.Element, notes: Notes) -> None:
        self._root, self._notes = root, notes
        #: bytes per second of links by name, and hosts and zones of the file system
        self._links: dict[str, float] = {}
        self._latencies: dict[str, float] = {}
        self._storage: set[str] = set()
        #: hosts of the file system alone
        self._stores = 0
        self._window = _WINDOW

    def machine(self, read_links: Iterable[str], write_links: Iterable[str]) -> ElastisimPlatform:
        root = self._root
        if root.tag != "platform":
            raise InputError(shown(root.tag), "is not a platform", "<platform>")
        left_out = sorted({str(element.tag) for element in root.iter()} - _MODELLED)
        if left_out:
            self._notes.add(f"elements of the platform left out: {shown(', '.join(left_out))}")
        for one in root.iter("link"):
            name = one.get("id", "")
            self._links[name] = _rate(one.get("bandwidth"), _BANDWIDTHS, f"link {shown(name)}: bandwidth")
            self._latencies[name] = seconds(one.get("latency"), f"link {shown(name)}: latency")
        for one in root.iterfind("config/prop"):
            if one.get("id") == "network/TCP-gamma":
                self._window = _rate(one.get("value"), {"": 1.0}, "network/TCP-gamma")
        groups = self._groups()
        if not groups:
            raise InputError("platform", "has no compute nodes", "a cluster, or hosts that are neither "
                             "batch_system nor pfs_host")  # fmt: skip
        nodes = sum(group.nodes for group in groups)
        if nodes > _MOST_NODES:
            raise InputError("platform", f"{nodes:,} nodes", f"at most {_MOST_NODES:,}")
        speed = self._least("speed", (group.speed for group in groups))
        if speed == 0:
            raise InputError("platform", "a compute node has speed 0", "more than 0")
        link = self._node_link(groups)
        file_system, writing = self._file_system(tuple(read_links), tuple(write_links))
        properties = groups[0].properties
        if any(group.properties != properties for group in groups):
            self._notes.add("nodes differ in GPUs or burst buffers: those of the first are taken")
        file_latency, stream = self._file_stream(groups, tuple(read_links), tuple(write_links))
        platform = Platform(
            nodes=nodes, speed=speed, link=link, file_system=file_system, writing=writing, stream=stream
        )
        latency = max(group.between for group in groups)
        return ElastisimPlatform(
            platform, *_gpus(properties), *self._burst_buffer(properties), self._stream(latency), latency,
            file_latency,
        )  # fmt: skip

    def _groups(self) -> list[_Nodes]:
        """The compute nodes; those of the file system are noted."""
        groups = []
        for element in self._root.iter():
            if element.tag not in ("host", "cluster", "cabinet"):
                continue
            name = element.get("id", "")
            where = f"{element.tag} {shown(name)}"
            properties = {prop.get("id", ""): prop.get("value", "") for prop in element.iterfind("prop")}
            if _is(properties, "pfs_host"):
                self._storage.add(name)
                self._stores += 1
            if _is(properties, "pfs_host") or _is(properties, "batch_system"):
                continue
            speeds = (element.get("speed") or element.get("power") or "").split(",")
            speed = quantity(speeds[0] or None, _SPEEDS, f"{where}: speed")
            if element.get("core", "1") != "1":
                self._notes.add("cores of a node are not modelled: its speed is taken as it is")
            count, bandwidth, latency, between = 1, None, 0.0, 0.0
            if element.tag != "host":
                if element.get("bb_bw"):
                    self._notes.add("the backbone of a cluster is not modelled")
                bandwidth = _rate(element.get("bw"), _BANDWIDTHS, f"{where}: bw")
                own = seconds(element.get("lat"), f"{where}: lat")
                shared = seconds(element.get("bb_lat"), f"{where}: bb_lat") if element.get("bb_bw") else 0.0
                latency, between = own + shared, own + shared + own
                count = _count(element.get("radical", ""), f"{where}: radical")
            groups.append(_Nodes(count, speed, bandwidth, latency, between, properties))
        for zone in self._root.iter():
            hosts = {host.get("id", "") for host in zone.iterfind("host")}
            if zone.tag in ("zone", "AS") and not hosts.isdisjoint(self._storage):
                self._storage.add(zone.get("id", ""))
        return groups

    def _least(self, what: str, values: Iterable[float]) -> float:
        different = sorted(set(values))
        if len(different) > 1:
            self._notes.add(f"nodes differ in {what}: all are taken to have {different[0]:g}, the least")
        return different[0]

    def _node_link(self, groups: list[_Nodes]) -> float:
        known = [group.link for group in groups if group.link is not None]
        if known:
            return self._least("link bandwidth", known)
        if self._links:
            self._notes.add("hosts outside clusters: each is taken to have a link like the slowest there is")
        return min(self._links.values(), default=inf)

    def _file_system(
        self, read_links: tuple[str, ...], write_links: tuple[str, ...]
    ) -> tuple[float, float | None]:
        """The bandwidth for reading and that for writing; None if both are over the same links."""
        for name in (*read_links, *write_links):
            if name not in self._links:
                allowed = ", ".join(sorted(self._links))[:200]
                raise InputError("platform", f"has no link {shown(name)}", allowed)
        ways = (("src", read_links), ("dst", write_links))
        reading, writing = (
            sum(self._links[name] for name in named) if named else self._route_rate(way)
            for way, named in ways
        )
        read_over, written_over = (
            set(named) or {name for route in self._routes(way) for name in route} for way, named in ways
        )
        if reading is not None and writing is not None and read_over.isdisjoint(written_over):
            return reading, writing
        known = [rate for rate in (reading, writing) if rate is not None]
        if not known:
            has = "no link leads to the file system" if self._storage else "the platform has no file system"
            self._notes.add(f"{has}: only the nodes' own links limit it")
            return inf, None
        self._notes.add(f"reading and writing share the file system's bandwidth of {min(known):g} B/s")
        return min(known), None

    def _route_rate(self, way: str) -> float | None:
        """By the routes to (``dst``) or from (``src``) the file system. Links that all of them share are
        the bottleneck; routes with none in common add up."""
        routes = self._routes(way)
        if not routes:
            return None
        common = set(routes[0]).intersection(*routes[1:])
        if common:
            return min(self._links[name] for name in common)
        return sum(min(self._links[name] for name in route) for route in routes)

    def _routes(self, way: str) -> list[list[str]]:
        """The known links of each route to or from the file system."""
        routes = []
        for route in self._root.iter():
            ends = {route.get(way, "")}
            if route.get("symmetrical", "YES").upper() != "NO":
                ends |= {route.get("src", ""), route.get("dst", "")}
            links = [str(part.get("id")) for part in route.iterfind("link_ctn")]
            links = [name for name in links if name in self._links]
            if route.tag in ("route", "zoneRoute", "ASroute") and links and ends & self._storage:
                routes.append(links)
        return routes

    def _stream(self, latency: float) -> float:
        """One window on its way, and the answer back."""
        return self._window / (2.0 * latency) if latency else inf

    def _file_stream(
        self, groups: list[_Nodes], read_links: tuple[str, ...], write_links: tuple[str, ...]
    ) -> tuple[float, float]:
        """The latency to the file system, and the bytes per second that one node gets from it if nobody else
        does; over the longest way, if they differ."""
        if not self._storage:
            return 0.0, inf
        ways = []
        for way, named in (("src", read_links), ("dst", write_links)):
            routes = self._routes(way)
            if routes:
                ways.append(max(sum(self._latencies[name] for name in route) for route in routes))
            elif named:
                ways.append(max(self._latencies[name] for name in named))
        latency = max(ways, default=0.0) + max(group.latency for group in groups)
        if latency and min(ways, default=0.0) != max(ways, default=0.0):
            self._notes.add("the ways to and from the file system differ in latency: the longer is both")
        targets = groups[0].properties.get("pfs_targets", "")
        streams = len([name for name in targets.split(",") if name.strip()]) or self._stores
        stream = streams * self._stream(latency)
        if latency:
            self._notes.add(f"latencies limit what a node reads or writes to {stream:g} B/s")
        return latency, stream

    def _burst_buffer(self, properties: Mapping[str, str]) -> tuple[float | None, float | None]:
        if not _is(properties, "node_local_bb"):
            return None, None
        if _is(properties, "wide_striping"):
            self._notes.add("wide striping of burst buffers is not modelled: each node uses its own")
        read, write = (
            _rate(properties.get(name), _BANDWIDTHS, name) for name in ("bb_read_bw", "bb_write_bw")
        )
        return read, write


def _gpus(properties: Mapping[str, str]) -> tuple[int, float]:
    text = properties.get("num_gpus", "0").strip()
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII):
        raise InputError("num_gpus", f"found {shown(text)}", "a whole number")
    if int(text) == 0:
        return 0, 0.0
    return int(text), _rate(properties.get("flops_per_gpu"), _SPEEDS, "flops_per_gpu")
