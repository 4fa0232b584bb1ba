"""The scheduler's half of the rescue store: tasks whose results are stored are loaded instead of computed.

A task's recipe becomes "load it", and what only its old recipe needed is forgotten; Dask's own recovery does
the rest. If the file turns out to be unreadable, the old recipe is put back and the task computed. Nothing of
a store that cannot be used reaches the computation: it is told once, and all goes on without.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.worker.rescue import UNREADABLE, Loader, Store, is_content_key, may_be_stored
from dask_hpc.model.errors import one_line

logger = logging.getLogger(__name__)

__all__ = ["UNREADABLE", "Rescue"]
_SHOWN = 10  # unreadable files named in the story; the rest are counted


class Rescue:
    """What is stored, and which tasks rely on it."""

    def __init__(self, scheduler: Any, directory: str | None, tell: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._tell = tell
        #: None if there is no store, or none that can be used
        self.store: Store | None = None
        self._names: set[str] = set()
        #: tasks that load, and how they were computed
        self._replaced: dict[Hashable, compat.Recipe] = {}
        #: keys that mean something in this cluster only
        self._own: set[Hashable] = set()
        self._unreadable = 0
        if directory is not None:
            self._open(Store(directory, compat.scheduler_id(scheduler)))

    def _open(self, store: Store) -> None:
        try:
            self._names = store.open()
        except OSError as error:
            self._tell("rescue", one_line(f"hpc.rescue: {error.strerror or error}; nothing is stored"))
        else:
            self.store = store
            self._loader = compat.Portable(compat.pickled(Loader(store)))
            self._tell("rescue", f"{store.directory} has {len(self._names)} results")

    def close(self) -> None:
        """Control ends. What loads already goes on to do so; the files that only this cluster could use are
        deleted if no task relies on them."""
        kept, self._replaced = self._replaced, {}
        for key, recipe in kept.items():
            task = compat.find_task(self._scheduler, key)
            if task is not None and compat.can_be_replaced(task):
                compat.give_recipe_back(self._scheduler, recipe)
                if key in self._own:
                    self._delete(key)
        self._own.clear()
        self.store = None
        self._names = set()

    # what happens

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
            self._load_instead(found)
            self._tell("rescue", f"{len(found)} results are stored: they are loaded, not computed")

    def wrote(self, keys: Iterable[Hashable]) -> None:
        """A worker that leaves stored these results."""
        if self.store is None:
            return
        there = list(keys)
        for key in there:
            if is_content_key(key):
                self._names.add(self.store.name(key))
            else:
                self._own.add(key)
        self._load_instead(there)

    def may_be_stored(self, key: Hashable) -> bool:
        """Whether to ask for that result."""
        return self.store is not None and may_be_stored(key)

    def event(self, message: Any) -> None:
        """A worker could not read a stored result, and will ask what to do now."""
        key = message.get("key") if isinstance(message, dict) else None
        try:
            kept = self._replaced.pop(key, None)
        except TypeError:  # no key at all
            return
        if kept is None or self.store is None:
            return
        self._names.discard(self.store.name(key))
        compat.give_recipe_back(self._scheduler, kept)
        self._unreadable += 1
        if self._unreadable <= _SHOWN:
            self._tell("rescue", one_line(f"{key!r} is computed again: {message.get('why')}"))

    def forgotten(self, key: Hashable) -> None:
        """Dask forgot a task."""
        self._replaced.pop(key, None)
        if key in self._own:
            self._own.discard(key)
            self._delete(key)

    def not_stored(self, keys: Iterable[Hashable]) -> list[Hashable]:
        """Those of the keys that have to be computed again if they are lost."""
        return [key for key in keys if key not in self._replaced]

    @property
    def is_used(self) -> bool:
        """Whether anybody has to be told of forgotten tasks."""
        return bool(self._replaced or self._own)

    # deeds

    def _load_instead(self, keys: list[Hashable]) -> None:
        known: dict[Any, compat.Recipe] = {}
        tasks = [compat.find_task(self._scheduler, key) for key in keys]
        tasks = [task for task in tasks if task is not None and compat.can_be_replaced(task)]
        fresh = [task for task in tasks if task.key not in self._replaced]
        for task in fresh:
            self._replaced[task.key] = compat.recipe(task, known)
        unneeded: list[Any] = []
        for task in fresh:
            unneeded += compat.load_instead(self._scheduler, task, self._loader)
        compat.forget_unneeded(self._scheduler, unneeded)

    def _delete(self, key: Hashable) -> None:
        if self.store is not None:
            try:
                self.store.delete(key)
            except OSError as error:
                self._tell("rescue", one_line(f"a file stays behind: {error}"))


#: of its scheduler plugin
_NAME = "dask-hpc-checkpoint"


def status_of_checkpoint(scheduler: Any) -> dict[str, Any] | None:
    """What is protected, where the copies are, and what happened, if anything was ever protected. An error
    of that service is none of the cluster's."""
    service = scheduler.plugins.get(_NAME)
    try:
        return None if service is None else service.status()
    except Exception as error:
        logger.warning("dask-hpc: no status of checkpoints: %s: %s", type(error).__name__, error)
        return None


def not_protected(scheduler: Any, keys: Iterable[Any]) -> list[Any]:
    """Those that are not loaded from a copy if they are lost."""
    service = scheduler.plugins.get(_NAME)
    return [key for key in keys if service is None or not service.is_safe(key)]
