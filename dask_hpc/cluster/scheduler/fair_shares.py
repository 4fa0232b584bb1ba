"""Fair shares: outside of jobs, the tasks of different clients take turns, by start-time fair queuing.

Dask runs what was submitted first, so a client with ten tasks waits behind another's ten thousand. Here
every new task gets a virtual start time, its tag, in the place of the generation in its priority. A
client's tags follow each other at a distance of 1/weight, from where its last ended or from the virtual
time of the present, whichever is later. The order within a client is kept, and user priorities go before
everything, as ever. (P. Goyal et al., SIGCOMM 1996; a task counts 1, whatever it takes. Virtual time is
the tag of what has been done last, not of what runs: then it is right as well for tasks that Dask sends
to workers without queuing.)

What a task submits keeps the better priority that Dask gives it.
"""

from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

from dask_hpc import dask as compat


@dataclass(slots=True)
class Flow:
    """What one client submitted at one user priority."""

    level: float
    step: float = 1.0
    #: tasks that are not done, and where the tag of the last one ends
    left: int = 0
    end: float = -inf


#: of a task that is not done: in which flow it is, and where
Tag = tuple[Flow, float]


class VirtualTime:
    """The arithmetic. User priorities are levels of their own, each with its own time."""

    def __init__(self, start: float, tagged: dict[Hashable, Tag] | None = None) -> None:
        self._start = start
        self._now: dict[float, float] = {}
        self._flows: dict[tuple[str, float], Flow] = {}
        self._tagged = {} if tagged is None else tagged
        #: no tag goes beyond it
        self.end = start

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tagged

    def now(self, level: float) -> float:
        """The tag of what was done last."""
        return self._now.get(level, self._start)

    def tag(self, client: str, level: float, weight: float, key: Hashable) -> float:
        """The tag of a client's next task."""
        flow = self._flows.get((client, level))
        if flow is None:
            flow = self._flows[client, level] = Flow(level)
        tag = max(self.now(level), flow.end)  # no credit for having been idle
        flow.step = 1 / weight
        flow.left += 1
        flow.end = tag + flow.step
        self.end = max(self.end, flow.end)
        self._tagged[key] = flow, tag
        return tag

    def settle(self, key: Hashable, is_done: bool) -> None:
        """A task is done, or will not be."""
        found = self._tagged.pop(key, None)
        if found is None:
            return
        flow, tag = found
        if is_done and tag > self._now.get(flow.level, self._start):
            self._now[flow.level] = tag
        flow.left -= 1
        if not flow.left:  # no debt for what was cancelled: behind others by no more than one task
            flow.end = min(flow.end, self.now(flow.level) + flow.step)

    def forget(self, client: str) -> None:
        """A client is gone."""
        for known in [known for known in self._flows if known[0] == client]:
            del self._flows[known]


class FairShares:
    """Tags the tasks of a scheduler that are in no job."""

    def __init__(
        self, scheduler: Any, weights: Any, owned: Container[Hashable], tagged: dict[Hashable, Tag]
    ) -> None:
        self._scheduler = scheduler
        #: by the names of clients, ``Client(name=...)``; others have 1
        self.weights: dict[str, float] = weights if isinstance(weights, dict) else {}
        self._owned = owned
        # What is there already was submitted first.
        self._tagged = tagged
        self.time = VirtualTime(compat.generation(scheduler) + 1, tagged)

    def graph_arrives(self, client: str, keys: Iterable[Hashable]) -> None:
        """A client submits tasks; none has moved yet."""
        new: list[tuple[tuple[float, float, float], Hashable, Any]] = []
        for key in keys:
            if key not in self.time and key not in self._owned:
                task = compat.find_task(self._scheduler, key)
                order = task.priority
                if order is not None and compat.is_new(task):
                    new.append((order, key, task))
        new.sort(key=lambda one: one[0])
        weight = self.weights.get(compat.client_name(client), 1.0)
        for order, key, task in new:
            compat.set_generation(task, self.time.tag(client, order[0], weight, key))

    def end(self) -> None:
        """No more tags: what comes now comes after everything that has one."""
        self._tagged.clear()
        compat.raise_generation(self._scheduler, self.time.end)
