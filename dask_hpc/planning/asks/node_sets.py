"""Which nodes are free over time: reservations that know on which nodes they are.

``strategies.queue.profile.Profile`` counts free nodes, which is enough where every job may run everywhere.
Partitions overlap, maintenance takes certain nodes, and small jobs share nodes: here a set of pieces stands
for the number, one bit each. A *piece* is what one node gives to the unit that is asked for (its cores and
memory): a node that has room for three of them is three bits. What others hold of a node is rounded up to
pieces, and that pieces of one node belong together is not seen: a job of several pieces takes any.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, inf

from dask_hpc.planning.asks.queue import PendingAsk, QueueNode, QueuePartition, QueueView


class NodeProfile:
    """A step function of time: the pieces that are free from ``times[i]`` on. The last step lasts for
    ever."""

    __slots__ = ("free", "times")

    def __init__(self, now: float, free: int, ends: Iterable[tuple[float, int]] = ()) -> None:
        """``ends`` says when which pieces come free, in order of time."""
        self.times = [now]
        self.free = [free]
        for end, pieces in ends:
            if end <= self.times[-1]:
                self.free[-1] |= pieces
            elif end < inf:
                self.times.append(end)
                self.free.append(self.free[-1] | pieces)

    def copy(self) -> "NodeProfile":
        """An independent copy."""
        twin = NodeProfile.__new__(NodeProfile)
        twin.times, twin.free = list(self.times), list(self.free)
        return twin

    def earliest(self, count: int, duration: float, allowed: int, after: float = -inf) -> tuple[float, int]:
        """The first time from which ``count`` of the allowed pieces stay free for ``duration``, and all that
        do; infinity if never."""
        times, free = self.times, self.free
        for at in range(max(0, bisect_right(times, after) - 1), len(times)):
            pieces = free[at] & allowed
            if pieces.bit_count() < count:
                continue
            start = max(times[at], after)
            end = start + duration
            for later in range(at + 1, len(times)):
                if times[later] >= end:
                    break
                pieces &= free[later]
                if pieces.bit_count() < count:
                    break
            else:
                return start, pieces
            if pieces.bit_count() >= count:
                return start, pieces
        return inf, 0

    def free_for(self, pieces: int) -> list[tuple[float, int]]:
        """Of these pieces: until when how many are free without a break from the beginning on, in falling
        order of number."""
        found: list[tuple[float, int]] = []
        for at, free in enumerate(self.free):
            still = pieces & free
            if still != pieces:
                if pieces and at:
                    found.append((self.times[at], pieces.bit_count()))
                pieces = still
            if not pieces:
                return found
        return [*found, (inf, pieces.bit_count())]

    def take(self, start: float, pieces: int, duration: float) -> None:
        """Nobody else has these pieces from then on for so long."""
        first = self._step_at(start)
        last = self._step_at(start + duration) if start + duration < inf else len(self.times)
        for at in range(first, last):
            self.free[at] &= ~pieces

    def _step_at(self, time: float) -> int:
        if time <= self.times[0]:
            return 0
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at


def some_of(pieces: int, count: int) -> int:
    """The first ``count`` of these pieces."""
    surplus = pieces.bit_count() - count
    if surplus <= 0:
        return pieces
    if count <= surplus:
        found = 0
        for _ in range(count):
            lowest = pieces & -pieces
            found |= lowest
            pieces ^= lowest
        return found
    for _ in range(surplus):
        pieces ^= 1 << (pieces.bit_length() - 1)
    return pieces


@dataclass(frozen=True, slots=True)
class PieceMap:
    """The nodes of a queue cut into pieces of one size: each node's bits."""

    cores: int
    memory: float
    of_node: dict[str, int]
    all: int

    @classmethod
    def of(cls, view: QueueView, cores: int = 0, memory: float = 0.0) -> "PieceMap":
        """Pieces of so many cores and so much memory; of whole nodes with no cores."""
        bits: dict[str, int] = {}
        place = 0
        for node in view.nodes.values():
            count = _room(node.cores, node.memory, cores, memory) if node.is_up else 0
            bits[node.name] = ((1 << count) - 1) << place
            place += count
        return cls(cores, memory, bits, (1 << place) - 1)

    def on(self, nodes: Iterable[str]) -> int:
        """All pieces of these nodes."""
        found = 0
        for name in nodes:
            found |= self.of_node.get(name, 0)
        return found

    def in_partition(self, partition: QueuePartition) -> int:
        """All pieces of its nodes."""
        return self.on(partition.nodes) if partition.is_up else 0

    def needed_by(self, ask: PendingAsk, view: QueueView) -> int:
        """How many pieces a waiting job takes."""
        allowed = [view.partitions[name] for name in ask.partitions if name in view.partitions]
        most = max((view.nodes[name].cores for part in allowed for name in part.nodes[:1]), default=1)
        whole = _room(most, inf, self.cores, 0.0)
        if not ask.cores or ask.is_exclusive or any(part.is_exclusive for part in allowed):
            return ask.nodes * max(1, whole)
        if not self.cores:
            # jobs of few cores share a node that is wanted whole
            return max(1, ceil(ask.cores / most)) if ask.nodes <= 1 else ask.nodes
        each = ceil(ask.cores / max(1, ask.nodes) / self.cores)
        if self.memory:
            each = max(each, ceil(ask.memory / self.memory))
        return ask.nodes * min(max(each, 1), max(whole, 1))

    def now_free(self, view: QueueView) -> tuple[int, list[tuple[str, int]]]:
        """Pieces that nobody has, and which come free when which running job ends. Those of the last ones to
        end of each node are exact where each node's jobs say how many cores they have."""
        free, held = 0, dict.fromkeys((job.id for job in view.running), 0)
        by_node: dict[str, list[tuple[float, str, float]]] = {}
        for job in view.running:
            for name in job.nodes:
                share = job.cores / len(job.nodes) if job.cores else inf
                by_node.setdefault(name, []).append((job.ends, job.id, share))
        for name, pieces in self.of_node.items():
            node = view.nodes[name]
            here = sorted(by_node.get(name, ()))
            left = some_of(pieces, self._free_on(node, is_idle=not here))
            free |= left
            cores = float(node.free_cores)
            for at, (_, job_id, share) in enumerate(here):
                cores += share
                is_last = at + 1 == len(here)
                count = pieces.bit_count() if is_last else _room(min(cores, node.cores), inf, self.cores, 0.0)
                count = 0 if not is_last and not self.cores else count
                comes = some_of(pieces & ~left, max(0, min(count, pieces.bit_count()) - left.bit_count()))
                held[job_id] |= comes
                left |= comes
        return free, list(held.items())

    def _free_on(self, node: QueueNode, is_idle: bool) -> int:
        if not self.cores:
            return int(is_idle and node.free_cores >= node.cores)
        return _room(node.free_cores, node.free_memory, self.cores, self.memory)


def _room(has_cores: float, has_memory: float, cores: int, memory: float) -> int:
    """How many pieces fit."""
    if not cores:
        return int(has_cores >= 1)
    by_memory = floor(has_memory / memory) if memory and has_memory < inf else inf
    return int(max(0, min(floor(has_cores / cores), by_memory)))
