"""Which waiting task with a deadline goes to which node, so that few nodes are used (seed 003, 2.6.3).

Three heuristics that take tasks of least slack first, and for each the fullest node that will do. *Naive
slack* (Algorithm 4) believes that a task takes as long as alone; *aware slack* (Algorithm 5) predicts when
all tasks of a node will end with the new one among them, and takes a node only if all keep their deadlines;
*perfect* is the same with the true slowdowns. As printed, the flag for a node that was found is never reset,
and tasks would go to the node of an earlier one; here it is one for each task, as the text has it (digest,
G2).

What makes it fast is ours, and changes no answer. All tasks of one kind are alike but for their deadlines, so
that one prediction for a node and a kind decides for all of them. In one instant only a node that got a task
is predicted anew; with time all of them change, and are predicted together, as arrays.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from dask_hpc.model.errors import insist
from dask_hpc.planning.colocation.table import SlowdownTable, ends_by_table


class WaitingTask(NamedTuple):
    """In the order in which it is taken: the least slack first, then as they came."""

    #: seconds on the clock after which it cannot end in time even alone: its slack is that less the time now
    latest_start: float
    number: int
    kind: int
    deadline: float


class Assigned(NamedTuple):
    """A task that starts now on a node."""

    task: WaitingTask
    node: int


@dataclass(slots=True)
class WaitingTasks:
    """Tasks by kind, each in the order in which they are taken."""

    kinds: int
    _queues: list[list[WaitingTask]] = field(init=False)

    def __post_init__(self) -> None:
        self._queues = [[] for _ in range(self.kinds)]

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __iter__(self) -> Iterator[WaitingTask]:
        return iter(sorted(task for queue in self._queues for task in queue))

    def add(self, task: WaitingTask) -> None:
        """It has come."""
        insort(self._queues[task.kind], task)

    def remove(self, task: WaitingTask) -> None:
        """It has a node."""
        queue = self._queues[task.kind]
        place = bisect_right(queue, task) - 1
        insist(place >= 0 and queue[place] == task, "task", task, "one that waits")
        del queue[place]

    def drop_late(self, now: float) -> list[WaitingTask]:
        """Those that cannot end in time any more: they have no slack, so that none of the heuristics takes
        them."""
        late = []
        for queue in self._queues:
            count = bisect_right(queue, now, key=lambda task: task.latest_start)
            late += queue[:count]
            del queue[:count]
        return late

    def first(self, kind: int, deadline: float, after: WaitingTask | None) -> WaitingTask | None:
        """The next of a kind that is due after that time. Of one kind, who is due first has least slack."""
        queue = self._queues[kind]
        place = bisect_right(queue, deadline, key=lambda task: task.deadline)
        if after is not None:
            place = max(place, bisect_right(queue, after))
        return queue[place] if place < len(queue) else None

    def waiting_kinds(self) -> list[int]:
        """Kinds of which a task waits."""
        return [kind for kind, queue in enumerate(self._queues) if queue]


class NodeTable:
    """Which tasks run on which cores, and how much work each has left, as one table of slowdowns has it."""

    def __init__(self, table: SlowdownTable, nodes: int) -> None:
        insist(nodes >= 1, "nodes", nodes, "1 or more")
        shape = (nodes, table.cores)
        self.table = table
        self.kinds = np.full(shape, table.idle)
        self.deadlines = np.full(shape, inf)
        self.free = np.full(nodes, table.cores)
        self._work = np.full(shape, inf)
        self._slower = np.full(shape, inf)
        self._since = np.zeros(nodes)

    def __len__(self) -> int:
        return len(self.free)

    def work(self, nodes: np.ndarray, now: float) -> np.ndarray:
        """Seconds of work that tasks have left, as they would take alone; inf of idle cores."""
        passed = (now - self._since[nodes])[:, None]
        return np.maximum(self._work[nodes] - passed / self._slower[nodes], 0.0)

    def start(self, node: int, kind: int, work: float, deadline: float, now: float) -> int:
        """A task begins; on which core."""
        insist(bool(self.free[node]), "node", node, "one with an idle core")
        self._go_on(node, now)
        core = int((self.kinds[node] == self.table.idle).argmax())
        self._put(node, core, kind, work, deadline)
        return core

    def end(self, node: int, core: int, now: float) -> None:
        """What runs on a core has ended, or is removed."""
        insist(bool(self.kinds[node, core] != self.table.idle), "core", core, "one with a task")
        self._go_on(node, now)
        self._put(node, core, self.table.idle, inf, inf)

    def next_end(self, node: int) -> tuple[float, int]:
        """When the first task of a node ends, or reaches its deadline, and on which core."""
        ends = np.minimum(self.ends(node), self.deadlines[node])
        core = int(ends.argmin())
        return float(ends[core]), core

    def ends(self, node: int) -> np.ndarray:
        """When each task of a node would end if nothing changed on it."""
        return self._since[node] + self._work[node] * self._slower[node]

    def _go_on(self, node: int, now: float) -> None:
        row = self._work[node] - (now - self._since[node]) / self._slower[node]
        np.maximum(row, 0.0, out=self._work[node])
        self._since[node] = now

    def _put(self, node: int, core: int, kind: int, work: float, deadline: float) -> None:
        kinds = self.kinds[node]
        self.free[node] += int(kind == self.table.idle) - int(kinds[core] == self.table.idle)
        kinds[core], self._work[node, core], self.deadlines[node, core] = kind, work, deadline
        self._slower[node] = self.table.values[self.table.places[kinds].sum(), kinds]


def naive_slack(waiting: WaitingTasks, free: Sequence[int] | np.ndarray, now: float) -> list[Assigned]:
    """Algorithm 4: the slack does not depend on the node, so each task that has some goes to the fullest one
    with an idle core, of equals the first. ``free``: idle cores of each node."""
    counts = np.asarray(free)
    order = [(int(counts[node]), int(node)) for node in np.flatnonzero(counts)]
    heapify(order)
    found = []
    for task in waiting:
        if not order:
            break
        if task.latest_start <= now:
            continue
        count, node = heappop(order)
        found.append(Assigned(task, node))
        if count > 1:
            heappush(order, (count - 1, node))
    return found


def aware_slack(
    waiting: WaitingTasks,
    nodes: NodeTable,
    now: float,
    alone: Sequence[float],
    table: SlowdownTable | None = None,
) -> list[Assigned]:
    """Algorithm 5: the fullest node, of equals the first, on which all tasks keep their deadlines by
    ``table`` (that of the nodes unless given). ``alone``: seconds of a task of each kind. With the true table
    and the true work that is left this is *perfect*.

    Neither ``waiting`` nor ``nodes`` changes: who carries it out changes them.
    """
    kinds = waiting.waiting_kinds()
    places = np.flatnonzero(nodes.free)
    if not kinds or not len(places):
        return []
    places = places[np.argsort(nodes.free[places], kind="stable")]
    # empty nodes are all alike, and come last: no more of them are needed than there are tasks
    some = int((nodes.free[places] < nodes.table.cores).sum())
    places = places[: some + len(waiting)]
    believed = _Believed(table or nodes.table, nodes, places, now, alone, kinds)
    found: list[Assigned] = []
    last: WaitingTask | None = None
    while left := [kind for kind in kinds if waiting.first(kind, -inf, last)]:
        next_ones = (waiting.first(kind, believed.earliest(kind), last) for kind in left)
        tasks = [task for task in next_ones if task is not None]
        if not tasks:
            break
        last = min(tasks)
        found.append(Assigned(last, believed.take(last)))
    return found


class _Believed:
    """Nodes with idle cores, the fullest first, and when a task of each kind that waits would end on each."""

    def __init__(
        self,
        table: SlowdownTable,
        nodes: NodeTable,
        places: np.ndarray,
        now: float,
        alone: Sequence[float],
        kinds: Sequence[int],
    ) -> None:
        self._table = table
        self._now = now
        self._alone = alone
        self._kinds = kinds
        self._nodes = places
        self._free = nodes.free[places]
        self._running = nodes.kinds[places]
        self._due = nodes.deadlines[places]
        self._work = nodes.work(places, now)
        #: a row for each kind; inf where somebody would miss a deadline
        self._ends = self._predicted(np.arange(len(places)))
        #: where a task was put since, if somewhere
        self._changed: int | None = None

    def _predicted(self, rows: np.ndarray) -> np.ndarray:
        running, work, due = self._running[rows], self._work[rows], self._due[rows] - self._now
        core, each = (running == self._table.idle).argmax(axis=1), np.arange(len(rows))
        shape = (len(self._kinds), *running.shape)
        together, left = np.empty(shape, running.dtype), np.empty(shape)
        together[:], left[:] = running, work
        for number, kind in enumerate(self._kinds):
            together[number, each, core], left[number, each, core] = kind, self._alone[kind]
        flat = (-1, running.shape[1])
        ends = ends_by_table(self._table, together.reshape(flat), left.reshape(flat)).reshape(shape)
        own = ends[:, each, core]
        # a task without slack, and one whose deadline is now, would miss it
        others = np.where(ends < due, True, np.isinf(due)).all(axis=2)
        return np.where(others, self._now + own, inf)

    def earliest(self, kind: int) -> float:
        """When a task of a kind ends where that is soonest."""
        if self._changed is not None:
            self._move_up(self._changed)
            self._changed = None
        return float(self._ends[self._kinds.index(kind)].min())

    def take(self, task: WaitingTask) -> int:
        """The node for a task, on which it is from now on."""
        row = self._kinds.index(task.kind)
        at = int((self._ends[row] < task.deadline).argmax())
        core = int((self._running[at] == self._table.idle).argmax())
        self._running[at, core], self._work[at, core] = task.kind, self._alone[task.kind]
        self._due[at, core] = task.deadline
        self._free[at] -= 1
        self._changed = at
        return int(self._nodes[at])

    def _move_up(self, at: int) -> None:
        """A node that has become fuller comes before others that have not; unless it is full it is predicted
        anew."""
        node, free = self._nodes[at], self._free[at]
        before = (self._free[:at] < free) | ((self._free[:at] == free) & (self._nodes[:at] < node))
        target = int(before.sum())
        order = np.arange(len(self._nodes))
        order[target : at + 1] = np.roll(order[target : at + 1], 1)
        for name in ("_nodes", "_free", "_running", "_due", "_work"):
            setattr(self, name, getattr(self, name)[order])
        self._ends = self._ends[:, order]
        self._ends[:, [target]] = self._predicted(np.array([target])) if free else inf
