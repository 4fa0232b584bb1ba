"""What would start now: how many nodes for how long, in each partition."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from dask_hpc.planning.asks.node_sets import PieceMap
from dask_hpc.planning.asks.queue import QueueView
from dask_hpc.planning.asks.replay import Replay
from dask_hpc.planning.asks.shapes import seen_end, whole


@dataclass(frozen=True, slots=True)
class QueueHole:
    """A job of up to ``nodes`` units (whole nodes, or pieces of the size asked about) for up to ``seconds``
    starts now, by walltimes. ``until`` says what comes then."""

    partition: str
    nodes: int
    seconds: float
    until: str


def holes_of(
    view: QueueView, cores: int = 0, memory: float = 0.0, resolution: float = 60.0
) -> list[QueueHole]:
    """All of them, the largest of each partition first; each next one is smaller and lasts longer."""
    pieces = PieceMap.of(view, cores, memory)
    profile, planned = Replay(view, pieces, courses=1).plan()
    found: list[QueueHole] = []
    for part in view.partitions.values():
        for end, nodes in profile.free_for(pieces.in_partition(part)):
            seconds = min(seen_end(end, resolution) - view.now, part.max_time)
            seconds = whole(seconds, resolution)
            is_more = not found or found[-1].partition != part.name or found[-1].seconds < seconds
            nodes = int(min(nodes, part.max_nodes))
            if seconds <= 0 or nodes < part.min_nodes or not is_more:
                continue
            until = next(_until(view, planned, end, part.max_time), "")
            found.append(QueueHole(part.name, nodes, seconds, until))
    return found


def free_over_time(view: QueueView, cores: int = 0, memory: float = 0.0) -> list[tuple[float, int]]:
    """How many units are free beside all who run and wait, by walltimes: seconds from now, and the number
    from then on."""
    profile, _ = Replay(view, PieceMap.of(view, cores, memory), courses=1).plan()
    steps = zip(profile.times, profile.free, strict=True)
    return [(time - view.now, free.bit_count()) for time, free in steps]


def _until(view: QueueView, planned: dict[str, float], end: float, longest: float) -> Iterator[str]:
    if longest < inf and end - view.now >= longest:
        yield "the limit of the partition"
    yield from (f"job {job} starts" for job, time in planned.items() if time == end)
    yield from (f"{one.name} begins" for one in view.reserved if one.start == end)
