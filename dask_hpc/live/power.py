"""What a decision sees of power on a live cluster, brought up to date about once a second.

Power is watched while a policy with a power strategy is in force, or if the setting ``power-watch`` asks for
it. Else nothing is installed anywhere, and nothing costs anything.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from dask_hpc.live.aside import aside
from dask_hpc.live.corridor_source import CorridorSource
from dask_hpc.live.jobs import LiveJob
from dask_hpc.live.metering import Metering
from dask_hpc.live.outside import outside_nodes
from dask_hpc.live.power_history import PowerHistory, default_path
from dask_hpc.live.power_levels import NodeReading
from dask_hpc.live.power_meters import Meter, WorkerMeter
from dask_hpc.live.power_sight import Sight, in_doubt, total
from dask_hpc.live.power_trace import PowerTrace
from dask_hpc.live.simulated_meter import SimulatedMeter
from dask_hpc.model.corridor import Corridor
from dask_hpc.model.errors import one_line
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.policy import Policy

if TYPE_CHECKING:
    from dask_hpc.live.control import ControlLoop

_PATIENCE = 5.0  # seconds that a disk has when control ends
_FRESH = 0.05  # seconds that a view is good for while nothing changes hands
_NEWS = 0.02  # of the watts: a change that is worth a decision
_FOLLOW = 1.0  # seconds between two looks at what is followed
_AT_LEAST = 5.0  # seconds after which there is a decision in any case: some wait for their time to come


class PowerWatch:
    """One per managed cluster, for one control loop after the other. ``trace`` keeps what was."""

    _control: "ControlLoop"

    def __init__(self, scheduler: Any, trace: PowerTrace) -> None:
        self._scheduler = scheduler
        self._trace = trace
        #: what is seen through the meter; None while nobody watches
        self.sight: Sight | None = None
        self.source: CorridorSource | None = None
        self.history = PowerHistory(None)
        self._metering: Metering | None = None
        self._changing: asyncio.Task[None] | None = None
        self._timer: Any = None
        self._writing: asyncio.Future[None] | None = None
        self._seen_at = -1.0
        self._revision = -1
        #: the view and the bounds that the last decision saw, and when
        self._decided: tuple[PowerView, tuple[float, float] | None, float] | None = None

    # from when to when

    def attach(self, control: "ControlLoop") -> None:
        """Watch for this control loop from now on."""
        self._control = control
        self.adjust()

    def adjust(self) -> None:
        """Another policy, other settings: watch, or do so no more; follow what the policy says."""
        control = self._control
        strategy = control.policy.power
        if strategy is None and not control.settings["power-watch"]:
            self.close()
            return
        follow = "" if strategy is None else strategy.follow
        if self.source is not None and self.source.follow != follow:
            self.source.close()
            self.source = None
        if follow and self.source is None:
            every = min(_FOLLOW, control.settings["power-interval"])
            self.source = CorridorSource(
                self._scheduler.loop, follow, control.clock, control.tell, self._corridor_changes, every
            )
            self.source.look()
        if self.sight is None:
            self._start()
        self._decided = None

    def close(self) -> None:
        """Watch no more; leave nothing behind. ``settle`` waits for what that takes."""
        if self._timer is not None:
            self._scheduler.loop.remove_timeout(self._timer)
            self._timer = None
        if self.source is not None:
            self.source.close()
            self.source = None
        if self.sight is None:
            return
        for job_id in list(self.sight.levels.jobs):
            self.job_ends(self._control.jobs.get(job_id))
        self.sight = None
        self._control.indices.power = None
        self._write_history()
        self._change(None)

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        if self._timer is not None:
            self._scheduler.loop.remove_timeout(self._timer)
            self._timer = None
        if self.source is not None:
            self.source.close()
        if self._metering is not None:
            self._metering.cancel()
        if self._changing is not None:
            self._changing.cancel()
        self._write_history()

    async def settle(self) -> None:
        """What ``close`` began is done."""
        while self._changing is not None:
            await asyncio.wait([self._changing])
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_PATIENCE)

    def _start(self) -> None:
        control = self._control
        meter = self._meter()
        self.sight = Sight(self._scheduler, control.nodes, meter, control.tell)
        path = control.settings["power-history"]
        is_made_up = isinstance(meter, SimulatedMeter)
        if path == "default":  # what was made up says nothing about real jobs
            path = None if is_made_up else default_path()
        self.history = PowerHistory(None if path is None else Path(path))
        aside(self._scheduler.loop, self.history.read, self._history_read)
        if not is_made_up:
            interval, sensors = control.settings["power-interval"], control.settings["power-meter"] == "auto"
            self._change(Metering(self._scheduler, interval, self._measured, control.count_error, sensors))
        self._timer = self._scheduler.loop.call_later(0, self._tick)

    def _meter(self) -> Meter:
        settings = self._control.settings
        kind, interval = settings["power-meter"], settings["power-interval"]
        if kind == "simulated" or isinstance(kind, Mapping):
            said = {} if kind == "simulated" else kind["simulated"]
            return SimulatedMeter(interval=interval, **said)
        return WorkerMeter(interval, self._measured)

    @property
    def _measured(self) -> list[tuple[float, float]]:
        """What somebody measured to calibrate the model: pairs of use and watts."""
        model = self._control.settings["power-model"]
        return [] if model is None else [(0.0, model["idle"]), (1.0, model["busy"])]

    def _change(self, metering: Metering | None) -> None:
        """Workers are to have this meter from now on. One change at a time, in order."""
        before, self._metering = self._metering, metering
        if before is not None or metering is not None:
            self._changing = asyncio.ensure_future(self._hand_over(self._changing, before, metering))

    async def _hand_over(
        self, earlier: "asyncio.Task[None] | None", before: Metering | None, after: Metering | None
    ) -> None:
        try:
            if earlier is not None:
                await asyncio.wait([earlier])
            if before is not None:
                await before.stop()
            if after is not None and after is self._metering:
                after.start()
        except Exception as error:
            self._control.count_error("the power meter", error)
        finally:
            if self._changing is asyncio.current_task():
                self._changing = None

    # once a second

    def _tick(self) -> None:
        self._timer = None
        try:
            self._look()
        except Exception as error:
            self._control.count_error("a look at power", error)
        if self.sight is not None:
            self._timer = self._scheduler.loop.call_later(self._until_next(), self._tick)

    def _until_next(self) -> float:
        """Seconds until the next look: sooner if the corridor changes before."""
        interval: float = self._control.settings["power-interval"]
        now, corridor = self._control.clock(), self.corridor
        steps = () if corridor is None else corridor.coming(now, now + interval)
        return steps[0][0] - now if steps else interval

    def _look(self) -> None:
        control = self._control
        if self.sight is None:
            return
        control.look_at_the_clock()
        now = control.indices.now
        jobs = control.indices.running.values()
        given_up = {name for one in jobs if one.target is not None for name in one.nodes[one.target :]}
        self.sight.look(now, {one.job.id: one.nodes for one in jobs}, given_up)
        for job_id in self.sight.levels.jobs.keys() - control.indices.running.keys():
            self.job_ends(control.jobs.get(job_id), job_id)
        self._seen_at = -1.0
        self.refresh()
        view = control.indices.power
        assert view is not None
        corridor = self.corridor
        self._trace.add(now, view, *(() if corridor is None else corridor.at(now)))
        self._write_history()
        if self._is_news(view):
            control.wake()

    def _is_news(self, view: PowerView) -> bool:
        """Whether a decision could come out otherwise than the last one."""
        now = self._control.indices.now
        bounds = None if self.corridor is None else self.corridor.at(now)
        if self._decided is None or self._control.policy.power is None:
            return self._control.policy.power is not None
        before, bounds_before, when = self._decided
        if bounds != bounds_before or now - when >= _AT_LEAST:
            return True
        lower, upper = bounds or (0.0, float("inf"))
        least, most = view.forecast or (view.watts, view.watts)
        if min(least, view.watts) < lower or max(most, view.watts) > upper:
            return True
        return abs(view.watts - before.watts) > _NEWS * before.watts or any(
            getattr(view, name) != getattr(before, name)
            for name in (
                "doubt",
                "outside_nodes",
                "outside_wanted",
                "held",
                "holdable",
                "levers",
                "releasable",
            )
        )

    def _corridor_changes(self) -> None:
        self._control.wake()

    # before a decision

    def refresh(self) -> None:
        """The view is as of now, as far as that can be known without another reading."""
        indices = self._control.indices
        if self.sight is None:
            return
        is_same = indices.revision == self._revision and indices.power is not None
        if not is_same or not 0 <= indices.now - self._seen_at < _FRESH:
            indices.power = self.view()
            self._seen_at, self._revision = indices.now, indices.revision

    def decides(self) -> None:
        """A decision is made from the view as it is now."""
        view, corridor = self._control.indices.power, self.corridor
        if view is not None:
            now = self._control.indices.now
            self._decided = view, None if corridor is None else corridor.at(now), now

    @property
    def corridor(self) -> Corridor | None:
        """The one that holds for the policy in force."""
        return self.corridor_of(self._control.policy)

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
        kind: Any = self._control.settings["power-meter"]
        return kind if isinstance(kind, str) else next(iter(kind))

    def readings(self) -> dict[str, NodeReading]:
        """What each node draws."""
        sight = self._looking()
        return sight.readings(sight.uses())

    def _looking(self) -> Sight:
        """Who looks; while nobody does, somebody who knows no more than the model."""
        control = self._control
        return self.sight or Sight(self._scheduler, control.nodes, self._meter(), control.tell)

    def view(self) -> PowerView:
        """Power as of now; by the model alone while nobody watches."""
        control, indices = self._control, self._control.indices
        sight = self._looking()
        uses = sight.uses()
        readings = sight.readings(uses)
        watts, uncertainty, source = total(readings)
        idle, active = sight.idle(uses), sight.active(uses)
        held = {name for running in indices.running.values() for name in running.nodes}
        working, wanted = outside_nodes(self._scheduler, control.nodes, uses, held, control.gate.owner)
        levers = control.levers
        return PowerView(
            watts=watts,
            source=source,
            uncertainty=uncertainty,
            idle=idle,
            active=active,
            jobs=self._of_jobs(sight, idle, active),
            outside=sight.levels.outside or active,
            outside_nodes=working,
            outside_wanted=wanted,
            held=levers.held,
            holdable=levers.holdable,
            threads=levers.threads,
            levers=levers.available,
            releasable=levers.releasable,
            released=levers.released,
            doubt=in_doubt(readings),
        )

    def _of_jobs(self, sight: Sight, idle: float, active: PowerRange) -> dict[str, PowerRange]:
        """Watts per node of jobs that run or wait: as measured, said, or remembered; else the worst."""
        control, found = self._control, {}
        worst = PowerRange(
            min(idle, active.least), max(self.history.highest, sight.levels.highest, active.most)
        )
        for job_id, running in control.indices.running.items():
            level = sight.levels.jobs.get(job_id)
            seen = None if level is None else level.window.range
            found[job_id] = seen or self._expected(control.jobs[job_id], len(running.nodes)) or active
        for model in control.indices.waiting:
            found[model.id] = self._expected(control.jobs[model.id], model.nodes) or worst
        return found

    def _expected(self, job: LiveJob, nodes: int) -> PowerRange | None:
        return job.model.power or self.history.expected(job.name, nodes)

    # what jobs drew

    def job_ends(self, job: LiveJob | None, job_id: str = "") -> None:
        """Remember what it drew, for the next job of its name."""
        if self.sight is None:
            return
        level = self.sight.levels.jobs.pop(job.id if job is not None else job_id, None)
        seen = None if level is None else level.whole_life
        if job is not None and level is not None and seen is not None:
            self.history.note(job.name, level.nodes, seen, time())

    def _history_read(self, found: Any, problem: Exception | None) -> None:
        if problem is not None:
            self._control.tell("warning", one_line(f"{problem}; goes without a history of power"))
        elif found is not None:
            self.history.learn(found)

    def _write_history(self) -> None:
        if self.history.is_due and self._writing is None:
            self._writing = asyncio.get_running_loop().create_future()
            aside(self._scheduler.loop, self.history.write, self._history_written)

    def _history_written(self, found: Any, problem: Exception | None) -> None:
        assert self._writing is not None
        if not self._writing.done():
            self._writing.set_result(None)
        self._writing = None
        if problem is not None:
            words = f"{self.history.path}: cannot be written: {problem}; power is not remembered"
            self._control.tell("warning", one_line(words))
            self.history.path = None
