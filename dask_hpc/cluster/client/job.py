"""``with dask_hpc.job(...)``: whatever is submitted inside belongs to one job."""

import asyncio
import warnings
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from functools import partial
from secrets import token_hex
from typing import Any

import dask
from distributed import Client

from dask_hpc import dask as compat
from dask_hpc.cluster.client.adaptation import JobProgram, OnChange
from dask_hpc.cluster.client.values import JobValues
from dask_hpc.cluster.request import (
    ANNOTATION,
    LONGEST_WINDOW,
    TOPIC,
    ask,
    ask_of_job,
    login,
    make_request,
    read_change,
)
from dask_hpc.model.errors import InputError, insist, is_number, shown, within
from dask_hpc.model.units import parse_duration

_PATIENCE = 10.0  # seconds for telling a scheduler that a context was closed
_NOT_SO = rf"Dask annotations \{{'{ANNOTATION}': \{{[^}}]*\}}\}} detected"


def job(
    name: str,
    nodes: int = 1,
    *,
    min_nodes: int | None = None,
    max_nodes: int | None = None,
    walltime: float | str | None = None,
    kind: str | None = None,
    constraint: str | None = None,
    priority: float | None = None,
    power: Any = None,
    user: str | None = None,
    layout: str | None = None,
    deadline: float | str | None = None,
    soft_deadline: float | str | None = None,
    value: float | None = None,
    commits: bool | None = None,
    impure: bool | None = None,
    traffic: float | str | None = None,
    on_resize: OnChange | None = None,
    window: float | str | None = None,
    client: Client | None = None,
) -> "JobContext":
    """A context for ``with`` or ``async with`` in which compute, persist, submit and map make one job.

    It asks for ``nodes`` nodes, and can use ``min_nodes`` to ``max_nodes``. ``walltime`` ("10 min") is
    an estimate: it helps the policy, and a job that overstays is not stopped. With "auto" it follows from
    past runs of that name (``hpc.history``), and the story says how ("p90 of 41 runs: 3 h 10 min; then 5 h").
    ``kind`` is malleable if ``min_nodes`` and ``max_nodes`` differ, else rigid. ``constraint``, ``priority``,
    ``power`` of a node that works for it ("250 W", or ``("150 W", "250 W")``) and ``user`` are for policies
    that look at them.

    ``deadline`` ("6h", from now on) is when its results are worth nothing any more, ``soft_deadline`` until
    when they are worth all of their ``value``: for policies that look at them, such as ``slack`` and
    ``max-value``. A job that misses its deadline is not stopped; it is said in the story.

    ``commits`` says of a job of kind "moldable" that its program can go on from what it has committed
    (``Checkpoint``, ``protect``) on another number of nodes: a policy such as ``restart-malleable`` may give
    it one while it runs, after a commit.

    ``impure`` says that its tasks do more than to give results (send a message, append to a file): no policy
    has one of them run on two workers at a time. ``dask.annotate(impure=True)`` says so of some tasks.

    ``traffic`` is how much each of its nodes sends to its others ("200 MB/s"), for a policy such as
    ``least-congested`` that picks nodes by it (see ``hpc.topology``). Without it what the last job of that
    name sent is taken, and once the job runs what is measured.

    ``layout`` says how the arrays that it persists are laid out anew on its nodes at every change of its
    size: "block" (runs of neighbouring chunks) or "cyclic" (chunks in turn), along the dimension with the
    most chunks. Chunks stay whole: one that the layout would cut goes to where most of it belongs
    (``redistribute`` cuts them). Without a layout they are spread evenly after growth. Not if ``hpc.spread``
    is off.

    ``on_resize`` is called with an ``Adaptation`` for each change of the job's nodes: once when it starts,
    with all of them joining, then before any node that a policy takes is emptied, and before tasks go to
    nodes that join. It runs in a thread of its own, or on the client's event loop if it is a coroutine
    function; what it submits belongs to the job. The change waits for it, but no longer than the ``window``
    (default: ``hpc.drain``), and meanwhile no other begins. What it raises is logged and told, and the change
    goes on. The ``values`` of the job follow before: see ``JobValues.add``. The job's end is no change.

    The job lasts until the context is closed and its tasks are done; several computations in one
    context keep the allotment in between. Every ``with`` is a new job. Building a collection inside
    means nothing; submitting it does. What a *task* submits belongs to the job of that task. What the
    client scatters goes to the job's nodes, unless it names others (``workers=``) or the job still waits.

    ``client`` says which cluster to tell when the context is closed; by default the current client's.
    On a cluster that is not managed, or without one, this is plain Dask.
    """
    request = make_request(
        name,
        nodes=nodes,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        walltime=walltime,
        kind=kind,
        constraint=constraint,
        priority=priority,
        power=power,
        user=user,
        layout=layout,
        deadline=deadline,
        soft_deadline=soft_deadline,
        value=value,
        commits=commits,
        impure=impure,
        traffic=traffic,
        login=login(),
    )
    where = f"job {shown(name)}"
    insist(on_resize is None or callable(on_resize), f"{where}: on_resize", on_resize, "a function")
    with within(f"{where}: window"):
        seconds = None if window is None else parse_duration(window)
        insist(seconds is None or is_number(seconds, 0, LONGEST_WINDOW), "", window, "0 s to 24 h")
    return JobContext(request, client, on_resize, seconds)


class JobContext:
    """What ``job()`` returns. May be entered again, and inside itself; each time it is a new job."""

    def __init__(
        self,
        request: dict[str, Any],
        client: Client | None = None,
        on_resize: OnChange | None = None,
        window: float | None = None,
    ) -> None:
        self._request = request
        self._client = client
        self._on_resize = on_resize
        self._window = window
        #: the clients that listen to changes of the job entered last
        self._listening: set[Client] = set()
        self._variables = copy_context()
        #: what the program keeps, and what becomes of it when the job's nodes change
        self.values = JobValues(self._listen)
        self._entered: list[tuple[str, AbstractContextManager[None], set[Client]]] = []
        self._known: set[Client] = set()
        #: of the job entered last
        self.id = ""

    def __repr__(self) -> str:
        state = f"{self._entered[-1][0]}, open" if self._entered else "not open"
        return f"<job {self._request['name']!r}: {self._request['nodes']} nodes, {state}>"

    def __enter__(self) -> "JobContext":
        self._enter()
        self._listen()
        return self

    def _enter(self) -> None:
        self.id = f"{self._request['name']}-{token_hex(4)}"
        annotated = dask.annotate(**{ANNOTATION: {"id": self.id, **self._request}})
        annotated.__enter__()
        # Dask says of a dataframe that is made here that annotations do not count. Ours do: they are read
        # when it is submitted. (The filter is set once: what was told once would be told anew.)
        if not any(message and message.pattern == _NOT_SO for _, message, *_ in warnings.filters):
            warnings.filterwarnings("ignore", _NOT_SO, UserWarning)
        self._known = self._clients()
        for client in self._known:
            compat.announce_scatters(client, partial(tell_of_data, client))
        self._entered.append((self.id, annotated, self._known))
        self._variables = copy_context()
        self._listening.clear()
        self.values.renew()

    def _listen(self) -> None:
        """Whoever wants to hear of changes does from now on: ``on_resize``, or the first of the values."""
        for client, program in self._programs():
            if client.asynchronous:
                client.loop.add_callback(program.listen)
            else:
                with suppress(Exception):  # else it hears nothing, as on a cluster that is not managed
                    client.sync(program.listen, callback_timeout=_PATIENCE)

    def _programs(self) -> list[tuple[Client, JobProgram]]:
        """Of the clients that do not listen yet."""
        if not self._entered or (self._on_resize is None and not self.values):
            return []
        new = {client for client in self._known if client.status == "running"} - self._listening
        self._listening |= new
        variables, values = self._variables, self.values
        return [
            (client, JobProgram(client, self.id, self._on_resize, values, variables, self._window))
            for client in new
        ]

    # These speak of the job entered last, inside the context or after it. With an asynchronous client
    # they give awaitables.

    def status(self) -> Any:
        """The job as plain data: what it asked for, what it has and what it did; also while it waits and
        after it is done. Its state is "unknown" as long as nothing of it has arrived."""
        return self._ask("hpc_job")

    def request(self, nodes: int) -> Any:
        """Ask for so many more nodes (+2), or give some back (-1): for running jobs of kind evolving, or
        malleable, whose size the policy may change again as it likes. The policy answers, perhaps later;
        what it does not answer, another request adds to. Gives the job's status."""
        return self._ask("hpc_request", nodes=read_change(nodes))

    def cancel(self) -> Any:
        """Cancel what is not done: its futures are cancelled, its nodes are free at once, and what still
        arrives of it is cancelled, too. Results that are there stay; what others need of it lives on
        outside of the job. Gives the job's status."""
        return self._ask("hpc_cancel")

    def _ask(self, call: str, **given: Any) -> Any:
        if not self.id:
            raise RuntimeError("this job's context has not been entered yet")
        client = next((one for one in self._known | self._clients() if one.status == "running"), None)
        if client is None:
            raise RuntimeError("there is no client that could ask the cluster about this job")
        return client.sync(self._asked, client, call, self.id, given)

    async def _asked(self, client: Client, call: str, job_id: str, given: dict[str, Any]) -> Any:
        if call != "hpc_job":
            return await ask_of_job(client, call, job_id, **given)
        try:
            return await ask(client, call, id=job_id)
        except InputError as error:
            if error.where != "job":
                raise
            reason = "nothing of it has arrived yet, or it was done long ago"
            named = {"id": job_id, "name": self._request["name"], "state": "unknown", "reason": reason}
            return named | {"nodes": [], "finished_tasks": 0, "unfinished_tasks": 0}

    def __exit__(self, *error: object) -> None:
        for client, job_id in self._leave():  # called on its event loop: nothing here may wait
            client.loop.add_callback(tell_closed, client, job_id)

    async def __aenter__(self) -> "JobContext":
        self._enter()
        for _, program in self._programs():
            with suppress(Exception):
                async with asyncio.timeout(_PATIENCE):
                    await program.listen()
        return self

    async def __aexit__(self, *error: object) -> None:
        for client, job_id in self._leave():
            await tell_closed(client, job_id)

    def _leave(self) -> list[tuple[Client, str]]:
        """The context is closed, and that was told through clients of threads; asynchronous ones have to."""
        job_id, annotated, clients = self._entered.pop()
        # Not this context's error: dask.annotate only has to put back what was there before.
        annotated.__exit__(None, None, None)
        found = [client for client in clients | self._clients() if client.status == "running"]
        for client in found:
            if not client.asynchronous:
                with suppress(Exception):
                    client.sync(tell_closed, client, job_id, callback_timeout=_PATIENCE)
        return [(client, job_id) for client in found if client.asynchronous]

    def _clients(self) -> set[Client]:
        if self._client is not None:
            return {self._client}
        with suppress(ValueError):
            return {Client.current()}
        return set()


async def tell_of_data(client: Client, keys: Iterable[Hashable]) -> None:
    """Say that data are about to be scattered, if that is in a job. What nobody hears of goes anywhere."""
    request, first = dask.get_annotations().get(ANNOTATION), next(iter(keys), None)
    if request is not None and first is not None:
        with suppress(Exception):
            about = {"scatters": str(first), "job": request, "client": client.id}
            await client.log_event(TOPIC, about)


async def tell_closed(client: Client, job_id: str) -> None:
    """Say that a job's context was closed. If that fails the client is going, and its contexts with it."""
    with suppress(Exception):
        async with asyncio.timeout(_PATIENCE):
            await client.log_event(TOPIC, {"closed": job_id})
