"""One iteration as it was measured, from the records of its tasks and the client's clock.

The simulation's time is the client's, from when a step could begin to when it was known to be done. Time in
situ is that in which a node's helper cores had something to do. Staging nodes are busy, besides, from when
what they need has left the simulation's nodes. Clocks of hosts are believed; a transfer that would have
ended before it began took no time.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from dask_hpc.live.in_situ.measured import SIMULATION, Move, Observed, Timing
from dask_hpc.live.in_situ.orders import Finished
from dask_hpc.live.in_situ.record import Record
from dask_hpc.model.partition import Phases

_LOOKS = ("analysis", "combine")


class Span(NamedTuple):
    """Seconds of some clock."""

    start: float
    stop: float


class Observer:
    """Makes one observation of each iteration; remembers what the next one has to know of the last."""

    def __init__(self, wholes: Collection[str]) -> None:
        #: the analyses that see the whole state at once
        self._wholes = wholes
        self._stepped = float("-inf")
        self._held = 0.0
        #: by staging worker, until when it was busy with earlier iterations
        self._until: dict[str, float] = {}

    def observe(self, done: Finished) -> Observed:
        """An iteration is done, the one after the last that was observed."""
        places = done.orders.places
        inside = [one for one in done.records if one.part in _LOOKS and one.side == "in situ"]
        in_situ = max(map(total, spans_by_worker(inside)), default=0.0)
        in_transit, moving = self._staged(done.records)
        step = max(0.0, done.stepped - max(done.submitted, self._stepped))
        if places.mode == "sync":  # it waited for what ran in situ before
            step = max(0.0, step - self._held)
        self._stepped, self._held = done.stepped, in_situ
        timings = [self._timing(one) for one in done.records if one.part not in ("parcel", "carry")]
        moves = _moves(done.records, moving, max(1, len({place.node for place in places.staging})))
        return Observed(timings, moves, Phases(step, in_situ, in_transit))

    def _staged(self, records: Sequence[Record]) -> tuple[float, float]:
        """Seconds in which the busiest staging worker was busy, and how long of it nothing ran there."""
        left: dict[str, float] = {}
        for one in records:
            if one.part == "parcel":
                left[one.name] = max(left.get(one.name, one.stop), one.stop)
        by_worker: dict[str, list[Record]] = {}
        for one in records:
            if one.part in _LOOKS and one.side == "in transit":
                by_worker.setdefault(one.worker, []).append(one)
        found = [(0.0, 0.0)]
        for worker, ran in by_worker.items():
            until = self._until.get(worker, float("-inf"))
            spans = [
                Span(min(one.start, max(until, left.get(one.name, left.get("", one.start)))), one.stop)
                for one in ran
            ]
            busy = total(spans)
            found.append((busy, busy - total([Span(one.start, one.stop) for one in ran])))
            self._until[worker] = max(until, *(one.stop for one in ran))
        return max(found)

    def _timing(self, one: Record) -> Timing:
        blocks = 0 if one.part == "combine" or one.name in self._wholes else len(one.blocks)
        part = SIMULATION if one.part == "step" else one.name
        return Timing(part, one.worker, one.wall, one.cpu, blocks, one.bytes_in + one.bytes_out)


def total(spans: Iterable[Span]) -> float:
    """Seconds that at least one of them covers."""
    seconds, until = 0.0, float("-inf")
    for span in sorted(spans):
        seconds += max(0.0, span.stop - max(span.start, until))
        until = max(until, span.stop)
    return seconds


def spans_by_worker(records: Iterable[Record]) -> Iterable[list[Span]]:
    """When each worker was busy with these."""
    by_worker: dict[str, list[Span]] = {}
    for one in records:
        by_worker.setdefault(one.worker, []).append(Span(one.start, one.stop))
    return by_worker.values()


def _moves(records: Iterable[Record], seconds: float, staging: int) -> list[Move]:
    """By analysis, what left the simulation's nodes for it. A parcel for several is the first one's: it is
    moved once for all of them."""
    sizes: dict[str, int] = {}
    for one in records:
        if one.part == "parcel":
            sizes[one.name] = sizes.get(one.name, 0) + one.bytes_out
    together = sum(sizes.values())
    return [Move(name, size, staging * seconds * size / together) for name, size in sizes.items() if together]
