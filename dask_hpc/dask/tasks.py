"""Tasks: their state, where they may run, and moving them on."""

import pickle
import re
from ast import literal_eval
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import PurePath
from time import monotonic
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from dask._task_spec import Alias, DataNode, Task

#: an address that no worker has: a task restricted to it waits in Dask's state ``no-worker``
GATE = "hpc://waiting"


#: Dask's states of a task that somebody still waits for
UNFINISHED = frozenset({"waiting", "no-worker", "queued", "processing"})
_KNOWN = UNFINISHED | {"released", "memory", "erred"}


class Wishes(NamedTuple):
    """Where the user said a task may run (``workers=``, ``allow_other_workers=``)."""

    workers: set[str] | None
    hosts: set[str] | None
    loose: bool


def pop_submitted(scheduler: Any, name: str, annotated: Iterable[Any] = ()) -> Any:
    """The annotation that was active around the submission of the graph now being added, or None.

    Annotations of graph layers (active while a collection was *built*) are mixed into those of the
    tasks; only here Dask keeps the ones of the submission apart. Taken out, because the next graph may
    be added to the same ``Computation``; and out of the tasks that are ``annotated``, with which it would
    travel to their workers. Those that have no other one have none: each would keep an empty dictionary of
    some 200 bytes.
    """
    for key in annotated:
        task = scheduler.tasks.get(key)
        if task is not None and task.annotations:
            task.annotations.pop(name, None)
            if not task.annotations:
                task.annotations = None
    if not scheduler.computations:
        return None
    return scheduler.computations[-1].annotations.pop(name, None)


def find_task(scheduler: Any, key: Any) -> Any:
    """The task of that key, or None."""
    return scheduler.tasks.get(key)


def is_settled(task: Any) -> bool:
    """Whether nobody has to run the task any more (it has a result or an error)."""
    return task.state in ("memory", "erred", "forgotten")


def is_sent(task: Any) -> bool:
    """Whether a worker has the task, and has not ended it."""
    return task.state == "processing"


def is_held(task: Any) -> bool:
    """Whether the task is ready, and there is no worker that may run it."""
    return task.state == "no-worker"


def is_queued(task: Any) -> bool:
    """Whether Dask keeps the task back until a worker has a slot."""
    return task.state == "queued"


def of_kind(scheduler: Any, name: str, even_ended: bool = False) -> list[Any]:
    """Keys of the tasks of that prefix that somebody waits for; ``even_ended``: and of those that may have to
    be computed again."""
    states = _KNOWN if even_ended else UNFINISHED
    if not _count(scheduler, name, states):
        return []
    found = scheduler.task_prefixes[name]
    return [key for key, task in scheduler.tasks.items() if task.prefix is found and task.state in states]


def count_new(scheduler: Any, keys: Iterable[Any]) -> Counter[str]:
    """How many of these tasks have not been scheduled yet, by their prefix."""
    return Counter(task.prefix.name for key in keys if is_new(task := scheduler.tasks[key]))


def count_of_kind(scheduler: Any, name: str) -> int:
    """How many tasks of that prefix there are."""
    return _count(scheduler, name, _KNOWN)


def _count(scheduler: Any, name: str, states: frozenset[str]) -> int:
    found = scheduler.task_prefixes.get(name)
    return 0 if found is None else sum(map(found.states.get, states))


def is_unfinished(task: Any) -> bool:
    """Whether somebody waits for the task to run."""
    return task.state in UNFINISHED


def unfinished_among(scheduler: Any, keys: Iterable[Any]) -> Iterator[Any]:
    """Of the tasks of these keys, those that somebody waits for; the keys may be very many."""
    tasks = scheduler.tasks
    return (task for key in keys if (task := tasks.get(key)) is not None and task.state in UNFINISHED)


def is_new(task: Any) -> bool:
    """Whether the task has not been scheduled yet, or has been released."""
    return task.state == "released"


def dependencies(task: Any) -> Iterator[Any]:
    """Keys of the tasks that a task needs."""
    return (other.key for other in task.dependencies)


def restrict(task: Any, addresses: set[str] | None) -> None:
    """Let a task run on these workers only. The set is kept, not copied: editing it moves all its tasks.

    An empty set is no restriction.
    """
    task.worker_restrictions = addresses


def restriction(task: Any) -> set[str] | None:
    """Where a task may run."""
    found: set[str] | None = task.worker_restrictions
    return found


def take_wishes(task: Any) -> Wishes | None:
    """The user's own restrictions of a task, lifted from it; None if there are none."""
    workers, hosts, loose = task.worker_restrictions, task.host_restrictions, task.loose_restrictions
    if not workers and not hosts:
        # allow_other_workers alone restricts nothing, but would leave our gate open
        task.loose_restrictions = False
        return None
    task.worker_restrictions = task.host_restrictions = None
    task.loose_restrictions = False
    return Wishes(workers, hosts, bool(loose))


def give_back(task: Any, wishes: Wishes | None) -> None:
    """Restore what ``take_wishes`` lifted; without wishes the task is unrestricted."""
    task.worker_restrictions = wishes.workers if wishes else None
    task.host_restrictions = wishes.hosts if wishes else None
    task.loose_restrictions = wishes.loose if wishes else False


def wished_addresses(scheduler: Any, wishes: Wishes) -> set[str]:
    """The addresses of the connected workers that wishes speak of."""
    found = {address for address in wishes.workers or () if address in scheduler.workers}
    for host in wishes.hosts or ():
        found |= scheduler.host_info.get(scheduler.coerce_hostname(host), {}).get("addresses", set())
    return found


def prefix(task: Any) -> str:
    """What a task's name begins with: Dask expects tasks of one prefix to take equally long."""
    found: str = task.prefix.name
    return found


def average_duration(scheduler: Any, name: str) -> float | None:
    """Seconds that a task of that prefix takes, as Dask expects; None if it does not know."""
    found = scheduler.task_prefixes.get(name)
    return None if found is None or found.duration_average < 0 else float(found.duration_average)


def nudge(scheduler: Any, keys: Iterable[Any], stimulus_id: str, plainly: bool = False) -> None:
    """Make Dask look again at tasks in ``no-worker``, those of high priority first.

    ``plainly``: go back to ``released``, so that root tasks without restrictions are queued again.
    """
    tasks = [task for key in keys if (task := scheduler.tasks.get(key)) and task.state == "no-worker"]
    # Dask takes recommendations from the end.
    tasks.sort(key=lambda task: task.priority, reverse=True)
    scheduler.transitions(
        # An actor may not go from no-worker to processing: Dask asserts so.
        {task.key: "released" if plainly or task.actor else "processing" for task in tasks},
        stimulus_id,
    )


def unrunnable(scheduler: Any) -> Collection[Any]:
    """Keys of the tasks in ``no-worker``."""
    return [task.key for task in scheduler.unrunnable]


def restart_no_worker_clock(scheduler: Any, keys: Iterable[Any]) -> None:
    """Let ``no-workers-timeout`` count from now for tasks that our gate holds."""
    now = monotonic()
    for key in keys:
        task = scheduler.tasks.get(key)
        if task is not None and task in scheduler.unrunnable:
            # Dask relies on the order: last come, last in the dictionary.
            del scheduler.unrunnable[task]
            scheduler.unrunnable[task] = now


def set_generation(task: Any, generation: float) -> None:
    """Place a task that has not moved yet among others of the same user priority."""
    user, _, order = task.priority
    task.priority = (user, generation, order)


def generation(scheduler: Any) -> float:
    """That of the graph submitted last."""
    found: float = scheduler.generation
    return found


def raise_generation(scheduler: Any, least: float) -> None:
    """The next graph comes after everything below ``least``."""
    scheduler.generation = max(scheduler.generation, ceil(least))


def client_name(client: str) -> str:
    """The name in ``Client(name=...)``, from the client's id; empty if it has none."""
    return client.removeprefix("Client-")[:-37]


def is_producer(task: Any) -> bool:
    """Whether Dask marks the task as one that makes data, such as by reading a file."""
    return bool(task.run_spec and task.run_spec.data_producer)


def is_computed(task: Any) -> bool:
    """Whether there is something to run, other than to pass on data of the graph or another task's result."""
    return task.run_spec is not None and not isinstance(task.run_spec, Alias | DataNode)


def measured(scheduler: Any, name: str) -> tuple[int, float, float]:
    """How many tasks of that prefix have ended, and how long their threads computed and waited."""
    found = scheduler.task_prefixes.get(name)
    metrics = scheduler.cumulative_worker_metrics
    return (
        found.state_counts["memory"] if found else 0,
        metrics.get(("execute", name, "thread-cpu", "seconds"), 0.0),
        metrics.get(("execute", name, "thread-noncpu", "seconds"), 0.0),
    )


_MOST_READ = 10_000  # characters of what Dask tells of an error
_LINE = 200  # characters of an error that are shown
_RAISED = re.compile(r"([\w.]+)\((.*)\)", re.DOTALL)


def error_of(task: Any) -> str:
    """What a task that failed raised, or the task that it needed: the type and the first line. As Dask tells
    it: nothing is unpickled. Empty if nobody knows."""
    blamed = None if task is None else task.exception_blame or task
    return error_line(getattr(blamed, "exception_text", None) or "")


def error_line(text: str) -> str:
    """The first line of an error, which Dask tells as ``repr`` does."""
    found = _RAISED.fullmatch(text[:_MOST_READ].strip())
    if found:
        kind, said = found.groups()
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):  # else as it is
            words = literal_eval(f"({said})")
            said = ", ".join(map(str, words)) if isinstance(words, tuple) else str(words)
        text = f"{kind}: {said.strip()}" if said.strip() else kind
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"


_LOOKED_AT = 1000  # objects of a task that are looked through for a path


_NO_STORE = (type, FunctionType, ModuleType, bytes, int, float)


_DESCRIPTIONS = frozenset({"attributes", "attrs", "encoding", "metadata", "_metadata"})


def source(task: Any) -> str | None:
    """The first path or URL among what the task, or a task it needs, is made of, such as the store of an
    array; None if there is none. Looks through attributes and never calls anything."""
    needs = islice(task.dependencies, 20)
    todo, seen = deque([task.run_spec, *(other.run_spec for other in needs)]), set[int]()
    while todo and len(seen) < _LOOKED_AT:
        one = todo.popleft()
        if isinstance(one, PurePath):
            one = str(one)
        if isinstance(one, str):
            if len(one) < 4096 and (one.startswith("/") or "://" in one) and one.isprintable():
                return one.removeprefix("file://")
        elif id(one) not in seen and not isinstance(
            one, type | FunctionType | ModuleType | bytes | int | float
        ):
            seen.add(id(one))
            todo.extend(_parts(one))
    return None


def _parts(one: Any) -> Iterator[Any]:
    if isinstance(one, Mapping):
        yield from list(one.values())[:100] if type(one) is dict else ()
    elif isinstance(one, list | tuple | set | frozenset):
        yield from list(one)[:100]
    else:
        known = getattr(one, "__dict__", {})
        names = {*known, *(name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))}
        for name in sorted(names - _DESCRIPTIONS):
            if name in known:
                yield known[name]
            elif isinstance(getattr(type(one), name, None), MemberDescriptorType):
                with suppress(AttributeError):  # a slot that was never filled
                    yield getattr(one, name)


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


def called_with_key(kept: Recipe, load: Callable[[Any], Any]) -> Recipe:
    """A recipe in whose place this is called with the key."""
    return Recipe(kept.key, Task(kept.key, load, kept.key), kept.priority, kept.limits, ())


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
        other = scheduler.tasks.get(need.key)
        found = find(need) if other is None else None
        if fail is not None and (not is_same(other, need) if other is not None else found is None):
            fail_instead(dependent, fail)
            continue
        if found is not None:
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
