"""Power as a service of a managed cluster: it is watched about once a second, held in its corridor by
levers, and shown.

Power is watched while a policy with a power strategy is in force, or if the setting ``power-watch`` asks for
it; and for a while after such a policy, as people who try another one go back. Else nothing is installed
anywhere, and nothing costs anything.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from dask_hpc.cluster.request import read_number
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Samples, Service, Timer, WorkerSetting
from dask_hpc.model.plan import Plan
from dask_hpc.model.power import Corridor, PowerRange, PowerView, Verdict
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.story import Happening, explain_levers
from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.policy import Policy
from dask_hpc.power.scheduler.corridor_source import CorridorSource
from dask_hpc.power.scheduler.forecasts import LiveForecasts
from dask_hpc.power.scheduler.job_power import JobEnergies, JobPowers, default_path
from dask_hpc.power.scheduler.levers import PowerLevers
from dask_hpc.power.scheduler.meters import NodeReading, WorkerMeter, meter_of
from dask_hpc.power.scheduler.sight import Sight, in_doubt, outside_nodes, total
from dask_hpc.power.scheduler.trace import LiveTrace
from dask_hpc.power.worker.plugin import PowerPlugin

_FRESH = 0.05  # seconds that a view is good for while nothing changes hands
_NEWS = 0.02  # of the watts: a change that is worth a decision
_FOLLOW = 1.0  # seconds between two looks at what is followed
_AT_LEAST = 5.0  # seconds after which there is a decision in any case: some wait for their time to come
#: what else of a view a decision may turn on
_TURNS_ON = ("doubt", "outside_nodes", "outside_wanted", "held", "holdable", "levers", "releasable")
#: of a view, what is shown as it is
_SHOWN = ("watts", "uncertainty", "source", "doubt", "held", "threads", "cap", "released")
_MOST = 2_000  # samples in one answer: who is far behind asks again
#: running jobs that metrics tell apart by name: each one is a time series
_MOST_JOBS = 50
_OTHERS = "(others)"


def worker_meters(context: Context) -> WorkerSetting:
    """What workers sample their power with, if they do: the arguments of ``PowerPlugin``."""
    return WorkerSetting(context, PowerPlugin)


class PowerService(Service):
    """Adds what is known of power to decisions, and pulls the levers that plans say."""

    metrics = {
        "power_watts": (False, "Power of all nodes now, by how it is known", "source"),
        "power_uncertainty_watts": (False, "Half-width of the 95 % interval of that power"),
        "power_lower_watts": (False, "Where the power corridor begins"),
        "power_upper_watts": (False, "Where the power corridor ends, if it does"),
        "power_forecast_watts": (False, "The least and the most power that is forecast", "bound"),
        "power_outside_seconds": (True, "How long power was outside its corridor"),
        "power_outside_joules": (True, "Energy above or below the power corridor"),
        "power_violations": (True, "Times that power stayed outside its corridor"),
        "power_held_nodes": (False, "Nodes that start no work for the sake of power"),
        "power_job_watts": (
            False,
            "Power of running jobs by name, the largest ones; the others together",
            "job",
        ),
    }
    parts = {"power": "power_now"}
    feed_key = "power"
    #: seconds that power is watched after the last policy that wanted it
    lingers: ClassVar[float] = 300.0
    levers: PowerLevers
    jobs: JobPowers

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: how power was, for as long as somebody observes it
        self.trace = LiveTrace()
        #: what is seen through the meter; None while nobody watches
        self.sight: Sight | None = None
        self.energies = JobEnergies()
        #: what is followed for the corridor, if the policy says to
        self.source: CorridorSource | None = None
        #: what the policy last said of the corridor
        self.verdict: Verdict | None = None
        self._said_at = 0.0
        self._policy: Policy | None = None
        self._meters = worker_meters(context)
        self._forecasting: LiveForecasts | None = None
        self._timer = Timer(context, "a look at power", self._tick)
        self._lingering = Timer(context, "the end of a watch", self.release)
        #: when the next look is, and the corridor that it was planned with
        self._due = 0.0
        self._planned: Corridor | None = None
        #: when the view was made, and of which state
        self._seen = (-1.0, -1)
        #: the view and the bounds that the last decision saw, and when
        self._decided: tuple[PowerView, tuple[float, float] | None, float] | None = None

    # its life

    def begin(self) -> None:
        """Jobs anew."""
        self.verdict, self._policy = None, self.context.policy
        self.levers = self.context.get(PowerLevers)
        self.jobs = JobPowers(self.context, None)
        self._adjust()

    def release(self) -> None:
        """Watch no more, and leave nothing behind. ``settle`` waits for what that takes."""
        self._stop()
        if self.sight is not None:
            levels = self.sight.levels
            self.sight = self.source = None
            self.context.indices.power = None
            self.energies.stop()
            self._meters.set(None)
            self.jobs.note_ended(levels, {})

    async def settle(self) -> None:
        """Workers have heard of it, and what is to be remembered of jobs is."""
        await self._meters.settle()
        await self.jobs.settle()

    def cancel(self) -> None:
        self._stop()
        self._meters.cancel()
        if self.sight is not None:
            self.jobs.note_ended(self.sight.levels, {})

    def policy_changes(self) -> None:
        policy = self.context.policy
        if policy != self._policy:
            self._policy, self.verdict = policy, None
            if policy.power is None:
                self.levers.release()
        self._adjust()

    def _adjust(self) -> None:
        """Another policy, other settings: watch, or do so no more; follow what the policy says."""
        context = self.context
        strategy, interval = context.policy.power, context.settings["power-interval"]
        if strategy is not None or context.settings["power-watch"]:
            self._lingering.stop()
        elif self.sight is None or not self.lingers:
            self.release()
            return
        elif not self._lingering.is_set:
            self._lingering.set(self.lingers)
        follow = "" if strategy is None else strategy.follow
        if self.source is not None and self.source.follow != follow:
            self.source.close()
            self.source = None
        if follow and self.source is None:
            self.source = CorridorSource(context, follow, min(_FOLLOW, interval))
        if self.sight is None:
            self._watch()
        else:
            self._look_in(max(self._due - context.clock(), 0.0))
        looks_ahead = strategy is not None and strategy.looks_ahead
        if not looks_ahead:
            self._forecast_no_more()
        elif self._forecasting is None:
            self._forecasting = LiveForecasts(context, period=interval)
        self._decided = None

    def _watch(self) -> None:
        context, settings = self.context, self.context.settings
        meter = meter_of(settings)
        self.sight = Sight(context, meter)
        path = settings["power-history"]
        if path == "default":  # what was made up says nothing about real jobs
            path = default_path() if isinstance(meter, WorkerMeter) else None
        self.jobs = JobPowers(context, None if path is None else Path(path))
        if isinstance(meter, WorkerMeter):
            self._meters.set((meter.interval, meter.measured, settings["power-meter"] == "auto"))
        self._look_in(0.0)

    def _stop(self) -> None:
        self._timer.stop()
        self._lingering.stop()
        if self.source is not None:
            self.source.close()
        self._forecast_no_more()

    def _forecast_no_more(self) -> None:
        if self._forecasting is not None:
            self._forecasting.close()
            self._forecasting = None

    def job_ends(self, job: LiveJob) -> None:
        indices = self.context.indices
        if self.sight is not None and self.energies.of(job.id) is None:  # it came after the last look
            self.energies.look(indices.now, self.watts(), indices.running)
        self.energies.ends(job.id, indices.now)

    # once a second

    def _tick(self) -> None:
        try:
            self._look()
        finally:
            if self.sight is not None:
                self._look_in(self.context.settings["power-interval"])

    def _look_in(self, seconds: float) -> None:
        """The next look comes then, or sooner if the corridor changes before."""
        now, self._planned = self.context.clock(), self.corridor
        steps = () if self._planned is None else self._planned.coming(now, now + seconds)
        self._due = steps[0][0] if steps else now + seconds
        self._timer.set(self._due - now)

    def _look(self) -> None:
        context = self.context
        if self.sight is None:
            return
        context.look_at_the_clock()
        now = context.indices.now
        self.sight.look(now)
        self.energies.look(now, self.watts(), context.indices.running)
        self.jobs.note_ended(self.sight.levels, context.indices.running)
        view = self._renew()
        if self._forecasting is not None:
            self._forecasting.add(now, view.watts)
        self.trace.add(now, view, *(self._bounds() or ()))
        if self._is_news(view):
            context.wake()

    def _is_news(self, view: PowerView) -> bool:
        """Whether a decision could come out otherwise than the last one."""
        bounds = self._bounds()
        if self._decided is None or self.context.policy.power is None:
            return self.context.policy.power is not None
        before, bounds_before, when = self._decided
        if bounds != bounds_before or self.context.indices.now - when >= _AT_LEAST:
            return True
        lower, upper = bounds or (0.0, inf)
        least, most = view.forecast or (view.watts, view.watts)
        if min(least, view.watts) < lower or max(most, view.watts) > upper:
            return True
        return abs(view.watts - before.watts) > _NEWS * before.watts or any(
            getattr(view, name) != getattr(before, name) for name in _TURNS_ON
        )

    # decisions

    def refresh(self) -> None:
        """The view is as of now, as far as that can be known without another reading."""
        indices = self.context.indices
        if self.sight is None:
            return
        if self._planned != self.corridor:
            self._look_in(max(self._due - self.context.clock(), 0.0))
        at, revision = self._seen
        is_same = indices.revision == revision and indices.power is not None
        if not is_same or not 0 <= indices.now - at < _FRESH:
            self._renew()

    def _renew(self) -> PowerView:
        indices = self.context.indices
        view = indices.power = self.view()
        self._seen = indices.now, indices.revision
        return view

    def decides(self) -> None:
        if (view := self.context.indices.power) is not None:
            self._decided = view, self._bounds(), self.context.indices.now

    @property
    def corridor(self) -> Corridor | None:
        """The one that holds for the policy in force."""
        return self._corridor_of(self.context.policy)

    def _corridor_of(self, policy: Policy) -> Corridor | None:
        """The one that would hold for this policy, as far as that is known."""
        if policy.power is None:
            return None
        if self.source is not None and self.source.follow == policy.power.follow and self.source.corridor:
            return self.source.corridor
        return policy.power.corridor

    def _bounds(self) -> tuple[float, float] | None:
        """Those that hold now, if any do."""
        corridor = self.corridor
        return None if corridor is None else corridor.at(self.context.indices.now)

    def facts(self, policy: Policy) -> Mapping[str, Any]:
        return {"corridor": self._corridor_of(policy)}

    def prepare(self, indices: Indices, policy: Policy) -> None:
        """A policy that looks at power sees it, watched or not."""
        if policy.power is not None and indices.power is None:
            indices.power = self.view()

    def freeze(self, snapshot: Snapshot) -> None:
        """The policy's own corridor: another policy has another."""
        power = self.context.policy.power
        if self.corridor is not None and (power is None or not power.follow):
            snapshot.corridor = None

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """Holds, caps, nodes that are given back, and the verdict."""
        self.context.indices.pull_levers(plan)
        why = None
        if plan.hold or plan.cap or plan.release or plan.verdict:
            why = explain_levers(snapshot, self.context.policy.rules, plan)
        self.levers.pull(plan, why)
        if plan.verdict is not None:
            self.verdict, self._said_at = plan.verdict, plan.time
            told = Happening(plan.id, plan.time, "corridor", reason=str(plan.verdict), why=why)
            self.context.story.tell(told)

    # answers

    def _looking(self) -> Sight:
        """Who looks; while nobody does, somebody who knows no more than the model."""
        return self.sight or Sight(self.context, meter_of(self.context.settings))

    def _readings(self) -> dict[str, NodeReading]:
        sight = self._looking()
        return sight.readings(sight.uses())

    def view(self) -> PowerView:
        """Power as of now; by the model alone while nobody watches."""
        sight, levers = self._looking(), self.levers
        uses = sight.uses()
        readings = sight.readings(uses)
        watts, uncertainty, source = total(readings)
        idle, active = sight.idle(uses), sight.active(uses)
        working, wanted = outside_nodes(self.context, uses)
        forecast = None
        if self._forecasting is not None:
            forecast = self._forecasting.latest(self.context.indices.now)
        return PowerView(
            watts=watts,
            source=source,
            uncertainty=uncertainty,
            idle=idle,
            active=active,
            jobs=self.jobs.now(sight.levels, idle, active),
            outside=sight.levels.outside.range or active,
            outside_nodes=working,
            outside_wanted=wanted,
            held=levers.held,
            holdable=levers.holdable,
            threads=levers.share.value,
            cap=levers.watts_of_nodes.value,
            levers=levers.available | ({"cap"} if sight.can_cap else set()),
            releasable=levers.releasable,
            released=levers.released,
            forecast=None if forecast is None else forecast.range,
            doubt=in_doubt(readings),
        )

    def watts(self) -> Mapping[str, float]:
        return {node: reading.watts for node, reading in self._readings().items()}

    def seen_watts(self) -> Mapping[str, float]:
        return {} if self.sight is None else self.watts()

    def why_waits(self, job: LiveJob) -> str:
        """Room below the corridor's upper bound, if that is it."""
        view, bounds = self.context.indices.power, self._bounds()
        if view is None or bounds is None:
            return ""
        nodes = job.model.nodes if job.model.kind == "rigid" else job.model.min_nodes
        more = nodes * (view.per_node(job.id).most - view.idle)
        if view.watts + view.uncertainty + more <= bounds[1]:
            return ""
        watts, most, asked = (show_large(value, "W") for value in (view.watts, bounds[1], more))
        return f"{count_nodes(nodes)} more would draw {asked}; power is {watts} and is to stay below {most}"

    # what is shown

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        return {"hpc_power": self._now}

    def status(self) -> Mapping[str, Any]:
        """Watts now and the corridor, if power is observed; no upper bound is None."""
        view, trace = self.context.indices.power, self.trace
        if view is None or trace.last is None:
            return {"power": None}
        found = {
            **_plain(trace.last._asdict()),
            "is_outside": trace.last.is_outside,
            "is_steered": self.context.policy.power is not None,
            "idle_node": view.idle,
            "jobs": {
                name: view.per_node(name).times(len(running.nodes))
                for name, running in self.context.indices.running.items()
            },
            "outside_nodes": view.outside_nodes,
            "held_nodes": view.held,
            "released_nodes": view.released,
            "threads": view.threads,
            "cap": view.cap,
            "verdict": self._said(),
            "seconds_outside": trace.outside_seconds,
            "joules_outside": trace.outside_energy,
            "violations": trace.violation_count,
        }
        return {"power": found}

    def of_job(self, job: LiveJob) -> Mapping[str, Any]:
        """The joules that it has used while power was watched."""
        return {"energy": self.energies.of(job.id)}

    def feed(self, read: Any) -> Any:
        """Samples from that number on: time, watts, lower and upper bound (None if there is none), least and
        most that is forecast (None if nothing is), uncertainty, and why it is not to be trusted if so. The
        verdict on the corridor, in brief."""
        read_number("power", read)
        first = max(read, self.trace.count - len(self.trace.samples))
        samples = [
            (*one[:3], None if one.upper == inf else one.upper, *(one.forecast or (None, None)), *one[6:])
            for one in list(self.trace.since(read))[:_MOST]
        ]
        verdict = self.verdict
        said = verdict and {"time": self._said_at, "is_kept": verdict.is_kept, "reason": verdict.reason}
        return {"first": first, "samples": samples, "verdict": said}

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        power = status["power"]
        if power is None:
            return {}
        names = {job["id"]: job["name"] for job in status["jobs"]}
        jobs: Counter[str] = Counter()
        for job, (least, most) in power["jobs"].items():
            jobs[names.get(job, job)] += (least + most) / 2
        largest = dict(jobs.most_common(_MOST_JOBS))
        if len(jobs) > len(largest):
            largest[_OTHERS] = jobs.total() - sum(largest.values())
        return {
            "power_watts": {power["source"]: power["watts"]},
            "power_uncertainty_watts": {"": power["uncertainty"]},
            "power_lower_watts": {"": power["lower"]},
            "power_upper_watts": {} if power["upper"] is None else {"": power["upper"]},
            "power_forecast_watts": dict(zip(("least", "most"), power["forecast"] or (), strict=False)),
            "power_outside_seconds": {"": power["seconds_outside"]},
            "power_outside_joules": {"": power["joules_outside"]},
            "power_violations": {"": power["violations"]},
            "power_held_nodes": {"": power["held_nodes"]},
            "power_job_watts": largest,
        }

    def _now(self) -> dict[str, Any]:
        """All that is known of power now; by the model alone while nobody watches. Watts throughout; what has
        no bound is None."""
        context, indices = self.context, self.context.indices
        context.look_at_the_clock()
        self.refresh()
        view = self.view() if indices.power is None else indices.power
        lower, upper = self._bounds() or (0.0, inf)
        corridor, source, holders = self.corridor, self.source, context.holders()
        meter = context.settings["power-meter"]
        return {
            "time": indices.now,
            "is_watched": self.sight is not None,
            "meter": meter if isinstance(meter, str) else next(iter(meter)),
            **{name: getattr(view, name) for name in _SHOWN},
            "corridor": {
                "lower": lower,
                "upper": None if upper == inf else upper,
                "is_kept": lower <= view.watts <= upper,
                "steps": None if corridor is None else corridor.written(),
                "follow": "" if source is None else source.follow,
                "problem": "" if source is None else source.problem,
            },
            "verdict": self._said(),
            "forecast": None if view.forecast is None else list(view.forecast),
            "idle_node": view.idle,
            "busy_node": list(view.active),
            "nodes": [
                {
                    "name": name,
                    "watts": reading.watts,
                    "uncertainty": reading.uncertainty,
                    "source": reading.source,
                    "doubt": reading.doubt,
                    "job": holders[name].id if name in holders else None,
                }
                for name, reading in self._readings().items()
            ],
            "jobs": [self._job(job_id, per_node) for job_id, per_node in view.jobs.items()],
            "outside": {
                "working": view.outside_nodes,
                "wanted": view.outside_wanted,
                "per_node": list(view.outside),
            },
            "levers": sorted(view.levers),
        }

    def _job(self, job_id: str, per_node: PowerRange) -> dict[str, Any]:
        job = self.context.jobs[job_id]
        nodes = len(job.nodes) if job.state == "running" else 0
        watts = {"per_node": list(per_node), "watts": list(per_node.times(nodes))}
        return {"id": job_id, "name": job.name, "nodes": nodes, **watts}

    def _said(self) -> dict[str, Any] | None:
        """The verdict, as plain data."""
        if self.verdict is None:
            return None
        return _plain(asdict(self.verdict)) | {
            "expected": list(self.verdict.expected),
            "text": str(self.verdict),
            "help": self.verdict.help,
        }


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity."""
    return {key: None if value == inf else value for key, value in found.items()}


SERVICE = PowerService
