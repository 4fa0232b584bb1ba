"""Checkpoints and stored results as a service of a managed cluster: what is safe, and what is shown of it.

Tasks whose results are in the rescue store are loaded instead of computed. If the file turns out to be
unreadable, the task gets its own recipe back and is computed. Nothing of a store that cannot be used reaches
the computation: it is told once, and all goes on without.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.context import BORROWS, NAME
from dask_hpc.checkpoint.scheduler.controller import Controller
from dask_hpc.checkpoint.scheduler.recipes import Recipes
from dask_hpc.checkpoint.worker.loaders import UNREADABLE, Loader, Store, is_content_key, may_be_stored
from dask_hpc.cluster.scheduler.service import Context, Samples, Service, Shelter
from dask_hpc.model.errors import one_line
from dask_hpc.model.lending import IdleNodes, NodeDesk, NodesReturned, NodesWanted, ToService

logger = logging.getLogger(__name__)


_SHOWN = 10  # unreadable files named in the story; the rest are counted


class Rescue(Shelter):
    """What is stored, and which tasks rely on it."""

    def __init__(self, context: Context) -> None:
        self._scheduler = context.scheduler
        self._tell = context.tell
        #: None if there is no store, or none that can be used
        self.store: Store | None = None
        self._names: set[str] = set()
        self._recipes = Recipes(context.scheduler)
        #: keys that mean something in this cluster only
        self._own: set[Hashable] = set()
        self._unreadable = 0

    def __contains__(self, key: Hashable) -> bool:
        """Whether somebody has to hear what becomes of that task."""
        return key in self._recipes or key in self._own or key in self._recipes.given_back

    def __bool__(self) -> bool:
        return bool(self._recipes or self._own or self._recipes.given_back)

    def open(self, directory: str) -> None:
        """Use this store from now on, if it can be used."""
        store = Store(directory, self._scheduler.id)
        try:
            self._names = store.open()
        except OSError as error:
            self._tell("rescue", one_line(f"hpc.rescue: {error.strerror or error}; nothing is stored"))
        else:
            self.store = self.for_workers = store
            self._recipes = Recipes(self._scheduler, Loader(store))
            self._tell("rescue", f"{store.directory} has {len(self._names)} results")

    def close(self) -> None:
        """Control ends. What loads already goes on to do so; the files that only this cluster could use are
        deleted if no task relies on them."""
        for key in self._recipes:
            task = compat.find_task(self._scheduler, key)
            if task is not None and compat.can_be_replaced(task):
                self._recipes.give_back(task)
                if key in self._own:
                    self._delete(key)
        self._recipes.restart()
        self._own.clear()
        self.store = self.for_workers = None
        self._names = set()

    def graph_arrives(self, keys: Iterable[Hashable]) -> None:
        """Tasks were submitted and have not moved yet. Those that are stored will load."""
        if self.store is None or not self._names:
            return
        found = []
        for key in keys:
            if is_content_key(key) and self.store.name(key) in self._names:
                task = compat.find_task(self._scheduler, key)
                if task is not None and compat.is_new(task) and compat.has_recipe(task):
                    found.append(key)
        if found:
            self._recipes.load_idle(found)
            self._tell("rescue", f"{len(found)} results are stored: they are loaded, not computed")

    def wrote(self, keys: Iterable[Hashable]) -> None:
        if self.store is None:
            return
        there = list(keys)
        for key in there:
            if is_content_key(key):
                self._names.add(self.store.name(key))
            else:
                self._own.add(key)
        self._recipes.load_idle(there)

    def failed(self, address: str, problem: str) -> None:
        """A worker that leaves could not store all it was asked for."""
        self._tell("rescue", one_line(f"worker {address} cannot store: {problem}"))

    def takes(self, key: Hashable) -> bool:
        return self.store is not None and may_be_stored(key)

    def unreadable(self, message: Any) -> None:
        """A worker could not read a stored result, and will ask what to do now."""
        key = message.get("key") if isinstance(message, dict) else None
        try:
            task = compat.find_task(self._scheduler, key) if key in self._recipes else None
        except TypeError:  # no key at all
            return
        if task is None or self.store is None:
            return
        self._names.discard(self.store.name(key))
        self._recipes.give_back(task)
        self._unreadable += 1
        if self._unreadable <= _SHOWN:
            self._tell("rescue", one_line(f"{key!r} is computed again: {message.get('why')}"))

    def moves(self, key: Hashable, start: str, finish: str) -> None:
        """A task changed its state."""
        if start == "processing" and key in self._recipes.given_back:
            self._recipes.leaves_worker(key)
        if finish == "forgotten":
            self._recipes.forget(key)
            if key in self._own:
                self._own.discard(key)
                self._delete(key)

    def missing(self, keys: Iterable[Hashable]) -> list[Hashable]:
        """Those of the keys that have to be computed again if they are lost."""
        return [key for key in keys if key not in self._recipes]

    def _delete(self, key: Hashable) -> None:
        if self.store is not None:
            try:
                self.store.delete(key)
            except OSError as error:
                self._tell("rescue", one_line(f"a file stays behind: {error}"))


class CheckpointService(Service):
    """Knows which results are safe when workers leave, and shelters those of leaving workers."""

    metrics = {
        "checkpoint_results": (False, "Protected results, by whether they have a copy", "state"),
        "checkpoint_exposed": (False, "Results whose copies are all on the node that has them, too"),
        "checkpoint_bytes": (False, "Bytes of protected results that have a copy"),
        "checkpoint_copies": (False, "Copies that are kept", "level"),
        "checkpoint_copy_bytes": (False, "Bytes of those copies", "level"),
        "checkpoint_commits": (True, "Commits that have ended"),
        "checkpoint_commit_seconds": (False, "How long the last commit took"),
        "checkpoint_commit_age_seconds": (False, "How long ago the last commit was"),
        "checkpoint_committed_bytes": (
            True,
            "Bytes that were to be copied: those moved, those unchanged",
            "is",
        ),
        "checkpoint_failed_copies": (True, "Copies that could not be made"),
        "checkpoint_recoveries": (True, "Losses of workers after which results were loaded from copies"),
        "checkpoint_recovered": (True, "Results that were loaded from copies"),
        "checkpoint_unrecovered": (True, "Results that were lost without an intact copy"),
        "checkpoint_damaged_copies": (True, "Copies that could not be read"),
        "checkpoint_agents": (False, "Workers that keep copies for others"),
        "checkpoint_agent_bytes": (False, "Memory that agents use, and that they may use", "is"),
        "checkpoint_store_waiting_bytes": (False, "Bytes on their way to the store"),
    }
    parts = {"checkpoint": "checkpoint"}
    nodes_for = "copies of results"
    borrows = BORROWS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.shelter: Rescue = Rescue(context)

    @property
    def _controller(self) -> Controller | None:
        """Who protects results, if somebody asked for it."""
        found = self.context.scheduler.plugins.get(NAME)
        return found if isinstance(found, Controller) else None

    def start(self) -> None:
        if not self.context.is_dry and (directory := self.context.settings["rescue"]) is not None:
            self.shelter.open(directory)
            self.begin()

    def begin(self) -> None:
        """What loads from the store goes on to do so."""
        if self.shelter.store is not None:
            self.context.watch(self, self.shelter)

    def close(self) -> None:
        self.shelter.close()

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        self.shelter.graph_arrives(tasks)

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        self.shelter.moves(key, start, finish)

    def log_event(self, topic: str, message: Any) -> None:
        if topic == UNREADABLE:
            self.shelter.unreadable(message)

    def not_safe(self, keys: list[Hashable]) -> list[Hashable]:
        """Those that are loaded neither from a copy nor from the store."""
        controller = self._controller
        return self.shelter.missing(
            [key for key in keys if controller is None or not controller.is_safe(key)]
        )

    def keeps_first(
        self, is_theirs: Callable[[Hashable], bool], at_once: bool, done: Callable[[], None]
    ) -> bool:
        """Whether some of them are protected, or committed by a program."""
        controller = self._controller
        names = [] if controller is None else controller.names_of(is_theirs, at_once)
        if controller is not None and names:
            kept = controller.commit_now(names) if at_once else controller.next_commit(names)
            controller.do("a commit before a job stops", self._after(kept, done))
        return bool(names)

    async def _after(self, kept: Awaitable[object], done: Callable[[], None]) -> None:
        try:
            await kept
        finally:
            done()

    async def drain(self, addresses: Iterable[str]) -> None:
        """Others are given as many copies of protected results as these workers have."""
        if (controller := self._controller) is not None:
            await controller.keeper.drain(addresses)

    def nodes_wanted(self) -> int:
        controller = self._controller
        return 0 if controller is None else controller.nodes_wanted

    def hear_of_nodes(self, message: ToService) -> None:
        """Nodes that only keep copies come or go, or it was said how many there could be."""
        controller = self._controller
        if isinstance(message, NodesWanted):
            self.context.do("giving nodes back", self._give_back(message.count))
        elif controller is not None and isinstance(message, IdleNodes):
            controller.choice.scaling = controller.choice.scaling.heard(message.count)
        elif controller is not None:
            controller.choice.scaling = controller.choice.scaling.granted()
            controller.keeper.room_comes()

    def free_of_nodes(self) -> Mapping[str, float]:
        if (controller := self._controller) is None:
            return {}
        nodes = controller.agents.together(self._own_nodes)
        return {one.name: 1.0 - one.fill for one in nodes if one.budget}

    @property
    def _own_nodes(self) -> dict[str, list[str]]:
        """Nodes that only keep copies, with their workers."""
        known = self.context.indices.borrowers.get(BORROWS)
        nodes = () if known is None else (one.node for one in known.lent)
        return {name: self.context.nodes.workers(name) for name in nodes}

    async def _give_back(self, count: int) -> None:
        """So many nodes, with an answer whatever goes wrong."""
        controller, own = self._controller, self._own_nodes
        nodes, reason = list(own)[:count], "no copies are kept"
        try:
            if controller is not None:
                nodes, reason = await controller.keeper.vacate(own, count)
        except Exception as error:
            nodes, reason = [], one_line(f"{type(error).__name__}: {error}")
            if not isinstance(error, OSError):
                self.context.count_error("giving nodes back", error)
        finally:
            answer = NodesReturned(BORROWS, tuple(nodes), reason, count)
            self.context.get(NodeDesk).receive(answer)

    def status(self) -> Mapping[str, Any]:
        """What is protected, where the copies are, and what happened, if anything was ever protected. An
        error of checkpoints is none of the cluster's."""
        controller = self._controller
        try:
            return {"checkpoint": None if controller is None else controller.status()}
        except Exception as error:
            logger.warning("dask-hpc: no status of checkpoints: %s: %s", type(error).__name__, error)
            return {"checkpoint": None}

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        if (found := status["checkpoint"]) is None:
            return {}
        counts, last, agents, levels = (found[one] for one in ("counts", "last_commit", "agents", "levels"))
        names = ("keys", "copied", "nbytes")
        keys, copied, nbytes = (sum(one[name] for one in found["protected"]) for name in names)
        by_name = {"exposed": found["exposed"], "bytes": nbytes, "agents": len(agents)}
        by_name |= {one: counts[one] for one in ("commits", "recoveries", "recovered", "unrecovered")}
        by_name |= {"failed_copies": counts["failed"], "damaged_copies": counts["damaged"]}
        by_name["store_waiting_bytes"] = found["store"]["waiting"]
        if last is not None:
            by_name |= {"commit_seconds": last["seconds"], "commit_age_seconds": last["ago"]}
        used = {name: sum(agent[name] for agent in agents) for name in ("used", "budget")}
        return {f"checkpoint_{name}": {"": value} for name, value in by_name.items()} | {
            "checkpoint_results": {"copied": copied, "not_copied": keys - copied},
            "checkpoint_copies": {name: level["copies"] for name, level in levels.items()},
            "checkpoint_copy_bytes": {name: level["nbytes"] for name, level in levels.items()},
            "checkpoint_committed_bytes": {name: counts[name] for name in ("moved", "unchanged")},
            "checkpoint_agent_bytes": used,
        }


SERVICE = CheckpointService
