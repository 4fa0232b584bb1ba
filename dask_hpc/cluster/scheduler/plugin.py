"""The scheduler plugin: Dask's hooks, and the promise never to break a computation."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import wraps
from time import monotonic
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_hpc import dask as compat
from dask_hpc.bridge.grid import is_external
from dask_hpc.bridge.worker import NAME as BRIDGE
from dask_hpc.checkpoint.scheduler.rescue import UNREADABLE, Rescue, not_protected
from dask_hpc.cluster.request import ANNOTATION, NAME, TOPIC
from dask_hpc.cluster.scheduler import metrics
from dask_hpc.cluster.scheduler.calls import Calls
from dask_hpc.cluster.scheduler.farewell import Farewells
from dask_hpc.cluster.scheduler.in_force import History, InForce, difference
from dask_hpc.cluster.scheduler.loop import ControlLoop
from dask_hpc.cluster.scheduler.sizing import Sizing
from dask_hpc.cluster.scheduler.walltime import Walltime
from dask_hpc.in_situ.scheduler import Pipelines
from dask_hpc.model.story import Story
from dask_hpc.policy import Policy
from dask_hpc.power.scheduler.status import PowerTrace
from dask_hpc.power.scheduler.watch import PowerWatch
from dask_hpc.view.dashboard import Dashboard

logger = logging.getLogger(__name__)

_SETTLED = ("memory", "erred", "forgotten")
_PAUSED = "decides nothing until it is resumed: running jobs run on, waiting jobs wait"


def guarded(hook: Callable[..., None]) -> Callable[..., None]:
    """Our errors stay ours: counted, told, and after too many control is switched off.

    A lost event could make somebody wait for ever, so the hook is called again: a passing error does no
    harm, and a lasting one soon switches control off.
    """

    @wraps(hook)
    def safe(self: "HpcPlugin", *args: Any, **kwargs: Any) -> None:
        if self.is_on:
            try:
                hook(self, *args, **kwargs)
            except Exception as error:
                self.count_error(hook.__name__, error)
                self.scheduler.loop.add_callback(safe, self, *args, **kwargs)

    return safe


class HpcPlugin(SchedulerPlugin):
    """Runs jobs on allotments, as a policy decides. Registered by ``dask_hpc.manage``.

    Travels as plain data: the policy is YAML text, parsed on the scheduler; ``settings`` is what
    ``config.settings()`` gives. ``clock`` may be replaced by a test.
    """

    name = NAME
    idempotent = True
    control: ControlLoop

    def __init__(self, policy: str, policy_name: str, settings: dict[str, Any]) -> None:
        self._given = (policy, policy_name)
        self._settings = settings
        # What the hooks look at: Dask may call them before ``start``, if a preload module brought us.
        self.is_on = False
        self._owner: dict[Any, Any] = {}
        self._clocks: Any = None
        self._ends: dict[str, float] = {}
        self.rescue = Rescue(None, None, lambda decision, reason: None)
        self._dashboard: Dashboard | None = None

    async def start(self, scheduler: Any) -> None:
        """Take over. Nothing here waits, so no event can slip in before Dask knows this plugin."""
        policy = Policy.parse(self._given[0], name=self._given[1])
        self.history = History(InForce(policy, self._settings))
        self.scheduler = scheduler
        self._since = monotonic()
        self.clock: Callable[[], float] = lambda: monotonic() - self._since
        self.story = Story(self._settings["story-length"])
        #: how power was, for as long as somebody observes it
        self.power_trace = PowerTrace()
        self.power = PowerWatch(scheduler, self.power_trace)
        self._is_released = True
        #: results that left with their only worker
        self.lost = 0
        #: seconds of the last decision
        self.cycle = 0.0
        self._switch_on()

        def tell(decision: str, reason: str) -> None:
            self.control.tell(decision, reason)

        is_dry = self.control.is_dry
        self.rescue = Rescue(scheduler, None if is_dry else self._settings["rescue"], tell)
        self.farewells = Farewells(
            scheduler, self._settings["farewell"], self.rescue, tell, self.count_error, lambda: self.is_on
        )
        self.walltime = Walltime(
            scheduler,
            lambda: self.control.holds,
            lambda: float(self.history.now.settings["drain"]),
            tell,
            self.count_error,
            lambda: self.is_on,
        )
        self._ends = self.walltime.ends_at
        self.pipelines = Pipelines(tell, lambda client: client in scheduler.clients)
        self.calls = Calls(self)
        self._handlers = self.calls.by_name()
        compat.add_handlers(scheduler, self._handlers)
        self._end_following = compat.follow_submitters(scheduler)
        self._dashboard = Dashboard(self.scheduler, self.calls)
        self._dashboard.open()
        metrics.register(self)
        if not is_dry:
            self.farewells.start()

    async def stop(self) -> None:
        """Let go of everything and leave the scheduler, and its workers, without a trace."""
        async with AsyncExitStack() as stack:  # from the last to the first, and all, whatever one may raise
            stack.push_async_callback(self.farewells.stop)
            stack.push_async_callback(self.power.settle)
            stack.callback(self.rescue.close)
            stack.callback(self.walltime.close)
            if self.scheduler.plugins.get(NAME) is self:
                stack.callback(self.scheduler.remove_plugin, NAME)
            stack.callback(self._show_no_more)
            stack.callback(self._end_following)
            stack.callback(compat.remove_handlers, self.scheduler, self._handlers)
            stack.push_async_callback(self.control.levers.settle)
            stack.callback(self._release, "closed", "control was closed")

    # what people change

    def put_in_force(self, new: InForce) -> None:
        """Another policy, other settings. Nothing is lost; what runs keeps running."""
        old = self.history.now
        self.history.accept(new)
        self._apply(old)

    def undo(self) -> None:
        """What was in force before the last change is so again."""
        old = self.history.now
        self.history.undo()
        self._apply(old, "undone: ")

    def pause(self, is_paused: bool) -> None:
        """Decide nothing until told otherwise; or decide again."""
        if is_paused != self.control.is_paused:
            self.control.is_paused = is_paused
            self.control.tell("pause" if is_paused else "resume", _PAUSED if is_paused else "decides again")
            self.wake()

    def switch_on(self) -> None:
        """Start anew after errors switched control off."""
        if not self.is_on:
            self._switch_on()

    def _apply(self, old: InForce, how: str = "") -> None:
        new = self.history.now
        if new != old:
            self.errors = 0
            self.control.change(new, how + difference(old, new))

    # hooks

    def update_graph(
        self, scheduler: Any, *, client: str, tasks: list[Any], annotations: Any, **kwargs: Any
    ) -> None:
        """A graph was submitted; none of its tasks has moved yet."""
        if not self.is_on:
            return
        try:
            if BRIDGE in scheduler.plugins:  # its tasks go where blocks are, whoever asks for them
                tasks = [key for key in tasks if not is_external(key)]
            if annotations:
                self.control.holds.graph_arrives(annotations)
            request = compat.pop_submitted(scheduler, ANNOTATION)
            if request is None:
                request = self.control.script_of.get(client)
            if request is not None or self._owner:
                self.control.graph_arrives(client, request, tasks, compat.submitter())
            self._waves.lanes.submit(tasks)
            self.control.decide_at_once()
            shares = self.control.shares
            if shares is not None and compat.submitter() is None:
                shares.graph_arrives(client, tasks)
            self.rescue.graph_arrives(tasks)
            self.walltime.graph_arrives(key for key in tasks if compat.find_task(scheduler, key) is not None)
        except Exception as error:
            self.count_error("update_graph", error)
            self.wake()  # not called again: the tasks move on, and what is in no job runs plainly

    def transition(
        self,
        key: Any,
        start: str,
        finish: str,
        *args: Any,
        startstops: Any = None,
        nbytes: int = 0,
        **kwargs: Any,
    ) -> None:
        """A task changed its state. Called several times for every task of the cluster."""
        if self._held and "no-worker" in (start, finish):
            self._task_waits(key, finish)
        if finish in _SETTLED and self.is_on and (shares := self.control.shares) is not None:
            try:  # of every task: without the call that guards what is rare
                shares.time.settle(key, finish == "memory")
            except Exception as error:
                self.count_error("transition", error)
                self.scheduler.loop.add_callback(self._task_settles, key, finish)
        if self._in_lanes and key in self._in_lanes:
            self._task_in_lane(key, start, finish)
        if finish == "forgotten" and self.rescue.is_used:
            self._task_is_forgotten(key)
        if self._ends:
            self._task_moves_while_a_worker_ends(key, start, finish, startstops)
        job = self._owner.get(key) if self._owner else None
        if job is not None:
            try:
                self.control.task_moves(key, job, start, finish, startstops, nbytes)
            except Exception as error:
                self.count_error("transition", error)
                self.scheduler.loop.add_callback(self._look_again, key)

    @guarded
    def _task_settles(self, key: Any, finish: str) -> None:
        if self.control.shares is not None:
            self.control.shares.time.settle(key, finish == "memory")

    @guarded
    def _task_in_lane(self, key: Any, start: str, finish: str) -> None:
        if key in self._in_lanes:
            self._waves.lanes.task_moves(key, start, finish)

    @guarded
    def _task_moves_while_a_worker_ends(self, key: Any, start: str, finish: str, startstops: Any) -> None:
        self.walltime.task_moves(key, start, finish, startstops)

    @guarded
    def _task_is_forgotten(self, key: Any) -> None:
        self.rescue.forgotten(key)

    @guarded
    def _task_waits(self, key: Any, finish: str) -> None:
        job = self._owner.get(key)
        if job is None or job.state != "waiting":
            self.control.holds.task_waits(key, finish)
            self.wake()  # somebody has to mind Dask's timeout for such tasks

    def _look_again(self, key: Any) -> None:
        task = compat.find_task(self.scheduler, key)
        self.transition(key, "no-worker", "forgotten" if task is None else compat.state(task))

    @guarded
    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker connected; nothing has been sent to it yet."""
        self.control.worker_joins(worker)

    @guarded
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """A worker is gone, and its tasks have already been sent elsewhere, or wait."""
        self.control.worker_leaves(worker)
        self.farewells.worker_leaves(worker)
        self.walltime.worker_leaves(worker)

    @guarded
    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client is gone, and its tasks with it."""
        self.control.client_leaves(client)

    @guarded
    def log_event(self, topic: str, msg: Any) -> None:
        """Something was logged: perhaps that a context was closed, or that results are lost."""
        if topic == TOPIC and isinstance(msg, dict) and isinstance(msg.get("closed"), str):
            self.control.context_closes(msg["closed"])
        elif topic == "all" and isinstance(msg, dict) and msg.get("action") == "remove-worker":
            unprotected = not_protected(self.scheduler, msg["lost-computed-tasks"])
            again = len(self.rescue.not_stored(unprotected))
            gone = len(msg["lost-scattered-tasks"])
            self.lost += again + gone
            if again or gone:
                self.control.tell(
                    "lost",
                    f"worker {msg['worker']} left: {again} results are computed again"
                    + (f", {gone} scattered ones are gone" if gone else ""),
                )
        elif topic == UNREADABLE:
            self.rescue.event(msg)
        elif isinstance(topic, str):
            self.farewells.event(topic, msg)

    @guarded
    def restart(self, scheduler: Any) -> None:
        """All tasks are gone."""
        self.control.tasks_vanish()

    async def close(self) -> None:
        """The scheduler closes: leave no timer behind."""
        self._stop_clocks()
        self._show_no_more()
        await self.control.settle()
        self.farewells.cancel()
        self.walltime.close()

    # control

    def workers_of(self, job: str) -> set[str]:
        """The workers of the newest running job of that name; none if there is none."""
        found = [one for one in self.control.jobs.values() if one.name == job and one.state == "running"]
        return set(found[-1].workers) if found else set()

    @property
    def control_page(self) -> str | None:
        """Its place on the dashboard, with the token that opens it."""
        return None if self._dashboard is None else self._dashboard.control

    def count_error(self, where: str, error: Exception) -> None:
        """One more error of ours, or of a policy. The last one that is allowed switches control off."""
        logger.error("dask-hpc: error in %s", where, exc_info=error)
        self.errors += 1
        self.control.tell("error", f"in {where}: {type(error).__name__}: {error}")
        if self.is_on and self.errors >= self._settings["max-errors"]:
            self.is_on = False
            reason = f"control is off after {self.errors} errors; all tasks run as in plain Dask"
            # We may be inside one of Dask's transitions, where no other may be asked for.
            self.scheduler.loop.add_callback(self._release, "off", reason)

    def _switch_on(self) -> None:
        self._release("off", "starts anew")
        self.errors = 0
        self._is_scheduled = False
        self._is_released = False
        self.is_on = True
        self.control = ControlLoop(
            self.scheduler,
            self.history.now,
            lambda: self.clock(),
            self.wake,
            self.story,
            self.power,
            self.count_error,
        )
        self.control.leaving.is_heard = lambda: self.pipelines.is_any_running()
        self._owner = self.control.gate.owner
        self._held = self.control.holds.reasons
        self.sizing = Sizing(self.scheduler, self.control)
        self._waves = self.control.gate.waves
        self._in_lanes = self._waves.lanes.lane_of
        self.control.tell("policy", f"{self.control.policy.name} from now on")

    def _release(self, decision: str, reason: str) -> None:
        self.is_on = False
        self._stop_clocks()
        if not self._is_released:
            self._is_released = True
            self.control.release_all(decision, reason)

    def _show_no_more(self) -> None:
        metrics.unregister(self)
        if self._dashboard is not None:
            self._dashboard.close()

    def _stop_clocks(self) -> None:
        if self._clocks is not None:
            self.scheduler.loop.remove_timeout(self._clocks)
            self._clocks = None

    def wake(self) -> None:
        """Something happened: decide once, when this turn of the event loop is over."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.scheduler.loop.add_callback(self._decide)

    def _decide(self) -> None:
        self._is_scheduled = False
        if not self.is_on:
            return
        began = monotonic()
        try:
            self.control.decide()
            self.cycle = monotonic() - began
            self._mind_timeout()
        except Exception as error:
            self.control.memory = None
            self.count_error("a decision", error)
            self.wake()  # it may be owed to somebody; a lasting error switches control off

    def _mind_timeout(self) -> None:
        """Keep Dask's ``no-workers-timeout``, if there is one, from failing the tasks we hold."""
        timeout = compat.no_workers_timeout(self.scheduler)
        if timeout and self._clocks is None and next(self.control.held_by_waiting(), None) is not None:
            self._clocks = self.scheduler.loop.call_later(timeout / 2, self._restart_clocks)

    def _restart_clocks(self) -> None:
        self._clocks = None
        if self.is_on:
            compat.restart_no_worker_clock(self.scheduler, self.control.held_by_waiting())
            self._mind_timeout()
