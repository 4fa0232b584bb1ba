"""The network of a machine: levels of parts within parts, and the links that join them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from sys import float_info
from typing import Literal, get_args

from dask_hpc.model.errors import InputError, insist, is_number, shown, within

Links = Literal["all-to-all", "tree"]
LINKS: tuple[Links, ...] = get_args(Links)

#: of presets: an Aries link between blades and chassis, an optical one, and a port of 100 Gbit/s
_COPPER, _OPTICAL, _PORT = 14e9, 12.5e9, 12.5e9
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class LinkLevel:
    """How the parts of one level are joined; each link carries ``bandwidth`` bytes a second each way.

    With ``links`` "all-to-all" a part is joined with every other one within the same outer part, by one link
    between all that have the same place within their part: blade 3 of a chassis with blade 3 of every other
    chassis. In a "tree" each part has one link, up to the switch of the part around it.
    """

    name: str
    bandwidth: float
    links: Links = "tree"

    def __post_init__(self) -> None:
        insist(type(self.name) is str and self.name != "", "level", self.name, "a name")
        with within(f"level {self.name}"):
            insist(self.links in LINKS, "links", self.links, ", ".join(LINKS))
            _insist_on_bandwidth("bandwidth", self.bandwidth)

    @property
    def is_tree(self) -> bool:
        """Whether its parts hang below a switch."""
        return self.links == "tree"


@dataclass(frozen=True, slots=True)
class Topology:
    """A graph by coordinates: ``levels`` from the outermost in, and of each node the part that it is in at
    each of them. Links are full duplex.

    Outer levels may be joined all to all, and then there is a router at every combination of their parts;
    trees hang below the routers, or below one switch where there are none. Nodes of the same place share all
    links. Jobs run on ``nodes``; those of ``service`` lead to the store.
    """

    levels: tuple[LinkLevel, ...]
    places: Mapping[str, tuple[str, ...]] = field(hash=False)
    service: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        insist(len(self.levels) > 0, "topology", (), "at least one level")
        insist(0 < len(self.places) <= _MOST, "topology", f"{len(self.places)} nodes", f"1 to {_MOST:,}")
        names = [level.name for level in self.levels]
        insist(len(set(names)) == len(names), "levels", names, "each name once")
        trees = [level.is_tree for level in self.levels]
        insist(
            trees == sorted(trees), "levels", "a tree around parts that are joined all to all", "trees inside"
        )
        for name, place in self.places.items():
            fine = len(place) == len(names) and all(type(part) is str and part for part in place)
            insist(fine, f"node {shown(name)}", place, f"the names of its {', '.join(names)}")
        for name in self.service:
            insist(name in self.places, "service", name, "nodes of the topology")
        insist(len(self.nodes) > 0, "topology", "service nodes alone", "nodes for jobs")
        self._insist_on_all_routers()

    @property
    def lattice(self) -> tuple[LinkLevel, ...]:
        """The levels that are joined all to all."""
        return tuple(level for level in self.levels if not level.is_tree)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those for jobs, in the order of their places."""
        service = set(self.service)
        return tuple(name for name in self.places if name not in service)

    @property
    def smallest(self) -> float:
        """The bandwidth of the narrowest link."""
        return min(level.bandwidth for level in self.levels)

    def within(self, part: Sequence[str]) -> tuple[str, ...]:
        """The nodes for jobs in a part, which is named from the outermost in."""
        wanted, depth = tuple(part), len(part)
        return tuple(name for name in self.nodes if self.places[name][:depth] == wanted)

    def domains(self) -> dict[str, tuple[str, ...]]:
        """The nodes for jobs by outermost part: what fails together, and where no partner should be."""
        found: dict[str, list[str]] = {}
        for name in self.nodes:
            found.setdefault(self.places[name][0], []).append(name)
        return {part: tuple(names) for part, names in found.items()}

    def around(self) -> dict[str, tuple[str, ...]]:
        """Of each node for jobs the parts around it. Where each node has a place of its own, the last part is
        the node itself."""
        last = None if len(set(self.places.values())) < len(self.places) else -1
        return {name: self.places[name][:last] for name in self.nodes}

    def renamed(self, names: Mapping[str, Sequence[str]]) -> "Topology":
        """With other names of nodes. One that gets several stands for as many, all at its place; one that
        gets none keeps its own."""
        places = {new: place for old, place in self.places.items() for new in names.get(old, (old,))}
        service = [new for old in self.service for new in names.get(old, (old,))]
        return Topology(self.levels, places, tuple(service))

    def insist_on(self, nodes: Iterable[str], where: str) -> None:
        """Complain of the first of these that is not here, or not for jobs."""
        service = set(self.service)
        for name in nodes:
            if name not in self.places:
                raise InputError(where, f"found {shown(name)}, which is not in the topology", "its nodes")
            if name in service:
                raise InputError(where, f"found {shown(name)}, which is a service node", "nodes for jobs")

    def _insist_on_all_routers(self) -> None:
        """Then there is a minimal way from each to each, whatever is changed first."""
        depth = len(self.lattice)
        there = {place[:depth] for place in self.places.values()}
        parts = [list(dict.fromkeys(router[at] for router in there)) for at in range(depth)]
        if len(there) == prod(map(len, parts)):
            return
        if alone := there - _reached(there):
            found = f"nothing joins {_slashed(min(there - alone))} with {_slashed(min(alone))}"
            raise InputError(
                "topology", f"{found}: parts are joined where they have equal names", "a graph in one piece"
            )
        missing = next(router for router in product(*parts) if router not in there)
        found = f"there is nothing at {_slashed(missing)}"
        raise InputError("topology", found, "a node at each combination of parts that are joined all to all")


def _reached(routers: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """All that can be reached from the first, step by step."""
    lines: dict[tuple[int, tuple[str, ...]], list[tuple[str, ...]]] = {}
    for router in routers:
        for at in range(len(router)):
            lines.setdefault((at, router[:at] + router[at + 1 :]), []).append(router)
    first = min(routers)
    found, left = {first}, [first]
    while left:
        router = left.pop()
        for at in range(len(router)):
            for other in lines.pop((at, router[:at] + router[at + 1 :]), ()):
                if other not in found:
                    found.add(other)
                    left.append(other)
    return found


def _slashed(place: Sequence[str]) -> str:
    return "/".join(place)


def xc30(cabinets: int = 2, chassis: int = 6, blades: int = 16, *, service: bool = True) -> Topology:
    """A Cray XC30 by blades, as in seed 003, 7.3.1: all blades of a chassis are joined, equal blades of the
    chassis of a cabinet, and equal blades of cabinets. The first and the last blade of each cabinet lead to
    the store, unless ``service`` is False, when they are as the others.

    The source does not say which blades those are; opposite corners is what it says.
    """
    _insist_on_counts(cabinets=cabinets, chassis=chassis, blades=blades)
    levels = (
        LinkLevel("cabinet", _OPTICAL, "all-to-all"),
        LinkLevel("chassis", _COPPER, "all-to-all"),
        LinkLevel("blade", _COPPER, "all-to-all"),
    )
    places = {
        f"cabinet{one}-chassis{two}-blade{three}": (f"cabinet{one}", f"chassis{two}", f"blade{three}")
        for one, two, three in product(range(cabinets), range(chassis), range(blades))
    }
    corners = ("chassis0-blade0", f"chassis{chassis - 1}-blade{blades - 1}") if service else ()
    leads = [f"cabinet{one}-{corner}" for one in range(cabinets) for corner in corners]
    return Topology(levels, places, tuple(dict.fromkeys(leads)))


def fat_tree(
    arity: int = 16, levels: int = 2, *, bandwidth: float = _PORT, oversubscription: float = 1.0
) -> Topology:
    """Switches with ``arity`` parts below each, on so many ``levels``, and nodes below the last. Each node
    has a port of ``bandwidth``; what leads up from a switch carries what all ports below it can send, over
    the ``oversubscription`` of the leaf switches."""
    _insist_on_counts(arity=arity, levels=levels)
    insist(arity**levels <= _MOST, "fat-tree", f"{arity}^{levels} nodes", f"at most {_MOST:,}")
    _insist_on_share(oversubscription)
    # the outermost switch has nothing above it
    names = [*(f"switch{depth}" for depth in range(1, levels)), "node"]
    found = []
    for depth, name in enumerate(names, 1):
        below = arity ** (levels - depth)
        found.append(LinkLevel(name, bandwidth * below / (oversubscription if below > 1 else 1)))
    places = {}
    for number, way in enumerate(product(range(arity), repeat=levels)):
        inner = [f"switch{depth}-{way[depth - 1]}" for depth in range(1, levels)]
        places[f"node{number}"] = (*inner, f"node{number}")
    return Topology(tuple(found), places)


def slurm_tree(
    places: Mapping[str, Sequence[str]],
    bandwidths: Mapping[str, float] | None = None,
    *,
    port: float = _PORT,
    oversubscription: float = 2.0,
) -> Topology:
    """The tree of switches that ``planning.topology`` has read: the parts around each node.

    Each node has a ``port``, unless said otherwise 100 Gbit/s. What leads up from the switches of a level is
    as its ``bandwidths`` say by the level's name; where they do not, it carries what the ports of the
    largest switch of that level can send, over the ``oversubscription``: 2 unless said otherwise. A part
    that all nodes share is left out, as nothing has to leave it. A node with fewer parts around it than
    others counts as alone in those that it lacks.
    """
    insist(0 < len(places) <= _MOST, "topology", f"{len(places)} nodes", f"1 to {_MOST:,}")
    _insist_on_share(oversubscription)
    _insist_on_bandwidth("port", port)
    deepest = max(len(place) for place in places.values())
    # names of parts may be the same in different ones around them
    full = {
        name: (*place, *(name for _ in range(deepest - len(place))), name) for name, place in places.items()
    }
    shared = 0
    while shared < deepest and len({place[shared] for place in full.values()}) == 1:
        shared += 1
    full = {name: place[shared:] for name, place in full.items()}
    names = _level_names(full)
    given = dict(bandwidths or {})
    for name in given:
        insist(name in names, "bandwidths", name, ", ".join(names))
    levels = []
    for depth, name in enumerate(names[:-1], 1):
        sizes: dict[tuple[str, ...], int] = {}
        for place in full.values():
            sizes[place[:depth]] = sizes.get(place[:depth], 0) + 1
        usual = port * max(sizes.values()) / (1 if max(sizes.values()) == 1 else oversubscription)
        levels.append(LinkLevel(name, given.get(name, usual)))
    return Topology((*levels, LinkLevel(names[-1], given.get(names[-1], port))), full)


def _level_names(places: Mapping[str, tuple[str, ...]]) -> list[str]:
    """From the parts themselves, if they are numbered: cabinet0, cabinet1 are of the level "cabinet"."""
    depth = len(next(iter(places.values())))
    found: list[str] = []
    for at in range(depth - 1):
        words = {place[at].rstrip("0123456789").rstrip("-_.") for place in places.values()}
        word = words.pop() if len(words) == 1 else ""
        found.append(word if word and word not in (*found, "node") else f"level{at + 1}")
    return [*found, "node"]


def _insist_on_counts(**counts: int) -> None:
    for name, count in counts.items():
        fine = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= _MOST
        insist(fine, name, count, f"1 to {_MOST:,}")
    insist(
        prod(counts.values()) <= _MOST, "topology", f"{prod(counts.values()):,} parts", f"at most {_MOST:,}"
    )


def _insist_on_bandwidth(where: str, found: float) -> None:
    fine = is_number(found, 0, float_info.max) and found > 0
    insist(fine, where, found, "bytes a second, more than 0")


def _insist_on_share(oversubscription: float) -> None:
    fine = is_number(oversubscription, 1, float_info.max)
    insist(fine, "oversubscription", oversubscription, "1 or more")
