"""The network of a machine as people write it: a ready-made one by name, or parts within parts and what the
links that lead up from them carry::

    preset: xc30                        # or fat-tree: {arity, levels, bandwidth, oversubscription}
    cabinets: 2                         # what the preset has: chassis, blades, service
    nodes: "nid[00000-00187]"           # names of its nodes for jobs, in order; without them its own

    tree: {rack0: {switch0: "node[00-07]"}, rack1: {switch1: "node[08-15]"}}
    bandwidths: {rack: 40 GB/s, node: 100 Gbit/s}   # by the names of the parts; node: of each node's port
    oversubscription: 2                             # for what is not said

A tree alone, and what Slurm says of its switches (``planning.topology``), has usual bandwidths: those of
``slurm_tree``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.safe_yaml import check_keys, nearest, read_yaml
from dask_hpc.model.topology import Topology, fat_tree, slurm_tree, xc30
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.topology import LIMIT, Place, hosts, places_of, read_topology

Reader = Callable[[Any], Any]


class ReadTopology(NamedTuple):
    """A network, the parts that each of its nodes is in, and the levels whose bandwidth nobody said."""

    topology: Topology
    places: Mapping[str, Place]
    assumed: tuple[str, ...] = ()


def _as_it_is(value: Any) -> Any:
    """Whoever makes a topology of it complains."""
    return value


_rate: Reader = partial(parse_quantity, unit="B/s")
_PRESETS: Mapping[str, tuple[Callable[..., Topology], Mapping[str, Reader]]] = {
    "xc30": (xc30, dict.fromkeys(("cabinets", "chassis", "blades", "service"), _as_it_is)),
    "fat-tree": (
        fat_tree,
        {"arity": _as_it_is, "levels": _as_it_is, "bandwidth": _rate, "oversubscription": _as_it_is},
    ),
}
_TREE: Mapping[str, Reader] = {"port": _rate, "oversubscription": _as_it_is}
_ALLOWED = f"{', '.join(_PRESETS)}, {{preset: NAME, ...}} or {{tree: PARTS, bandwidths: {{LEVEL: RATE}}}}"


def topology_from(found: Any) -> ReadTopology:
    """From plain data: the name of a preset, or a mapping with ``preset`` or ``tree``. Every complaint is an
    ``InputError``."""
    if isinstance(found, str):
        found = {"preset": found}
    fine = isinstance(found, Mapping) and ("preset" in found) != ("tree" in found)
    insist(fine, "", found, _ALLOWED)
    if "tree" in found:
        return _of_tree(found)
    topology = _of_preset(found)
    # the last part is the node itself
    return ReadTopology(topology, {name: topology.places[name][:-1] for name in topology.nodes})


def topology_in(text: str | bytes) -> ReadTopology:
    """From a file: as ``topology_from``, or whatever says which part each node is in."""
    plain: Any = None
    if b"SwitchName=" not in (text.encode() if isinstance(text, str) else text):
        plain = read_yaml(text, LIMIT)
    if isinstance(plain, str) or (isinstance(plain, Mapping) and ("preset" in plain or "tree" in plain)):
        return topology_from(plain)
    return with_usual_bandwidths(read_topology(text))


def with_usual_bandwidths(places: Mapping[str, Place]) -> ReadTopology:
    """Of a machine of which only the places of nodes are known."""
    topology = slurm_tree(places)
    return ReadTopology(topology, places, tuple(level.name for level in topology.levels))


def _of_preset(found: Mapping[str, Any]) -> Topology:
    name = found["preset"]
    if not isinstance(name, str) or name not in _PRESETS:
        raise InputError(
            "preset", f"no network is named {shown(name)}{nearest(name, _PRESETS)}", ", ".join(_PRESETS)
        )
    make, readers = _PRESETS[name]
    check_keys(found, ("preset", "nodes", *readers), "")
    topology = make(**_values(found, readers))
    if found.get("nodes") is None:
        return topology
    names = found["nodes"]
    fine = isinstance(names, str | list) and all(isinstance(one, str | int) for one in names)
    insist(fine, "nodes", names, "names of nodes: nid[000-187]")
    with within("nodes"):
        given = [one for word in ([names] if isinstance(names, str) else names) for one in hosts(str(word))]
    there = topology.nodes
    fine = len(set(given)) == len(given) == len(there)
    insist(fine, "nodes", f"{len(given):,} names", f"{len(there):,} different ones, as the network has nodes")
    return topology.renamed({old: (new,) for old, new in zip(there, given, strict=True)})


def _of_tree(found: Mapping[str, Any]) -> ReadTopology:
    check_keys(found, ("tree", "bandwidths", *_TREE), "")
    with within("tree"):
        places = places_of(found["tree"])
    bandwidths = found.get("bandwidths") or {}
    insist(isinstance(bandwidths, Mapping), "bandwidths", bandwidths, "{LEVEL: 40 GB/s, node: 12.5 GB/s}")
    rates = {}
    for name, rate in bandwidths.items():
        with within(f"bandwidths.{name}"):
            rates[str(name)] = _rate(rate)
    values = _values(found, _TREE)
    topology = slurm_tree(places, rates, **values)
    said = {*rates, *(["node"] if "port" in values else [])}
    assumed = tuple(one.name for one in topology.levels if one.name not in said)
    return ReadTopology(topology, places, assumed)


def _values(found: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    values = {}
    for key, read in readers.items():
        if found.get(key) is not None:
            with within(key):
                values[key] = read(found[key])
    return values
