"""Which kinds of tasks slow each other on the nodes of this cluster, and how many of each may share one.

Whoever has nodes of his own, a job that is confined to them, is looked at for himself; all others together.
What was seen of kinds beside each other counts for all of them.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain, islice
from math import inf
from statistics import median_low
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.errors import one_line, shown
from dask_hpc.model.interference import MEM_CLASSES, mem_class_of
from dask_hpc.model.story import Explanation
from dask_hpc.model.units import finite
from dask_hpc.planning.colocation.observed import Observations, SeenKind
from dask_hpc.planning.colocation.slowdowns import Company, Slowdowns
from dask_hpc.strategies.together.neighbours_view import KindLimit, KindWork, NeighboursView

_LOOKED_AT = 5000  # ready tasks of a job, to see of which kinds they are
_SHOWN = 20  # kinds of the matrix that people see
_SAID = 1000  # kinds of which it is remembered what people said, the newest


class Neighbours:
    """What is known of kinds beside each other, and the limits that follow from it."""

    def __init__(self, context: Context, strategy: Any) -> None:
        self._context = context
        self._strategy = strategy
        self.observations = Observations()
        #: in force: of each confined job, and of all others
        self.limits: dict[LiveJob | None, Mapping[str, KindLimit]] = {}
        self._memory: dict[LiveJob | None, Any] = {}
        #: classes of memory use, as people say them; and kinds of which they said something else
        self._said: dict[str, str] = {}
        self._doubted: dict[str, str] = {}
        #: why a worker has no counters
        self._why_not: dict[str, str] = {}
        #: what people see of kinds, until more is learned: whoever looks may look often
        self._shown: dict[str, Any] | None = None
        #: kinds whose tasks take about as long as each other, or not, until more is learned
        self._regular: dict[str, bool] = {}

    def becomes(self, strategy: Any) -> None:
        """Another strategy, or other parameters: what was seen is still so."""
        self._strategy = strategy
        self._memory.clear()

    def hear(self, address: str, said: Mapping[str, Any]) -> None:
        """What a worker tells of its tasks."""
        self._why_not[address] = str(said["why_not"])
        if self.observations.hear(self._context.nodes.node_of(address), address, said):
            self._shown = None
            self._regular.clear()

    def hear_class(self, kind: str, said: Any) -> None:
        """A person says how much a kind uses memory (``dask.annotate(mem_class=...)``)."""
        if said in MEM_CLASSES:
            _keep(self._said, kind, said)
            self._shown = None
        elif kind not in self._doubted:
            _keep(self._doubted, kind, shown(said))
            words = f"{kind}: mem_class: found {shown(said)}; allowed: {', '.join(MEM_CLASSES)}"
            self._context.tell("warning", one_line(words))

    def worker_leaves(self, address: str) -> None:
        """It is gone."""
        self._why_not.pop(address, None)
        self.observations.forget_worker(self._context.nodes.node_of(address), address)

    def job_ends(self, job: LiveJob) -> None:
        """Nothing holds for it any more."""
        self.limits.pop(job, None)
        self._memory.pop(job, None)

    def limit(self, job: LiveJob | None, kind: str) -> KindLimit | None:
        """What holds for that kind, if anything does."""
        found = self.limits.get(job if job is not None and job.confined else None)
        return found.get(kind) if found else None

    def usual(self, kind: str) -> float | None:
        """How long tasks of a kind take now; None if nobody knows, or some take much longer than others."""
        if (is_regular := self._regular.get(kind)) is None:
            is_regular = self._regular[kind] = self.observations.is_regular(kind)
        return compat.average_duration(self._context.scheduler, kind) if is_regular else None

    def limited(self) -> set[str]:
        """The kinds that somebody's limit is about."""
        return {kind for limits in self.limits.values() for kind in limits}

    def ask(self) -> None:
        """The strategy says what may share a node from now on."""
        confined = [job for job in self._context.running_jobs() if job.confined and job.unfinished]
        for gone in self.limits.keys() - {None, *confined}:
            self.limits.pop(gone)
            self._memory.pop(gone, None)
        for job in (None, *confined):
            self._ask_for(job, confined)

    def _ask_for(self, job: LiveJob | None, confined: list[LiveJob]) -> None:
        view = self._view(job, confined)
        before, memory = self.limits.get(job, {}), self._memory.get(job)
        found: Mapping[str, KindLimit] = {}
        if view is not None:
            found, self._memory[job] = self._strategy.decide(view, memory)
        self.limits[job] = found
        if view is None or _same(before, found):
            return
        self._context.record(self._strategy, view, memory, found)
        rule = f"together: {self._strategy.name}"
        why = Explanation(rule, {f"left of {kind.name}": kind.left for kind in view.kinds[:_SHOWN]}, ())
        for limit in found.values():
            if not _same({limit.kind: limit}, {limit.kind: before.get(limit.kind)}):
                self._context.tell_of("together", job, reason=str(limit), why=why)
        for kind in before.keys() - found.keys():
            self._context.tell_of("together", job, reason=f"{kind}: no limit any more", why=why)

    def _view(self, job: LiveJob | None, confined: list[LiveJob]) -> NeighboursView | None:
        """What there is of a job, or of all that has no nodes of its own; None if there is nothing to do."""
        scheduler = self._context.scheduler
        if job is None:
            left = compat.kinds_left(scheduler)
            for other in confined:
                waits = self._waiting(other)
                for kind, work in other.performance.works.items():
                    if kind in left:
                        count, waiting = left[kind]
                        left[kind] = max(0, count - work.left), max(0, waiting - waits[kind])
            addresses = set(scheduler.workers) - {a for other in confined for a in other.workers}
        else:
            waits = self._waiting(job)
            left = {kind: (work.left, waits[kind]) for kind, work in job.performance.works.items()}
            addresses = job.workers
        nodes = Counter[str]()
        for address in addresses:
            nodes[self._context.nodes.node_of(address)] += compat.threads_of(scheduler, [address])
        seen, due = self.observations.kinds(), self._due(job)
        kinds = tuple(
            KindWork(
                kind,
                seen[kind].baseline if kind in seen else None,
                count,
                waiting,
                due.get(kind, inf),
                self._said.get(kind),
            )
            for kind, (count, waiting) in left.items()
            if count
        )
        if not any(kind.seconds for kind in kinds) or not nodes:
            return None
        names = {kind.name for kind in kinds}
        seen_beside = self._seen(names)
        limits = self.limits.get(job, {})
        return NeighboursView(median_low(nodes.values()), len(nodes), kinds, seen_beside, limits)

    def _waiting(self, job: LiveJob) -> Counter[str]:
        """How many tasks of each kind are ready and wait in a job, whoever keeps them back."""
        owner, queues = self._context.owner, self._context.get(Gate).waves.queues
        kept = (key for key in islice(queues.waiting(), _LOOKED_AT) if owner.get(key) is job)
        keys = chain(islice(job.ready, _LOOKED_AT), kept)
        tasks = (compat.find_task(self._context.scheduler, key) for key in keys)
        return Counter(compat.prefix(task) for task in tasks if task is not None)

    def _seen(self, kinds: Collection[str]) -> tuple[Company, ...]:
        """How these were seen to get on with each other."""
        wanted = set(kinds)
        return tuple(
            Company(kind, others, *found)
            for kind in sorted(wanted)
            for others, found in self.observations.mixes(kind)
            if others.keys() <= wanted
        )

    def _due(self, job: LiveJob | None) -> dict[str, float]:
        """Seconds until the first deadline of a job that has tasks of a kind, where jobs share nodes."""
        found: dict[str, float] = {}
        now = self._context.clock()
        for one in self._context.running_jobs() if job is None else ():
            if not one.confined and one.deadline < inf:
                for kind, work in one.performance.works.items():
                    if work.left:
                        found[kind] = min(found.get(kind, inf), max(0.0, one.deadline - now))
        return found

    # what is shown

    def status(self) -> dict[str, Any]:
        """What is known of kinds beside each other, and what follows from it."""
        if self._shown is None:
            self._shown = self._kinds_shown()
        return {
            **self._shown,
            "limits": [
                {"job": job.id if job else "", **_plain(limit)}
                for job, limits in self.limits.items()
                for limit in limits.values()
            ],
            "why_not": sorted({why for why in self._why_not.values() if why}),
        }

    def _kinds_shown(self) -> dict[str, Any]:
        """The newest kinds, how they slow each other, and how well that was foreseen."""
        newest = list(self.observations.kinds().items())[-_SHOWN:]
        names = [kind for kind, _ in newest]
        slowdowns = Slowdowns(self._seen(names), self._strategy.known)
        pairs = {kind: {other: slowdowns.pair(kind, other) for other in names} for kind in names}
        return {
            "kinds": [
                {
                    "kind": kind,
                    "tasks": seen.tasks,
                    "seconds": seen.baseline,
                    "how": seen.how,
                    "class": _class_of(seen),
                    "by": seen.by,
                }
                for kind, seen in newest
            ],
            "slowdowns": {
                kind: {other: finite(one._asdict()) for other, one in found.items() if one is not None}
                for kind, found in pairs.items()
            },
            "mpe": self.observations.mpe(),
            "nrmse": self.observations.nrmse(),
        }


def _keep(known: dict[str, str], kind: str, word: str) -> None:
    """As the newest."""
    known.pop(kind, None)
    known[kind] = word
    if len(known) > _SAID:
        del known[next(iter(known))]


def _class_of(seen: SeenKind) -> str | None:
    """Of memory use; None if nobody has counted."""
    if seen.by != "counters" or seen.intensity is None:
        return None
    return mem_class_of(seen.intensity)


def _plain(limit: KindLimit) -> dict[str, Any]:
    words = {"kind": limit.kind, "beside": limit.beside, "alone": limit.alone}
    return {**words, "is_trial": limit.is_trial, "reason": limit.reason}


def _same(one: Mapping[str, KindLimit], other: Mapping[str, KindLimit | None]) -> bool:
    """Whether they say the same, whatever the reasons."""

    def said(limits: Mapping[str, KindLimit | None]) -> set[tuple[str, int, int | None]]:
        return {(one.kind, one.beside, one.alone) for one in limits.values() if one is not None}

    return said(one) == said(other)
