"""What a managed cluster looks like, as plain data."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import inf
from typing import Any

from dask_hpc.cluster.request import read_number
from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.machines import machines
from dask_hpc.cluster.scheduler.management import Management
from dask_hpc.cluster.scheduler.service import Service
from dask_hpc.model.errors import insist, is_number
from dask_hpc.model.story import Happening, Story
from dask_hpc.model.units import count_nodes

#: what can be asked for beside what services show
_PARTS = ("holds", "nodes", "marked", "machines")
_MOST = 2_000  # rows in one answer: who is far behind asks again


class Status:
    """What is going on, for people and for readers who come back."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._context = management.context
        services = (one for one in self._context.services if isinstance(one, Service))
        self._of_jobs = [one for one in services if type(one).of_job is not Service.of_job]
        #: results that left with their only worker
        self.lost = 0

    def worker_lost(self, message: Mapping[str, Any]) -> None:
        """A worker is gone, and as Dask logged it, these results with it."""
        keys = message["lost-computed-tasks"]
        for service in self._context.services:
            keys = service.not_safe(keys)
        again, gone = len(keys), len(message["lost-scattered-tasks"])
        self.lost += again + gone
        if again or gone:
            words = f"worker {message['worker']} left: {again} results are computed again"
            self._context.tell("lost", words + (f", {gone} scattered ones are gone" if gone else ""))

    def whole(self) -> dict[str, Any]:
        """Nodes and who holds them; jobs, their state, and why those that wait do; what services show."""
        context, control = self._context, self._management.control
        holders = context.holders()
        lent = {one.node: name for name, known in context.indices.borrowers.items() for one in known.lent}
        found = {
            "policy": context.policy.name,
            "nodes": [
                {
                    "name": name,
                    "workers": context.nodes.workers(name),
                    "job": holders[name].id if name in holders else None,
                    "place": list(context.indices.nodes[name].place),
                    "lent": lent.get(name),
                }
                for name in context.indices.nodes
            ],
            "jobs": [self.of_job(job) for job in context.jobs.values()],
            "scripts": sorted({request["id"] for request in control.lifecycle.script_of.values()}),
            **control.holds.as_status(),
            "time": context.clock(),
            "epoch": context.epoch,
            "state": self._management.state,
            "errors": context.errors,
            "results_lost": self.lost,
            "figures": context.get(Figures).as_status(),
        }
        for service in context.services:
            found |= service.status()
        return found

    def feed(self, story: Any = 0, jobs: Any = None, parts: Any = (), **read: Any) -> dict[str, Any]:
        """What is new, for somebody who looks several times a second. ``story`` is how many rows of it the
        reader has read; ``read`` says the same of what services feed. ``jobs`` is the time of its last look
        at jobs: the answer has those that are not done, and those that have ended since; all of them for -1,
        none for None. ``parts`` of the status are given whole."""
        read_number("story", story)
        insist(jobs is None or is_number(jobs, -inf, inf), "jobs", jobs, "a time in seconds, or None")
        context, services = self._context, self._context.services
        known = {service.feed_key: service for service in services if service.feed_key}
        for key in read.keys() - known:  # of a service that is not here, perhaps
            read_number(key, read[key])
        first, rows = context.story.since(story)
        figures = context.get(Figures)
        newer = (
            job
            for job in context.jobs.values()
            if job.state != "done" or max(job.ended or 0.0, job.corrected) >= jobs
        )
        return {
            "time": context.clock(),
            "epoch": context.epoch,
            "began": context.began,
            "size": len(context.indices.nodes),
            "policy": context.policy.name,
            "version": self._management.history.version,
            "undo": len(self._management.history),
            "state": self._management.state,
            "errors": context.errors,
            "lost": self.lost,
            "figures": figures.as_status(),
            "resizes": context.story.counts["grow"] + context.story.counts["shrink"],
            "story": {
                "first": first,
                "rows": [context.story.row(happening) for happening in rows[:_MOST]],
                "is_whole": len(rows) <= _MOST,
            },
            **{key: service.feed(read.get(key, 0)) for key, service in known.items()},
            "jobs": None if jobs is None else [self.of_job(job, figures) for job in newer],
            **dict(self._parts(parts)),
        }

    def _parts(self, parts: Any) -> Iterator[tuple[str, Any]]:
        of_services = {name: one for one in self._context.services for name in one.parts}
        is_fine = isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts)
        insist(is_fine, "parts", parts, ", ".join([*of_services, *_PARTS]))
        for part in parts:
            if part in of_services:
                yield of_services[part].parts[part], of_services[part].part(part)
            elif part == "holds":
                yield part, self._management.control.holds.as_status()["holds"]
            elif part == "nodes":
                yield part, list(self._context.indices.nodes)
            elif part == "marked":
                marked = self._management.control.marked()
                yield part, [[names, *state] for state, names in marked.items()]
            elif part == "machines":
                yield part, machines(self._context, self._management.control.marked())
            else:  # of a service that is not here
                yield part, None

    def _progress(self, job: LiveJob) -> float | None:
        """The share of the known work that is done; of a cancelled job, whose work is gone, of its tasks."""
        done = job.performance.tasks
        if job.undone:
            return done / (done + job.undone)
        return job.performance.progress(self._management.control.measurements.expected)

    def of_job(self, job: LiveJob, figures: Figures | None = None) -> dict[str, Any]:
        """One job: what it asked for, what it has, what it did, and why it waits if it does."""
        model, performance = job.model, job.performance
        figures = figures or self._context.get(Figures)
        running = self._context.indices.running.get(job.id)
        end = running.expected_end if running else inf
        # Others get the nodes that it leaves when its tasks there have ended.
        gives_up = list(running.nodes[running.target :]) if running and running.target is not None else []
        found = {
            "id": job.id,
            "name": job.name,
            "script": job.script,
            "state": job.told_state,
            "kind": model.kind,
            "asks": model.nodes,
            "min_nodes": model.min_nodes,
            "max_nodes": model.max_nodes,
            "walltime": None if model.walltime == inf else model.walltime,
            "walltime_why": job.walltime_why,
            "nodes": list(job.nodes),
            "gives_up": gives_up,
            "requested": self._context.indices.requests.get(job.id),
            "submitted": model.submitted,
            "started": job.started,
            "ended": job.ended,
            **figures.of_job(job),
            "unfinished_tasks": len(job.unfinished),
            # seconds are sums over its tasks; the policy goes by ``mtct`` and ``expected_end``
            "finished_tasks": performance.tasks,
            "bytes": performance.nbytes,
            "compute": performance.compute,
            "transfer": performance.transfer,
            "disk": performance.disk,
            "mtct": self._context.indices.mtct.get(job.id),
            "progress": self._progress(job),
            "expected_end": None if end == inf else end,
            # as jobs of its name did before, and the share of its time that it reads and writes
            "recorded": model.recorded,
            "io_share": None if model.io_intensity is None else model.io_intensity.intensity(model.nodes),
            "context": "closed" if job.closed else "open",
            "failed": job.failures,
            "error": job.error,
            "user": model.user or job.login,
            "energy": None,
            "cancelled": job.is_cancelled,
            "reason": job.reason,
            "waiting_because": self._waiting_because(job) if job.state == "waiting" else None,
        }
        for service in self._of_jobs:
            found |= service.of_job(job)
        return found

    def _waiting_because(self, job: LiveJob) -> str:
        if job.kept_back:
            return f"held: {job.kept_back}"
        if producer := job.blocking:
            return f"needs results of job {producer.id}, which has not started"
        if self._context.is_paused:
            return "decisions are paused"
        indices = self._context.indices
        asked, there, idle = job.model.nodes, len(indices.nodes), len(indices.idle)
        if asked > there:
            return f"asks for {count_nodes(asked)}, the cluster has {there}"
        if asked > idle:
            held = len(indices.withheld)
            return f"needs {count_nodes(asked)}, {idle} idle" + (f", {held} held" if held else "")
        first = indices.waiting.first
        if first is not None and first.id != job.id:
            return f"{count_nodes(idle)} idle, but the policy keeps the order: job {first.id} is first"
        reasons = (service.why_waits(job) for service in self._context.services)
        return next(filter(None, reasons), "the next decision will look at it")


def told(story: Story, happening: Happening) -> dict[str, Any]:
    """A row of the story. An event has no rule, no inputs and no alternatives."""
    why = story.explanation(happening)
    explained = {"rule": "", "inputs": {}, "rejected": ()} if why is None else asdict(why)
    row = asdict(happening) | explained
    del row["why"]
    return row
