"""What joins the nodes of a machine, from a file: described as ``plan network`` has it, or only which part
each node is in::

    preset: xc30                        # or fat-tree, with what it has: cabinets, arity ...
    nodes: "nid[00000-00187]"           # names of its nodes for jobs, in order; without them its own

    tree: {rack0: {switch0: "node[00-07]"}, rack1: {switch1: "node[08-15]"}}
    bandwidths: {rack: 40 GB/s, node: 100 Gbit/s}   # by the names of the parts; node: of each node's port

Where nobody says what links carry they have usual bandwidths: those of ``slurm_tree``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dask_hpc.model.errors import insist, within
from dask_hpc.model.safe_yaml import read_yaml
from dask_hpc.model.topology import Topology, slurm_tree
from dask_hpc.planning.network.description import topology_of
from dask_hpc.planning.topology import LIMIT, Place, hosts, places_in, read_topology

_SLURM = b"SwitchName="
_DESCRIBED = ("preset", "tree", "slurm")


class ReadTopology(NamedTuple):
    """A network, the parts that each of its nodes for jobs is in, and the levels whose bandwidth nobody
    said."""

    topology: Topology
    places: Mapping[str, Place]
    assumed: tuple[str, ...] = ()


def topology_from(found: Any) -> ReadTopology:
    """From plain data: the name of a preset, or a description. Every complaint is an ``InputError``."""
    if isinstance(found, str):
        found = {"preset": found}
    names = found.get("nodes") if isinstance(found, Mapping) and "preset" in found else None
    if names is None:
        topology = topology_of(found)
    else:
        rest = {key: value for key, value in found.items() if key != "nodes"}
        topology = _named(topology_of(rest), names)
    if "tree" in found or "slurm" in found:
        there = set(topology.nodes)
        places = places_in(found["tree"]) if "tree" in found else read_topology(found["slurm"])
        places = {name: place for name, place in places.items() if name in there}
        said = {str(level) for key in ("bandwidths", "levels") for level in found.get(key, ())}
        said |= {"node"} if "port" in found else set()
        assumed = tuple(level.name for level in topology.levels if level.name not in said)
    else:
        places, assumed = topology.around(), ()
    return ReadTopology(topology, places, assumed)


def topology_in(text: str | bytes) -> ReadTopology:
    """From a file: as ``topology_from``, or whatever says which part each node is in."""
    plain: Any = None
    if _SLURM not in (text.encode() if isinstance(text, str) else text):
        plain = read_yaml(text, LIMIT)
    if isinstance(plain, str) or (isinstance(plain, Mapping) and any(key in plain for key in _DESCRIBED)):
        return topology_from(plain)
    return with_usual_bandwidths(read_topology(text))


def with_usual_bandwidths(places: Mapping[str, Place]) -> ReadTopology:
    """Of a machine of which only the places of nodes are known."""
    topology = slurm_tree(places)
    return ReadTopology(topology, places, tuple(level.name for level in topology.levels))


def _named(topology: Topology, names: Any) -> Topology:
    """With these names of its nodes for jobs, in their order."""
    fine = isinstance(names, str | list) and all(isinstance(one, str | int) for one in names)
    insist(fine, "nodes", names, "names of nodes: nid[000-187]")
    with within("nodes"):
        given = [one for word in ([names] if isinstance(names, str) else names) for one in hosts(str(word))]
    there = topology.nodes
    fine = len(set(given)) == len(given) == len(there)
    insist(fine, "nodes", f"{len(given):,} names", f"{len(there):,} different ones, as the network has nodes")
    return topology.renamed({old: (new,) for old, new in zip(there, given, strict=True)})
