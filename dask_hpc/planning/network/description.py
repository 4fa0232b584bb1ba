"""A topology and jobs as people write them down, with units, presets and parts by name."""

from collections.abc import Mapping
from typing import Any

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.safe_yaml import check_keys, nearest
from dask_hpc.model.topology import LinkLevel, Topology, fat_tree, slurm_tree, xc30
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.network.demands import Traffic
from dask_hpc.planning.topology import Place, hosts, places_in, read_topology

_ALL = "all"
_OF = "all of "
_COUNTS = ("cabinets", "chassis", "blades", "arity", "levels")
#: keys of a topology, by what it is made of
_KEYS: Mapping[str, tuple[str, ...]] = {
    "xc30": ("preset", "cabinets", "chassis", "blades", "service"),
    "fat-tree": ("preset", "arity", "levels", "port", "oversubscription", "service"),
    "tree": ("tree", "port", "oversubscription", "bandwidths", "levels", "service"),
    "slurm": ("slurm", "port", "oversubscription", "bandwidths", "service"),
}
_JOB = ("nodes", "pattern", "rate", "stores", "restart")
_WHAT = "preset: xc30 or fat-tree, tree: {part: nodes}, or slurm: a topology.conf"


def topology_of(found: Any) -> Topology:
    """From ``{preset: xc30, cabinets: 2}``, ``{preset: fat-tree, arity: 16}``, ``{tree: {rack0: "n[0-7]"}}``
    or ``{slurm: "SwitchName=..."}``, the text of a topology.conf; a ``Topology`` is one already.

    A tree is one of switches with a ``port`` for each node and ``bandwidths`` by level (as ``slurm_tree``
    has them), or it has ``levels`` of its own: ``{cabinet: {bandwidth: 12.5 GB/s, links: all-to-all}}``.
    """
    if isinstance(found, Topology):
        return found
    insist(isinstance(found, Mapping), "", found, _WHAT)
    kinds = [kind for kind in ("preset", "tree", "slurm") if kind in found]
    insist(len(kinds) == 1, "", found, _WHAT)
    kind = found["preset"] if kinds == ["preset"] else kinds[0]
    insist(kind in ("xc30", "fat-tree") or kinds != ["preset"], "preset", kind, "xc30, fat-tree")
    check_keys(dict(found), _KEYS[kind], "")
    more = {name: found[name] for name in _COUNTS if name in found and kind in ("xc30", "fat-tree")}
    if kind == "xc30":
        service = found.get("service", True)
        insist(isinstance(service, bool), "service", service, "true, false")
        return xc30(**more, service=service)
    if "port" in found:
        more["bandwidth" if kind == "fat-tree" else "port"] = parse_quantity(found["port"], "B/s", "port")
    if "oversubscription" in found:
        more["oversubscription"] = found["oversubscription"]
    if kind == "fat-tree":
        return _with_service(fat_tree(**more), found)
    if kind == "tree":
        with within("tree"):
            places: Mapping[str, Place] = places_in(found["tree"])
        if "levels" in found:
            return _with_service(_by_levels(found["levels"], places), found)
    else:
        insist(isinstance(found["slurm"], str), "slurm", found["slurm"], "lines with SwitchName=")
        with within("slurm"):
            places = read_topology(found["slurm"])
        _insist_on_one_root(places)
    given = found.get("bandwidths", {})
    insist(isinstance(given, Mapping), "bandwidths", given, "bytes a second by level")
    bandwidths = {str(name): parse_quantity(one, "B/s", f"bandwidths: {name}") for name, one in given.items()}
    return _with_service(slurm_tree(places, bandwidths, **more), found)


def traffic_of(found: Any, topology: Topology) -> Traffic:
    """From ``{nodes: "all of cabinet0", rate: 0.5 GB/s}``."""
    if isinstance(found, Traffic):
        return found
    insist(isinstance(found, Mapping), "", found, "a mapping with " + ", ".join(_JOB))
    check_keys(dict(found), _JOB, "")
    insist("nodes" in found, "nodes", None, 'node[00-07], or "all of" a part')
    more: dict[str, Any] = {name: found[name] for name in ("pattern", "stores") if name in found}
    if found.get("rate") is not None:
        more["rate"] = parse_quantity(found["rate"], "B/s", "rate")
    restart = found.get("restart", False)
    insist(isinstance(restart, bool), "restart", restart, "true, false")
    with within("nodes"):
        nodes = nodes_of(found["nodes"], topology)
        topology.insist_on(nodes, "")
    return Traffic(nodes, restart=restart, **more)


def nodes_of(found: Any, topology: Topology) -> tuple[str, ...]:
    """Each once, of names as Slurm writes them, ``all``, ``all of cabinet0/chassis2``, or a list of these."""
    names: dict[str, None] = {}
    for one in found if isinstance(found, list | tuple) else [found]:
        insist(isinstance(one, str) and one.strip() != "", "", one, 'node[00-07], or "all of" a part')
        text = one.strip()
        if text == _ALL:
            names |= dict.fromkeys(topology.nodes)
        elif text.startswith(_OF):
            names |= dict.fromkeys(_part(text.removeprefix(_OF).strip(), topology))
        else:
            names |= dict.fromkeys(hosts(text))
    return tuple(names)


def _part(text: str, topology: Topology) -> tuple[str, ...]:
    part = tuple(text.split("/"))
    nodes = topology.within(part)
    if not nodes:
        known = dict.fromkeys(place[0] for place in topology.places.values())
        found = f"found the part {shown(text)}{nearest(text, known)}"
        raise InputError("", found, f"{', '.join(list(known)[:8])}, and parts of them after a /")
    return nodes


def _by_levels(found: Any, places: Mapping[str, Place]) -> Topology:
    with within("levels"):
        insist(
            isinstance(found, Mapping) and len(found) > 0, "", found, "{name: {bandwidth: B/s, links: tree}}"
        )
        levels = []
        for name, one in found.items():
            check_keys(one, ("bandwidth", "links"), str(name))
            bandwidth = parse_quantity(one.get("bandwidth"), "B/s", f"{name}: bandwidth")
            levels.append(LinkLevel(str(name), bandwidth, one.get("links", "tree")))
        depths = {len(place) for place in places.values()}
        fine = depths in ({len(levels)}, {len(levels) - 1})
        insist(fine, "", list(found), "one for each part around a node, and perhaps one for the nodes")
    if depths == {len(levels)}:
        return Topology(tuple(levels), dict(places))
    return Topology(tuple(levels), {name: (*place, name) for name, place in places.items()})


def _with_service(topology: Topology, found: Mapping[str, Any]) -> Topology:
    if "service" not in found:
        return topology
    with within("service"):
        return Topology(topology.levels, topology.places, nodes_of(found["service"], topology))


def _insist_on_one_root(places: Mapping[str, Place]) -> None:
    """Slurm writes the switch that joins all others down; where there is none, they are not joined."""
    roots = list(dict.fromkeys(place[0] for place in places.values()))
    if len(roots) > 1:
        raise InputError(
            "slurm", f"nothing joins {shown(roots[0])} with {shown(roots[1])}", "a switch above both"
        )
