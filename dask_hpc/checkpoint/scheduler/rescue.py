"""The scheduler's half of the rescue store: tasks whose results are stored are loaded instead of computed.

If the file turns out to be unreadable, the task gets its own recipe back and is computed. Nothing of a store
that cannot be used reaches the computation: it is told once, and all goes on without.
"""

from collections.abc import Hashable, Iterable
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.recipes import Recipes
from dask_hpc.checkpoint.worker.rescue import Loader, Store, is_content_key, may_be_stored
from dask_hpc.cluster.scheduler.service import Context, Shelter
from dask_hpc.model.errors import one_line

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
        """Whether somebody has to hear when that task is forgotten."""
        return key in self._recipes or key in self._own

    def __bool__(self) -> bool:
        return bool(self._recipes or self._own)

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
            self._recipes.load_idle(found)
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
        self._recipes.load_idle(there)

    def failed(self, address: str, problem: str) -> None:
        """A worker that leaves could not store all it was asked for."""
        self._tell("rescue", one_line(f"worker {address} cannot store: {problem}"))

    def takes(self, key: Hashable) -> bool:
        """Whether to ask for that result."""
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

    def forgotten(self, key: Hashable) -> None:
        """Dask forgot a task."""
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
