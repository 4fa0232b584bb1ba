"""Why a decision and not another: the rule that spoke, what it looked at, and what was not done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any

from dask_hpc.model.plan import Plan
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes

_MOST = 3  # alternatives that are told; a queue of thousands is no explanation


@dataclass(frozen=True, slots=True)
class Explanation:
    """Goes with one decision of a plan. Plain data, to be sent and stored."""

    rule: str
    inputs: Mapping[str, Any]
    rejected: tuple[str, ...]

    @property
    def is_for_power(self) -> bool:
        """Whether the power strategy decided it."""
        return self.rule.startswith("power:")


def explain(snapshot: Snapshot, plan: Plan, rules: Mapping[str, str]) -> dict[str, Explanation]:
    """An explanation for every job that a plan speaks of, from the snapshot it was made from.

    ``rules`` names the strategy behind each kind of decision: start, resize, request, interrupt.
    """
    machine: dict[str, Any] = {
        "nodes": snapshot.size,
        "idle": snapshot.idle,
        "waiting": len(snapshot.waiting),
        "running": len(snapshot.running),
    }
    found = {}
    not_started = tuple(_not_started(snapshot, plan)) if plan.starts else ()
    not_resized = tuple(_not_resized(snapshot, plan)) if plan.resizes else ()
    for start in plan.starts:
        job = snapshot.waiting[start.job]
        walltime = None if job.walltime == inf else job.walltime
        inputs = machine | {"asks": job.nodes, "walltime": walltime, "waited": plan.time - job.submitted}
        found[start.job] = Explanation(rules["start"], inputs, not_started)
    for resize in plan.resizes:
        running = snapshot.running[resize.job]
        inputs = machine | {
            "from": len(running.nodes),
            "to": resize.nodes,
            "min": running.job.min_nodes,
            "max": running.job.max_nodes,
        }
        if resize.job in snapshot.mtct:
            inputs["mtct"] = snapshot.mtct[resize.job]
        rule = rules["request" if resize.job in snapshot.requests else "resize"]
        found[resize.job] = Explanation(rule, inputs, not_resized)
    for interrupt in plan.interrupts:
        inputs = machine | {"from": len(snapshot.running[interrupt.job].nodes)}
        found[interrupt.job] = Explanation(rules["interrupt"], inputs, ())
    return found


def _not_started(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """The first waiting jobs that the plan leaves waiting, and whether they would have fitted."""
    started = {start.job: start.nodes for start in plan.starts}
    left = snapshot.idle - sum(started.values())
    waiting = (job for job in snapshot.waiting if job.id not in started)
    for job in islice(waiting, _MOST):
        fits = job.nodes <= left
        why = "would fit, but its turn has not come" if fits else f"{count_nodes(left)} left"
        yield f"start {job.id} on {count_nodes(job.nodes)}: {why}"


def _not_resized(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """The first jobs that could have changed size instead."""
    resized = {resize.job for resize in plan.resizes}
    others = (running for running in snapshot.resizable if running.job.id not in resized)
    for running in islice(others, _MOST):
        job = running.job
        yield (
            f"resize {job.id} instead: stays at {count_nodes(len(running.nodes))} "
            f"of {job.min_nodes} to {job.max_nodes}"
        )
