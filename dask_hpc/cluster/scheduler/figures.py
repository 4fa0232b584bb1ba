"""The figures of a managed cluster: how long jobs wait and take, how much of it is used, what changes of size
cost. The definitions are ``planning.figures``', which the simulator has, too.
"""

from collections.abc import Mapping
from typing import Any

from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Samples
from dask_hpc.model.units import show_duration
from dask_hpc.planning.figures import PHASES, Amounts, ResizePhases, RunFigures

_NO_TIME = 0.001  # seconds that are not told


class Figures:
    """Hears from the core what happens to jobs and nodes. What it knows of a job, the job keeps."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.run = RunFigures(there=len(context.indices.nodes))
        #: direction -> phase -> seconds of all changes of size that are over
        self.adaptations = {way: {phase: Amounts() for phase in PHASES} for way in ("grow", "shrink")}
        self._closed: float | None = None

    @property
    def _now(self) -> float:
        return self._context.indices.now

    # jobs and nodes

    def submitted(self, job: LiveJob) -> None:
        """A job comes, or one that was over goes on."""
        self.run.submitted(job.model.submitted)
        self.run.goes_on(job.figures)

    def allotted(self, job: LiveJob) -> None:
        """A job has other nodes than before, or none."""
        self.run.holds(job.figures, len(job.nodes) if job.state == "running" else 0, self._now)

    def ended(self, job: LiveJob) -> None:
        """A job is over."""
        self.run.ends(job.figures, self._now, job.is_cancelled, job.ends_as == "failed")

    def ended_otherwise(self, job: LiveJob) -> None:
        """Tasks of a job that is over were tried again."""
        self.run.ended_otherwise(job.figures, job.outcome == "failed")

    def nodes_change(self) -> None:
        """Nodes have come or gone."""
        self.run.nodes(len(self._context.indices.nodes), self._now)

    def close(self) -> None:
        """Control is off: they stay as they are."""
        self._closed = self._context.clock()

    # changes of size

    def resize_begins(self, job: LiveJob, before: int, after: int) -> None:
        """A plan is being carried out that changes the size of a job. The decision took from the event that
        asked for it until now."""
        context = self._context
        now = context.clock()
        since = now if context.woken is None else context.woken
        job.figures.adaptation = ResizePhases(before, after, decision=now - since, mark=now)

    def phase_ends(self, job: LiveJob, phase: str) -> None:
        """The job's change of size has come so far."""
        if job.figures.adaptation is not None:
            job.figures.adaptation.ends(phase, self._context.clock())

    def resize_ends(self, job: LiveJob) -> str:
        """The change of size counts; answers how long its phases took, for the story, if they took time."""
        change = job.figures.adaptation
        if change is None:
            return ""
        change.is_over = True
        for phase, amounts in self.adaptations[change.direction].items():
            amounts.add(change.seconds()[phase])
        if change.drain + change.move < _NO_TIME:
            return ""
        drain, move = show_duration(change.drain), show_duration(change.move)
        return f"; its tasks there ended in {drain}, its results moved in {move}"

    def spread(self, job: LiveJob | None, seconds: float) -> None:
        """Results of a job moved for so long after it had changed its size."""
        change = None if job is None else job.figures.adaptation
        if change is None or not change.is_over:
            return
        before = change.seconds()
        change.move += seconds
        for phase, amounts in self.adaptations[change.direction].items():
            if before[phase] != change.seconds()[phase]:
                amounts.correct(before[phase], change.seconds()[phase])

    # what is shown

    @property
    def _until(self) -> float:
        return self._context.clock() if self._closed is None else self._closed

    def as_status(self) -> dict[str, Any]:
        """All of them now, as plain data; None of what is not known yet."""
        changes = {
            way: {"count": phases["total"].count} | {phase: _shown(one) for phase, one in phases.items()}
            for way, phases in self.adaptations.items()
        }
        return {**self.run.as_dict(self._until), "adaptation": changes}

    def samples(self) -> dict[str, Samples]:
        """Metrics by name; of what is not known yet there is none."""
        run, found = self.run, self.run.as_dict(self._until)
        waits = {"mean": found["mean_wait"], "largest": found["max_wait"]}
        responses = {"mean": found["mean_response"], "largest": found["max_response"]}
        changes = {
            (way, phase, of): seconds
            for way, phases in self.adaptations.items()
            for phase, one in phases.items()
            for of, seconds in _shown(one).items()
        }
        return {
            "jobs_ended": {
                "completed": run.completed,
                "failed": run.failed,
                "cancelled": run.cancelled,
            },
            "node_seconds": {"allotted": run.used, "there": run.available},
            "utilisation": _known({"": found["utilisation"]}),
            "wait_seconds": _known(waits),
            "response_seconds": _known(responses),
            "bounded_slowdown": _known({"": found["mean_bounded_slowdown"]}),
            "adaptation_seconds": _known(changes),
        }

    def of_job(self, job: LiveJob) -> dict[str, Any]:
        """Those of one job; None of what is not known yet."""
        one = job.figures
        change = one.adaptation
        return {
            "node_seconds": one.node_seconds(self._until),
            "waited": one.waited,
            "response": one.response,
            "bounded_slowdown": one.bounded_slowdown,
            "adaptation": change and {"from": change.before, "to": change.after, **change.seconds()},
        }


def _shown(one: Amounts) -> dict[str, float | None]:
    return {"last": one.last, "mean": one.mean, "largest": one.largest}


def _known(found: Mapping[Any, float | None]) -> Samples:
    return {key: value for key, value in found.items() if value is not None}
