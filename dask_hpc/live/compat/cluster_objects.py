"""Cluster objects: the workers they asked for, and how they get rid of them."""

from collections.abc import Awaitable, Callable
from typing import Any


def has_units(cluster: Any) -> bool:
    """Whether a cluster object keeps a specification of its workers, as Dask's own do."""
    names = ("_correct_state_internal", "worker_spec", "workers", "new_worker_spec", "new_spec")
    return all(hasattr(cluster, name) for name in names)


async def correct_plainly(cluster: Any) -> None:
    """Dask's own way to bring the workers in line with the specification."""
    await type(cluster)._correct_state_internal(cluster)


def correct_by(cluster: Any, way: Callable[[], Awaitable[None]] | None) -> None:
    """Let a cluster object use another way, or None for its own again."""
    attach(cluster, "_correct_state_internal", way)


def attach(cluster: Any, name: str, thing: Any) -> None:
    """Give this one cluster object an attribute or a method of its own, or with None take it away."""
    if thing is None:
        vars(cluster).pop(name, None)
    else:
        setattr(cluster, name, thing)


def correct_soon(cluster: Any) -> Any:
    """Start to bring the workers in line with the specification. Gives a task, shared by all who call before
    it begins. Only on the cluster's event loop."""
    return cluster._correct_state()


def next_name(cluster: Any) -> None:
    """Let the next unit have a name that no earlier one had."""
    cluster._i += 1


def batch_job_of(cluster: Any) -> Any:
    """A batch job as dask-jobqueue would submit it now, or None of other clusters."""
    return getattr(cluster, "_dummy_job", None)


def threads_per_worker(cluster: Any) -> int | None:
    """Threads of a new worker, if the specification says."""
    try:
        return int(cluster._threads_per_worker())
    except (RuntimeError, TypeError, ValueError):
        return None


def memory_per_worker(cluster: Any) -> int | None:
    """Bytes of a new worker, if the specification says."""
    try:
        return int(cluster._memory_per_worker())
    except (TypeError, ValueError, AttributeError):
        return None


def adaptive_of(cluster: Any) -> Any:
    """Who adapts the size of the cluster object, or None."""
    return cluster._adaptive


def adapted_by(cluster: Any, adaptive: Any) -> None:
    """From now on this one does. Nothing that an earlier call of ``adapt`` was given is remembered."""
    forget_adaptive_options(cluster)
    cluster._adaptive = adaptive


def forget_adaptive_options(cluster: Any) -> None:
    """Dask would give them to the next call of ``adapt``, whatever class that names."""
    vars(cluster).pop("_adaptive_options", None)
