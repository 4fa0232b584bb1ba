"""Recipes that load a result instead of computing it."""

import pickle
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Task


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Recipe:
    """How a task was to be computed, with all it needs, kept outside of Dask's state."""

    key: Any
    run_spec: Any
    priority: Any
    limits: tuple[Any, ...]
    needs: "tuple[Recipe, ...]"


_NOT_BEGUN = ("waiting", "queued", "no-worker")
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


def has_not_begun(task: Any) -> bool:
    """Whether no worker was told to compute a task, and nobody has its result."""
    return task.state in ("released", *_NOT_BEGUN)


def has_recipe(task: Any) -> bool:
    """Whether a task can be computed at all; scattered data cannot."""
    return task.run_spec is not None


def is_recipe_of(task: Any, kept: Recipe) -> bool:
    """Whether a task is to be computed as it was when this was kept."""
    return task.run_spec is kept.run_spec


def is_loaded(task: Any) -> bool:
    """Whether a task's recipe was replaced, by whomever."""
    return isinstance(getattr(task.run_spec, "func", None), Portable)


def without_needs(kept: Recipe) -> Recipe:
    """The same, but what it needs is not kept with it."""
    return Recipe(kept.key, kept.run_spec, kept.priority, kept.limits, ())


def lacks_needs(kept: Recipe) -> bool:
    """Whether it is not said how to compute what is needed."""
    return not kept.needs and bool(kept.run_spec is not None and kept.run_spec.dependencies)


def loads_with(owner: Any, load: Callable[..., Any]) -> bool:
    """Whether a task, or what is kept of one, is computed by calling this."""
    return getattr(owner.run_spec, "func", None) is load


def recipe(
    task: Any, known: MutableMapping[Any, Recipe], replaced: Callable[[Any], Recipe | None] = lambda one: None
) -> Recipe:
    """A task's recipe and those of all its ancestors; ``known`` saves repeating those of earlier calls, and
    may forget those that nobody needs. ``replaced`` has the recipes of ancestors that have another one
    now."""
    here: dict[Any, Recipe] = {}

    def find(one: Any) -> Recipe | None:
        found = here.get(one.key) or replaced(one)
        if found is None:
            found = known.get(one.key)
            if found is not None and found.run_spec is not one.run_spec:  # another task of that name
                found = None
        return found

    todo = [task]
    while todo:
        one = todo[-1]
        if find(one) is not None:
            todo.pop()
            continue
        needs = [(other, find(other)) for other in one.dependencies]
        missing = [other for other, found in needs if found is None]
        if missing:
            todo.extend(missing)
            continue
        todo.pop()
        limits = tuple(getattr(one, name) for name in _LIMITS)
        theirs = tuple(found for _, found in needs if found is not None)
        here[one.key] = known[one.key] = Recipe(one.key, one.run_spec, one.priority, limits, theirs)
    return here[task.key] if task.key in here else known[task.key]


def load_instead(scheduler: Any, task: Any, load: Callable[[Any], Any]) -> list[Any]:
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
        task.type = task.type or "object"  # of what has a recipe and is in memory it is known
        _give_span(scheduler, task)
    return [other.key for other in needs]


def _give_span(scheduler: Any, task: Any) -> None:
    """A worker that runs a task without a span cannot send heartbeats any longer, and ends."""
    if (spans := scheduler.extensions.get("spans")) is not None:
        spans.observe_tasks([task], (), {})


def fail_instead(task: Any, fail: Callable[[Any], Any]) -> None:
    """A task that has not begun cannot be computed: calling this with its key says why."""
    task.run_spec = Task(task.key, fail, task.key)


def have_no_recipe(task: Any) -> None:
    """A task that has its result, as scattered data has, cannot be computed."""
    task.run_spec = None


def forget_unneeded(scheduler: Any, keys: Iterable[Any]) -> None:
    """Let Dask forget those of the tasks that no task and no client needs, and then what they needed; and
    let it release those whose result nobody waits for."""
    unneeded = {}
    for key in keys:
        task = scheduler.tasks.get(key)
        if task is None or task.who_wants:
            continue
        if not task.dependents:
            unneeded[key] = "forgotten"
        elif not task.waiters and task.state not in ("released", "erred"):
            unneeded[key] = "released"
    scheduler.transitions(unneeded, "hpc-rescue")


def start_over(scheduler: Any, keys: Iterable[Any]) -> None:
    """Tasks that have not begun, and need something else by now, wait for that."""
    tasks = (scheduler.tasks.get(key) for key in keys)
    found = {task.key: "released" for task in tasks if task is not None and task.state in _NOT_BEGUN}
    scheduler.transitions(found, "hpc-recipe")


def clear_suspicion(task: Any) -> None:
    """Workers that died beside a task did not die of it: it has its result."""
    task.suspicious = 0


def give_recipe_back(
    scheduler: Any,
    kept: Recipe,
    find: Callable[[Recipe], Recipe | None] = lambda need: need,
    is_same: Callable[[Any, Recipe], bool] = lambda task, need: True,
    fail: Callable[[Any], Any] | None = None,
) -> None:
    """A task is computed as it was to be, and so is what it needs, even if Dask has forgotten that: ``find``
    says how that was computed. What needs something of which nobody knows that, or whose name means something
    else by now, calls ``fail``."""
    task = scheduler.tasks[kept.key]
    task.run_spec = kept.run_spec
    todo = [(task, need) for need in kept.needs]
    failed = {}
    while todo:
        dependent, need = todo.pop()
        other, found = scheduler.tasks.get(need.key), find(need)
        if fail is not None and (not is_same(other, need) if other is not None else found is None):
            fail_instead(dependent, fail)
            continue
        if other is None and found is not None:
            other = scheduler.new_task(found.key, found.run_spec, "released")
            other.priority = found.priority
            for name, value in zip(_LIMITS, found.limits, strict=True):
                setattr(other, name, value)
            _give_span(scheduler, other)
            todo += [(other, deeper) for deeper in found.needs]
        elif other.state == "erred":  # nobody would try it again, and its dependents would wait for ever
            failed[other.key] = "released"
        dependent.add_dependency(other)
    scheduler.transitions(failed, "hpc-recipe")
