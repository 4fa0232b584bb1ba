"""What a task reads."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import PurePath
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from dask._task_spec import Alias, DataNode


def group(task: Any) -> Any:
    """What tasks of one collection share."""
    return task.group


def group_name(task: Any) -> str:
    """The name of the collection a task is of."""
    found: str = task.group.name
    return found


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
