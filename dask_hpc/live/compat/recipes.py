"""Recipes that load a result instead of computing it."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dask._task_spec import Task


class Recipe(NamedTuple):
    """How a task was to be computed, with all it needs, kept outside of Dask's state."""

    key: Any
    run_spec: Any
    priority: Any
    limits: tuple[Any, ...]
    needs: "tuple[Recipe, ...]"


_LIMITS = (
    "worker_restrictions", "host_restrictions", "resource_restrictions", "loose_restrictions", "retries",
    "annotations",
)  # fmt: skip


class Portable:
    """A callable that is unpickled from these bytes where it is called."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob

    def __call__(self, *args: Any) -> Any:
        return pickle.loads(self._blob)(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._blob,)


def can_be_replaced(task: Any) -> bool:
    """Whether a task's recipe may become another: nobody is about to follow it, and it is no actor."""
    return task.state in ("released", "memory") and not task.actor


def has_recipe(task: Any) -> bool:
    """Whether a task can be computed at all; scattered data cannot."""
    return task.run_spec is not None


def recipe(task: Any, known: dict[Any, Recipe]) -> Recipe:
    """A task's recipe and those of all its ancestors; ``known`` saves repeating those of earlier calls."""
    todo = [task]
    while todo:
        one = todo[-1]
        missing = [other for other in one.dependencies if other.key not in known]
        if missing:
            todo.extend(missing)
            continue
        todo.pop()
        limits = tuple(getattr(one, name) for name in _LIMITS)
        needs = tuple(known[other.key] for other in one.dependencies)
        known[one.key] = Recipe(one.key, one.run_spec, one.priority, limits, needs)
    return known[task.key]


def load_instead(task: Any, load: Callable[[Any], Any]) -> list[Any]:
    """From now on a task is computed by calling this with its key. Gives the keys of the tasks that it
    needed so far, for ``forget_unneeded``."""
    needs = list(task.dependencies)
    for other in needs:
        other.dependents.discard(task)
        if other.waiters:
            other.waiters.discard(task)
    task.dependencies.clear()
    task.run_spec = Task(task.key, load, task.key)
    if task.priority is None:  # scattered data
        task.priority = (0, 0, 0)
    return [other.key for other in needs]


def forget_unneeded(scheduler: Any, keys: Iterable[Any]) -> None:
    """Let Dask forget those of the tasks that no task and no client needs, and then what they needed."""
    unneeded = {}
    for key in keys:
        task = scheduler.tasks.get(key)
        if task is not None and task.state == "released" and not task.dependents and not task.who_wants:
            unneeded[key] = "forgotten"
    scheduler.transitions(unneeded, "hpc-rescue")


def give_recipe_back(scheduler: Any, kept: Recipe) -> None:
    """A task is computed as it was to be, and so is what it needs, even if Dask has forgotten that."""
    task = scheduler.tasks[kept.key]
    task.run_spec = kept.run_spec
    todo = [(task, need) for need in kept.needs]
    while todo:
        dependent, need = todo.pop()
        other = scheduler.tasks.get(need.key)
        if other is None:
            other = scheduler.new_task(need.key, need.run_spec, "released")
            other.priority = need.priority
            for name, value in zip(_LIMITS, need.limits, strict=True):
                setattr(other, name, value)
            todo += [(other, deeper) for deeper in need.needs]
        dependent.add_dependency(other)
