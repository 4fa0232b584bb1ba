"""Where the tasks of a job may run, as one set that all of them share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dask_hpc.dask.scheduler import put


class JobPlaces(set[str]):
    """Addresses that restrict tasks. It remembers which connected workers these are, until it is edited or
    there are more or fewer workers than before. Whoever copies it has a plain set."""

    _workers: set[Any] | None = None
    _connected = 0

    def workers(self, scheduler: Any) -> set[Any]:
        """The states of those that are connected, and perhaps of some that have just left. Not to be
        edited."""
        if self._workers is None or self._connected != len(scheduler.workers):
            there = scheduler.workers
            self._workers = {there[address] for address in self if address in there}
            self._connected = len(there)
        return self._workers

    def copy(self) -> set[str]:
        return set(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return set, (list(self),)


def _edits(plain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plain)
    def edit(self: JobPlaces, *given: Any) -> Any:
        self._workers = None
        return plain(self, *given)

    return edit


for _name in (
    "add", "clear", "difference_update", "discard", "intersection_update", "pop", "remove",
    "symmetric_difference_update", "update", "__iand__", "__ior__", "__isub__", "__ixor__",
):  # fmt: skip
    setattr(JobPlaces, _name, _edits(getattr(set, _name)))


def remember_places(scheduler: Any) -> Callable[[], None]:
    """Dask looks up all workers that a restricted task may run on, anew for each task that is ready or may be
    stolen: 40 us if they are 250. Not for those that share ``JobPlaces``. Answers what ends that.

    Only workers that run are answered, whatever was remembered: while one leaves, Dask may place tasks before
    plugins hear of it, and another may have come in its place.
    """
    plain = scheduler.valid_workers

    def valid_workers(task: Any) -> Any:
        places = task.worker_restrictions
        if type(places) is not JobPlaces or task.host_restrictions or task.resource_restrictions:
            return plain(task)
        if not places:
            return None
        found = places.workers(scheduler)
        return found if found <= scheduler.running else found & scheduler.running

    return put(vars(scheduler), "valid_workers", valid_workers)
