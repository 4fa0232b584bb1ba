"""The size of the cluster, decided where the work is known: facts of a cluster object to a plan for it."""

from collections.abc import Hashable, Mapping
from dataclasses import asdict, replace
from math import floor, inf
from typing import Any
from zlib import crc32

from distributed.comm import get_address_host

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.lending import Lending
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.units import Facts, UnitFacts, read_facts
from dask_hpc.model.cluster_view import ClusterView, JobNeed, SizePlan, Unit
from dask_hpc.model.errors import InputError, within
from dask_hpc.model.node import is_a_node
from dask_hpc.model.parameter import declared
from dask_hpc.model.story import Explanation

_SAMPLE = 100  # tasks whose expected duration stands for that of all that are queued
_ASKERS = 8  # cluster objects that are remembered
_MOST = 10**9  # units; more than that is no bound
_LOOKS = 5  # of a cluster object: so long counts what it said last
_SOON = 60.0  # seconds
_LOOK = 2000  # tasks in no-worker that are looked through for those outside of jobs


#: what goes by with time in what is said of an ask
_CLOCKS = {"asked_ago": 1, "starts_in": -1, "low": -1, "high": -1}

#: what a cluster object is to do if nothing is to be decided
NO_CHANGE: dict[str, Any] = {
    "target": 0,
    "work": 0.0,
    "submit": 0,
    "cancel": [],
    "leave": [],
    "dead": [],
    "drain": {},
}


class Sizing:
    """One per control loop. Each cluster object that asks has a memory of its own."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._scheduler = context.scheduler
        #: what the strategy wants to remember, by asker
        self._memories: dict[str, Any] = {}
        self._strategy: type | None = None
        #: what each cluster object has asked a batch system for and not got yet, and when it said so
        self._asks: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    def note_asks(self, asker: str, asks: list[dict[str, Any]], now: float) -> None:
        """A cluster object says what it waits for. What it says counts until it says something else."""
        self._asks.pop(asker, None)
        if asks:
            self._asks[asker] = (now, asks)
        while len(self._asks) > _ASKERS:
            del self._asks[next(iter(self._asks))]

    def asks(self, now: float) -> list[dict[str, Any]]:
        """Of all cluster objects, with times as of now."""
        return [
            ask
            | {key: ask[key] + sign * (now - said) for key, sign in _CLOCKS.items() if ask[key] is not None}
            for said, asks in self._asks.values()
            for ask in asks
        ]

    def decide(self, given: object, now: float) -> dict[str, Any]:
        """What a cluster object is to do, from what it says about itself. Raises ``InputError``."""
        facts = read_facts(given)
        strategy = self._with(facts.parameters)
        if type(strategy) is not self._strategy:
            self._memories.clear()
            self._strategy = type(strategy)
        for decision, reason in facts.news:
            self._context.tell(decision, reason)
        if self._context.is_paused:
            return NO_CHANGE
        question, before = self._view(facts, now), self._memories.pop(facts.asker, None)
        if any(map(_may_come, question.units)):
            self._context.comes_until = now + _LOOKS * facts.interval
        plan, self._memories[facts.asker] = strategy.decide(question, before)
        if plan:
            self._context.record(strategy, question, before, plan)
        while len(self._memories) > _ASKERS:
            del self._memories[next(iter(self._memories))]
        self._tell(plan, strategy.name)
        if self._context.is_dry:
            return NO_CHANGE
        drain = self._context.drain
        return {
            "target": plan.target,
            # seconds of a unit
            "work": (question.work + sum(need.work for need in question.jobs)) / question.threads,
            "submit": plan.submit,
            # What runs at the end of a walltime was started because it fits, with the drain budget to spare.
            "drain": {one.unit: max(drain, one.left - drain) for one in plan.leave if one.left < inf},
            **{kind: [one.unit for one in getattr(plan, kind)] for kind in ("cancel", "leave", "dead")},
        }

    def rank(self, units: dict[str, list[str]]) -> list[str]:
        """Units in the order in which they should go: those of no job first, then those of jobs that can
        do with less; of these the idle ones with little data."""
        loads = {load.name: load for load in compat.worker_loads(self._scheduler)}
        holders, lent = self._holders(), self._context.get(Lending).pinned

        def order(unit: str) -> tuple[bool, int, bool, int]:
            there = [loads[name] for name in units[unit] if name in loads]
            return (
                any(load.pinned or load.address in lent for load in there),
                max((_need(holders.get(load.address)) for load in there), default=0),
                any(load.tasks for load in there),
                sum(load.held for load in there),
            )

        newest_first = list(units)[::-1]
        return sorted(newest_first, key=order)

    def _with(self, parameters: Mapping[str, Any]) -> Any:
        """The strategy of the policy in force, with the parameters that ``adapt`` was given."""
        strategy: Any = self._context.policy.size
        known = {one.name: one for one in declared(strategy.__class__)}
        values = {}
        for name, value in parameters.items():
            if name not in known:
                raise InputError(f"adapt: {name}", "unknown parameter", ", ".join(known))
            with within(f"adapt: {name}"):
                values[name] = known[name].read(value)
        return replace(strategy, **values)

    def _holders(self) -> dict[str, LiveJob]:
        """Addresses of the workers that running jobs hold."""
        nodes = self._context.nodes
        holders = self._context.holders()
        return {address: job for name, job in holders.items() for address in nodes.workers(name)}

    def _view(self, facts: Facts, now: float) -> ClusterView:
        loads = {load.name: load for load in compat.worker_loads(self._scheduler)}
        holders = self._holders()
        vetoes = {**compat.unwilling(self._scheduler), **self._context.get(Lending).pinned}
        units = []
        known: set[str] = set()
        threads = memory = workers = 0
        for given in facts.units:
            there = [loads[name] for name in given.members if name in loads]
            known.update(load.name for load in there)
            units.append(self._pinned(_unit(given, there, holders, vetoes), there))
            threads += sum(self._threads(load) for load in there)
            memory += sum(load.memory_limit for load in there)
            workers += len(there)
        per_unit = facts.members / workers if workers else 0.0
        nodes_per_unit = self._nodes_per_unit(facts, loads)
        work, tasks, needs = self._demand(list(loads.values()), holders)
        wanted = [(service.nodes_wanted(), service.nodes_for) for service in self._context.services]
        for_service, for_what = max(wanted, default=(0, ""))
        return ClusterView(
            now=now,
            interval=facts.interval,
            units=tuple(units),
            minimum=facts.minimum,
            maximum=self._most_units(facts, units, nodes_per_unit),
            may_submit=facts.may_submit,
            chance=crc32(facts.asker.encode()) / 2**32,
            threads=max(1, round(threads * per_unit) or facts.threads),
            memory=memory * per_unit or facts.memory or inf,
            nodes_per_unit=nodes_per_unit,
            work=work,
            tasks=tasks,
            dormant=compat.unfinished(self._scheduler),
            strangers=len(loads) - len(known),
            steps=self._scheduler.transition_counter,
            jobs=needs,
            for_service=for_service,
            for_what=for_what,
        )

    def _threads(self, load: compat.WorkerLoad) -> int:
        """Those that the worker came with."""
        services = self._context.services
        return max((service.threads_of(load.address) for service in services), default=0) or load.threads

    def _pinned(self, unit: Unit, there: list[compat.WorkerLoad]) -> Unit:
        """While nodes are given back for a service's sake: not the one that is left to work when all others
        are held. It would refuse to go, and nobody would be asked in its place."""
        services = self._context.services
        if unit.pinned or unit.is_leaving or not there or not any(s.gives_nodes_back() for s in services):
            return unit
        refusal = self._context.get(Holds).refusal([load.address for load in there], for_good=True)
        return unit if refusal is None else replace(unit, pinned=refusal)

    def _most_units(self, facts: Facts, units: list[Unit], nodes_per_unit: float) -> float:
        """The maximum, and less for a service's sake; but nobody who works is sent away for that."""
        services = self._context.services
        staying = [unit for unit in units if not unit.is_leaving]
        idle = sum(bool(u.connected) and not (u.is_busy or u.pinned) for u in staying)
        spare = max(0, min(idle, len(staying) - facts.minimum))
        for service in services:
            service.cluster_asks(facts.asker, facts.interval, floor(spare * nodes_per_unit))
        most = min((service.most_nodes() for service in services), default=inf) / nodes_per_unit
        return min(facts.maximum, max(floor(min(most, _MOST)), len(staying) - idle, facts.minimum))

    def _nodes_per_unit(self, facts: Facts, loads: Mapping[str, compat.WorkerLoad]) -> float:
        """How many nodes a unit makes: counted if one is there, else as its workers would be grouped."""
        nodes = self._context.nodes
        for given in facts.units:
            there = [loads[name].address for name in given.members if name in loads]
            if len(there) == len(given.members):
                return float(len({nodes.node_of(address) for address in there}))
        address = self._scheduler.address
        is_each = is_a_node(self._context.settings["node"], address, get_address_host(address))
        return float(facts.members) if is_each else 1.0

    def _demand(
        self, loads: list[compat.WorkerLoad], holders: Mapping[str, LiveJob]
    ) -> tuple[float, int, tuple[JobNeed, ...]]:
        """Seconds and number of the tasks outside of jobs, and what the jobs need."""
        work, tasks = 0.0, 0
        of_job: dict[LiveJob, list[float]] = {job: [0.0, 0] for job in self._context.running_jobs()}
        owner = self._context.owner

        def count(job: LiveJob | None, seconds: float, number: float) -> None:
            nonlocal work, tasks
            if job is None or job.state == "done":
                work += seconds
                tasks += round(number)
            elif job in of_job:
                of_job[job][0] += seconds
                of_job[job][1] += number

        for load in loads:
            count(holders.get(load.address), load.work, load.tasks)
        for number, sample in (compat.queued(self._scheduler, _SAMPLE), self._unplaced(owner)):
            for task in sample:
                share = number / len(sample)
                seconds = compat.expected_seconds(self._scheduler, task) * share
                count(owner.get(task.key), seconds, share)
        needs = []
        for job, (seconds, number) in of_job.items():
            most = job.model.max_nodes if job.model.resizable else len(job.nodes)
            needs.append(JobNeed(len(job.nodes), most, seconds, round(number)))
        waiting = (job for job in self._context.waiting_jobs() if not job.blocking)
        needs += [JobNeed(job.model.nodes, job.model.nodes) for job in waiting]
        return work, tasks, tuple(needs)

    def _unplaced(self, owner: Mapping[Hashable, LiveJob]) -> tuple[float, list[Any]]:
        """Tasks that a new unit could run: not those of waiting jobs, which ask for nodes, nor those that
        may run on certain workers only or need what perhaps no unit has."""
        number, found = compat.waiting_for_workers(self._scheduler, _LOOK)
        fitting = []
        for task in found:
            job = owner.get(task.key)
            fits = not any(compat.is_restricted(task)) if job is None else job.state == "running"
            if fits:
                fitting.append(task)
        if not fitting:
            return 0, []
        return number * len(fitting) / len(found), fitting[:_SAMPLE]

    def _tell(self, plan: SizePlan, rule: str) -> None:
        why = Explanation(f"size: {rule}", plan.inputs, plan.rejected)
        for word, reason in plan.rows():
            self._context.tell(word, reason, why)


def _may_come(unit: Unit) -> bool:
    """Whether a unit that is not there may be at any moment."""
    is_on_its_way = unit.state in ("queued", "running") and (unit.starts_in or 0.0) < _SOON
    return is_on_its_way and not (unit.connected or unit.is_leaving or unit.submission == "refused")


def _need(job: LiveJob | None) -> int:
    """How much a job needs a worker that it holds: not at all, it could shrink, or it could not."""
    if job is None:
        return 0
    return 1 if job.model.resizable and len(job.nodes) > job.model.min_nodes else 2


def _unit(
    given: UnitFacts,
    there: list[compat.WorkerLoad],
    holders: Mapping[str, LiveJob],
    vetoes: Mapping[str, str],
) -> Unit:
    held_by = next((holders[load.address].id for load in there if load.address in holders), "")
    pinned = next((load.pinned for load in there if load.pinned), "")
    if held_by:
        pinned = pinned or f"job {held_by} holds it"
    elif veto := next((vetoes[load.address] for load in there if load.address in vetoes), ""):
        pinned = pinned or f"{veto} needs it"
    seen = {
        "members": len(given.members),
        "connected": len(there),
        "is_busy": bool(held_by) or any(load.tasks for load in there),
        "held": float(sum(load.held for load in there)),
        "pinned": pinned,
        "is_leaving": given.is_leaving or (bool(there) and all(load.is_leaving for load in there)),
    }
    return Unit(**asdict(given) | seen)
