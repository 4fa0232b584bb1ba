"""``cluster.adapt(ask="fit")``: units are asked for in the shape that fits the queue of Slurm just now.

How many units there shall be is decided as ever (the concern ``size``); how they are asked for is decided
here, from the queue as everybody may see it: with which walltime, in which partition and quality of service,
and whether those that wait are better taken back. Fewer are asked for than wanted where fewer do the work
that is known.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from time import monotonic, time
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.batch.slurm_queue import read_bytes, read_limit
from dask_hpc.batch.systems import is_slurm
from dask_hpc.cluster.client.batch_jobs import BatchJobs
from dask_hpc.cluster.units import Facts, UnitFacts
from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.planning.asks.budget import AskSettings, SpentBudget, show_node_hours
from dask_hpc.planning.asks.calibration import PredictedWait
from dask_hpc.planning.asks.line import WaitingAsk
from dask_hpc.planning.asks.queue import QueueView
from dask_hpc.planning.asks.shapes import AskShape, WantedWork
from dask_hpc.planning.asks.watch import AskPlan, AskWatch, told_plan
from dask_hpc.planning.polling import Manners

logger = logging.getLogger(__name__)

_OPTION = re.compile(r"^#SBATCH\s+(--?[a-zA-Z-]+)(?:[= ]\s*(\S+))?", re.MULTILINE)
_NAMES = {"-t": "--time", "-p": "--partition", "-q": "--qos", "-c": "--cpus-per-task", "-A": "--account"}
_GROWN = 1.2  # so much more work than at the last decision is a new one
_FRESH = 1.5  # times as old as is due, an answer may be: sooner nobody may ask


def header_of(job: Any) -> dict[str, str]:
    """The options in the header of a batch job's script, by their long names."""
    found = _OPTION.findall(str(getattr(job, "job_header", "")))
    return {_NAMES.get(option, option): value for option, value in found}


class FitAsker:
    """One per adaptation of a cluster object. ``plan`` is asked at every look what becomes of a decision
    about the size; ``dress`` gives the units that are then added their shapes."""

    def __init__(self, cluster: Any, settings: AskSettings, jobs: BatchJobs, manners: Manners) -> None:
        job = compat.batch_job_of(cluster)
        if not is_slurm(job):
            found = f"found 'fit' for {shown(type(cluster).__name__)}"
            raise InputError("adapt: ask", found, "a cluster of dask-jobqueue's SLURMCluster")
        header = header_of(job)
        self._cluster, self._settings, self._jobs, self._manners = cluster, settings, jobs, manners
        self._account = header.get("--account", "")
        walltime, memory = read_limit(header.get("--time")), read_bytes(header.get("--mem", ""))
        usual = AskShape(walltime, header.get("--partition", ""), header.get("--qos", ""))
        named = settings.partitions or ((usual.partition,) if usual.partition else ())
        self._watch = AskWatch(
            usual,
            int(header.get("--cpus-per-task", job.worker_cores)),
            memory,
            partitions=named,
            qos=settings.qos or ((usual.qos,) if usual.qos else ()),
            margin=settings.margin,
            gain=settings.gain,
            latency=settings.latency,
            grain=2 * settings.latency,
        )
        self._budget = SpentBudget(settings.budget)
        #: asks by unit; what is expected of them; those whose job id is not known yet
        self._asks: dict[str, WaitingAsk] = {}
        self._expected: dict[str, PredictedWait] = {}
        self._why: dict[str, str] = {}
        self._next: list[tuple[AskShape, PredictedWait | None, str]] = []
        self._decided_at = -inf
        self._decided_for = 0.0
        self._is_settled = False
        self._told = ""
        #: what happened, for the story
        self.news: list[tuple[str, str]] = []

    def may_submit(self, facts: Facts) -> float:
        """How many units the size may ask for now: none while what was decided holds."""
        is_old = monotonic() - self._decided_at >= self._manners.poll
        live = {unit.name for unit in facts.units if unit.state != "gone"}
        self._is_settled = self._is_settled and live.issuperset(self._asks)
        return 0.0 if self._is_settled and not is_old else facts.may_submit

    async def plan(self, plan: dict[str, Any], facts: Facts) -> dict[str, Any]:
        """What becomes of a decision about the size."""
        self._notice(facts)
        if plan["work"] > _GROWN * self._decided_for + self._settings.least:
            self._is_settled = False  # there is more to do: the next look may ask for more
        waiting = [self._asks[one.name] for one in facts.units if self._is_waiting(one)]
        waiting = [ask for ask in waiting if ask.unit not in {*plan["cancel"], *plan["dead"]}]
        if not plan["submit"] and not waiting:
            self._jobs.look_away()
            return plan
        # whether a hole has opened meanwhile is seen when the queue is looked at anyway
        now, wants = monotonic(), plan["submit"] > 0 and not self._is_settled
        queue = await self._jobs.look_around(wants)
        is_due = now - self._decided_at >= self._manners.poll and queue.asked > self._decided_at
        is_known = queue.is_fresh(now, _FRESH * self._manners.due) if wants else is_due
        if not is_known and not queue.is_silent:
            return {**plan, "submit": 0}  # until it is
        view = None if queue.is_silent else queue.view(self._account)
        if view is not None:
            self._budget.share = self._share(view)
        work = self._work(plan, facts, waiting)
        self._decided_at, self._decided_for, self._is_settled = monotonic(), plan["work"], True
        if view is None:
            if not plan["submit"]:
                return plan
            self._tell("Slurm does not show its queue: units are asked for as configured")
            usual, left = self._watch.usual, work.budget / self._watch.usual.walltime
            count = plan["submit"] if work.budget == inf else min(plan["submit"], int(left))
            self._next = [(usual, None, "as configured")] * count
            return {**plan, "submit": count}
        for words in view.unknown:
            logger.info("dask-hpc: not known of the queue: %s", words)
        found = await asyncio.to_thread(self._watch.decide, view, waiting, plan["submit"], work)
        return self._carried_out(plan, facts, found, work)

    def dress(self, names: Sequence[Any]) -> None:
        """Give these new units of the cluster object the shapes that were decided."""
        spec = self._cluster.worker_spec
        for name, (shape, wait, why) in zip(names, self._next, strict=False):
            spec[name] = {**spec[name], "options": _shaped(spec[name]["options"], shape)}
            unit = str(name)
            is_filler = wait is not None and wait.is_none
            self._asks[unit] = WaitingAsk(unit, shape, time(), is_filler=is_filler)
            self._why[unit] = why
            self._budget.seen(unit, shape.walltime, 0.0)
            if wait is not None:
                self._expected[unit] = wait
        self._next = []

    def rows(self, facts: Facts) -> list[dict[str, Any]]:
        """For ``Manager.asks``: the units that wait."""
        now = time()
        rows = []
        for unit in facts.units:
            if self._is_waiting(unit):
                ask, wait = self._asks[unit.name], self._expected.get(unit.name)
                since = monotonic() - self._decided_at
                rows.append(
                    {
                        "unit": ask.unit,
                        "job": ask.job,
                        "walltime": ask.shape.walltime,
                        "partition": ask.shape.partition,
                        "qos": ask.shape.qos,
                        "nodes": ask.shape.nodes,
                        "asked_ago": max(0.0, now - ask.asked),
                        **_clocks(wait, since),
                        "why": self._why.get(ask.unit, ""),
                    }
                )
        return rows

    def _is_waiting(self, unit: UnitFacts) -> bool:
        is_here = unit.state in ("queued", "unknown") and not unit.is_leaving and unit.running_for is None
        return is_here and unit.name in self._asks

    def _notice(self, facts: Facts) -> None:
        """Ids that units have got meanwhile, and who is gone."""
        names = {str(name): unit for name, unit in self._cluster.workers.items()}
        for unit, ask in list(self._asks.items()):
            job = str(getattr(names.get(unit), "job_id", None) or "")
            if job and not ask.job:
                self._asks[unit] = replace(ask, job=job)
                if unit in self._expected:
                    self._watch.asked(job, ask.asked, self._expected[unit])
        live = {unit.name for unit in facts.units}
        for one in facts.units:
            shape = self._asks[one.name].shape if one.name in self._asks else self._watch.usual
            self._budget.seen(one.name, shape.walltime * shape.nodes, one.running_for or 0.0)
        self._budget.only(live)
        for known in (self._asks, self._expected, self._why):
            for gone in known.keys() - live:
                del known[gone]

    def _work(self, plan: Mapping[str, Any], facts: Facts, waiting: Sequence[WaitingAsk]) -> WantedWork:
        """What is still to be done beside what the units do that run."""
        settings = self._settings
        there = [unit for unit in facts.units if unit.state == "running" and not unit.is_leaving]
        useful = sum(max(0.0, unit.left - settings.overhead) for unit in there if unit.left < inf)
        # what takes seconds is done by as many units as are wanted, for the shortest walltime
        wanted = max(plan["work"], plan["target"] * (settings.least - settings.overhead))
        most = max(1, plan["submit"] + len(waiting))
        left = self._budget.left
        budget = left if left == inf else max(0.0, left) / max(self._budget.share, 1e-9)
        return WantedWork(max(0.0, wanted - useful), most, settings.overhead, settings.least, budget)

    def _share(self, view: QueueView) -> float:
        """What a unit takes of a node, if it leaves some of it to others."""
        usual, watch = self._watch.usual, self._watch
        part = view.partitions.get(usual.partition)
        if part is not None and part.is_exclusive:
            return 1.0
        names = part.nodes if part is not None else tuple(view.nodes)
        shares = [
            max(watch.cores / node.cores, watch.memory / node.memory if node.memory < inf else 0.0)
            for node in map(view.nodes.get, names)
            if node is not None
        ]
        return min(1.0, max(shares, default=1.0))

    def _carried_out(
        self, plan: dict[str, Any], facts: Facts, found: AskPlan, work: WantedWork
    ) -> dict[str, Any]:
        shapes, waits = list(found.new), list(found.expected_new)
        is_poor = work.budget < self._settings.least
        there = sum(not unit.is_leaving and unit.state != "gone" for unit in facts.units)
        least = facts.minimum - (there - len(found.withdraw))
        if not shapes and plan["submit"] and not is_poor and (least > 0 or not there):
            # no shape is known that would start: as configured, then
            shapes, waits = [self._watch.usual] * min(plan["submit"], max(1, least)), []
        self._next = [
            (shape, waits[at] if at < len(waits) else None, found.why) for at, shape in enumerate(shapes)
        ]
        self._expected |= found.expected
        for unit in found.withdraw:
            self._asks.pop(unit, None)
        if shapes:
            self._tell(told_plan(found) or "as configured")
        elif is_poor:
            self._tell(f"nothing more: {self._spent()}")
        self.news += [("ask", f"{unit} is taken back: {why}") for unit, why in found.withdraw.items()]
        return {**plan, "submit": len(shapes), "cancel": [*plan["cancel"], *found.withdraw]}

    def _spent(self) -> str:
        total, used = show_node_hours(self._budget.total), show_node_hours(self._budget.used)
        return f"of a budget of {total} are {used} used, and the others promised to units"

    def _tell(self, words: str) -> None:
        """Once, until something else is told."""
        if words != self._told:
            self._told = words
            self.news.append(("ask", words))


def _clocks(wait: PredictedWait | None, since: float) -> dict[str, float | None]:
    """In how many seconds a unit is expected, that long after it was predicted."""
    named = {"starts_in": wait.median, "low": wait.low, "high": wait.high} if wait else {}
    found = {name: max(0.0, value - since) for name, value in named.items() if value < inf}
    return {name: found.get(name) for name in ("starts_in", "low", "high")}


def _shaped(options: Mapping[str, Any], shape: AskShape) -> dict[str, Any]:
    """Options of a job of dask-jobqueue that asks for this."""
    extra = [one for one in options.get("job_extra_directives") or () if not one.startswith(("--qos", "-q "))]
    given: dict[str, Any] = {}
    if shape.walltime < inf:
        minutes = max(1, int(shape.walltime // 60))
        given["walltime"] = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    if shape.partition:
        given["queue"] = shape.partition
    if shape.qos:
        given["job_extra_directives"] = [*extra, f"--qos={shape.qos}"]
    insist(shape.nodes == 1, "shape", shape.nodes, "one node for each job of dask-jobqueue")
    return {**options, **given}
