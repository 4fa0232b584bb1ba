"""Backup tasks: when a stage waits for its last tasks while threads have nothing to do, the slowest run a
second time elsewhere, and the first result counts. Nodes that are slow are named.

1. Nothing is done for a task as such. While there are tasks, it is looked every so often whether threads have
   nothing to do although no task waits for one; only then at what runs. How long that runs is what its
   worker said last, or how long it was seen here.
2. What may run twice is what the policy's ``tail`` strategy names, but for tasks that are declared impure
   (``dask.annotate(impure=True)``, ``dask_hpc.job(impure=True)``), those of Dask's shuffles, actors, what
   needs a resource, what left its thread pool, and what another service counts, as reads.
3. Nothing is counted twice: Dask and we hear of one end of each task (``dask/copies.py``). A thread that
   computes in vain counts as busy.
4. How long tasks take on which node is in the heartbeats of workers, which have it in their logs anyway. A
   node that is held for being slow has no tasks any more: when the last ones are forgotten it is tried again.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from math import inf
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.service import Context, Samples, Service, Timer, WorkerSetting
from dask_hpc.model.story import Explanation
from dask_hpc.planning.slow_node import SlowNode, slow_nodes
from dask_hpc.strategies.tail.tail_view import BackupCopy, Spare, TailTask, TailView, Usual
from dask_hpc.tail.worker import METRIC, DurationPlugin

#: why slow nodes are held
WHY = "slow"
_OFTEN = 0.1  # of the time between two heartbeats of a worker: so often it is looked
_AT_REST = 3  # heartbeats after the last task, what was to be heard of it has been
_NEAR = 2  # tasks for each thread: with more of them the end of no stage is near
_KEPT = 20  # newest tasks of a kind and a node
_KINDS = 50
_FORGOTTEN = 120.0  # seconds after which a node that runs nothing is not known to be slow any more
_STILL = 0.75  # of the factor by which a node is named, down to which it remains so


class NodeDurations:
    """How long the newest tasks of each kind took on each node."""

    def __init__(self) -> None:
        self._times: dict[str, dict[str, deque[float]]] = {}
        self._heard: dict[str, float] = {}
        self._numbers: dict[str, int] = {}

    def hear(self, address: str, node: str, said: Any, now: float) -> bool:
        """What a worker said in its last heartbeat. Whether there is anything new."""
        if not isinstance(said, Mapping) or self._numbers.get(address) == said["number"]:
            return False
        self._numbers[address] = said["number"]
        for kind, seconds in said["seconds"].items():
            by_node = self._times.pop(kind, {})
            by_node.setdefault(node, deque(maxlen=_KEPT)).extend(seconds)
            self._times[kind] = by_node  # the newest last
            self._heard[node] = now
        for kind in list(self._times)[:-_KINDS]:
            del self._times[kind]
        return bool(said["seconds"])

    def forget(self, node: str) -> None:
        """It is gone."""
        self._heard.pop(node, None)
        for by_node in self._times.values():
            by_node.pop(node, None)

    def forget_worker(self, address: str) -> None:
        """It is gone; its node may have others."""
        self._numbers.pop(address, None)

    def silent(self, node: str, now: float) -> bool:
        """Whether it has told of no task for long."""
        return now - self._heard.get(node, -inf) > _FORGOTTEN

    def slow(self, factor: float) -> dict[str, SlowNode]:
        """The nodes that are slower than others by that factor."""
        return slow_nodes(self._times, factor)


class BackupRuns(Service):
    """Lets slow tasks run twice, and says which nodes are slow."""

    metrics = {
        "backup_runs": (True, "Tasks that were run a second time at the end of a stage"),
        "backup_runs_first": (True, "Second runs that ended before the first"),
        "slow_nodes": (False, "Nodes whose tasks take significantly longer than elsewhere"),
    }
    parts = {"backup": "backup"}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._said = WorkerSetting(context, DurationPlugin)
        self._timer = Timer(context, "backup tasks", self._look)

    # its life

    def begin(self) -> None:
        self._scheduler = self.context.scheduler
        self._runs = compat.ExtraRuns(self._scheduler, self._won, self._failed)
        self._strategy: Any = None
        self._durations = NodeDurations()
        self.slow: dict[str, SlowNode] = {}
        #: tasks that were sent, where, and since when they were seen to run: not yet, if that is endless
        self._seen: dict[Hashable, tuple[str, float]] = {}
        self._last_task = self._listened = -inf
        self.made = self.first = 0
        self.policy_changes()

    def policy_changes(self) -> None:
        if self.context.is_dry:
            return
        strategy = self.context.policy.tail
        if strategy == self._strategy:
            return
        self._strategy = strategy
        self._forget_slow_nodes()
        if strategy is None:
            self._stop()
            self._said.set(None)
        else:
            self._said.set(())  # it takes no values
            self._judge()
            self._wake()

    def release(self) -> None:
        self._strategy = None
        self._stop()
        self._said.set(None)

    async def settle(self) -> None:
        await self._said.settle()

    def cancel(self) -> None:
        self._timer.stop()
        self._said.cancel()

    def _stop(self) -> None:
        self._timer.stop()
        for key in list(self._runs.by_key):
            self._runs.withdraw(key)
        self._runs.clear()
        self.context.unwatch(self)
        self._forget_slow_nodes()
        self._seen.clear()

    def _forget_slow_nodes(self) -> None:
        for node in self.slow:
            self._let_work(node)
        self.slow = {}

    # what happens

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        self._wake()

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        self._runs.task_moves(key, finish)

    def tasks_vanish(self) -> None:
        self._runs.clear()
        self._seen.clear()

    def worker_leaves(self, address: str) -> None:
        self._runs.worker_leaves(address)
        self._durations.forget_worker(address)
        self._wake()  # its tasks go elsewhere

    def _wake(self) -> None:
        if self._strategy is not None and not self._timer.is_set:
            self._last_task = self.context.clock()
            self._timer.set(_OFTEN * compat.heartbeat_seconds(self._scheduler))

    def _won(self, key: Hashable, winner: str, loser: str) -> None:
        self.first += 1

    def _failed(self, error: Exception) -> None:
        self.context.count_error("backup tasks", error)

    # every so often

    def _look(self) -> None:
        context, scheduler = self.context, self._scheduler
        now, heartbeat = context.clock(), compat.heartbeat_seconds(scheduler)
        if compat.unfinished(scheduler):
            self._last_task = now
        if now - self._last_task < _AT_REST * heartbeat or self._runs.by_key or self.slow:
            self._timer.set(_OFTEN * heartbeat)
        if now - self._listened >= heartbeat / 2:
            self._listened = now
            self._listen(now)
        if not self._runs.by_key:
            context.unwatch(self)
        if not context.is_paused and (view := self._view(now)) is not None:
            if view.spare:
                self._move_what_waits(self._stuck())
            copies, _ = self._strategy.decide(view, None)
            if copies:
                context.record(self._strategy, view, None, copies)
                self._begin(view, copies)

    def _view(self, now: float) -> TailView | None:
        """None if there is nobody who could run anything twice, or nothing that could be."""
        scheduler, nodes = self._scheduler, self.context.nodes
        threads = scheduler.total_nthreads
        if compat.is_queue_used(scheduler) or compat.count_running(scheduler, None) > _NEAR * threads:
            self._seen.clear()
            return None
        before, self._seen = self._seen, {}
        tasks = []
        spare = compat.spare_threads(scheduler)
        for task in compat.sent_tasks(scheduler):
            where, since = before.get(task.key, ("", inf))
            if task.may_wait:
                since = inf
            elif where != task.address or since == inf:
                since = now
            self._seen[task.key] = (task.address, since)
            if spare and task.key not in self._runs.by_key and self._may_run_twice(task.key):
                allowed = compat.allowed(scheduler, task.key, spare)
                node = nodes.node_of(task.address)
                seconds = max(0.0, min(now - since, task.silence)) if task.seconds is None else task.seconds
                tasks.append(TailTask(task.key, task.prefix, node, seconds, allowed))
        if not tasks:
            return None
        return TailView(
            threads,
            sum(map(len, self._runs.by_key.values())),
            tuple(Spare(address, nodes.node_of(address), free) for address, free in spare.items()),
            tuple(tasks),
            {kind: Usual(*compat.usual_seconds(scheduler, kind)) for kind in {task.kind for task in tasks}},
            {node: found.ratio for node, found in self.slow.items()},
        )

    def _may_run_twice(self, key: Hashable) -> bool:
        job = self.context.owner.get(key)
        if job is not None and job.model.impure:
            return False
        if self.context.get(Gate).waves.queues.keeps(key):
            return False
        return not compat.annotation(compat.find_task(self._scheduler, key), "impure")

    def _begin(self, view: TailView, copies: list[BackupCopy]) -> None:
        self.context.watch(self, self._runs.by_key)
        begun: dict[tuple[str, str], list[BackupCopy]] = {}
        for copy in copies:
            if self._runs.begin(copy.key, copy.address):
                begun.setdefault((copy.kind, copy.node), []).append(copy)
                self.made += 1
        self._move_what_waits({self._seen[one.key][0] for ones in begun.values() for one in ones})
        for (kind, node), ones in begun.items():
            where = ", ".join(sorted({self.context.nodes.node_of(one.address) for one in ones})[:3])
            what = f"{len(ones)} x {kind} of {node} runs on {where} as well: {ones[0].reason}"
            usual = view.usual[kind]
            inputs = {"tasks": len(ones), "kind": kind, "usual": usual.seconds, "ended": usual.tasks}
            why = Explanation(f"tail: {self._strategy.name}", inputs, ())
            self.context.tell_of("backup", nodes=(node,), reason=what, why=why)

    def _stuck(self) -> set[str]:
        """The workers that compute in vain, or are slow."""
        nodes = self.context.nodes
        slow = {address for node in self.slow for address in nodes.workers(node)}
        return slow.union(*self._runs.by_key.values())

    def _move_what_waits(self, addresses: Iterable[str]) -> None:
        """What these workers have not begun goes to threads that have nothing to do."""
        mover = self.context.get(Holds).mover
        for address in addresses:
            if compat.is_overfull(self._scheduler, address):
                mover.drain(address)

    # slow nodes

    def _listen(self, now: float) -> None:
        nodes = self.context.nodes
        news = [
            self._durations.hear(address, nodes.node_of(address), said, now)
            for address, said in compat.metrics(self._scheduler, METRIC)
        ]
        gone = [node for node in self.slow if node not in nodes or self._durations.silent(node, now)]
        for node in gone:
            self._durations.forget(node)
        if any(news) or gone:
            self._judge()

    def _judge(self) -> None:
        factor = self._strategy.slow
        found = self._durations.slow(factor * _STILL)
        before, self.slow = self.slow, {
            node: one for node, one in found.items() if node in self.slow or one.ratio >= factor
        }  # fmt: skip
        for node in self.slow.keys() - before.keys():
            ratio, tasks, sigmas = self.slow[node]
            reason = (
                f"takes {ratio:.1f} times as long as others for the same ({tasks} tasks, {sigmas:.1f} sigma)"
            )
            self.context.tell_of("slow-node", nodes=(node,), reason=reason)
        for node in before.keys() - self.slow.keys():
            self._let_work(node)
            self.context.tell_of("slow-node", nodes=(node,), reason="is not known to be slow any more")
        if self._strategy.hold:
            holds = self.context.get(Holds)
            for node in self.slow.keys() - before.keys():
                holds.hold(self.context.nodes.workers(node), WHY)

    def _let_work(self, node: str) -> None:
        holds = self.context.get(Holds)
        if node in self.context.nodes:
            for address in self.context.nodes.workers(node):
                holds.release(address, WHY)

    # what is shown

    def status(self) -> Mapping[str, Any]:
        """What runs twice, and which nodes are slow."""
        return {"backup": self.part("backup")}

    def part(self, name: str) -> Any:
        return {
            "running": sum(map(len, self._runs.by_key.values())),
            "made": self.made,
            "first": self.first,
            "slow_nodes": [
                {"node": node, "ratio": one.ratio, "tasks": one.tasks} for node, one in self.slow.items()
            ],
        }

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        told = status["backup"]
        return {
            "backup_runs": {"": told["made"]},
            "backup_runs_first": {"": told["first"]},
            "slow_nodes": {"": len(told["slow_nodes"])},
        }


SERVICE = BackupRuns
