"""The scheduler's half of the checkpoint service: knows what is protected and where the copies are, and has
agents make them.

A protected key is kept in memory until it is copied (``compat.pin``), and then its recipe becomes "load a
copy": Dask's own recovery does the rest. All hooks are guarded: an error of ours is told, and the computation
goes on as if there were no such service.

Installed by the first that protects something, and gone with the last.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import wraps
from time import monotonic
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import AgentChoice, Agents, Disks, send_agents, take_agents_away
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.commits import Commits, Program
from dask_hpc.checkpoint.scheduler.context import NAME, SETTLED, ControllerContext, Diary, WorkerCalls
from dask_hpc.checkpoint.scheduler.copies import CopyKeeper, CopyMaker
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement
from dask_hpc.checkpoint.scheduler.protections import Protections
from dask_hpc.checkpoint.scheduler.recipes import Recipes
from dask_hpc.checkpoint.scheduler.schedule import Aim, FailureCounts
from dask_hpc.checkpoint.scheduler.series import Series, StoreWriter
from dask_hpc.checkpoint.scheduler.stored import StoredResults
from dask_hpc.checkpoint.scheduler.tenant_blocks import OfTenant, TenantBlocks
from dask_hpc.checkpoint.version import DISK, PARTNER, STORE
from dask_hpc.checkpoint.worker.agent import SAYS
from dask_hpc.cluster.scheduler.service import context_of, guarded
from dask_hpc.model.errors import one_line
from dask_hpc.model.node import Nodes
from dask_hpc.strategies.checkpoint.when import AUTO, Every

#: a look at all copies that takes the scheduler at most so many seconds is made each time somebody asks; a
#: longer one as seldom as keeps it below this share of all time
_QUICK, _SHARE = 0.005, 0.01


def _counted(call: Callable[..., Any]) -> Callable[..., Any]:
    """What tasks and agents ask: an error of ours is counted, and they hear nothing; who loads a copy then
    tries again, until there is one, or no controller any more."""

    @wraps(call)
    async def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await call(self, *args, **kwargs)
        except Exception as error:
            self.count_error(call.__name__, error)
            return None

    return safe


class Controller(ControllerContext, SchedulerPlugin):
    """One for a cluster. It is as configured where it is made; what concerns the way to a store is as
    configured at the scheduler."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        configured = config.checkpoint()
        self._settings = {name: configured[name] for name in ("memory", "disk", "mtbf")}
        self._node_mode: str = config.settings()["node"]
        self.is_on = False

    def start(self, scheduler: Any) -> None:
        """Nothing here waits: two that come at once find one plugin."""
        super().__init__(scheduler)
        self.is_on, self.give_up = True, self._give_up
        self.nodes = Nodes(self._node_mode)
        self.catalogue = Catalogue()
        self.diary = Diary(self)
        settings = config.checkpoint() | self._settings
        # Each part knows those above it.
        self.failures = FailureCounts(settings["mtbf"])
        self.recipes = self.add(Recipes(self.scheduler))
        self.calls = self.add(WorkerCalls(self.scheduler))
        self.agents = self.add(Agents(self))
        self.choice = self.add(AgentChoice(self, self.agents))
        self.placement = self.add(CopyPlacement(self.catalogue, self.agents))
        self.maker = self.add(CopyMaker(self))
        self.disks = self.add(Disks(self.calls, self.placement))
        self.writer = self.add(StoreWriter(self, settings["writers"], settings["bandwidth"]))
        self.stored = self.add(StoredResults(self))
        self.keeper = self.add(CopyKeeper(self, self.stored))
        self.blocks = self.add(TenantBlocks(self))
        self.protections = self.add(Protections(self))
        self.protected = self.protections.names
        self.commits = self.add(Commits(self))
        self._seen: dict[str, Any] = {}  # of the last look at all copies
        self._again = 0.0
        for address in compat.workers_by_name(scheduler):
            self._join(address)
        self._calls: dict[str, Callable[..., Any]] = {
            "hpc_agent_ready": self.agent_ready,
            "hpc_protect": self.protect,
            "hpc_unprotect": self.unprotect,
            "hpc_protected": self.protected_now,
            "hpc_protected_commit": self.commit,
            "hpc_checkpoint_where": self.where,
            "hpc_checkpoint_bad": self.bad,
            "hpc_checkpoint_no_copy": self.no_copy,
            "hpc_checkpoint_status": self.status,
            "hpc_checkpoint_open": self.open_program,
            "hpc_checkpoint_commit": self.commits.commit,
            "hpc_checkpoint_look": self.commits.look,
            "hpc_checkpoint_settled": self.commits.settled,
            "hpc_checkpoint_stats": self.commits.stats,
            "hpc_checkpoint_close": self.close_program,
        }
        compat.add_calls(scheduler, self._calls)
        self._end_following = compat.follow_replicas(scheduler, self.replicas_arrive)
        self.do("a copy", send_agents(scheduler, self._settings["memory"], self._settings["disk"] or ""))

    def stop(self) -> None:
        """Leave the cluster without a trace. What workers have of ours goes a moment later."""
        if self.is_on:
            self._leave("nothing is kept any more")

    def _give_up(self, reason: str) -> None:
        self.tell("off", reason)
        self._leave(reason)

    def _leave(self, reason: str) -> None:
        for tenant in tuple(self.tenants):
            self._let_go(tenant.is_over, reason)
        self.tenants.clear()
        self._let_go(self.recipes.close)
        self._let_go(self.choice.give_all_back)
        self.is_on = False
        self._end_work()
        self._let_go(compat.unpin_all_of, self.scheduler, NAME)
        compat.remove_calls(self.scheduler, self._calls)
        if self.scheduler.plugins.get(NAME) is self:
            self.scheduler.remove_plugin(NAME)
        take_agents_away(self.scheduler)

    def _end_work(self) -> None:
        parts = (self.keeper.close, self.protections.close, self.stored.close_all)
        for end in (self._end_following, *parts, self.cancel):
            self._let_go(end)

    def _let_go(self, end: Callable[..., object], *of: Any) -> None:
        """Whatever goes wrong with one of them, the others are not kept."""
        try:
            end(*of)
        except Exception as error:
            self.count_error("letting go", error)

    @guarded
    def add_worker(self, scheduler: Any, worker: str) -> None:
        self._join(worker)

    @guarded
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        self.nodes.leave(worker)
        self.agents.gone(worker)
        self.disks.agent_is_gone(worker)
        self.calls.worker_is_gone(worker)
        self.diary.worker_is_gone(worker)
        self.failures.nodes(len(self.nodes))
        had = self.catalogue.lost(worker)
        self.keeper.look_at(had)
        for tenant in self.tenants:
            tenant.lost(worker, had)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task changed its state. Called several times for every task of the cluster."""
        if key in self.recipes or key in self.protections or key in self.catalogue.content_of:
            self._task_moves(key, start, finish)
        if start == "processing" and key in self.recipes.given_back:
            self._leaves_worker(key)
        if key in self.commits.awaiting:
            self.commits.moves(key, finish)
        if finish in SETTLED and key in self.recoveries:
            self.recoveries.back(key)

    @guarded
    def update_graph(self, scheduler: Any, *, tasks: Iterable[Hashable], **kwargs: Any) -> None:
        """Tasks were submitted. What a replaced recipe needed may come again; nobody needs it."""
        if len(self.recipes) and any(key in self.recipes for key in tasks):
            asyncio.get_running_loop().call_soon(compat.forget_unneeded, scheduler, list(tasks))
        for program in self.commits.series.values():
            program.graph_arrives(tasks)
        self.stored.graph_arrives(tasks)

    @guarded
    def _task_moves(self, key: Hashable, start: str, finish: str) -> None:
        if key in self.recipes:
            self.diary.moves(key, start, finish)
        if finish == "memory" and (unneeded := self.recipes.is_in_memory(key)):
            # Dask is in the midst of it.
            asyncio.get_running_loop().call_soon(compat.forget_unneeded, self.scheduler, unneeded)
        self.protections.moves(key, finish)
        self.keeper.moves(key, finish)

    @guarded
    def _leaves_worker(self, key: Hashable) -> None:
        self.recipes.leaves_worker(key)

    @guarded
    def replicas_arrive(self, worker: str, keys: Iterable[Hashable]) -> None:
        self.keeper.arrived(worker, keys)

    @guarded
    def log_event(self, topic: str, msg: Any) -> None:
        """A worker leaves, and nobody but Dask knows of it; or it is gone, and so are results."""
        if not isinstance(msg, dict):
            return
        if topic in self.agents and msg.get("status") == "closing_gracefully":
            self.do("a copy", self.keeper.drain([topic]))
        elif topic == SAYS:
            self.tell("agents", one_line(f"{msg['agent']} {msg['says']}"))
        elif topic == "all" and msg.get("action") == "remove-worker":
            lost = {*msg["lost-computed-tasks"], *msg["lost-scattered-tasks"]}
            if lost and not msg["expected"]:
                self._has_failed(msg["worker"], lost)

    def _has_failed(self, worker: str, lost: set[Hashable]) -> None:
        """A worker took results along; the copies of some perhaps, too."""
        copies = [where for key in lost for content, where in [self.catalogue.where(key)] if content]
        level = STORE if self._was_last(worker) else PARTNER
        if level == PARTNER and any(where in ([], [worker]) for where in copies):
            level = DISK
        self.failures.seen(level)
        series = (*self.commits.series.values(), *self.protected.values())
        self.recoveries.lost(lost, min((one.schedule.redone() for one in series), default=0.0))
        for one in self.protected.values():
            one.look_again()

    def _was_last(self, worker: str) -> bool:
        return not set(compat.running_workers(self.scheduler)) - {worker}

    @guarded
    def restart(self, scheduler: Any) -> None:
        for name in list(self.protected):
            self.choice.forget(name)
        self.protections.restart()
        self.stored.close_all()
        self.placement.restart()
        self.maker.close()
        self.recipes.restart()
        for key in list(self.catalogue.content_of):
            self.keeper.release(key)

    async def close(self) -> None:
        self.is_on = False
        self._end_work()

    @_counted
    async def agent_ready(self, worker: str, facts: dict[str, Any]) -> None:
        if compat.worker_status(self.scheduler, worker) is not None:
            found = facts.pop("contents", ())
            self.agents.ready(worker, facts)
            self.keeper.room_comes()
            await self.keeper.agent_has(worker, found)
            self.disks.agent_has(found)
            for program in self.commits.series.values():
                program.room_comes()
            for tenant in self.tenants:
                tenant.agents_change()

    @property
    def nodes_wanted(self) -> int:
        return self.choice.wanted if self.is_on else 0

    async def protect(
        self,
        name: str,
        keys: list[Hashable],
        copies: int = 1,
        levels: Sequence[str] = ("partner",),
        every: Every = AUTO,
        store: dict[str, Any] | None = None,
        aim: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        """From now on these keys are copied once they are in memory, when it is time. ``store`` has the
        settings of one, if it is one of the levels."""
        protected = self.protections.named(name)
        await protected.protect(keys, copies, levels, every, None if aim is None else Aim(*aim))
        if store is not None and self.protected.get(name) is protected:
            self.stored.open(protected, store)
        else:
            self.stored.close(name)
        return self.protected_now(name)

    async def unprotect(self, name: str) -> None:
        if name in self.protected:
            self.choice.forget(name)
            self.stored.close(name)
            self.is_kept(name)
            await self.protections.unprotect(name)
            self.stop_if_unused()

    def protected_now(self, name: str) -> dict[str, Any]:
        """What is copied of a name; nothing if there is no such name."""
        found = self.protected.get(name)
        return {} if found is None else found.as_plain() | self.stored.as_plain(name)

    async def commit(self, name: str) -> dict[str, Any]:
        """Copy what has become ready since the last time. Answers when the copies are there."""
        if (protected := self.protected.get(name)) is not None:
            await protected.commit()
            if name in self.stored.names:
                await self.stored.names[name].now()
        return self.protected_now(name)

    @_counted
    async def where(self, key: Hashable, worker: str) -> dict[str, Any]:
        """Content and agents of a key's block, those on the same node first; and how to read it from a
        store, if it is there."""
        content, agents = self.catalogue.where(key)
        if not agents and self.disks.may_return(content):
            await self.disks.returned(content)
            content, agents = self.catalogue.where(key)
        node = self.nodes.node_of(worker)
        agents.sort(key=lambda address: (address != worker, self.nodes.node_of(address) != node))
        return {"content": content, "where": agents, "stored": self.stored.where(key)}

    @_counted
    async def bad(self, content: str, agent: str, why: str) -> None:
        if self.catalogue.lost(agent, [content]):
            self.diary.cannot_be_read(agent, why)
            self.keeper.look_at([content])

    @_counted
    async def no_copy(self, key: Hashable, why: str) -> bool:
        """A worker could not load a result. Whether it will be computed instead."""
        self.diary.cannot_be_loaded(key, why)
        self.stored.cannot_be_read(key)
        return self.keeper.lapse(key)

    def names_of(self, is_theirs: Callable[[Hashable], bool], at_once: bool) -> list[str]:
        """The names under which some of these results are protected or committed; unless a commit is made at
        once, those with a commit to come."""
        found = []
        for one in self.protected.values():
            is_due = one.schedule.planned is None or one.schedule.next_due_in() is not None
            is_to_come = bool(one.target) or (bool(one.pending) and is_due)
            if (at_once or is_to_come) and any(map(is_theirs, one.keys)):
                found.append(one.name)
        for program in self.commits.series.values():
            newest = program.target or program.base
            if newest is not None and (at_once or program.client or program.target):
                found += [program.name] if any(map(is_theirs, newest.keys.values())) else []
        return found

    async def commit_now(self, names: Iterable[str]) -> None:
        """What there is of these names now is kept. Only a program itself can commit what it has not: of one,
        what it has committed arrives."""
        for name in names:
            if (program := self.commits.series.get(name)) is not None:
                newest = program.target or program.base
                if newest is not None:
                    await program.settled(newest)
            await self.commit(name)

    def status(self) -> dict[str, Any]:
        """``protected``: by name how much of it is copied, its last commit, when the next is due.
        ``nodes``: what of it each holds, and of which nodes it keeps copies, in bytes. ``exposed``: results
        whose copies are all on the node that has them, too. ``levels``: copies and bytes
        of each; those on disk are some of all that partners have.
        ``agents``: what each said last. ``versions``: the newest of each checkpoint, with the levels that
        have it. ``store``: bytes on their way there, and what is wrong with it. ``counts``: see
        ``Diary.as_plain``. Times are seconds ago, and from now."""
        programs, stored = self.commits.series.values(), self.stored.names.values()
        series: list[Series] = [*programs, *stored]
        coming = [version for one in series for version in {one.writing, one.to_write} - {None}]
        return {
            "protected": [
                {"next_due": None, **found.as_plain(), "last_commit": self.diary.last_commit(name)}
                for name, found in self.protected.items()
            ],
            **self._places(),
            "agents": [
                {"address": address, "node": self.nodes.node_of(address), **said}
                for address, said in self.agents.facts().items()
            ],
            "versions": [row for one in programs for row in _versions(one)],
            "store": {
                "waiting": sum(version.nbytes for version in coming if version is not None),
                "written": self.writer.written,
                "problem": next((one.store_problem for one in series if one.store_problem), ""),
            },
            **self.diary.as_plain(),
            "errors": self.errors,
        }

    def _places(self) -> dict[str, Any]:
        began = monotonic()
        if began >= self._again:
            self._seen = self._look_at_copies()
            took = monotonic() - began
            self._again = began + (took / _SHARE if took > _QUICK else 0.0)
        return self._seen

    def _look_at_copies(self) -> dict[str, Any]:
        """Passes over all protected results and all copies."""
        catalogue, nodes = self.catalogue, self.nodes
        own: Counter[str] = Counter()
        home: dict[Any, str] = {}  # of a result: a node that holds it
        protected = (key for one in self.protected.values() for key in one.keys)
        for key in {*protected, *catalogue.content_of}:
            task = compat.find_task(self.scheduler, key)
            for address in compat.holders(task)[:1] if task is not None else ():
                home[key] = nodes.node_of(address)
                own[home[key]] += compat.size(task)
        kept: dict[str, Counter[str]] = {}
        copies, total, exposed = 0, 0, 0
        agents = self.agents.facts().values()
        for one, found in catalogue.contents.items():
            if found.needed_by and all(isinstance(owner, OfTenant) for owner in found.needed_by):
                continue  # others say how theirs are
            copies, total = copies + len(found.where), total + found.nbytes * len(found.where)
            homes = [home[key] for key in catalogue.keys_of(one) if key in home]
            there = [nodes.node_of(address) for address in found.where]
            exposed += sum({of} == {*there} for of in homes)
            for node in there:
                kept.setdefault(node, Counter())[homes[0] if homes else ""] += found.nbytes
        return {
            # What nobody holds now, of older versions, or lost a moment ago, is kept of the node "".
            "nodes": [
                {"name": node, "own": own[node], "kept": dict(kept.get(node, {}))} for node in sorted(nodes)
            ],
            "exposed": exposed,
            "levels": {
                "partner": {"copies": copies, "nbytes": total},
                "disk": {
                    name: sum(agent.get(f"disk_{said}", 0) for agent in agents)
                    for name, said in (("copies", "copies"), ("nbytes", "used"))
                },
            },
        }

    def is_safe(self, key: Hashable) -> bool:
        """Whether a result is loaded from a copy if it is lost."""
        return key in self.recipes and (bool(self.catalogue.where(key)[1]) or key in self.stored)

    async def open_program(self, name: str, client: str) -> dict[str, Any]:
        """A program begins or goes on: see ``Commits.open``. New workers may have its version on disk."""
        if name in self.commits.series:
            await self.agents.come()
        return await self.commits.open(name, client)

    async def close_program(
        self, name: str, forget: bool, run: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A program ends: see ``Commits.close``. ``run``: what its loop took, if it had one; who remembers
        runs hears of it."""
        self.is_kept(name)
        told = await self.commits.close(name, forget)
        if run is not None and (managed := context_of(self.scheduler)) is not None:
            facts = {"nodes": len(self.nodes), **run}
            if commits := told["commits"]:
                nbytes = (told["moved"] + told["unchanged"]) / commits
                facts["commit"] = [told["seconds"] / commits, nbytes]
            managed.each("loop_ends", lambda service: service.loop_ends(name, facts))
        if forget:
            self.choice.forget(name)
            self.stop_if_unused()
        return told

    def stop_if_unused(self) -> None:
        if not self.protected and not self.commits.series and not self.tenants:
            self.stop()

    def _join(self, address: str) -> None:
        self.nodes.join(address, *compat.worker_identity(self.scheduler, address))
        self.failures.nodes(len(self.nodes))


def _versions(series: Program) -> Iterator[dict[str, Any]]:
    """Of one checkpoint, the oldest first."""
    levels: dict[int, list[str]] = {}
    for level, step in series.reached.items():
        levels.setdefault(step, []).append(level)
    for step in sorted(levels):
        nbytes = series.base.nbytes if series.base is not None and series.base.step == step else None
        yield {"name": series.name, "version": step, "nbytes": nbytes, "levels": levels[step]}


_TRIES = 3  # at finding a controller that stays


async def ask(client: Any, call: str, /, **what: Any) -> Any:
    """Have the controller do something that has an answer. It is installed first if it is not there; and
    once more if the one that was there was just about to go."""
    for _ in range(_TRIES):
        await client.register_plugin(Controller(), name=NAME)
        found = await getattr(client.scheduler, call)(**what)
        if found is not None:
            break
    return found
