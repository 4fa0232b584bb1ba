"""The scheduler plugin: Dask's hooks, and the promise never to break a computation."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_hpc import dask as compat
from dask_hpc.cluster.request import ANNOTATION, NAME, TOPIC
from dask_hpc.cluster.scheduler.calls import Calls
from dask_hpc.cluster.scheduler.farewell import Farewells
from dask_hpc.cluster.scheduler.management import Management
from dask_hpc.cluster.scheduler.metrics import Metrics
from dask_hpc.cluster.scheduler.service import Context, Service, WorkerSetting, guarded
from dask_hpc.cluster.scheduler.status import Status
from dask_hpc.cluster.scheduler.topology import NodePlaces
from dask_hpc.cluster.scheduler.walltime import Walltime
from dask_hpc.cluster.worker.bundles import BundlePlugin
from dask_hpc.policy import Policy

_SETTLED = ("memory", "erred", "forgotten")
#: moves of which a job learns nothing: its task is owed before it is sent, and settled once it has its result
_NO_NEWS = frozenset({("waiting", "processing"), ("queued", "processing"), ("memory", "released")})


def _hook(plugin: "HpcPlugin") -> Callable[..., None]:
    """What Dask calls, as ``transition``, whenever a task changes its state: several times for every task of
    the cluster, and who hears nothing of it is to cost nothing. Hence a function that has what it looks at in
    variables of its own, and a name for all that Dask says of a task that ends: Python is quicker to find a
    name than to gather what has none."""
    held, tagged, watching, ends = plugin._held, plugin._tagged, plugin._watching, plugin._ends
    owner, control, wake = plugin._owner, plugin.control, plugin.context.wake
    gate, worked = control.gate, control.measurements.worked

    def transition(
        key: Any,
        start: str,
        finish: str,
        *,
        stimulus_id: str = "",
        worker: Any = None,
        nbytes: int = 0,
        type: Any = None,
        typename: Any = None,
        startstops: Any = None,
        thread: Any = None,
        status: Any = None,
        metadata: Any = None,
        **more: Any,
    ) -> None:
        if held or tagged or watching or ends:
            plugin._others_hear(key, start, finish, startstops)
        if owner and (start, finish) not in _NO_NEWS and (job := owner.get(key)) is not None:
            try:
                # Nearly always: the gate has no part in it, and calls take longer than what is done in them.
                if finish == "memory" and start == "processing" and key not in job.passed:
                    if (work := job.unfinished.pop(key, None)) is not None:
                        work.left -= 1
                else:
                    work = gate.task_moves(key, job, start, finish)
                    if finish in compat.UNFINISHED:
                        return
                if work is not None and startstops and finish == "memory":
                    worked[job] = None
                    if job.performance.add(work, startstops, nbytes):
                        wake()
                if not job.unfinished:
                    control.has_no_more(job)
            except Exception as error:
                plugin.hook_failed("transition", error, partial(plugin._look_again, key))

    return transition


class HpcPlugin(Management, SchedulerPlugin):
    """Runs jobs on allotments, as a policy decides. Registered by ``dask_hpc.manage``.

    Travels as plain data: the policy is YAML text, parsed on the scheduler; ``settings`` is what
    ``config.settings()`` gives.
    """

    name = NAME
    idempotent = True

    def __init__(self, policy: str, policy_name: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self._given = (policy, policy_name)
        self._settings = settings
        self._ends: dict[str, float] = {}
        self._is_whole = False  # whether ``start`` has come to its end

    async def start(self, scheduler: Any) -> None:
        """Take over. Nothing here waits, so no event can slip in before Dask knows this plugin."""
        policy = Policy.parse(self._given[0], name=self._given[1])
        context = self.take(Context(scheduler, policy, self._settings))
        self.status = context.add(Status(self), lasts=True)
        self.walltime = Walltime(context)
        self._ends = self.walltime.ends_at
        self.listen()
        self.topology = context.add(NodePlaces(context), lasts=True)
        self.calls = context.add(Calls(self, self.status), lasts=True)
        context.each("start", lambda service: service.start())
        self.farewells = Farewells(context)
        handlers: dict[str, Callable[..., Any]] = {
            "hpc_farewell": self.farewells.farewell,
            "hpc_worker_ends": self.walltime.worker_ends,
            "hpc_worker_at": self.topology.worker_at,
        }
        self._handlers = self.calls.by_name(handlers)
        compat.add_calls(scheduler, self._handlers)
        self._end_following = compat.follow_submitters(scheduler)
        self._metrics = Metrics(context, self.status)
        self._metrics.show()
        self.topology.start()
        self.bundles = WorkerSetting(context, BundlePlugin)
        if not context.is_dry:
            self.farewells.start()
            self.bundles.set(())  # it takes no values
        self._is_whole = True

    async def stop(self) -> None:
        """Let go of everything and leave the scheduler, and its workers, without a trace."""
        context, scheduler = self.context, self.context.scheduler
        async with AsyncExitStack() as stack:  # from the last to the first, and all, whatever one may raise
            stack.push_async_callback(self.bundles.settle)
            stack.callback(self.bundles.set, None)
            stack.push_async_callback(self.farewells.stop)
            stack.callback(context.each, "close", lambda service: service.close())
            stack.callback(self.walltime.close)
            if scheduler.plugins.get(NAME) is self:
                stack.callback(scheduler.remove_plugin, NAME)
            stack.callback(self._metrics.hide)
            stack.callback(self._end_following)
            stack.callback(compat.remove_calls, scheduler, self._handlers)
            for service in context.services:
                stack.push_async_callback(service.settle)
            stack.callback(self.release, "closed", "control was closed")

    # hooks

    def hook_failed(self, where: str, error: Exception, again: Callable[[], object]) -> None:
        """A lost event could make somebody wait for ever, so the hook is called again: a passing error does
        no harm, and a lasting one soon switches control off."""
        self.context.count_error(where, error)
        self.context.scheduler.loop.add_callback(again)

    def update_graph(
        self, scheduler: Any, *, client: str, tasks: list[Any], annotations: Any, **kwargs: Any
    ) -> None:
        """A graph was submitted; none of its tasks has moved yet."""
        if not self.is_on:
            return
        try:
            for service in self.context.services:
                tasks = service.for_jobs(tasks)
            submitter = compat.submitter()
            self.control.holds.graph_arrives(annotations or {}, tasks, submitter)
            request = compat.pop_submitted(scheduler, ANNOTATION, (annotations or {}).get(ANNOTATION, ()))
            self.control.graph_arrives(client, request, tasks, submitter)
            self.walltime.graph_arrives(key for key in tasks if compat.find_task(scheduler, key) is not None)
        except Exception as error:
            self.context.count_error("update_graph", error)
            self.context.wake()  # not called again: the tasks move on, and what is in no job runs plainly

    def listen(self) -> None:
        """Hear of tasks from now on."""
        self.transition = _hook(self)

    def _others_hear(self, key: Any, start: str, finish: str, startstops: Any) -> None:
        """Of tasks whether they are in jobs or not; each of these guards itself."""
        if self._held and "no-worker" in (start, finish):
            self._task_waits(key, finish)
        if finish in _SETTLED and key in self._tagged:
            self._task_settles(key, finish)
        for service, keys in self._watching:
            if keys and key in keys:
                self._service_hears(service, key, start, finish)
        if self._ends:
            self._task_moves_while_a_worker_ends(key, start, finish, startstops)

    @guarded
    def _task_settles(self, key: Any, finish: str) -> None:
        if self.control.shares is not None:
            self.control.shares.time.settle(key, finish == "memory")

    @guarded
    def _service_hears(self, service: Service, key: Any, start: str, finish: str) -> None:
        if any(key in keys for watching, keys in self._watching if watching is service):
            service.task_moves(key, start, finish)

    @guarded
    def _task_moves_while_a_worker_ends(self, key: Any, start: str, finish: str, startstops: Any) -> None:
        self.walltime.task_moves(key, start, finish, startstops)

    @guarded
    def _task_waits(self, key: Any, finish: str) -> None:
        job = self._owner.get(key)
        if job is None or job.state != "waiting":
            self.control.holds.task_waits(key, finish)
            self.context.wake()  # somebody has to mind Dask's timeout for such tasks

    def _look_again(self, key: Any) -> None:
        task = compat.find_task(self.context.scheduler, key)
        self.transition(key, "no-worker", "forgotten" if task is None else task.state)

    @guarded
    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker connected; nothing has been sent to it yet."""
        self.control.worker_joins(worker)
        self.topology.look(worker)

    @guarded
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """A worker is gone, and its tasks have already been sent elsewhere, or wait."""
        self.control.worker_leaves(worker)
        self.farewells.worker_leaves(worker)
        self.walltime.worker_leaves(worker)
        self.topology.worker_leaves(worker)

    @guarded
    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client is gone, and its tasks with it."""
        self.control.client_leaves(client)

    @guarded
    def log_event(self, topic: str, msg: Any) -> None:
        """Something was logged: perhaps by a client about its job, or that results are lost."""
        if topic == TOPIC and isinstance(msg, dict) and isinstance(msg.get("closed"), str):
            self.control.context_closes(msg["closed"])
        elif topic == TOPIC and isinstance(msg, dict) and isinstance(msg.get("scatters"), str):
            self.control.data_come(str(msg.get("client")), msg.get("job"), msg["scatters"])
        elif topic == "all" and isinstance(msg, dict) and msg.get("action") == "remove-worker":
            self.status.worker_lost(msg)
            if not msg.get("expected"):
                address, tasks = str(msg.get("worker")), list(msg.get("processing-tasks") or ())
                self.context.each("worker_dies", lambda service: service.worker_dies(address, tasks))
        elif isinstance(topic, str):
            self.farewells.event(topic, msg)
            self.context.each("log_event", lambda service: service.log_event(topic, msg))

    @guarded
    def restart(self, scheduler: Any) -> None:
        """All tasks are gone."""
        self.control.tasks_vanish()

    async def close(self) -> None:
        """The scheduler closes: leave no timer behind."""
        if not self._is_whole:
            return
        self.timeout.stop()
        self._metrics.hide()
        await self.control.settle()
        self.bundles.cancel()
        self.farewells.cancel()
        self.walltime.close()
