"""``InSituPipeline``: a simulation on Dask, and analyses of each of its iterations.

>>> def advance(block):
...     return block + block.x
>>> pipe = dask_hpc.InSituPipeline(step=advance, state=state, analyses={"mean": mean})
>>> for i, results in pipe.run(iterations=200):
...     print(i, results["mean"])
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from secrets import token_hex
from typing import Any

import xarray as xr
from distributed import Client

from dask_hpc import config
from dask_hpc.live.in_situ.analysis import InSituAnalysis, make_analysis, read_analyses
from dask_hpc.live.in_situ.blocks import make_grid
from dask_hpc.live.in_situ.halo import make_halo
from dask_hpc.live.in_situ.iteration import Submitted, Submitter
from dask_hpc.live.in_situ.loop import Loop
from dask_hpc.live.in_situ.orders import Fixed, Steering
from dask_hpc.live.in_situ.state import lay, lazy
from dask_hpc.live.in_situ.work import InSituPlugin, Work, plugin_name
from dask_hpc.live.nodes import Nodes
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.partition import MODES, Partition, Phases
from dask_hpc.planning.places import PipelineNode, make_places

PLACEMENTS = ("in situ", "in transit")


class InSituPipeline:
    """A simulation that is iterated on the workers of a cluster, and analyses that look at each iteration.

    ``state`` is a chunked Dataset (or one in memory, with ``chunks``): its blocks are spread over the nodes
    that simulate, neighbours together. ``step`` makes the next iteration of a block from a Dataset of NumPy
    arrays; with ``halo={"x": 1}`` the block has that many cells of its neighbours on either side, and may
    come back with or without them. At the rim of the state ``boundary`` (one word, or by dimension) is
    "periodic", "nearest" (the last cell is repeated) or "none" (the block is narrower there).

    ``analyses`` are functions by name: of the whole state as one Dataset, or what ``per_block`` and ``whole``
    make. In situ they run beside the simulation, in the process that holds the blocks, without a copy; in
    transit, on nodes of their own, to which what they declare as ``variables`` is moved. What is in situ by
    block never leaves its node; for a *whole* analysis in situ the blocks of all nodes go to one of them.

    ``mode`` "async": the next step runs while analyses look at the last; "sync": it waits for those in situ.
    ``placement`` is "in situ", "in transit", or a ``Partition``. At most two iterations of the state are in
    memory.

    Steps and analyses must not write into the arrays they are given (those with ghost cells excepted): they
    are shared, and say so by an error. What has no dimension that is cut is the first block's in the end.
    """

    def __init__(
        self,
        step: Callable[[xr.Dataset], xr.Dataset],
        state: xr.Dataset,
        analyses: Mapping[str, Callable[[xr.Dataset], Any] | InSituAnalysis],
        *,
        mode: str = "async",
        placement: str | Partition = "in situ",
        chunks: Mapping[Any, Any] | None = None,
        halo: Mapping[Any, int] | None = None,
        boundary: str | Mapping[Any, str] = "none",
        name: str = "pipeline",
        client: Client | None = None,
    ) -> None:
        if not callable(step):
            raise InputError("step", f"found {shown(step)}", "a function of a block")
        if mode not in MODES:
            raise InputError("mode", f"found {shown(mode)}", ", ".join(MODES))
        if not isinstance(name, str) or not name or not name.isprintable():
            raise InputError("name", f"found {shown(name)}", "words")
        state, grid = make_grid(state, chunks, whole=list(halo or {}) if isinstance(halo, Mapping) else ())
        found = read_analyses(analyses, state)
        self._work = Work(step, found, grid, make_halo(grid, {} if halo is None else halo, boundary))
        self._mode = mode
        self._placement = _read_placement(placement, found)
        self.name = name
        #: tells it from others of the same name
        self.id = token_hex(4)
        self._client = client
        self._initial: xr.Dataset | None = state
        self._last: Submitted | None = None
        self._is_running = False

    def __repr__(self) -> str:
        analyses = ", ".join(self._work.analyses) or "no analyses"
        blocks = len(self._work.grid)
        return f"<InSituPipeline {self.name!r}: {blocks} blocks, {analyses}, {self.iteration} done>"

    @staticmethod
    def per_block(
        function: Callable[[xr.Dataset], Any],
        combine: Callable[[list[Any]], Any] | None = None,
        *,
        variables: Any = None,
        every: int = 1,
        keep: bool = False,
    ) -> InSituAnalysis:
        """An analysis of each block, where it is. ``combine`` makes one result of the list of those of all
        blocks, in order; without it, the list is the result. See ``whole`` for the rest."""
        return make_analysis(
            function, per_block=True, combine=combine, variables=variables, every=every, keep=keep
        )

    @staticmethod
    def whole(
        function: Callable[[xr.Dataset], Any], *, variables: Any = None, every: int = 1, keep: bool = False
    ) -> InSituAnalysis:
        """An analysis of the whole state. It sees, and moves, only ``variables``; it looks at one iteration
        in ``every``. With ``keep`` the result stays on the cluster, and you get a future."""
        return make_analysis(function, variables=variables, every=every, keep=keep)

    @property
    def iteration(self) -> int:
        """How many steps are done."""
        return 0 if self._last is None else self._last.iteration

    @property
    def state(self) -> Any:
        """The state as it is now: a Dataset of Dask arrays on the blocks where they are. With an asynchronous
        client, awaitable."""
        if self._is_running:
            raise RuntimeError("the pipeline is running: its state is yours again when run() is over")
        if self._last is None:
            return self._begin()
        return self._the_client().sync(lazy, self._the_client(), self._work.grid, self._last.groups)

    def run(self, iterations: int) -> "Run":
        """So many more iterations. Iterate over it, with ``for`` or ``async for``: it gives the number of
        each iteration (the first is 1) and the results by analysis. Leaving it early ends the pipeline:
        everything is cancelled and released."""
        if type(iterations) is not int or iterations < 0:
            raise InputError("iterations", f"found {shown(iterations)}", "a whole number from 0")
        return Run(self, iterations)

    # for Run

    def _the_client(self) -> Client:
        if self._client is None:
            try:
                self._client = Client.current()
            except ValueError:
                raise InputError("client", "found none", "a distributed.Client") from None
        return self._client

    def _begin(self) -> xr.Dataset:
        if self._initial is None:
            raise RuntimeError("the pipeline was left early: its state is gone")
        return self._initial

    async def _open(self, iterations: int) -> Loop:
        if self._is_running:
            raise RuntimeError("the pipeline is running already")
        client = self._the_client()
        before = self._last
        initial = self._begin() if before is None else None
        nodes = await _nodes(client)
        steering = self._steering(nodes)
        self._is_running = True
        try:
            await client.register_plugin(InSituPlugin(self.id, self._work))
            if before is None:
                orders = await steering.orders(0, {}, {})
                assert initial is not None
                groups = await lay(client, self.id, initial, self._work.grid, orders.places)
                before = Submitted(0, orders, groups)
            self._initial = None
            submitter = Submitter(client, self.id, self._work)
            return Loop(client, submitter, steering, before, before.iteration + iterations)
        except BaseException:
            await self._close(None)
            raise

    async def _close(self, loop: Loop | None) -> None:
        """A run is over, or could not begin."""
        if loop is not None:
            await loop.close()
            self._last = loop.newest if loop.is_done else None
        self._is_running = False
        await self._the_client().unregister_worker_plugin(plugin_name(self.id))

    def _steering(self, nodes: list[PipelineNode]) -> Steering:
        if not nodes:
            raise InputError("cluster", "found no worker", "at least one")
        partition = self._placement
        if isinstance(partition, str):
            partition = _plain_partition(partition, self._mode, tuple(self._work.analyses), nodes)
        return Fixed(make_places(partition, nodes, len(self._work.grid)))


class Run:
    """Some iterations of a pipeline, to be iterated over once."""

    def __init__(self, pipeline: InSituPipeline, iterations: int) -> None:
        self._pipeline = pipeline
        self._iterations = iterations

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        pipeline = self._pipeline
        client = pipeline._the_client()
        if client.asynchronous:
            raise TypeError("this client is asynchronous: use 'async for'")
        loop = client.sync(pipeline._open, self._iterations)
        try:
            while (done := client.sync(loop.next)) is not None:
                yield done.iteration, dict(done.results)
        finally:
            client.sync(pipeline._close, loop)

    async def __aiter__(self) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        pipeline = self._pipeline
        if not pipeline._the_client().asynchronous:
            raise TypeError("this client is not asynchronous: use 'for'")
        loop = await pipeline._open(self._iterations)
        try:
            while (done := await loop.next()) is not None:
                yield done.iteration, dict(done.results)
        finally:
            await pipeline._close(loop)


def _read_placement(given: Any, analyses: Mapping[str, Any]) -> str | Partition:
    if isinstance(given, Partition):
        placed = [*given.in_situ, *given.in_transit]
        if sorted(placed) != sorted(analyses):
            raise InputError(
                "placement", f"found analyses {shown(placed)}", f"each once: {', '.join(analyses)}"
            )
        return given
    if given not in PLACEMENTS:
        raise InputError("placement", f"found {shown(given)}", f"{', '.join(PLACEMENTS)}, or a Partition")
    return str(given)


def _plain_partition(
    where: str, mode: str, analyses: tuple[str, ...], nodes: list[PipelineNode]
) -> Partition:
    """All analyses on one side: in situ on a quarter of the cores of every node, or in transit on a quarter
    of the nodes; at least one, at most all but one."""
    unknown = Phases(0.0, 0.0, 0.0)
    if where == "in situ" or not analyses:
        helpers = max(1, min(node.cores for node in nodes) // 4) if analyses and mode == "async" else 0
        return Partition(mode, len(nodes), helpers, analyses, (), unknown)  # type: ignore[arg-type]
    staging = max(1, len(nodes) // 4)
    return Partition(mode, max(1, len(nodes) - staging), 0, (), analyses, unknown)  # type: ignore[arg-type]


async def _nodes(client: Client) -> list[PipelineNode]:
    """The running workers by node, in the order of their names."""
    workers = (await client.scheduler.identity(n_workers=-1))["workers"]
    known = Nodes(config.settings()["node"])
    names = {address: str(workers[address]["name"]) for address in workers}
    for address in sorted(names, key=lambda address: (len(names[address]), names[address])):
        if workers[address]["status"] == "running":
            known.join(address, workers[address]["name"], workers[address]["host"])
    return [
        PipelineNode(name, tuple((one, workers[one]["nthreads"]) for one in known.workers(name)))
        for name in known
    ]
