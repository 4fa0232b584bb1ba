"""``InSituPipeline``: a simulation on Dask, and analyses of each of its iterations.

>>> def advance(block):
...     return block + block.x
>>> pipe = dask_hpc.InSituPipeline(step=advance, state=state, analyses={"mean": mean})
>>> for i, results in pipe.run(iterations=200):
...     print(i, results["mean"])
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from secrets import token_hex
from typing import Any, Unpack

import xarray as xr
from distributed import Client

from dask_hpc.in_situ.analysis import AnalysisWishes, InSituAnalysis, make_analysis, read_analyses
from dask_hpc.in_situ.blocks import make_grid, make_halo
from dask_hpc.in_situ.client.iteration import Submitted
from dask_hpc.in_situ.client.job import PipelineDiary, PipelineJob, read_request
from dask_hpc.in_situ.client.lasting import LastingLoop, StateKeeper
from dask_hpc.in_situ.client.loop import lazy
from dask_hpc.in_situ.client.steering import SIDES, AsSaid, Auto, OneSide, Steered
from dask_hpc.in_situ.worker import InSituPlugin, PipelineWork, plugin_name
from dask_hpc.model.errors import InputError, shown
from dask_hpc.planning.in_situ.back_pressure import Skipped, read_wish
from dask_hpc.planning.in_situ.partition import MODES, Partition, PipelineStatus
from dask_hpc.policy import Policy

PLACEMENTS = ("auto", *SIDES)


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
    ``placement`` "auto": the first iterations are measured, then nodes, cores and analyses are divided so
    that an iteration takes the least time, and again when something drifts or nodes come or go. On a managed
    cluster the placement strategy of its policy decides. Else "in situ", "in transit" (all of them), or a
    ``Partition``.

    At most two iterations of the state are in memory. When an analysis does not keep up, the simulation waits
    for it at most ``stall``; then ``when_slow`` is done: "wait" on; "skip" iterations until it has ended;
    "subsample", do every second iteration, or every fourth and so on. By default as the strategy says;
    analyses may say otherwise. ``skipped`` lists what was left out; it is missing in those results.

    Workers may come and go. If one is lost with what it held, iterations are stepped again from the state
    that the pipeline began with, or, with ``keep_every=10``, from the last multiple of ten: its state is kept
    until the next, with a copy of each block on another node, in as much memory as two more iterations.

    With ``nodes`` (and ``min_nodes``, ``max_nodes``, ``walltime``, as in ``dask_hpc.job``) a run on a managed
    cluster is a job: it waits until that is started, uses the nodes of the job only, however the policy
    changes them, and the job is over when the run is. The last state stays where it is. What was submitted
    to a node that is given up ends there: two iterations at most. A cluster that is not managed is used as
    a whole.

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
        placement: str | Partition = "auto",
        chunks: Mapping[Any, Any] | None = None,
        halo: Mapping[Any, int] | None = None,
        boundary: str | Mapping[Any, str] = "none",
        when_slow: str | None = None,
        stall: float | str | None = None,
        keep_every: int | None = None,
        nodes: int | None = None,
        min_nodes: int | None = None,
        max_nodes: int | None = None,
        walltime: float | str | None = None,
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
        self._work = PipelineWork(step, found, grid, make_halo(grid, {} if halo is None else halo, boundary))
        self._is_auto = placement == "auto"
        self._strategy = _read_placement(placement, found, mode)
        self._slow = read_wish(when_slow, stall)
        if keep_every is not None and (type(keep_every) is not int or keep_every < 1):
            raise InputError("keep_every", f"found {shown(keep_every)}", "a whole number from 1")
        self._keep_every = keep_every
        self._request = read_request(name, nodes, min_nodes=min_nodes, max_nodes=max_nodes, walltime=walltime)
        self._job: PipelineJob | None = None
        self.name = name
        #: tells it from others of the same name
        self.id = token_hex(4)
        self._client = client
        self._initial = state
        self._is_gone = False
        self._last: Submitted | None = None
        self._is_running = False
        self._diary = PipelineDiary(name, self.id, list(found), self._slow.what or "wait")
        self._steering: Auto | None = None

    def __repr__(self) -> str:
        analyses = ", ".join(self._work.analyses) or "no analyses"
        blocks = len(self._work.grid)
        return f"<InSituPipeline {self.name!r}: {blocks} blocks, {analyses}, {self.iteration} done>"

    @staticmethod
    def per_block(
        function: Callable[[xr.Dataset], Any],
        combine: Callable[[list[Any]], Any] | None = None,
        **wishes: Unpack[AnalysisWishes],
    ) -> InSituAnalysis:
        """An analysis of each block, where it is. ``combine`` makes one result of the list of those of all
        blocks, in order; without it, the list is the result. See ``whole`` for the rest."""
        return make_analysis(function, per_block=True, combine=combine, **wishes)

    @staticmethod
    def whole(function: Callable[[xr.Dataset], Any], **wishes: Unpack[AnalysisWishes]) -> InSituAnalysis:
        """An analysis of the whole state.

        variables  it sees, and moves, only these; by default all
        every      it looks at one iteration in so many
        keep       the result stays on the cluster, and you get a future
        when_slow, stall
                   what is done if it does not keep up, where the pipeline says something else
        time, memory
                   seconds on one core, and bytes at its peak: with them the first partition need not be
                   guessed. What is measured counts more; of memory, whatever is more.
        """
        return make_analysis(function, **wishes)

    @property
    def iteration(self) -> int:
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

    @property
    def partition(self) -> Partition | None:
        """Who runs where now, and what is expected of it; None before the first iteration."""
        return self._diary.partition

    @property
    def skipped(self) -> list[Skipped]:
        """Analyses that were not done for an iteration as they did not keep up: the newest ten thousand."""
        return list(self._diary.skipped)

    def status(self) -> PipelineStatus:
        """How it goes, as plain data: what ``Manager.status()`` of a managed cluster tells of it."""
        return self._diary.status()

    def story(self) -> list[dict[str, Any]]:
        """What was decided and what happened, oldest first, each with the reason."""
        return list(self._diary.story)

    def run(self, iterations: int) -> "Run":
        """So many more iterations. Iterate over it, with ``for`` or ``async for``: it gives the number of
        each iteration (the first is 1) and the results by analysis. Leaving it early ends the pipeline:
        everything is cancelled and released."""
        if type(iterations) is not int or iterations < 0:
            raise InputError("iterations", f"found {shown(iterations)}", "a whole number from 0")
        return Run(self, iterations)

    def _the_client(self) -> Client:
        if self._client is None:
            try:
                self._client = Client.current()
            except ValueError:
                raise InputError("client", "found none", "a distributed.Client") from None
        return self._client

    def _begin(self) -> xr.Dataset:
        if self._is_gone:
            raise RuntimeError("the pipeline was left early: its state is gone")
        return self._initial

    async def _open(self, iterations: int) -> LastingLoop:
        if self._is_running:
            raise RuntimeError("the pipeline is running already")
        client = self._the_client()
        before = self._last
        if before is None:
            self._begin()
        steering = self._steered_by(client)
        self._diary.state, self._diary.iterations = "running", self.iteration + iterations
        self._is_running = True
        try:
            await client.register_plugin(InSituPlugin(self.id, self._work))
            self._job = await self._new_job(client)
            steering.begin(self.iteration + iterations, self._job)
            annotations = {} if self._job is None else self._job.annotations
            submitter = StateKeeper(client, self.id, self._work, annotations, self._keep_every)
            if before is None:
                before = await submitter.lay(self._initial, steering)
            last = before.iteration + iterations
            return LastingLoop(client, submitter, steering, before, last, self._initial, self._diary)
        except BaseException:
            await self._close(None)
            raise

    async def _new_job(self, client: Client) -> PipelineJob | None:
        """The job of a run, if it is to be one."""
        if self._request is None:
            return None
        job = await PipelineJob.on(client, self._request)
        words = "uses all workers: the cluster is not managed" if job is None else f"is {job}"
        self._diary.job = None if job is None else job.id
        self._diary.tell("pipeline", words)
        return job

    async def _close(self, loop: LastingLoop | None) -> None:
        """A run is over, or could not begin."""
        if loop is not None:
            await loop.close()
            self._last = loop.newest if loop.is_done else None
            self._is_gone = not loop.is_done
        self._is_running = False
        self._diary.state = "done" if loop is not None and loop.is_done else "failed"
        client = self._the_client()
        if client.status == "running":
            if self._job is not None:
                await self._job.close()
                self._job = None
            if self._steering is not None:
                await self._steering.tell(at_once=True)
            await client.unregister_worker_plugin(plugin_name(self.id))

    def _steered_by(self, client: Client) -> Auto:
        if self._steering is None:
            steered = Steered(
                name=self.name,
                analyses=self._work.analyses,
                blocks=len(self._work.grid),
                strategy=self._strategy,
                slow=self._slow,
                follows_policy=self._is_auto,
            )
            self._steering = Auto(client, steered, self._diary)
        return self._steering


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


def _read_placement(given: Any, analyses: Mapping[str, Any], mode: Any) -> Any:
    """The strategy that decides where a cluster's policy does not. Raises ``InputError``."""
    if isinstance(given, Partition):
        placed = [*given.in_situ, *given.in_transit]
        if sorted(placed) != sorted(analyses):
            raise InputError(
                "placement", f"found analyses {shown(placed)}", f"each once: {', '.join(analyses)}"
            )
        return AsSaid(given)
    if given not in PLACEMENTS:
        raise InputError("placement", f"found {shown(given)}", f"{', '.join(PLACEMENTS)}, or a Partition")
    if given in SIDES:
        return OneSide(given, mode)
    return Policy.load("in-situ-async").with_(**{"placement.mode": mode}).placement
