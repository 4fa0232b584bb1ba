"""Jobs on neighbouring nodes, so that they communicate over few switches."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Neighbourhood, Picked
from dask_hpc.strategies.strategy import NodesStrategy

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contiguous(NodesStrategy):
    """As near to each other as the idle nodes allow.

    A new job gets the smallest part of the machine that has enough idle nodes, of equally small ones the one
    with the fewest, so that large holes stay whole; within it, the parts with most idle nodes come first. A
    job that grows takes those nearest to what it has. What is taken first is given back last, so a job that
    shrinks leaves the part in which it has least.
    """

    name: ClassVar[str] = "contiguous"

    def pick(
        self, job: Job, count: int, idle: Sequence[str], held: Sequence[str], around: Neighbourhood
    ) -> Picked:
        """The nodes to take, in order."""
        nodes = around.nodes
        places = {name: nodes[name].place for name in idle}
        known = [nodes[name].place for name in held]
        if known:
            near = {name: max(_common(place, one) for one in known) for name, place in places.items()}
            chosen = list(idle)
            chosen.sort(key=lambda name: -near[name])  # equals stay in order
            least = near[chosen[count - 1]]
            sure = [name for name in chosen if near[name] > least]
            rest = [name for name in chosen if near[name] == least]
            return Picked(sure + _densest(rest, places, count - len(sure)))
        return Picked(_densest(list(idle), places, count))


def _densest(names: list[str], places: Mapping[str, Place], count: int) -> list[str]:
    """So many of them from as small a part of the machine as has them."""
    deepest = max((len(place) for place in places.values()), default=0)
    for depth in range(deepest, 0, -1):
        sizes = Counter(places[name][:depth] for name in names if len(places[name]) >= depth)
        fitting = [part for part, size in sizes.items() if size >= count]
        if fitting:
            best = min(fitting, key=sizes.__getitem__)
            names = [name for name in names if places[name][:depth] == best]
            break
    return _by_parts(names, places, count)


def _by_parts(names: list[str], places: Mapping[str, Place], count: int) -> list[str]:
    """From as few parts as possible, the outermost ones first: those with most of them come first."""
    sizes = Counter(place[:depth] for name in names for place in [places[name]] for depth in _depths(place))
    first = {part: number for number, part in enumerate(sizes)}  # equals stay in order

    def key(name: str) -> list[tuple[int, int]]:
        parts = [places[name][:depth] for depth in _depths(places[name])]
        return [(-sizes[part], first[part]) for part in parts]

    return sorted(names, key=key)[:count]


def _depths(place: Place) -> range:
    return range(1, len(place) + 1)


def _common(one: Place, other: Place) -> int:
    """How many parts of the machine, from the outermost in, they share."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    return shared
