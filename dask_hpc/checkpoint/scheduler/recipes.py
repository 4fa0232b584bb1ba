"""Keys load a copy, or what is stored of them, instead of being computed, as long as there is one.

A recipe is replaced when the task has its result, at no other time: a worker that was told to compute it may
go on with that long after it was told not to, and needs then what the old recipe needs. It is given back when
a worker finds no copy, and not before: what is protected no longer costs nothing until it is lost.

Recipes are kept as Dask keeps them, for as long as anybody may need them, and ancestors that many keys share
are kept once. A protected key remembers of its protected ancestors the names alone; their own recipes are
remembered here when Dask has forgotten them, the newest ``REMEMBERED``: a program that protects each of its
steps does not make the scheduler grow for ever.
"""

import asyncio
from collections.abc import Container, Hashable, Iterable, Iterator
from typing import Any
from weakref import WeakValueDictionary

from dask_hpc import dask as compat
from dask_hpc.checkpoint.worker.loaders import CopyLoader, MissingRecipe, is_content_key, may_be_stored

#: recipes of protected keys that Dask has forgotten
REMEMBERED = 100_000
#: seconds between looks at what workers have still to give back, once nobody tells us of it any more
_LOOKS = 0.1


class Recipes:
    """Those that were replaced by ``load``."""

    def __init__(self, scheduler: Any, load: Any = CopyLoader()) -> None:  # noqa: B008
        self._scheduler = scheduler
        #: of tasks that Dask knows
        self._replaced: dict[Hashable, compat.Recipe] = {}
        #: of tasks that it has forgotten, oldest first
        self._old: dict[Hashable, compat.Recipe] = {}
        self._known: WeakValueDictionary[Hashable, compat.Recipe] = WeakValueDictionary()
        #: there is a copy, but the task is being computed
        self._soon: set[Hashable] = set()
        #: a worker has the task, found nothing to load, and is about to give it back
        self.given_back: set[Hashable] = set()
        #: keys of what is in stores, though Dask may have forgotten them
        self.stored: Container[Hashable] = ()
        self._loader = _portable(load)
        self._missing = _portable(MissingRecipe())

    def __len__(self) -> int:
        return len(self._replaced)

    def __contains__(self, key: object) -> bool:
        return key in self._replaced

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._replaced))

    def load_instead(self, key: Hashable) -> None:
        """There is a copy of a key's block."""
        task = compat.find_task(self._scheduler, key)
        if task is None or compat.is_actor(task) or not may_be_stored(key) or self._is_ours(task):
            return
        if compat.holders(task):
            compat.forget_unneeded(self._scheduler, self._replace(task))
        else:
            self._soon.add(key)

    def load_stored(self, keys: Iterable[Hashable]) -> int:
        """There are results of these keys in the store. Tasks that have not begun load them; gives how
        many."""
        begun, unneeded = [], []
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if task is None or compat.is_loaded(task) or not compat.has_recipe(task):
                continue
            if compat.has_not_begun(task) and may_be_stored(key) and not compat.is_actor(task):
                unneeded += self._replace(task)
                begun.append(key)
            else:
                self.load_instead(key)
        compat.start_over(self._scheduler, begun)
        compat.forget_unneeded(self._scheduler, unneeded)
        return len(begun)

    def load_idle(self, keys: Iterable[Hashable]) -> None:
        """Nobody is about to compute tasks of these keys that are there: they load from now on."""
        unneeded: list[Any] = []
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if task is not None and compat.can_be_replaced(task) and key not in self._replaced:
                unneeded += self._replace(task)
        compat.forget_unneeded(self._scheduler, unneeded)

    def is_in_memory(self, key: Hashable) -> list[Hashable]:
        """A task has its result: now it may be replaced, and nobody died of it. Gives the keys that need not
        be kept for it any longer; Dask may forget them once it is through with this."""
        task = compat.find_task(self._scheduler, key)
        if task is None or (key not in self._soon and key not in self._replaced):
            return []
        compat.clear_suspicion(task)
        if key not in self._soon:
            return []
        self._soon.discard(key)
        return [] if self._is_ours(task) else self._replace(task)

    def no_copy(self, key: Hashable) -> bool:
        """No copy of a key could be loaded. Whether it will be computed instead."""
        task = compat.find_task(self._scheduler, key)
        if task is None or not self._is_ours(task):
            return True
        # It may be one that was computed by "load it" before it was forgotten and came back.
        kept = self._replaced.get(key) or self._old.get(key)
        if kept is None or kept.run_spec is None:
            return False
        self._replaced.pop(key, None)
        self._come_back(task, kept)
        # Who asked may have been given up meanwhile, and the task sent back to wait for another worker.
        compat.start_over(self._scheduler, [key])
        return True

    def leaves_worker(self, key: Hashable) -> None:
        """A task that is given back is with its worker no longer. What it needs may wait in Dask's queue,
        which does not go on by itself then."""
        self.given_back.discard(key)
        # Dask is in the midst of it.
        asyncio.get_running_loop().call_soon(compat.queue_goes_on, self._scheduler)

    def forget(self, key: Hashable) -> None:
        self._soon.discard(key)
        if (kept := self._replaced.pop(key, None)) is not None and kept.run_spec is not None:
            self._old.pop(key, None)
            self._old[key] = kept
            while len(self._old) > REMEMBERED:
                del self._old[next(iter(self._old))]

    def restart(self) -> None:
        self._replaced.clear()
        self._old.clear()
        self._soon.clear()
        self.given_back.clear()

    def close(self) -> None:
        """Nobody will answer any more who asks for copies: what can be computed will be. A worker that asks
        just now will have it run again. Raises what went wrong with the last that could not be given back."""
        self._soon.clear()
        keys, wrong = list(self), None
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            try:
                if task is not None and self._is_ours(task):
                    self.give_back(task)
            except Exception as error:
                wrong = error
        compat.start_over(self._scheduler, keys)
        self._outlast()
        if wrong is not None:
            raise wrong

    def _outlast(self) -> None:
        """See Dask's queue go on until workers have given back what they had when we left."""
        tasks = (compat.find_task(self._scheduler, key) for key in self.given_back)
        self.given_back = {task.key for task in tasks if task is not None and compat.is_sent(task)}
        compat.queue_goes_on(self._scheduler)
        if self.given_back:
            asyncio.get_running_loop().call_later(_LOOKS, self._outlast)

    def give_back(self, task: Any) -> None:
        """A task gets its own recipe back. Scattered data, which has none, is a plain result if it is there,
        and else an error."""
        kept = self._replaced.pop(task.key)
        if kept.run_spec is not None:
            self._come_back(task, kept)
        elif compat.holders(task):
            compat.have_no_recipe(task)
        else:
            compat.fail_instead(task, self._missing)

    def _come_back(self, task: Any, kept: compat.Recipe) -> None:
        compat.give_recipe_back(self._scheduler, kept, self._find, self._is_same, self._missing)
        if compat.is_sent(task):
            self.given_back.add(task.key)

    def _replace(self, task: Any) -> list[Any]:
        self._replaced[task.key] = compat.recipe(task, self._known, self._by_name)
        return compat.load_instead(self._scheduler, task, self._loader)

    def _is_ours(self, owner: Any) -> bool:
        return compat.loads_with(owner, self._loader)

    def _by_name(self, task: Any) -> compat.Recipe | None:
        """What is kept of an ancestor that is protected, too: the rest is kept once, with its own key."""
        kept = self._replaced.get(task.key)
        return compat.without_needs(kept) if kept is not None and self._is_ours(task) else None

    def _find(self, need: compat.Recipe) -> compat.Recipe | None:
        """How to have something that Dask has forgotten: it is loaded if it is stored, and its key says what
        it is."""
        found = self._computed(need)
        if found is None or not is_content_key(need.key) or need.key not in self.stored:
            return found
        self._replaced[need.key] = found
        return compat.called_with_key(found, self._loader)

    def _computed(self, need: compat.Recipe) -> compat.Recipe | None:
        if need.run_spec is None:
            return None  # it was scattered
        if not compat.lacks_needs(need):
            return need
        kept = self._old.get(need.key)
        return kept if kept is not None and kept.run_spec is need.run_spec else None

    def _is_same(self, task: Any, need: compat.Recipe) -> bool:
        """Whether a task that Dask has is the one that was needed, or another of that name."""
        if compat.is_recipe_of(task, need) or is_content_key(need.key):
            return True
        if not self._is_ours(task):
            return compat.is_loaded(task)
        kept = self._replaced.get(need.key)
        return kept is not None and kept.run_spec is need.run_spec


def _portable(thing: Any) -> compat.Portable:
    return compat.Portable(compat.pickled(thing))
