"""``dask_hpc.redistribute``: lay arrays out anew on the nodes of a cluster."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from secrets import token_hex
from typing import Any

from distributed import Client, default_client, futures_of

from dask_hpc import config
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.planning.moves.layout import Layout
from dask_hpc.planning.moves.redistribution import (
    Blocks,
    Index,
    JointPlan,
    fullest,
    joint_redistribution,
    placed_by_hand,
    read_places,
)
from dask_hpc.planning.moves.spread import within_nodes
from dask_hpc.redistribution.carrier import (
    Carrier,
    Holding,
    Places,
    Progress,
    check,
    found_in,
    is_persisted,
    labels_in,
    nbytes,
    replaced,
    wait_for,
)
from dask_hpc.redistribution.scheduler import NAME, RedistributionPlugin

#: how often what is not where it should be is planned again
_TRIES = 5


class Redistribution:
    """What ``plan_redistribution`` gives. Nothing moves before ``carry_out``."""

    def __init__(
        self,
        obj: Any,
        nodes: Any,
        workers: Any,
        layout: Any,
        client: Client | None,
        pool: Sequence[str] | None = None,
    ) -> None:
        """``pool``: addresses of the workers that may have a part, in the order of their nodes; else those
        that ``redistribute`` names."""
        check(obj)
        self._layout, self._workers = _read(nodes, workers, layout)
        self._word, self._wanted = _word(layout), nodes
        self.client = client = _client(obj, client)
        if lost := [future for future in futures_of(obj) if future.status == "cancelled"]:
            raise InputError(
                "redistribute", f"{len(lost)} chunks were lost or cancelled", "results that are there"
            )
        self._obj = obj
        #: whether nobody else holds the chunks there are now
        self._is_ours = not is_persisted(obj)
        there = client.persist(obj) if self._is_ours else obj
        self._arrays = found_in(there)
        self._names = [array.name for array in self._arrays]
        self._pool = pool
        #: what is laid out by hand, until somebody has said for each chunk the number of its node
        self._there = there if self._layout.by_hand is not None else None
        self._numbers: list[dict[Index, int]] = []
        self._plan = JointPlan((), (), ())
        self._places: list[Places] = []
        #: the plan that is carried out now: another one than at first, if a worker has died
        self._now = self._plan
        self._before = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that have a part, in the order of the parts; a part may have no elements."""
        return self._plan.nodes

    @property
    def leaving(self) -> tuple[str, ...]:
        return self._plan.leaving

    @property
    def bytes_moved(self) -> float:
        return self._plan.bytes_moved

    @property
    def lower_bound(self) -> float:
        """No plan moves less."""
        return self._plan.lower_bound

    @property
    def cuts(self) -> int:
        """How many new chunks are not old ones."""
        return self._plan.cuts

    @property
    def nbytes(self) -> float:
        """Everything that is laid out, each element once."""
        return sum(nbytes(chunk) for plan in self._plan.arrays for chunk in plan.chunks)

    def __repr__(self) -> str:
        chunks = sum(len(plan.chunks) for plan in self._plan.arrays)
        least = "no plan moves less"
        if self.bytes_moved > self.lower_bound:
            least = f"any plan moves at least {show_large(self.lower_bound, 'B')}"
        leaving = f"; leaving: {', '.join(self.leaving)}" if self.leaving else ""
        return (
            f"<Redistribution from {self._before} to {count_nodes(len(self.nodes))}, {self._word}: "
            f"{show_large(self.bytes_moved, 'B')} of {show_large(self.nbytes, 'B')} move ({least}), "
            f"{self.cuts} of {chunks} chunks are cut anew{leaving}>"
        )

    def carry_out(self, progress: Progress | None = None) -> Any:
        """Do it. Gives the object in its new layout, or an awaitable of it if the client is asynchronous.
        ``progress`` is called now and then with the bytes that are done, and all of them."""
        return self.client.sync(self.done, progress)

    async def made(self) -> "Redistribution":
        """Wait for results, look where they are, and plan."""
        async with _joined(self.client):
            await self._decide(await self._look())
        return self

    async def done(self, progress: Progress | None = None) -> Any:
        """Carry it out, and what is not where it should be in the end again."""
        if not self._arrays:
            raise InputError("redistribute", "this plan was carried out", "another plan")
        async with _joined(self.client) as run:
            for _ in range(_TRIES):
                seen = await self._look()
                able = {worker for workers in seen.workers.values() for worker in workers}
                meant = (workers for there in self._places for workers in there.values())
                if not self._places or not able.issuperset(chain.from_iterable(meant)):
                    await self._decide(seen)
                await self._carry(run, seen, progress)
                if not await self._missing():
                    return self._let_go()
                self._places = []
        raise RuntimeError(
            f"after {_TRIES} goes, chunks are not where they should be: workers come and go, or have no room"
        )

    def _let_go(self) -> Any:
        """The object in its new layout. Whoever looks at the plan later does not keep chunks in memory."""
        arrays = [array.array() for array in self._arrays]
        new = replaced(self._obj, dict(zip(self._names, arrays, strict=True)))
        self._obj, self._arrays = None, []
        return new

    async def _decide(self, seen: Holding) -> None:
        """The plan: the first one, or one that keeps the nodes of the last, as far as they are there."""
        by_worker = [array.blocks(seen.holders) for array in self._arrays]
        arrays = [
            replace(
                blocks,
                holders={
                    index: tuple(dict.fromkeys(seen.node_of.get(worker, worker) for worker in there))
                    for index, there in blocks.holders.items()
                },
            )
            for blocks in by_worker
        ]
        if self.nodes:
            stay = [node for node in self.nodes if node in seen.workers]
            spare = [node for node in seen.workers if node not in stay]
            given: dict[str, Any] = {"targets": [*stay, *spare][: len(self.nodes)]}
        elif seen.asked is not None:
            given = {"targets": seen.asked}
        else:
            wanted = len(seen.workers) if self._wanted is None else self._wanted
            given = {"nodes": wanted, "candidates": list(seen.workers)}
        try:
            if self._layout.by_hand is not None:
                plan = await self._by_hand(arrays, **given)
            else:
                plan = joint_redistribution(arrays, self._layout, **given)
        except InputError as error:
            if self.nodes:
                raise RuntimeError(f"a worker is gone, and nothing can take its place: {error}") from None
            raise error.at("redistribute") from None
        if not self.nodes:
            self._before = len({node for one in arrays for there in one.holders.values() for node in there})
            self._plan = plan
        self._places = list(within_nodes(by_worker, plan, seen.workers))
        self._now = plan

    async def _by_hand(
        self,
        arrays: Sequence[Blocks],
        nodes: int = 0,
        candidates: Sequence[str] = (),
        targets: Sequence[str] = (),
    ) -> JointPlan:
        """The plan that the user's function makes, which is asked once: it may compute with the data."""
        chosen = tuple(targets) or fullest(arrays, candidates, nodes)
        if not self._numbers:
            assert self._layout.by_hand is not None
            answer = await asyncio.to_thread(self._layout.by_hand, self._there, chosen)
            labels, self._there = labels_in(self._obj), None
            shapes = {labels[array.name]: tuple(map(len, array.chunks)) for array in self._arrays}
            found = read_places(answer, shapes, len(chosen))
            self._numbers = [found[label] for label in shapes]
        return placed_by_hand(arrays, self._numbers, chosen)

    async def _look(self) -> Holding:
        futures = [future for array in self._arrays for future in array.futures.values()]
        await wait_for(self.client, futures)
        keys = [future.key for future in futures]
        named = self._workers
        # Names are read once: later some of them may be gone.
        first = None if named is None or self.nodes else list(named)
        found = await self.client.scheduler.hpc_redistribute_look(keys=keys, workers=first)
        node_of = dict(found["nodes"]) if named is None else {}
        workers: dict[str, list[str]] = {}
        able = found["pool"] if named is None else found["able"]
        if self._pool is not None:
            able = [address for address in self._pool if address in found["able"]]
        for address in able:
            workers.setdefault(node_of.get(address, address), []).append(address)
        holders = dict(zip(keys, found["holders"], strict=True))
        return Holding(holders, node_of, workers, found["asked"])

    async def _carry(self, run: str, seen: Holding, progress: Progress | None) -> None:
        total = self._now.bytes_moved + sum(
            nbytes(chunk) for plan in self._now.arrays if plan.cuts for chunk in plan.chunks
        )
        carrier = Carrier(self.client, run, seen, total, progress)
        plans = self._now.arrays
        targets = [
            (array.key(chunk.pieces[0].old), list(there[chunk.index]))
            for array, plan, there in zip(self._arrays, plans, self._places, strict=True)
            for chunk in plan.chunks
            if chunk.is_old
        ]
        await carrier.move(targets, f"{self._word} on {count_nodes(len(self.nodes))}")
        for number, array in enumerate(self._arrays):
            self._arrays[number] = await carrier.make(
                array, plans[number], self._places[number], self._is_ours
            )
        carrier.arrived(total)

    async def _missing(self) -> bool:
        """Whether something is not where it should be; what is elsewhere as well is dropped there."""
        targets = [
            (array.futures[index].key, list(workers))
            for array, there in zip(self._arrays, self._places, strict=True)
            for index, workers in there.items()
        ]
        return bool(await self.client.scheduler.hpc_redistribute_tidy(targets=targets))


@asynccontextmanager
async def _joined(client: Client) -> AsyncIterator[str]:
    """Our plugin is on the scheduler meanwhile."""
    run = token_hex(8)
    mode = config.settings()["node"]
    while True:
        await client.register_plugin(RedistributionPlugin(mode), name=NAME)
        # None: it left in between, with another that was done
        if await client.scheduler.hpc_redistribute_join(run=run, client=client.id):
            break
    try:
        yield run
    finally:
        if client.status == "running":
            await client.scheduler.hpc_redistribute_leave(run=run)


async def hold(client: Client, wanted: Mapping[Hashable, Sequence[str]]) -> None:
    """Bring each of these results to its workers, and to no others: they stay there until something else is
    asked for. If workers die meanwhile, what they were to have stays where it is."""
    targets = [(key, list(workers)) for key, workers in wanted.items()]
    async with _joined(client) as run:
        for _ in range(_TRIES):
            await client.scheduler.hpc_redistribute_move(run=run, targets=targets, why="a layout")
            if not await client.scheduler.hpc_redistribute_tidy(targets=targets):
                break


def redistribute(
    obj: Any,
    nodes: int | None = None,
    *,
    workers: Sequence[Any] | None = None,
    layout: Any = "block",
    progress: Progress | None = None,
    client: Client | None = None,
) -> Any:
    """Lay the dask arrays in a Dataset, a DataArray, or a dask array out anew, and give the same with its
    arrays there. Values, coordinates, attributes and encodings stay as they are, and so does what is no dask
    array. What is not computed yet is computed first. With an asynchronous client this gives an awaitable.

    ``nodes`` says on how many nodes (hosts, or workers where the cluster is local; see ``hpc.node``): those
    are taken for which least has to move. By default all; results of a running job stay within its nodes.
    ``workers`` says exactly on which workers instead, by name or address.

    ``layout`` is one word for the dimension with the most chunks, or a layout for each dimension:
    ``{"x": "block", "y": "block"}``. The words:

    * ``"block"``: runs, as even as whole chunks allow if that is near enough, else chunks are cut;
      ``"block:100"``: runs of 100 elements;
    * ``"cyclic"``: whole chunks in turn; ``"block-cyclic:100"``: 100 elements in turn;
    * a list of sizes, one for each node: ``[500, 300, 200]``;
    * grids for numbers of nodes: ``{8: (2, 4), 16: (4, 4)}`` divides the first two dimensions in 2 and 4 runs
      on eight nodes, ``{8: {"y": 2, "x": 4}}`` those of that name;
    * ``"replicated"``: everything on every node. Dask would reduce that to one copy within seconds; of these
      chunks it does not, as long as they are there. Copies that are lost with a worker do not come back;
    * a function of ``obj``, persisted, and the names of the nodes, called in a thread: it may compute. It
      gives for each chunk the number of its node among them, as an array of the shape of the chunks
      (``numblocks``), for several arrays by their names. Chunks stay whole.

    All variables of a Dataset lie on the same node for the same index. A variable without any of the divided
    dimensions lies on one of the nodes.

    As few bytes move as any plan could (``plan_redistribution`` tells how many). Chunks that stay whole move
    as they are and keep their keys, so what else uses them finds them at their new place. Chunks that are
    cut are made anew, with the old ones in memory as long as anybody has them: drop ``obj``
    (``u = redistribute(u, 4)``). Only the pieces that are needed elsewhere travel, from worker to worker,
    a bounded number of bytes at a time. If a worker dies meanwhile, Dask computes again what it had, and
    another one takes its place.

    ``progress`` is called now and then with the bytes that are done, and all of them.
    """
    return Redistribution(obj, nodes, workers, layout, client).carry_out(progress)


def plan_redistribution(
    obj: Any,
    nodes: int | None = None,
    *,
    workers: Sequence[Any] | None = None,
    layout: Any = "block",
    client: Client | None = None,
) -> Any:
    """What ``redistribute`` would do, as a ``Redistribution``; nothing moves before its ``carry_out()``.

    It tells ``nodes``, which nodes are ``leaving``, ``bytes_moved``, the ``lower_bound`` of any plan, and how
    many chunks it ``cuts``. What is not computed yet is computed: before that nobody knows where it lies.
    """
    found = Redistribution(obj, nodes, workers, layout, client)
    return found.client.sync(found.made)


def _read(nodes: Any, workers: Any, layout: Any) -> tuple[Layout, Sequence[Any] | None]:
    if nodes is not None and workers is not None:
        raise InputError("redistribute", "found nodes and workers", "one of them")
    if nodes is not None and (type(nodes) is not int or nodes < 1):
        raise InputError("redistribute: nodes", f"found {shown(nodes)}", "a whole number, 1 or more")
    if isinstance(workers, str | int):
        workers = [workers]
    are_named = isinstance(workers, Sequence) and workers and {str, int}.issuperset(map(type, workers))
    if workers is not None and not are_named:
        raise InputError("redistribute: workers", f"found {shown(workers)}", "names or addresses of workers")
    return read_layout(layout, "redistribute"), workers


def read_layout(layout: Any, where: str) -> Layout:
    """A layout as ``redistribute`` takes it, or an ``InputError``."""
    try:
        return Layout.read(layout)
    except InputError as error:
        raise error.at(where) from None


async def lay_out_on(obj: Any, workers: Sequence[str], layout: Any, client: Client) -> tuple[Any, list[str]]:
    """The same as ``redistribute``, on all nodes of these workers, in this order where nothing else decides.
    Gives the names of the arrays, too."""
    work = Redistribution(obj, None, None, layout, client, pool=workers)
    new = await work.done()
    return new, [array.name for array in found_in(new)]


def _word(layout: Any) -> str:
    if isinstance(layout, Mapping):
        return ", ".join(f"{name}: {_word(one)}" for name, one in layout.items())
    if callable(layout):
        return "by hand"
    return layout if isinstance(layout, str) else shown(layout)


def _client(obj: Any, client: Client | None) -> Client:
    if client is None:
        client = next((future.client for future in futures_of(obj)), None)
    if client is None:
        try:
            client = default_client()
        except ValueError:
            raise InputError("redistribute: client", "there is none", "a Dask client") from None
    if not isinstance(client, Client):
        raise InputError("redistribute: client", f"found {shown(client)}", "a Dask client")
    return client
