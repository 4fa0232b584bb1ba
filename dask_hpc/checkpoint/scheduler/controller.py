"""The scheduler's half of the checkpoint service: knows what is protected and where the copies are, and has
agents make them.

A protected key is kept in memory until it is copied (``compat.pin``), and then its recipe becomes "load a
copy": Dask's own recovery does the rest. All hooks are guarded: an error of ours is told, and the computation
goes on as if there were no such service.

Installed by the first that protects something, and gone with the last.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from functools import wraps
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import Agents, Calling, send_agents, take_agents_away
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.choice import Choosing, Pool
from dask_hpc.checkpoint.scheduler.commits import Commits
from dask_hpc.checkpoint.scheduler.copies import Copying, Made
from dask_hpc.checkpoint.scheduler.diary import Diary, Look
from dask_hpc.checkpoint.scheduler.flushing import Flushing
from dask_hpc.checkpoint.scheduler.keeping import Agreeing, Disks, Keeping
from dask_hpc.checkpoint.scheduler.protections import Protections
from dask_hpc.checkpoint.scheduler.recipes import Recipes
from dask_hpc.checkpoint.scheduler.series import Deciding
from dask_hpc.checkpoint.scheduler.storing import Storing
from dask_hpc.checkpoint.worker.agent import SAYS
from dask_hpc.model.errors import one_line
from dask_hpc.model.node import Nodes
from dask_hpc.strategies.checkpoint.when import AUTO, Every

logger = logging.getLogger(__name__)

NAME = "dask-hpc-checkpoint"
_TRIES = 3  # at finding a controller that stays
_MOST_ERRORS = 10  # of ours, before all is switched off


def guarded(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Our errors stay ours: they are logged, counted and told, and too many of them switch us off."""

    @wraps(hook)
    def safe(self: "Controller", *args: Any, **kwargs: Any) -> Any:
        if self.is_on:
            try:
                return hook(self, *args, **kwargs)
            except Exception as error:
                self.count_error(hook.__name__, error)
        return None

    return safe


class Controller(SchedulerPlugin):
    """One for a cluster. ``share`` is the part of workers' memory that copies may take; as configured where
    this is made, if it is not given."""

    name = NAME
    idempotent = True

    def __init__(self, share: float | None = None, node_mode: str = "") -> None:
        configured = config.checkpoint()
        self._share: float = configured["memory"] if share is None else share
        self._disk: str = configured["disk"] or ""
        self._mtbf: dict[str, float] = configured["mtbf"]
        self._node_mode = node_mode or config.settings()["node"]
        self.is_on = False

    def start(self, scheduler: Any) -> None:
        """Nothing here waits: two that come at once find one plugin."""
        self._scheduler = scheduler
        self.is_on = True
        self.errors = 0
        self._work: set[asyncio.Task[Any]] = set()
        self.catalogue = Catalogue()
        #: protected keys that have lost all copies, and are to be copied when they have been computed again
        self._lapsed: set[Hashable] = set()
        #: contents that agents are about to hear they may drop
        self._drops: dict[str, list[str]] = {}
        self.diary = Diary(self.tell, asyncio.get_running_loop().call_later)
        self.nodes = Nodes(self._node_mode)
        self.recipes = Recipes(scheduler)
        self.agents = Agents(scheduler, self.nodes, self.catalogue)
        self.choosing = Choosing(scheduler, self.agents, self.keys_of, self.tell)
        self.calling = Calling(scheduler)
        self.copying = Copying(
            scheduler,
            self.catalogue,
            self.agents,
            self.recipes.load_instead,
            self.choosing.dealing,
            lambda: float(self.choosing.rule.window),
            lambda: self.choosing.rule,
            self.calling,
        )
        self.keeping = Keeping(
            scheduler,
            self.catalogue,
            self.agents,
            self.copying,
            self._copies_of,
            self._nobody_has,
            self.diary,
            self.tell,
            self._look_around,
            self.count_error,
        )
        self._agreeing = Agreeing(scheduler, self.catalogue, self.agents, self.copying, self.keeping.look_at)
        self._pool = Pool(self.agents, lambda: self.choosing.rule, self.tell)
        self.disks = Disks(self.calling, self.catalogue, self.keeping.look_at)
        self._make_commits(scheduler)
        self.protections = Protections(
            scheduler,
            self.catalogue,
            self.copying,
            self.disks,
            self.committed,
            self.keeping.set_apart,
            self._release,
            self.do,
            self.tell,
            lambda: len(self.nodes),
            self._mtbf,
            lambda protected: self.storing.copied(protected),
        )
        self.protected = self.protections.names
        self._look = Look(self, scheduler)
        for address in compat.workers_by_name(scheduler):
            self._join(address)
        self.protections.failures.nodes(len(self.nodes))
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
            **self.commits.calls,
            "hpc_checkpoint_close": self.close_program,
        }
        compat.add_handlers(scheduler, self._calls)
        self._end_following = compat.follow_replicas(scheduler, self.replicas_arrive)
        self.do(send_agents(scheduler, self._share, self._disk))

    def stop(self) -> None:
        """Leave the cluster without a trace. What workers have of ours goes a moment later."""
        if not self.is_on:
            return
        self.recipes.close()
        self.is_on = False
        self._end_work()
        compat.unpin_all_of(self._scheduler, NAME)
        compat.remove_handlers(self._scheduler, self._calls)
        if self._scheduler.plugins.get(NAME) is self:
            self._scheduler.remove_plugin(NAME)
        take_agents_away(self._scheduler)

    def _end_work(self) -> None:
        self._end_following()
        self.keeping.close()
        self.protections.close()
        self.storing.close_all()
        for task in self._work:
            task.cancel()

    # hooks

    @guarded
    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker connects; its agent comes with it."""
        self._join(worker)
        self.protections.failures.nodes(len(self.nodes))

    @guarded
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """A worker is gone, and the copies it had."""
        self.nodes.leave(worker)
        self.agents.gone(worker)
        self.disks.agent_is_gone(worker)
        self.calling.worker_is_gone(worker)
        self.copying.worker_is_gone(worker)
        self.diary.worker_is_gone(worker)
        self.protections.failures.nodes(len(self.nodes))
        self.keeping.look_at(self.catalogue.lost(worker))

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task changed its state. Called several times for every task of the cluster."""
        if key in self.recipes or key in self.protections or key in self.catalogue.content_of:
            self._task_moves(key, start, finish)
        if key in self.commits.awaiting:
            self.commits.awaiting.moves(key, finish)

    @guarded
    def update_graph(self, scheduler: Any, *, tasks: Iterable[Hashable], **kwargs: Any) -> None:
        """Tasks were submitted. What a replaced recipe needed may come again; nobody needs it."""
        if len(self.recipes) and any(key in self.recipes for key in tasks):
            asyncio.get_running_loop().call_soon(compat.forget_unneeded, scheduler, list(tasks))
        self.commits.graph_arrives(tasks)
        self.storing.graph_arrives(tasks)

    @guarded
    def _task_moves(self, key: Hashable, start: str, finish: str) -> None:
        if key in self.recipes:
            self.diary.moves(key, start, finish)
        if finish == "memory" and (unneeded := self.recipes.is_in_memory(key)):
            # Dask is in the midst of it.
            asyncio.get_running_loop().call_soon(compat.forget_unneeded, self._scheduler, unneeded)
        self.protections.moves(key, finish)
        if finish == "forgotten":
            self.recipes.forget(key)
            self._release(key)
        elif finish == "memory" and key in self._lapsed:
            self._lapsed.discard(key)
            self.keeping.owes([key])
        elif finish in ("memory", "released") and (content := self.catalogue.content_of.get(key)) is not None:
            self.keeping.look_at([content])  # it may be beside its only copy, or have no other any more

    @guarded
    def replicas_arrive(self, worker: str, keys: Iterable[Hashable]) -> None:
        """A worker fetched results of others."""
        self.keeping.arrived(worker, keys)

    @guarded
    def log_event(self, topic: str, msg: Any) -> None:
        """A worker leaves, and nobody but Dask knows of it; or it is gone, and so are results."""
        if not isinstance(msg, dict):
            return
        if topic in self.agents and msg.get("status") == "closing_gracefully":
            self.do(self.drain([topic]))
        elif topic == SAYS:
            self.tell("agents", one_line(f"{msg['agent']} {msg['says']}"))
        elif topic == "all" and msg.get("action") == "remove-worker":
            is_loss = msg["lost-computed-tasks"] or msg["lost-scattered-tasks"]
            if is_loss and not msg["expected"]:
                self.protections.failures.seen("partner")

    @guarded
    def restart(self, scheduler: Any) -> None:
        """All tasks are gone, and all workers."""
        for name in list(self.protected):
            self.choosing.forget(name)
        self.protections.restart()
        self.storing.close_all()
        self._lapsed.clear()
        self.copying.close()
        self.recipes.restart()
        for key in list(self.catalogue.content_of):
            self._release(key)

    async def close(self) -> None:
        """The scheduler closes."""
        self.is_on = False
        self._end_work()

    # what agents say

    async def agent_ready(self, worker: str, facts: dict[str, Any]) -> None:
        """A worker has an agent."""
        if compat.worker_status(self._scheduler, worker) is not None:
            found = facts.pop("contents", ())
            self.agents.ready(worker, facts)
            self.keeping.room_comes()
            await self._agreeing.has(worker, found)
            self.disks.agent_has(found)
            self.commits.room_comes()

    async def _look_around(self) -> None:
        self._pool.look()
        await self._agreeing.look()

    @property
    def nodes_wanted(self) -> int:
        """How many nodes there are to be for the sake of copies."""
        return self._pool.wanted if self.is_on else 0

    # what users ask

    async def protect(
        self,
        name: str,
        keys: list[Hashable],
        copies: int = 1,
        levels: Sequence[str] = ("partner",),
        every: Every = AUTO,
        store: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """From now on these keys are copied once they are in memory, when it is time. ``store`` has the
        settings of one, if it is one of the levels."""
        await self.protections.protect(name, keys, copies, levels, every)
        if store is not None and name in self.protected:
            self.storing.open(self.protected[name], store)
        else:
            self.storing.close(name)
        return self.protected_now(name)

    async def unprotect(self, name: str) -> None:
        """They are plain results again."""
        if name in self.protected:
            self.choosing.forget(name)
            self.storing.close(name)
            await self.protections.unprotect(name)
            self.stop_if_unused()

    def protected_now(self, name: str) -> dict[str, Any]:
        """What is copied of a name; nothing if there is no such name."""
        found = self.protected.get(name)
        return {} if found is None else found.as_plain(self.catalogue) | self.storing.as_plain(name)

    async def commit(self, name: str) -> dict[str, Any]:
        """Copy what has become ready since the last time. Answers when the copies are there."""
        await self.protections.commit(name)
        if (protected := self.protected.get(name)) is not None:
            await self.storing.now(protected)
        return self.protected_now(name)

    def committed(self, name: str, made: Made) -> None:
        """Copies of what is protected under a name were made."""
        self.choosing.committed(name, made)
        self.diary.committed(name, made, made.seconds)
        self.see_to(made)

    def see_to(self, made: Made) -> None:
        """What nobody took is tried again later."""
        self.keeping.look_at([order.content for order in made.left if order.content])
        if owed := [order.key for order in made.left if order.key is not None and not order.content]:
            self.keeping.owes(owed)

    async def drain(self, addresses: Iterable[str]) -> None:
        """These workers are about to leave: others get as many copies of what they have."""
        try:
            await self.keeping.drain(addresses)
        except OSError:
            return
        except Exception as error:
            self.count_error("a drain", error)

    def keys_of(self, name: str) -> Iterable[Hashable]:
        """What is protected under a name, or what a program commits under it."""
        if (protected := self.protected.get(name)) is not None:
            return protected.keys
        series = self.commits.series.get(name)
        return series.coming.keys.values() if series is not None and series.coming is not None else ()

    def _copies_of(self, key: Hashable) -> int:
        return self.protections.copies_of(key)

    async def where(self, key: Hashable, worker: str) -> dict[str, Any]:
        """Content and agents of a key's block, those on the same node first; and how to read it from a
        store, if it is there."""
        content, agents = self.catalogue.where(key)
        if not agents and self.disks.may_return(content):
            await self.disks.returned(content)
            content, agents = self.catalogue.where(key)
        node = self.nodes.node_of(worker)
        agents.sort(key=lambda address: (address != worker, self.nodes.node_of(address) != node))
        return {"content": content, "where": agents, "stored": self.storing.where(key)}

    async def bad(self, content: str, agent: str, why: str) -> None:
        """An agent's copy could not be read."""
        if self.catalogue.lost(agent, [content]):
            self.diary.cannot_be_read(agent, why)
            self.keeping.look_at([content])

    async def no_copy(self, key: Hashable, why: str) -> bool:
        """A worker could not load a result. Whether it will be computed instead."""
        self.diary.cannot_be_loaded(key, why)
        self.storing.cannot_be_read(key)
        return self._lapse(key)

    def status(self) -> dict[str, Any]:
        """What is protected, where the copies are, and what happened: see ``Look.status``."""
        return self._look.status()

    def is_safe(self, key: Hashable) -> bool:
        """Whether a result is loaded from a copy if it is lost."""
        return key in self.recipes and (bool(self.catalogue.where(key)[1]) or key in self.storing)

    # programs that iterate

    def _make_commits(self, scheduler: Any) -> None:
        settings = config.checkpoint()

        async def copy(name: str, keys: list[Hashable], like: dict[Hashable, str]) -> Made:
            made = await self.copying.make(self.copying.orders(keys, lambda key: 1, like), name)
            self.choosing.committed(name, made)
            self.diary.committed(name, made, made.seconds)
            await self.keeping.set_apart(keys)
            return made

        self.commits = Commits(
            scheduler,
            self.catalogue,
            copy,
            self.copying.drop,
            self._node_names,
            self.tell,
            self.do,
            lambda: self.flushing,
            Deciding(lambda: self.protections.failures, lambda: len(self.nodes), self.tell),
            self.disks,
        )
        self.flushing = Flushing(
            scheduler,
            self.catalogue,
            self.commits.stored,
            self.commits.let_go,
            self.tell,
            self.do,
            self.count_error,
            self.calling,
            settings["writers"],
            settings["bandwidth"],
        )
        self.storing = Storing(
            scheduler,
            self.catalogue,
            self.recipes,
            self.flushing,
            self._node_names,
            self.tell,
            self.do,
        )

    async def close_program(self, name: str, forget: bool) -> dict[str, Any]:
        """A program ends: see ``Commits.close``."""
        told = await self.commits.close(name, forget)
        if forget:
            self.choosing.forget(name)
            self.stop_if_unused()
        return told

    def stop_if_unused(self) -> None:
        """With the last that is protected we go."""
        if not self.protected and not self.commits.series:
            self.stop()

    def _release(self, key: Hashable) -> None:
        self._lapsed.discard(key)
        self.keeping.forget(key)
        if key in self.catalogue.content_of and (unneeded := self.catalogue.release(key)):
            self._drops.update(unneeded)
            if len(self._drops) == len(unneeded):
                self.do(self._drop())

    async def _drop(self) -> None:
        """All at once what was released in the same moment."""
        drops, self._drops = self._drops, {}
        await self.copying.drop(drops)

    def _nobody_has(self, key: Hashable) -> None:
        """All copies of a key are gone, and it is in nobody's memory."""
        if self.disks.may_return(self.catalogue.content_of.get(key, "")):
            return
        task = compat.find_task(self._scheduler, key)
        if key in self.storing:  # it is loaded from there, and copied again then
            self._release(key)
            if key in self.protections:
                self._lapsed.add(key)
        elif task is not None and compat.state(task) == "released":  # else its worker will say so
            is_lost = "" if self._lapse(key) else ", and it cannot be computed again"
            self.tell("lost", one_line(f"all copies of {key!r} are gone{is_lost}"))

    def _lapse(self, key: Hashable) -> bool:
        """A key has no copy any more. Whether it can be computed."""
        self._release(key)
        if key in self.protections:
            self._lapsed.add(key)
        return self.recipes.no_copy(key)

    # the rest

    def _node_names(self) -> list[str]:
        running = compat.running_workers(self._scheduler)
        return sorted({self.nodes.node_of(address) for address in running})

    def _join(self, address: str) -> None:
        self.nodes.join(address, *compat.worker_identity(self._scheduler, address))

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Beside all else; its errors are counted."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work_is_done)

    def _work_is_done(self, task: "asyncio.Task[Any]") -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):  # a worker that has gone
            self.count_error("a copy", error)

    def count_error(self, where: str, error: BaseException) -> None:
        """One more error of ours. The last one that is allowed switches us off."""
        self.errors += 1
        logger.error("dask-hpc: error of checkpoints in %s", where, exc_info=error)
        self.tell("error", f"checkpoint: in {where}: {type(error).__name__}: {error}")
        if self.is_on and self.errors >= _MOST_ERRORS:
            self.tell("off", f"checkpoints are off after {self.errors} errors; all results are plain ones")
            # We may be inside one of Dask's transitions, where no other may be asked for.
            self._scheduler.loop.add_callback(self.stop)

    def tell(self, decision: str, reason: str) -> None:
        """Put it into the story, if the cluster is managed; else into Dask's event log."""
        managed = self._scheduler.plugins.get("dask-hpc")
        if managed is not None:
            managed.control.tell(decision, reason)
        else:
            self._scheduler.log_event(NAME, {"decision": decision, "reason": reason})


async def ask(client: Any, call: str, /, **what: Any) -> Any:
    """Have the controller do something that has an answer. It is installed first if it is not there; and
    once more if the one that was there was just about to go."""
    for _ in range(_TRIES):
        await client.register_plugin(Controller(), name=NAME)
        found = await getattr(client.scheduler, call)(**what)
        if found is not None:
            break
    return found
