"""Power as a service of a managed cluster: it is watched, held in its corridor by levers, and shown."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import inf, isfinite
from typing import Any

from dask_hpc.cluster.request import read_number
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Samples, Service
from dask_hpc.model.plan import Plan
from dask_hpc.model.power import PowerRange, Verdict
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.story import Happening, explain_levers
from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.policy import Policy
from dask_hpc.power.scheduler.levers import WHY, PowerLevers
from dask_hpc.power.scheduler.trace import LiveTrace, Sample
from dask_hpc.power.scheduler.watch import PowerWatch

_MOST = 2_000  # samples in one answer: who is far behind asks again
#: running jobs that metrics tell apart by name: each one is a time series
_MOST_JOBS = 50
_OTHERS = "(others)"


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
    hold_reason = WHY
    levers: PowerLevers

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: how power was, for as long as somebody observes it
        self.trace = LiveTrace()
        self.watch = PowerWatch(context, self.trace)
        #: what the policy last said of the corridor
        self.verdict: Verdict | None = None
        self._policy: Policy | None = None

    # its life

    def begin(self) -> None:
        """Levers anew."""
        self.verdict, self._policy = None, self.context.policy
        self.levers = PowerLevers(self.context)
        self.watch.begin(self.levers)
        self.watch.adjust()

    def release(self) -> None:
        """Watch no more, and let go of all levers."""
        self.watch.close()
        self.levers.let_go()

    async def settle(self) -> None:
        """Workers have heard of it."""
        await self.levers.settle()
        await self.watch.settle()

    def cancel(self) -> None:
        """No timer is left."""
        self.watch.cancel()
        self.levers.cancel()

    # what happens

    def policy_changes(self) -> None:
        """Another corridor, or none."""
        policy = self.context.policy
        if policy != self._policy:
            self._policy, self.verdict = policy, None
            if policy.power is None:
                self.levers.let_go()
        self.watch.adjust()

    def worker_joins(self, address: str) -> None:
        """It has as many threads as all."""
        self.levers.caps.worker_joins(address)

    def worker_leaves(self, address: str) -> None:
        """It has none."""
        self.levers.caps.worker_leaves(address)

    def nodes_given(self, nodes: tuple[str, ...]) -> None:
        """They work for the job that gets them."""
        self.levers.give(nodes)

    # decisions

    def refresh(self) -> None:
        """The view is as of now."""
        self.watch.refresh()

    def decides(self) -> None:
        """What has changed since is news."""
        self.watch.decides()

    def facts(self, policy: Policy) -> Mapping[str, Any]:
        """The corridor that holds."""
        return {"corridor": self.watch.corridor_of(policy)}

    def prepare(self, indices: Indices, policy: Policy) -> None:
        """A policy that looks at power sees it, watched or not."""
        if policy.power is not None and indices.power is None:
            indices.power = self.watch.view()

    def freeze(self, snapshot: Snapshot) -> None:
        """The policy's own corridor: another policy has another."""
        if self.watch.corridor is not None and not getattr(self.context.policy.power, "follow", ""):
            snapshot.corridor = None

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """Holds, caps, nodes that are given back, and the verdict."""
        self.context.indices.pull_levers(plan)
        why = None
        if plan.hold or plan.cap or plan.release or plan.verdict:
            why = explain_levers(snapshot, self.context.policy.rules, plan)
        self.levers.pull(plan, why)
        if plan.verdict is not None:
            self.verdict = plan.verdict
            told = Happening(plan.id, plan.time, "corridor", reason=str(plan.verdict), why=why)
            self.context.story.tell(told)

    def keep(self) -> None:
        """As many nodes are held as the last plan said."""
        self.levers.keep()

    # answers

    def watts(self) -> Mapping[str, float]:
        """What each node draws."""
        return {node: reading.watts for node, reading in self.watch.readings().items()}

    def threads_of(self, address: str) -> int:
        """Before its threads were capped."""
        return self.levers.caps.own_threads(address)

    def most_nodes(self) -> float:
        """No more than the corridor has room for."""
        return self.levers.most_nodes()

    def gives_nodes_back(self) -> bool:
        """Whether a plan does without some."""
        return bool(self.levers.released)

    def cluster_asks(self, asker: str, interval: float, spare: int) -> None:
        """It could give nodes back."""
        self.levers.adapts(asker, interval, spare)

    def why_waits(self, job: LiveJob) -> str:
        """Room below the corridor's upper bound, if that is it."""
        view, corridor = self.context.indices.power, self.watch.corridor
        if view is None or corridor is None:
            return ""
        _, upper = corridor.at(self.context.indices.now)
        nodes = job.model.nodes if job.model.kind == "rigid" else job.model.min_nodes
        more = nodes * (view.per_node(job.id).most - view.idle)
        if view.watts + view.uncertainty + more <= upper:
            return ""
        watts, most, asked = (show_large(value, "W") for value in (view.watts, upper, more))
        return f"{count_nodes(nodes)} more would draw {asked}; power is {watts} and is to stay below {most}"

    # what is shown

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Watts of everything."""
        return {"hpc_power": self.now}

    def status(self) -> Mapping[str, Any]:
        """Watts now and the corridor, if power is observed; no upper bound is None."""
        return {"power": self._status()}

    def _status(self) -> dict[str, Any] | None:
        view, now = self.context.indices.power, self.trace.last
        if view is None or now is None:
            return None
        verdict = None
        if self.verdict is not None:
            verdict = _plain(asdict(self.verdict)) | {"text": str(self.verdict)}
        return {
            **_plain(now._asdict()),
            "is_outside": now.is_outside,
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
            "verdict": verdict,
            "seconds_outside": self.trace.outside_seconds,
            "joules_outside": self.trace.outside_energy,
            "violations": self.trace.violation_count,
        }

    def feed(self, read: Any) -> Any:
        """Samples from that number on: time, watts, lower and upper bound (None if there is none), least and
        most that is forecast (None if nothing is), uncertainty, and why it is not to be trusted if so."""
        read_number("power", read)
        first = max(read, self.trace.count - len(self.trace.samples))
        return {"first": first, "samples": [_row(one) for one in list(self.trace.since(read))[:_MOST]]}

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        """Power now, and of the largest jobs."""
        found = status["power"]
        return {} if found is None else _samples(found, {job["id"]: job["name"] for job in status["jobs"]})

    def now(self) -> dict[str, Any]:
        """All that is known of power now; by the model alone while nobody watches. Watts throughout; what has
        no bound is None."""
        watch, indices = self.watch, self.context.indices
        self.context.look_at_the_clock()
        watch.refresh()
        view = watch.view() if indices.power is None else indices.power
        corridor = watch.corridor
        lower, upper = (0.0, inf) if corridor is None else corridor.at(indices.now)
        source = watch.source
        return {
            "time": indices.now,
            "is_watched": watch.sight is not None,
            "meter": watch.meter_name,
            "watts": view.watts,
            "uncertainty": view.uncertainty,
            "source": view.source,
            "doubt": view.doubt,
            "corridor": {
                "lower": lower,
                "upper": None if upper == inf else upper,
                "is_kept": lower <= view.watts <= upper,
                "steps": None if corridor is None else corridor.written(),
                "follow": "" if source is None else source.follow,
                "problem": "" if source is None else source.problem,
            },
            "verdict": None if self.verdict is None else _said(self.verdict),
            "forecast": None if view.forecast is None else list(view.forecast),
            "idle_node": view.idle,
            "busy_node": list(view.active),
            "nodes": self._nodes(),
            "jobs": [self._job(job_id, per_node) for job_id, per_node in view.jobs.items()],
            "outside": {
                "working": view.outside_nodes,
                "wanted": view.outside_wanted,
                "per_node": list(view.outside),
            },
            "levers": sorted(view.levers),
            "held": view.held,
            "threads": view.threads,
            "cap": view.cap,
            "released": view.released,
        }

    def _nodes(self) -> list[dict[str, Any]]:
        holders = self.context.holders()
        return [
            {
                "name": name,
                "watts": reading.watts,
                "uncertainty": reading.uncertainty,
                "source": reading.source,
                "doubt": reading.doubt,
                "job": holders[name].id if name in holders else None,
            }
            for name, reading in self.watch.readings().items()
        ]

    def _job(self, job_id: str, per_node: PowerRange) -> dict[str, Any]:
        job = self.context.jobs[job_id]
        nodes = len(job.nodes) if job.state == "running" else 0
        return {
            "id": job_id,
            "name": job.name,
            "nodes": nodes,
            "per_node": list(per_node),
            "watts": list(per_node.times(nodes)),
        }


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity."""
    return {key: None if value == inf else value for key, value in found.items()}


def _said(verdict: Verdict) -> dict[str, Any]:
    return _plain(asdict(verdict)) | {"expected": list(verdict.expected), "text": str(verdict)}


def _row(one: Sample) -> tuple[float | str | None, ...]:
    least, most = (None, None) if one.forecast is None else (one.forecast.least, one.forecast.most)
    upper = one.upper if isfinite(one.upper) else None
    return one.time, one.watts, one.lower, upper, least, most, one.uncertainty, one.doubt


def _samples(power: dict[str, Any], names: dict[str, str]) -> dict[str, Samples]:
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


SERVICE = PowerService
