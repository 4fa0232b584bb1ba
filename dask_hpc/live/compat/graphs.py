"""What clients and tasks say when they submit a graph."""

from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from typing import Any

from dask._task_spec import Task

_submitter: ContextVar[Any] = ContextVar("hpc_submitter", default=None)


def follow_submitters(scheduler: Any) -> Callable[[], None]:
    """From now on ``submitter`` knows which task submits a graph. Gives what ends it again.

    Clients in tasks say whose they are, but Dask does not pass that on to plugins: we listen in.
    """
    plain = scheduler.stream_handlers["update-graph"]

    async def update_graph(**message: Any) -> None:
        token = _submitter.set(message.get("submitting_task"))
        try:
            await plain(**message)
        finally:
            _submitter.reset(token)

    def end() -> None:
        if scheduler.stream_handlers.get("update-graph") is update_graph:
            scheduler.stream_handlers["update-graph"] = plain

    scheduler.stream_handlers["update-graph"] = update_graph
    return end


def submitter() -> Any:
    """Inside of ``update_graph``: the key of the task that submits the graph, or None."""
    return _submitter.get()


def cancel(scheduler: Any, keys: Iterable[Any], clients: Collection[str], reason: str) -> None:
    """Cancel tasks for these clients (and those fired and forgotten), as ``Client.cancel`` does for its own.

    What others want or need lives on.
    """
    wanted: dict[str, list[Any]] = {}
    for key in keys:
        task = scheduler.tasks.get(key)
        for client in task.who_wants or () if task is not None else ():
            if client.client_key in clients or client.client_key == "fire-and-forget":
                wanted.setdefault(client.client_key, []).append(key)
    for client_key, found in wanted.items():
        scheduler.client_releases_keys(keys=found, client=client_key, stimulus_id="hpc-cancel")
        if client_key in scheduler.client_comms:
            message = {"op": "cancelled-keys", "keys": found, "reason": reason, "msg": reason}
            scheduler.report(message, client=client_key)


class _Arrived(Task):
    """A task that Dask's optimization does not fuse with others, so that its key arrives as it is: on the
    scheduler, which optimizes. To workers it goes as an ordinary one."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return Task, (self.key, self.func, *self.args)


class _Alone(_Arrived):
    """The same on the client."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Arrived, (self.key, self.func, *self.args)


def alone(key: Any, work: Callable[..., Any], *args: Any) -> Task:
    """A task of a collection that keeps its key."""
    return _Alone(key, work, *args)
