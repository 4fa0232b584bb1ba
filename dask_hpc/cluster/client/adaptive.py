"""``cluster.adapt(Adaptive=dask_hpc.HPCAdaptive, ...)``: the scheduler decides the size, we only act."""

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from math import inf
from secrets import token_hex
from time import monotonic
from typing import Any, Protocol

from distributed import Client
from distributed.deploy import Adaptive

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.batch.job_state import JobState
from dask_hpc.batch.system import refusal_in
from dask_hpc.batch.systems import system_of
from dask_hpc.cluster.client.asks import FitAsker
from dask_hpc.cluster.client.batch_jobs import TOLD, BatchJobs, Known, exec_workers, of_process
from dask_hpc.cluster.client.manager import manage
from dask_hpc.cluster.units import Facts, UnitFacts, UnitLayout, is_closing, members
from dask_hpc.model.cluster_view import Submission
from dask_hpc.model.errors import InputError, insist
from dask_hpc.policy import parameters_of

logger = logging.getLogger(__name__)

_PATIENCE = 60.0  # seconds that units which are leaving have when we are told to let go


class UnitTimes(Protocol):
    """Says how long units are asked for: another time for each, perhaps."""

    #: what is to be told: kind and words
    news: list[tuple[str, str]]

    def works(self, nodes: int) -> None:
        """So many nodes of the cluster work."""

    def specified(self, spec: Mapping[Any, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
        """These new units, asked for now."""


class Lossless:
    """Stands between a cluster object and the closing of its units, for as long as anybody wants it.

    Dask removes a unit from the specification and then closes it. Here a unit that was removed first
    leaves the scheduler with all its workers; meanwhile the cluster object does not know it any more. Then
    it is closed, or, if the scheduler refused, put back and told. Several callers may want this for one
    cluster; Dask's own way is back when the last lets go.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster_ref = weakref.ref(cluster)
        self._wanted_by: set[int] = set()
        self._turn = asyncio.Lock()
        #: for units that are leaving: all tasks, and those that have not begun to close a unit
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: dict[asyncio.Task[None], list[Any]] = {}
        self._has_group = "group" in (cluster.new_spec or {})
        self._undo_exec: Callable[[], None] | None = None
        #: units on their way out; when all units so far were asked for; when one last refused to go
        self.leaving: dict[Any, Any] = {}
        self.asked: dict[Any, float] = {}
        self.refused: dict[Any, float] = {}
        #: units that are being started now, and those that were once
        self.opening: set[Any] = set()
        self.opened: set[Any] = set()
        #: how long what runs on a unit may take when it goes, in seconds, if not as long as anywhere
        self.drain: dict[Any, float] = {}
        #: how many units there are to be, if somebody said less and did not say which
        self.wanted: int | None = None
        #: how long units are asked for, if not as the cluster object says
        self.times: UnitTimes | None = None
        #: why the last units could not be started
        self.trouble = ""
        #: what happened, to be told on the scheduler: kind and words
        self.news: list[tuple[str, str]] = []
        #: how units were specified, also those that are leaving
        self.specs: dict[Any, Any] = {}

    @classmethod
    def around(cls, cluster: Any) -> "Lossless":
        """The one of this cluster object."""
        found = vars(cluster).get("_hpc_lossless")
        if found is None:
            found = cls(cluster)
            compat.attach(cluster, "_hpc_lossless", found)
        return found

    def hold(self, who: object) -> None:
        """Be there for somebody."""
        cluster = self._cluster
        if not self._wanted_by:
            job = compat.batch_job_of(cluster)
            if job is not None and not self._has_group:
                # dask-jobqueue forgets it if it chose the number of processes itself.
                suffixes = [f"-{number}" for number in range(job.worker_processes)]
                cluster.new_spec["group"] = suffixes if len(suffixes) > 1 else [""]
            self._undo_exec = exec_workers(cluster)
            if self._undo_exec is not None:
                self.news.append(("job-script", TOLD))
            self._remember()
            self.opened.update(cluster.workers)
            compat.correct_by(cluster, self.correct)
        self._wanted_by.add(id(who))

    def let_go(self, who: object) -> None:
        """Somebody does not need this any more. Units that are leaving are put back if nobody does."""
        self._wanted_by.discard(id(who))
        cluster = self._cluster_ref()
        if cluster is None or self._wanted_by:
            return
        compat.correct_by(cluster, None)
        compat.attach(cluster, "_hpc_lossless", None)
        for name in self._stop_asking():
            self._put_back(cluster, name, "control was closed before it had left")
        if not self._has_group and cluster.new_spec:
            cluster.new_spec.pop("group", None)
        if self._undo_exec is not None:
            self._undo_exec()

    async def finish(self) -> None:
        """Wait for the units that are leaving now."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PATIENCE)

    # what callers want changed

    def add(self, count: int) -> list[Any]:
        """So many more units, under names that none had before."""
        cluster = self._cluster
        names: list[Any] = []
        while len(names) < count:
            spec = self._timed(cluster.new_worker_spec())
            if not any(name in self.asked for name in spec):
                cluster.worker_spec.update(spec)
                names += spec
            compat.next_name(cluster)
        self._remember()
        return names

    def _timed(self, spec: dict[Any, Any]) -> dict[Any, Any]:
        if self.times is None:
            return spec
        self.look()
        found = self.times.specified(spec)
        self.news += self.times.news
        self.times.news = []
        return found

    def look(self) -> None:
        """Time goes by for those who are asked for a time of their own once somebody works."""
        if self.times is not None:
            hosts = {worker["host"] for worker in self._cluster.scheduler_info["workers"].values()}
            if hosts:
                self.times.works(len(hosts))

    def remove(self, names: Iterable[Any]) -> None:
        """These units are to go. They do when the cluster object next corrects itself."""
        spec = self._cluster.worker_spec
        for name in names:
            spec.pop(name, None)

    # what the cluster object calls

    async def correct(self) -> None:
        """Bring the units in line with the specification, in place of the cluster object's own way."""
        cluster = self._cluster
        if is_closing(cluster):
            return await self._close_all(cluster)
        async with self._turn:  # one at a time: nothing may slip between our look and Dask's
            try:
                await self._choose(cluster)
                if is_closing(cluster):
                    self._take_back(cluster)
                else:
                    self._send_away(cluster)
                self._remember()
            except Exception:  # of ours: Dask would wait for this correction for ever, and never make another
                logger.exception("dask-hpc: units that were to leave stay")
                self._keep_all(cluster)
            self.opening = set(cluster.worker_spec) - set(cluster.workers)
            try:
                await compat.correct_plainly(cluster)
            except Exception as error:
                cause: BaseException = error
                while cause.__cause__ is not None:
                    cause = cause.__cause__
                self.trouble = refusal_in(f"{type(cause).__name__}: {cause}")
                raise
            finally:
                self.opened |= self.opening
                self.opening = set()
        if self.times is not None:
            await self._tell(cluster)
        await self.finish()

    def _keep_all(self, cluster: Any) -> None:
        """Nobody could be asked to let units go: they are wanted again."""
        for name in cluster.workers if not is_closing(cluster) else ():
            if name not in cluster.worker_spec and name in self.specs:
                cluster.worker_spec[name] = self.specs[name]

    async def _close_all(self, cluster: Any) -> None:
        """The cluster closes, whatever goes wrong with us."""
        try:
            self._take_back(cluster)
        except Exception:
            logger.exception("dask-hpc: units that were leaving are closed by themselves")
        await compat.correct_plainly(cluster)
        try:
            await self.finish()
        except Exception:
            logger.exception("dask-hpc: units that were leaving are not waited for")

    @property
    def _cluster(self) -> Any:
        cluster = self._cluster_ref()
        if cluster is None:
            raise RuntimeError("the cluster object is gone")
        return cluster

    def _remember(self) -> None:
        spec = self._cluster.worker_spec
        now = monotonic()
        for name in spec:
            self.asked.setdefault(name, now)
        self.specs.update(spec)

    async def _choose(self, cluster: Any) -> None:
        """Fewer units were asked for: those go that the scheduler can miss most easily."""
        wanted, self.wanted = self.wanted, None
        if wanted is None or len(cluster.worker_spec) <= wanted:
            return
        names = {str(name): name for name in cluster.worker_spec}
        units = {text: members(name, cluster.worker_spec[name]) for text, name in names.items()}
        order = None
        with suppress(OSError):
            order = await cluster.scheduler_comm.hpc_rank(units=units)
        if order is None:  # nobody manages it any more
            order = reversed(units)
        surplus = len(cluster.worker_spec) - wanted
        self.remove([names[text] for text in order if text in names][: max(0, surplus)])

    def _send_away(self, cluster: Any) -> None:
        going = {name: unit for name, unit in cluster.workers.items() if name not in cluster.worker_spec}
        if not going:
            return
        for name, unit in going.items():
            del cluster.workers[name]
            self.leaving[name] = unit
        task = asyncio.ensure_future(self._leave(list(going)))
        self._tasks.add(task)
        self._asking[task] = list(going)
        task.add_done_callback(partial(self._left, going))

    def _left(self, going: Iterable[Any], task: asyncio.Task[None]) -> None:
        """Units that are neither gone nor put back, as something went wrong, are."""
        self._tasks.discard(task)
        cluster = self._cluster_ref()
        if task.cancelled() or task.exception() is None or cluster is None:
            return
        logger.error("dask-hpc: units could not leave", exc_info=task.exception())
        for name in going:
            self._put_back(cluster, name, "something went wrong")

    async def _leave(self, names: list[Any]) -> None:
        cluster = self._cluster
        try:
            stayed = await self._retire(cluster, names)
        except Exception as error:
            why = f"the scheduler could not be asked: {type(error).__name__}: {error}"
            stayed = dict.fromkeys(names, why)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._asking.pop(task, None)
        for name, why in stayed.items():
            self._put_back(cluster, name, why)
        await asyncio.gather(*(self._close(name) for name in names if name not in stayed))
        await self._tell(cluster)

    async def _tell(self, cluster: Any) -> None:
        """The story hears what happened here."""
        news, self.news = self.news, []
        if news:
            with suppress(OSError):
                await cluster.scheduler_comm.hpc_told(news=news)

    async def _retire(self, cluster: Any, names: list[Any]) -> dict[Any, str]:
        """Ask the scheduler to let these units go. Those that cannot, and why."""
        workers = {name: members(name, self.specs[name]) for name in names}
        everybody = [worker for group in workers.values() for worker in group]
        # The name of a unit says that its workers leave together or not at all. Dask itself does not know
        # such names, should control have been closed.
        named = [*map(str, names), *everybody]
        drains = [self.drain.pop(name) for name in names if name in self.drain]
        how = {"drain": min(drains)} if drains else {}
        found = await cluster.scheduler_comm.retire_workers(
            names=named, close_workers=False, remove=True, **how
        )
        gone = {str(info["name"]) for info in found.values()}
        if not self.connected(cluster.scheduler_info).isdisjoint(set(everybody) - gone):
            # what the cluster object knows may be old
            there = self.connected(await cluster.scheduler_comm.identity(n_workers=-1))
        else:
            there = set()
        why = "its data or tasks have no other place"
        stayed = {name: why for name, group in workers.items() if not there.isdisjoint(set(group) - gone)}
        return stayed | self._unclear(cluster, workers, gone)

    def _unclear(self, cluster: Any, workers: dict[Any, list[str]], gone: set[str]) -> dict[Any, str]:
        """Units that run, but whose workers may go by names that we do not know."""
        known = {member for name, spec in self.specs.items() for member in members(name, spec)}
        strangers = self.connected(cluster.scheduler_info) - known
        if not strangers:
            return {}
        why = f"it is not clear which workers are its: {', '.join(sorted(strangers)[:3])}"
        return {
            name: why
            for name, group in workers.items()
            if gone.isdisjoint(group) and of_process(self.leaving[name], 0.0).state == "running"
        }

    async def _close(self, name: Any) -> None:
        unit = self.leaving[name]
        if getattr(unit, "job_id", "") is not None:  # else it was never submitted
            try:
                await unit.close()
            except Exception as error:
                logger.warning("dask-hpc: closing %s failed: %s", name, error)
        self.leaving.pop(name, None)
        self.refused.pop(name, None)
        self.specs.pop(name, None)
        self.opened.discard(name)

    def _put_back(self, cluster: Any, name: Any, why: str) -> None:
        unit = self.leaving.pop(name, None)
        if unit is not None:
            cluster.workers[name] = unit
            cluster.worker_spec[name] = self.specs[name]
            self.refused[name] = monotonic()
            self.news.append(("stays", f"{name}: {why}"))
            logger.warning("dask-hpc: %s stays: %s", name, why)

    def _take_back(self, cluster: Any) -> None:
        """The cluster closes: it shall know all its units again, and close them."""
        for name in self._stop_asking():
            cluster.workers[name] = self.leaving.pop(name)

    def _stop_asking(self) -> list[Any]:
        """Give up on units that nobody has begun to close; a close once begun has to be waited for."""
        names = []
        for task, going in self._asking.items():
            task.cancel()
            names += going
        self._asking.clear()
        return names

    @staticmethod
    def connected(info: Any) -> set[str]:
        """Names of the workers that are there."""
        return {str(worker["name"]) for worker in info["workers"].values()}


class HPCAdaptive(Adaptive):
    """Adapts the size of a cluster as the concern ``size`` of the policy in force says.

    ``minimum`` and ``maximum`` are workers, as in Dask; a batch job of several workers comes and goes as
    a whole. ``limits`` are the two in units, and win. A maximum of 0 would close everything, so it
    needs ``allow_empty=True``. Any parameter of the size strategy may be given here and then wins over the
    policy's (``target_duration="10s"``, ``idle_grace="1 min"``, ``forbid_idling=True``). ``poll`` is how
    often, in seconds, the batch system is asked about our jobs at most; without it holds what the
    configuration says (``hpc.batch``: 2 min, and 10 s while something is due). ``ask="fit"`` asks Slurm for
    units in the shape that fits its queue (``hpc.ask``; a mapping in its place says some of these settings
    otherwise). ``wait_count`` and ``worker_key`` are accepted and do nothing: ``idle_grace`` and units are in
    their place.

    A cluster that is not managed is put under the configured policy, which leaves tasks outside of jobs
    alone. While this adapts a cluster, none of its units is closed before its data and tasks are elsewhere.
    ``maximum_cores`` and the like are exact only after ``malleable(cluster)``: Dask itself confuses the
    units before they come here.
    """

    _adapting: bool

    def __init__(
        self,
        cluster: Any,
        interval: Any = None,
        minimum: Any = None,
        maximum: Any = None,
        wait_count: Any = None,
        target_duration: Any = None,
        worker_key: Any = None,
        *,
        allow_empty: bool = False,
        limits: tuple[int, float] | None = None,
        poll: float | None = None,
        ask: str | Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> None:
        self.state = "inactive"  # for stop(), if what follows fails
        if target_duration is not None:
            parameters["target_duration"] = target_duration
        known = parameters_of("size")
        for name in parameters:
            if name not in known:
                raise InputError(f"adapt: {name}", "unknown keyword", ", ".join(sorted(known)))
        insist(compat.has_units(cluster), "adapt", cluster, "a cluster object with a worker_spec")
        #: as they can be sent; Dask takes timedeltas, too
        self._parameters = {
            name: value.total_seconds() if isinstance(value, timedelta) else value
            for name, value in parameters.items()
        }
        self._is_managed = False
        self._asker = token_hex(4)
        manners = config.manners(poll)
        self._jobs = BatchJobs(manners)
        self._jobs.submits(compat.batch_job_of(cluster))
        self._ask: FitAsker | None = None
        if ask is not None:
            insist(ask == "fit" or isinstance(ask, Mapping), "adapt: ask", ask, "fit, or settings of hpc.ask")
            changes = ask if isinstance(ask, Mapping) else None
            self._ask = FitAsker(cluster, config.ask_settings(changes), self._jobs, manners)
        self._asks: list[dict[str, Any]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._layout = UnitLayout.of(cluster)
        if limits is None:
            # Dask's own adapt() passes 0 and infinity where nothing was said.
            maximum = None if maximum == inf else maximum
            limits = self._layout.limits((minimum or None,), (maximum,), allow_empty)
        least, most = self.limits = limits
        self._lossless = Lossless.around(cluster)
        super().__init__(
            cluster,
            interval=interval,
            minimum=least * self._layout.workers,
            maximum=most if most == inf else int(most) * self._layout.workers,
            wait_count=wait_count,
        )
        self._lossless.hold(self)
        compat.keep_lost_units(cluster, True)  # who is gone for good is decided by the size

    def stop(self, reason: str = "unknown") -> None:
        """Adapt no more. Called by the cluster object when it closes or is adapted anew."""
        if self.state not in ("inactive", "stopped"):
            super().stop(reason)
            self.state = "stopped"
            compat.forget_adaptive_options(self.cluster)
        if hasattr(self, "_lossless"):
            self._jobs.leave()
            compat.keep_lost_units(self.cluster, False)
            self._lossless.let_go(self)

    async def adapt(self) -> None:
        """One look and what follows from it. Nothing if the last one is still under way."""
        if self._adapting or is_closing(self.cluster):
            return
        self._adapting = True
        try:
            if not self._is_managed:
                client = Client(
                    self.cluster.scheduler_address,
                    security=self.cluster.security,
                    asynchronous=True,
                    set_as_default=False,
                )
                async with client:
                    await manage(client)
            facts = await self._facts()
            plan = await self.scheduler.hpc_size(facts=asdict(facts))
            self._is_managed = plan is not None  # else a manager was closed: the next look begins again
            if self._is_managed and self._ask is not None:
                plan = await self._fitted(self._ask, plan, facts)
            if self._is_managed and self.state == "running" and not is_closing(self.cluster):
                self._act(plan)
        except InputError:
            self.stop("bad input")
            raise
        finally:
            self._adapting = False

    async def _fitted(self, asker: FitAsker, plan: dict[str, Any], facts: Facts) -> dict[str, Any]:
        """The decision in the shapes that fit the queue; what is asked for is told."""
        plan = await asker.plan(plan, facts)
        self._lossless.news += asker.news
        asker.news = []
        rows = asker.rows(facts)
        if rows or self._asks:
            await self.scheduler.hpc_asks(asker=self._asker, asks=rows)
        self._asks = rows
        return plan

    def _act(self, plan: dict[str, Any]) -> None:
        names = {str(name): name for name in self.cluster.worker_spec}
        going = [names[text] for kind in ("dead", "cancel", "leave") for text in plan[kind] if text in names]
        if not going and not plan["submit"]:
            return
        self.log.append((monotonic(), dict(plan)))
        self._lossless.remove(going)
        self._lossless.drain.update(
            {names[text]: time for text, time in plan["drain"].items() if text in names}
        )
        added = self._lossless.add(self._jobs.allow(plan["submit"]))
        if self._ask is not None:
            self._ask.dress(added)
        task = asyncio.ensure_future(self._correct())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _correct(self) -> None:
        try:
            await compat.correct_soon(self.cluster)
        except Exception as error:
            # The units that could not be started are told to be gone with the next facts.
            logger.warning("dask-hpc: units could not be started: %s", error)

    async def _facts(self) -> Facts:
        cluster, lossless = self.cluster, self._lossless
        lossless.look()
        now = monotonic()
        everybody = (*cluster.worker_spec, *lossless.leaving)
        ages = {name: now - lossless.asked.get(name, now) for name in everybody}
        here = Lossless.connected(cluster.scheduler_info)
        there = {name for name in everybody if not here.isdisjoint(members(name, lossless.specs[name]))}
        states = await self._jobs.look({**lossless.leaving, **cluster.workers}, ages, there)
        layout = self._layout
        units = []
        for name, spec in list(cluster.worker_spec.items()):
            known, unit = states.get(name, Known(JobState("queued"))), cluster.workers.get(name)
            submission = _submission(unit)
            if name not in states and name in lossless.opened and unit is None:
                known = Known(JobState("gone", "Dask gave it up"))
            elif name in states and unit is not None and unit.status.name in ("created", "failed"):
                known = Known(JobState("gone", f"could not be started: {lossless.trouble}"))
            refused_ago = now - lossless.refused.get(name, -inf)
            more = {"refused_ago": refused_ago, "submission": submission}
            units.append(self._unit(name, spec, ages.get(name, 0.0), known, **more))
        for name, unit in list(lossless.leaving.items()):
            # Of a process nobody has to know: it is closed anyway.
            known = states.get(name, Known(JobState())) if _submission(unit) else Known(JobState())
            more = {"submission": _submission(unit), "is_leaving": True}
            units.append(self._unit(name, lossless.specs[name], ages.get(name, 0.0), known, **more))
        lossless.news += [("batch-system", words) for words in self._jobs.news]
        self._jobs.news.clear()
        news, lossless.news = lossless.news, []
        facts = Facts(
            asker=self._asker,
            interval=self.interval or 1.0,
            units=tuple(units),
            minimum=self.limits[0],
            maximum=self.limits[1],
            members=layout.workers,
            threads=layout.cores or 1,
            memory=float(layout.memory or 0),
            may_submit=self._jobs.left(),
            parameters=self._parameters,
            news=tuple(news),
        )
        return facts if self._ask is None else replace(facts, may_submit=self._ask.may_submit(facts))

    @staticmethod
    def _unit(name: Any, spec: Any, age: float, known: Known, **more: Any) -> UnitFacts:
        job = known.job
        return UnitFacts(
            name=str(name),
            members=tuple(members(name, spec)),
            age=age,
            state=job.state,
            why=job.why,
            running_for=job.running_for,
            left=job.left,
            starts_in=job.starts_in,
            is_preempted=job.is_preempted,
            restarts=job.restarts or 0,
            asked_ago=max(0.0, known.ago),
            **more,
        )


def _submission(unit: Any) -> Submission:
    """What became of the submission of a unit, if it is a batch job whose system we know."""
    if unit is None or system_of(unit) is None:
        return ""
    if getattr(unit, "job_id", None):
        return "accepted"
    return "refused" if unit.status.name in ("created", "failed") else ""
