"""What we put into a worker: remote calls, and messages that the scheduler sends it.

Travels by value with the plugin that needs it: imports nothing of ours.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)


def add_calls(worker: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
    """Answer these remote calls."""
    worker.handlers.update(calls)


def remove_calls(worker: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
    """Answer them no more, unless somebody else does by now."""
    for name, call in calls.items():
        if worker.handlers.get(name) == call:
            del worker.handlers[name]


def hear(worker: Any, name: str, call: Callable[..., None]) -> None:
    """Hear messages of that name from the scheduler. One that nobody hears would end the connection."""
    worker.stream_handlers[name] = call


def hear_no_more(worker: Any, name: str) -> None:
    """The last message of that name has come."""
    worker.stream_handlers.pop(name, None)


def forget_old_needs(worker: Any) -> Callable[[], None]:
    """A task that has another recipe than the last time waits for what that needs, and for nothing else.

    A worker remembers what a task of which it has no result any more needed, and would add to that. Gives a
    function that ends this.
    """
    plain = worker.stream_handlers["compute-task"]

    def compute(key: Any, nbytes: Mapping[Any, int], **rest: Any) -> Any:
        task = worker.state.tasks.get(key)
        if task is not None and task.state in ("released", "fetch", "flight", "missing", "error"):
            try:
                _unlink(worker, task, [need for need in task.dependencies if need.key not in nbytes])
            except Exception:  # an error here would end the worker
                logger.exception("dask-hpc: %r goes on with what it needed before", key)
        return plain(key=key, nbytes=nbytes, **rest)

    worker.stream_handlers["compute-task"] = compute

    def end() -> None:
        if worker.stream_handlers.get("compute-task") is compute:
            worker.stream_handlers["compute-task"] = plain

    return end


def _unlink(worker: Any, task: Any, needs: list[Any]) -> None:
    for need in needs:
        task.dependencies.discard(need)
        task.waiting_for_data.discard(need)
        need.dependents.discard(task)
        need.waiters.discard(task)
    unneeded = [need for need in needs if need.state == "released" and not need.dependents]
    while unneeded:
        need = unneeded.pop()
        theirs, _ = worker.state._transition(need, "forgotten", stimulus_id="hpc-needs")
        worker.state.task_counter.transitions({need: "released"})
        unneeded.extend(theirs)
