"""What a decision sees of power on a live cluster, brought up to date about once a second.

Power is watched while a policy with a power strategy is in force, or if the setting ``power-watch`` asks for
it. Else nothing is installed anywhere, and nothing costs anything.
"""

from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Timer
from dask_hpc.cluster.scheduler.worker_setting import WorkerSetting
from dask_hpc.model.node import Nodes
from dask_hpc.model.power import Corridor, PowerView
from dask_hpc.policy import Policy
from dask_hpc.power.scheduler.corridor_source import CorridorSource
from dask_hpc.power.scheduler.forecasts import LiveForecasts
from dask_hpc.power.scheduler.job_power import JobPowers, default_path
from dask_hpc.power.scheduler.levers import PowerLevers
from dask_hpc.power.scheduler.meters import Meter, NodeUse, SimulatedMeter, WorkerMeter
from dask_hpc.power.scheduler.sight import NodeReading, Sight, in_doubt, total
from dask_hpc.power.scheduler.trace import LiveTrace
from dask_hpc.power.worker.plugin import NAME, PowerPlugin

_SAMPLE = 100  # tasks that stand for all of those that are queued, or on one worker
_LOOK = 2000  # tasks that wait for a worker that are looked through


def outside_nodes(
    scheduler: Any, nodes: Nodes, uses: Mapping[str, NodeUse], held: set[str], owner: Mapping[Any, LiveJob]
) -> tuple[int, int]:
    """How many nodes that no job holds work now, and how many could, with the tasks there are. ``held``: the
    nodes that jobs hold; ``owner``: the job of a task."""
    free = [use for name, use in uses.items() if name not in held]
    working = sum(use.running > 0 for use in free)
    tasks = sum(use.tasks for use in free)
    there = [compat.given(scheduler, address, _SAMPLE) for name in held for address in nodes.workers(name)]
    for number, sample in (compat.queued(scheduler, _SAMPLE), *there):
        tasks += _share(number, sample, lambda task: _is_outside(task, owner))
    number, sample = compat.waiting_for_workers(scheduler, _LOOK)
    tasks += _share(
        number, sample, lambda task: _is_outside(task, owner) and not any(compat.is_restricted(task))
    )
    threads = sum(use.threads for use in uses.values()) / len(uses) if uses else 1
    return working, max(working, min(len(uses), ceil(tasks / max(threads, 1))))


def _share(number: int, sample: list[Any], counts: Callable[[Any], bool]) -> int:
    """How many of so many tasks count, by what a sample of them says."""
    return ceil(number * sum(map(counts, sample)) / len(sample)) if sample else 0


def _is_outside(task: Any, owner: Mapping[Any, LiveJob]) -> bool:
    job = owner.get(task.key)
    return job is None or job.state == "done"


_FRESH = 0.05  # seconds that a view is good for while nothing changes hands
_NEWS = 0.02  # of the watts: a change that is worth a decision
_FOLLOW = 1.0  # seconds between two looks at what is followed
_AT_LEAST = 5.0  # seconds after which there is a decision in any case: some wait for their time to come
#: what else of a view a decision may turn on
_TURNS_ON = ("doubt", "outside_nodes", "outside_wanted", "held", "holdable", "levers", "releasable")


def worker_meters(context: Context) -> WorkerSetting:
    """What workers sample their power with, if they do: the arguments of ``PowerPlugin``."""
    return WorkerSetting(context, NAME, None, lambda given: PowerPlugin(*given))


class PowerWatch:
    """One per managed cluster. ``trace`` keeps what was."""

    jobs: JobPowers
    levers: PowerLevers

    def __init__(self, context: Context, trace: LiveTrace) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._trace = trace
        #: what is seen through the meter; None while nobody watches
        self.sight: Sight | None = None
        self.source: CorridorSource | None = None
        self._meters = worker_meters(context)
        self._forecasting: LiveForecasts | None = None
        self._timer = Timer(context, "a look at power", self._tick)
        #: when the next look is
        self._due = 0.0
        self._seen_at = -1.0
        self._revision = -1
        #: the view and the bounds that the last decision saw, and when
        self._decided: tuple[PowerView, tuple[float, float] | None, float] | None = None

    # from when to when

    def begin(self, levers: PowerLevers) -> None:
        """Jobs and nodes are known anew."""
        self.levers = levers
        self.jobs = JobPowers(self._context, None)
        self.adjust()

    def adjust(self) -> None:
        """Another policy, other settings: watch, or do so no more; follow what the policy says."""
        context = self._context
        strategy = context.policy.power
        if strategy is None and not context.settings["power-watch"]:
            self.close()
            return
        follow = "" if strategy is None else strategy.follow
        if self.source is not None and self.source.follow != follow:
            self.source.close()
            self.source = None
        if follow and self.source is None:
            every = min(_FOLLOW, context.settings["power-interval"])
            self.source = CorridorSource(context, follow, self._corridor_changes, every)
            self.source.look()
        if self.sight is None:
            self._start()
        else:
            self._look_in(max(self._due - context.clock(), 0.0))
        # A strategy may say that it does not look ahead.
        self._forecast(strategy is not None and getattr(strategy, "mode", "") != "reactive")
        self._decided = None

    def close(self) -> None:
        """Watch no more; leave nothing behind. ``settle`` waits for what that takes."""
        self._stop()
        if self.sight is None:
            return
        levels = self.sight.levels
        self.sight = self.source = None
        self._context.indices.power = None
        self._meters.set(None)
        self.jobs.note_ended(levels, {})

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        self._stop()
        self._meters.cancel()
        if self.sight is not None:
            self.jobs.note_ended(self.sight.levels, {})

    async def settle(self) -> None:
        """What ``close`` began is done."""
        await self._meters.settle()
        await self.jobs.settle()

    def _stop(self) -> None:
        self._timer.stop()
        if self.source is not None:
            self.source.close()
        self._forecast(False)

    def _forecast(self, is_wanted: bool) -> None:
        context = self._context
        if is_wanted and self._forecasting is None:
            period = context.settings["power-interval"]
            self._forecasting = LiveForecasts(context.tell, context.count_error, period=period)
        elif self._forecasting is not None and not is_wanted:
            self._forecasting.close()
            self._forecasting = None

    def _start(self) -> None:
        context = self._context
        meter = self._meter()
        self.sight = Sight(self._scheduler, context.nodes, meter, context.tell)
        path = context.settings["power-history"]
        is_made_up = isinstance(meter, SimulatedMeter)
        if path == "default":  # what was made up says nothing about real jobs
            path = None if is_made_up else default_path()
        self.jobs = JobPowers(context, None if path is None else Path(path))
        if not is_made_up:
            has_sensors = context.settings["power-meter"] == "auto"
            self._meters.set((context.settings["power-interval"], self._measured, has_sensors))
        self._look_in(0.0)

    def _meter(self) -> Meter:
        settings = self._context.settings
        kind, interval = settings["power-meter"], settings["power-interval"]
        if kind == "simulated" or isinstance(kind, Mapping):
            said = {} if kind == "simulated" else kind["simulated"]
            return SimulatedMeter(interval=interval, **said)
        return WorkerMeter(interval, self._measured)

    @property
    def _measured(self) -> list[tuple[float, float]]:
        """What somebody measured to calibrate the model: pairs of use and watts."""
        model = self._context.settings["power-model"]
        return [] if model is None else [(0.0, model["idle"]), (1.0, model["busy"])]

    # once a second

    def _tick(self) -> None:
        try:
            self._look()
        finally:
            if self.sight is not None:
                self._look_in(self._context.settings["power-interval"])

    def _look_in(self, seconds: float) -> None:
        """The next look comes then, or sooner if the corridor changes before."""
        now, corridor = self._context.clock(), self.corridor
        steps = () if corridor is None else corridor.coming(now, now + seconds)
        self._due = steps[0][0] if steps else now + seconds
        self._timer.set(max(self._due - now, 0.0))

    def _look(self) -> None:
        context = self._context
        if self.sight is None:
            return
        context.look_at_the_clock()
        now = context.indices.now
        jobs = context.indices.running.values()
        given_up = {name for one in jobs if one.target is not None for name in one.nodes[one.target :]}
        self.sight.look(now, {one.job.id: one.nodes for one in jobs}, given_up)
        self.jobs.note_ended(self.sight.levels, context.indices.running)
        view = self._renew()
        if self._forecasting is not None:
            self._forecasting.add(now, view.watts)
        corridor = self.corridor
        self._trace.add(now, view, *(() if corridor is None else corridor.at(now)))
        if self._is_news(view):
            context.wake()

    def _is_news(self, view: PowerView) -> bool:
        """Whether a decision could come out otherwise than the last one."""
        now = self._context.indices.now
        bounds = None if self.corridor is None else self.corridor.at(now)
        if self._decided is None or self._context.policy.power is None:
            return self._context.policy.power is not None
        before, bounds_before, when = self._decided
        if bounds != bounds_before or now - when >= _AT_LEAST:
            return True
        lower, upper = bounds or (0.0, float("inf"))
        least, most = view.forecast or (view.watts, view.watts)
        if min(least, view.watts) < lower or max(most, view.watts) > upper:
            return True
        return abs(view.watts - before.watts) > _NEWS * before.watts or any(
            getattr(view, name) != getattr(before, name) for name in _TURNS_ON
        )

    def _corridor_changes(self) -> None:
        self._look_in(max(self._due - self._context.clock(), 0.0))
        self._context.wake()

    # before a decision

    def refresh(self) -> None:
        """The view is as of now, as far as that can be known without another reading."""
        indices = self._context.indices
        if self.sight is None:
            return
        is_same = indices.revision == self._revision and indices.power is not None
        if not is_same or not 0 <= indices.now - self._seen_at < _FRESH:
            self._renew()

    def _renew(self) -> PowerView:
        indices = self._context.indices
        view = indices.power = self.view()
        self._seen_at, self._revision = indices.now, indices.revision
        return view

    def decides(self) -> None:
        """A decision is made from the view as it is now."""
        view, corridor = self._context.indices.power, self.corridor
        if view is not None:
            now = self._context.indices.now
            self._decided = view, None if corridor is None else corridor.at(now), now

    @property
    def corridor(self) -> Corridor | None:
        """The one that holds for the policy in force."""
        return self.corridor_of(self._context.policy)

    def corridor_of(self, policy: Policy) -> Corridor | None:
        """The one that would hold for this policy, as far as that is known."""
        if policy.power is None:
            return None
        if self.source is not None and self.source.follow == policy.power.follow and self.source.corridor:
            return self.source.corridor
        found: Corridor = policy.power.corridor
        return found

    @property
    def meter_name(self) -> str:
        """Which meter the settings ask for."""
        kind: Any = self._context.settings["power-meter"]
        return kind if isinstance(kind, str) else next(iter(kind))

    def readings(self) -> dict[str, NodeReading]:
        """What each node draws."""
        sight = self._looking()
        return sight.readings(sight.uses())

    def _looking(self) -> Sight:
        """Who looks; while nobody does, somebody who knows no more than the model."""
        context = self._context
        return self.sight or Sight(self._scheduler, context.nodes, self._meter(), context.tell)

    def view(self) -> PowerView:
        """Power as of now; by the model alone while nobody watches."""
        context, indices = self._context, self._context.indices
        sight = self._looking()
        uses = sight.uses()
        readings = sight.readings(uses)
        watts, uncertainty, source = total(readings)
        idle, active = sight.idle(uses), sight.active(uses)
        held = {name for running in indices.running.values() for name in running.nodes}
        working, wanted = outside_nodes(self._scheduler, context.nodes, uses, held, context.owner)
        levers = self.levers
        forecast = None if self._forecasting is None else self._forecasting.latest(indices.now)
        return PowerView(
            watts=watts,
            source=source,
            uncertainty=uncertainty,
            idle=idle,
            active=active,
            jobs=self.jobs.now(sight.levels, idle, active),
            outside=sight.levels.outside or active,
            outside_nodes=working,
            outside_wanted=wanted,
            held=levers.held,
            holdable=levers.holdable,
            threads=levers.threads,
            cap=levers.watts.value,
            levers=levers.available | ({"cap"} if sight.can_cap else set()),
            releasable=levers.releasable,
            released=levers.released,
            forecast=None if forecast is None else forecast.range,
            doubt=in_doubt(readings),
        )
