"""Backup tasks: what runs for too long at the end of a stage runs elsewhere as well."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.strategies.strategy import TailStrategy
from dask_hpc.strategies.tail.tail_view import BackupCopy, TailTask, TailView


@dataclass(frozen=True, slots=True)
class BackupTasks(TailStrategy):
    """What runs for too long at the end of a stage runs elsewhere as well, and the first result counts.

    Work 003, 4.3 keeps replicas of all that is critical; it finds them of no use where all nodes are busy.
    So ours are made only of threads that have nothing to do, and for the slowest: a task that has run for
    ``factor`` times what its kind takes. Nobody knows how long it goes on: as long again, by what is known of
    such tasks, and a copy takes what is usual. On a node that is known to be slow it is known how long: a
    copy that ends before begins at once. Tasks of which nobody knows what is usual are left alone.
    """

    name: ClassVar[str] = "backup-tasks"
    essential = ("factor", "hold")

    factor: Annotated[
        float, Parameter("a task that has run so many times as long as usual runs twice", low=1.1)
    ] = 1.5
    least: Annotated[float, Parameter("a task that has run for less does not run twice", "s", low=0)] = 0.05
    known: Annotated[
        int, Parameter("tasks of a kind that must have ended: before, nobody knows what is usual", low=1)
    ] = 3
    share: Annotated[float, Parameter("second runs at once, as a share of all threads", low=0, high=1)] = 0.5
    slow: Annotated[
        float,
        Parameter(
            "a node whose tasks take so many times as long as elsewhere, and not by chance, is slow", low=1.2
        ),
    ] = 2.5
    hold: Annotated[bool, Parameter("let slow nodes start nothing more, as long as that can be")] = False

    def decide(self, view: TailView, memory: Any) -> tuple[Sequence[BackupCopy], Any]:
        """The tasks that run twice from now on, those that are left the longest first."""
        left = int(self.share * view.threads) - view.copies
        late = [(self._gain(task, view), task) for task in view.tasks]
        late = [(gain, task) for gain, task in late if gain > 0]
        late.sort(key=lambda one: -one[0])
        free = {one.address: one.threads for one in view.spare}
        copies = []
        for _, task in late[: max(0, left)]:
            # the one with the most threads to spare: it has done the most of its own
            places = [
                (one.node in view.slow, -free[one.address], one.address)
                for one in view.spare
                if free[one.address] and one.node != task.node
                and (task.allowed is None or one.address in task.allowed)
                and view.slow.get(one.node, 1.0) < view.slow.get(task.node, self.slow)
            ]  # fmt: skip
            if places:
                address = min(places)[2]
                free[address] -= 1
                copies.append(BackupCopy(task.key, task.kind, task.node, address, self._reason(task, view)))
        return copies, None

    def _gain(self, task: TailTask, view: TailView) -> float:
        """How much sooner a copy probably ends."""
        usual = view.usual.get(task.kind)
        if usual is None or usual.tasks < self.known or not usual.seconds:
            return -inf
        if task.node in view.slow:
            left = view.slow[task.node] * usual.seconds - task.seconds
            if left > max(usual.seconds, self.least):
                return left - usual.seconds
        if task.seconds < max(self.factor * usual.seconds, self.least):
            return -inf
        return task.seconds

    def _reason(self, task: TailTask, view: TailView) -> str:
        usual = f"others take {view.usual[task.kind].seconds:.3g} s"
        slow = view.slow.get(task.node)
        known = "" if slow is None else f", and its node takes {slow:.1f} times as long"
        return f"runs for {task.seconds:.3g} s, {usual}{known}"
