"""What the tasks of a pipeline do, on a worker: step, cut out what leaves, analyse, combine.

The user's functions come to each worker once, with the plugin (``PipelineWork``); tasks carry numbers. Data
on a worker is shared by all that look at it, so it is handed out as arrays that cannot be written; a block
with ghost cells is a copy, which a step may overwrite.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from time import thread_time, time
from typing import Any, Literal

import numpy as np
import xarray as xr
from dask.sizeof import sizeof
from distributed import WorkerPlugin, get_worker
from distributed.protocol import deserialize_bytes, serialize_bytelist

from dask_hpc.in_situ.analysis import InSituAnalysis
from dask_hpc.in_situ.blocks import BlockGrid, Halo, Offset, edge, join, padded, trimmed


@dataclass(slots=True, eq=False, repr=False)
class FiledBlocks:
    """Blocks in files, on the worker that made this."""

    paths: dict[int, str]

    def take(self, wanted: Collection[int]) -> dict[int, xr.Dataset]:
        """Some of the blocks; their files are gone then."""
        found = {}
        for number in self.paths.keys() & set(wanted):
            path = Path(self.paths[number])
            found[number] = deserialize_bytes(path.read_bytes())
            path.unlink()
        return found


def folder(worker: Any, pipeline: str) -> Path:
    """Where the files of a pipeline are on a worker."""
    return Path(worker.local_directory) / f"in-situ-{pipeline}"


def taken(given: Iterable[Any], wanted: Collection[int]) -> dict[int, xr.Dataset]:
    """Blocks out of all files among what a task is given."""
    return {
        number: block
        for one in given
        if isinstance(one, FiledBlocks)
        for number, block in one.take(wanted).items()
    }


#: step: blocks to blocks; carry: blocks as they are; parcel: what leaves a worker is cut out; analysis;
#: combine: of results by block
Part = Literal["step", "carry", "parcel", "analysis", "combine"]


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One piece of work: who did it, when by that host's clock, and how much went in and came out."""

    part: Part
    #: of the analysis; empty for a step. A parcel has the name of the analysis it is for, if it is for one
    name: str
    iteration: int
    worker: str
    #: "simulation", "in situ" or "in transit": the cores that did it
    side: str
    blocks: tuple[int, ...]
    start: float
    stop: float
    #: seconds of processor time of this thread
    cpu: float
    bytes_in: int
    bytes_out: int

    @property
    def wall(self) -> float:
        return self.stop - self.start


def measured(part: Part, order: Any, given: Any, work: Callable[[], Any]) -> tuple[Any, TaskRecord]:
    """What ``work`` answers, and the record of it; ``given`` is what it looks at."""
    start, cpu = time(), thread_time()
    found = work()
    cpu, stop = thread_time() - cpu, time()
    record = TaskRecord(
        part=part,
        name=order.analysis,
        iteration=order.iteration,
        worker=get_worker().address,
        side=order.side,
        blocks=order.blocks,
        start=start,
        stop=stop,
        cpu=cpu,
        bytes_in=sizeof(given),
        bytes_out=sizeof(found),
    )
    return found, record


@dataclass(frozen=True)
class PipelineWork:
    """Everything about a pipeline that does not change."""

    step: Callable[[xr.Dataset], xr.Dataset]
    analyses: Mapping[str, InSituAnalysis]
    grid: BlockGrid
    halo: Halo


@dataclass(slots=True, eq=False, repr=False)
class HeldBlocks:
    """What one task leaves on its worker: whole blocks, and edges of blocks for those that lie at that offset
    from their receiver."""

    blocks: dict[int, xr.Dataset]
    edges: dict[tuple[int, Offset], xr.Dataset] = field(default_factory=dict)
    records: tuple[TaskRecord, ...] = ()

    def __sizeof__(self) -> int:
        return sum(sizeof(one) for one in (*self.blocks.values(), *self.edges.values()))


@dataclass(slots=True, eq=False, repr=False)
class AnalysisOutcome:
    """What an analysis answered: by block, or (under None) for the whole."""

    values: dict[int | None, Any]
    records: tuple[TaskRecord, ...]

    def __sizeof__(self) -> int:
        return sum(sizeof(one) for one in self.values.values())


@dataclass(frozen=True)
class TaskOrder:
    """What a task is to do: of which pipeline and iteration, on whose cores, and with which blocks."""

    pipeline: str
    iteration: int
    side: str
    blocks: tuple[int, ...] = ()
    analysis: str = ""
    #: of a parcel: edges to cut out, and the variables that are wanted (None: all)
    edges: tuple[tuple[int, Offset], ...] = ()
    variables: tuple[Hashable, ...] | None = None


class InSituPlugin(WorkerPlugin):
    """Keeps a pipeline's work on a worker, and helper threads for what runs in situ."""

    def __init__(self, pipeline: str, work: PipelineWork) -> None:
        self.name = plugin_name(pipeline)
        self.work = work
        self._pipeline = pipeline

    def setup(self, worker: Any) -> None:
        """As many threads as the worker has: how many are used at a time follows from the tasks."""
        threads = max(worker.state.nthreads, 1)
        worker.executors[self.name] = ThreadPoolExecutor(threads, thread_name_prefix="in-situ")

    def teardown(self, worker: Any) -> None:
        executor = worker.executors.pop(self.name, None)
        if executor is not None:
            executor.shutdown(wait=False)
        rmtree(folder(worker, self._pipeline), ignore_errors=True)


def plugin_name(pipeline: str) -> str:
    """Of the plugin, and of the executor that it makes."""
    return f"dask-hpc-in-situ-{pipeline}"


def hold(order: TaskOrder, blocks: Sequence[xr.Dataset], root: None = None) -> HeldBlocks:
    """Blocks of the state that a pipeline begins with. They come of ``root`` as far as Dask knows."""
    return HeldBlocks({number: frozen(block) for number, block in zip(order.blocks, blocks, strict=True)})


def step(order: TaskOrder, *given: Any) -> HeldBlocks:
    work, held = _work(order), [one for one in given if isinstance(one, HeldBlocks)]
    blocks, edges = _merged(held)

    def advance() -> dict[int, xr.Dataset]:
        return {number: _advanced(work, order.iteration, number, blocks, edges) for number in order.blocks}

    found, record = measured("step", order, (blocks, list(edges.values())), advance)
    return HeldBlocks(found, records=(*_parcels(held), record))


def carry(order: TaskOrder, *given: Any) -> HeldBlocks:
    """The same iteration of some blocks, perhaps on another worker than before."""
    held = [one for one in given if isinstance(one, HeldBlocks)]
    blocks, _ = _merged(held)
    found, record = measured("carry", order, None, lambda: {one: frozen(blocks[one]) for one in order.blocks})
    return HeldBlocks(found, records=(*_parcels(held), record))


def copied(held: HeldBlocks) -> HeldBlocks:
    """What another worker holds, here, too."""
    return HeldBlocks({number: frozen(block) for number, block in held.blocks.items()})


def _advanced(
    work: PipelineWork,
    iteration: int,
    number: int,
    blocks: Mapping[int, xr.Dataset],
    edges: Mapping[tuple[int, Offset], xr.Dataset],
) -> xr.Dataset:
    block, grid, halo = blocks[number], work.grid, work.halo
    margins: dict[Hashable, tuple[int, int]] = {}
    if halo.widths:
        margins = halo.margins(grid, number)
        around = {
            offset: edges[other, offset] if (other, offset) in edges else edge(blocks[other], offset, halo)
            for offset, other in halo.neighbours(grid, number).items()
        }
        block = padded(block, around, margins, halo)
    with _told(f"in the step of iteration {iteration}, block {grid.indices[number]}"):
        found = work.step(block)
        if not isinstance(found, xr.Dataset):
            raise TypeError(f"the step answered {type(found).__name__}, not an xarray Dataset")
        return frozen(trimmed(found.compute(scheduler="sync"), grid.sizes(number), margins))


def parcel(order: TaskOrder, *given: Any) -> HeldBlocks:
    """What another worker needs of the blocks here. Edges are copied: they are small, and must not keep what
    they are cut from alive."""
    work, (blocks, _) = _work(order), _merged(one for one in given if isinstance(one, HeldBlocks))
    blocks |= taken(given, order.blocks)

    def pack() -> HeldBlocks:
        edges = {
            (number, offset): edge(blocks[number], offset, work.halo).copy(deep=True)
            for number, offset in order.edges
        }
        return HeldBlocks({number: wanted(blocks[number], order.variables) for number in order.blocks}, edges)

    found, record = measured("parcel", order, None, pack)
    found.records = (record,)
    return found


def spill(order: TaskOrder, held: HeldBlocks) -> FiledBlocks:
    """What an analysis will look at when there is time, in files on this worker."""
    where = folder(get_worker(), order.pipeline)
    where.mkdir(parents=True, exist_ok=True)
    number = [*_work(order).analyses].index(order.analysis)
    paths = {}
    for block in order.blocks:
        path = where / f"{number}-{order.iteration}-{block}"  # no other analysis or iteration has that name
        with path.open("wb") as file:
            file.writelines(serialize_bytelist(wanted(held.blocks[block], order.variables), on_error="raise"))
        paths[block] = str(path)
    return FiledBlocks(paths)


def analyse(order: TaskOrder, *given: Any) -> AnalysisOutcome:
    """An analysis of some blocks, each for itself, or of all of them as one Dataset."""
    work, held = _work(order), [one for one in given if isinstance(one, HeldBlocks)]
    analysis, (blocks, _) = work.analyses[order.analysis], _merged(held)
    blocks |= {number: frozen(block) for number, block in taken(given, order.blocks).items()}
    seen = {number: wanted(blocks[number], analysis.variables) for number in order.blocks}
    where = f"in analysis {order.analysis!r} of iteration {order.iteration}"

    def look() -> dict[int | None, Any]:
        if not analysis.per_block:
            with _told(where):
                return {None: analysis.function(frozen(join(seen, work.grid)))}
        found: dict[int | None, Any] = {}
        for number, block in seen.items():
            with _told(f"{where}, block {work.grid.indices[number]}"):
                found[number] = analysis.function(block)
        return found

    values, record = measured("analysis", order, seen, look)
    return AnalysisOutcome(values, (*_parcels(held), record))


def combine(order: TaskOrder, *given: AnalysisOutcome) -> AnalysisOutcome:
    """The results of all blocks, in order, as one."""
    analysis = _work(order).analyses[order.analysis]
    by_block = {number: value for one in given for number, value in one.values.items()}
    results = [by_block[number] for number in order.blocks]

    def unite() -> Any:
        with _told(f"in combining analysis {order.analysis!r} of iteration {order.iteration}"):
            return results if analysis.combine is None else analysis.combine(results)

    value, record = measured("combine", order, results, unite)
    return AnalysisOutcome({None: value}, (*(record for one in given for record in one.records), record))


def analyse_and_combine(order: TaskOrder, *given: Any) -> AnalysisOutcome:
    """Both, of all blocks."""
    return combine(order, analyse(order, *given))


def report(*given: Any) -> tuple[TaskRecord, ...]:
    """What some tasks of this worker measured; what else is given is only waited for."""
    return tuple(record for one in given if isinstance(one, HeldBlocks) for record in one.records)


def records(outcome: AnalysisOutcome) -> tuple[TaskRecord, ...]:
    return outcome.records


def value(outcome: AnalysisOutcome) -> Any:
    return outcome.values[None]


def array_of(held: HeldBlocks, block: int, name: Hashable) -> Any:
    return held.blocks[block].variables[name].values


def outline(held: HeldBlocks, block: int) -> tuple[xr.Dataset, dict[Hashable, tuple[Any, ...]]]:
    """The coordinates of a block with an index; of everything else dimensions, shape, type, attributes, and
    whether it is a coordinate."""
    whole = held.blocks[block]
    indexed = whole.drop_vars([name for name in whole.variables if name not in whole.indexes])
    others = {
        name: (one.dims, one.shape, one.dtype, one.attrs, name in whole.coords)
        for name, one in whole.variables.items()
        if name not in whole.indexes
    }
    return indexed, others


def wanted(block: xr.Dataset, variables: Iterable[Hashable] | None) -> xr.Dataset:
    """Some variables of a block, not copied."""
    return block if variables is None else block[list(variables)]


def frozen(block: xr.Dataset) -> xr.Dataset:
    """The same arrays, not copied, as ones that cannot be written."""
    shared = block.copy(deep=False)
    for name, variable in shared.variables.items():
        data = variable.data
        if isinstance(data, np.ndarray) and name not in shared.indexes and data.flags.writeable:
            view = data.view()
            view.flags.writeable = False
            variable.data = view
    return shared


def _merged(held: Iterable[HeldBlocks]) -> tuple[dict[int, xr.Dataset], dict[tuple[int, Offset], xr.Dataset]]:
    blocks: dict[int, xr.Dataset] = {}
    edges: dict[tuple[int, Offset], xr.Dataset] = {}
    for one in held:
        blocks |= one.blocks
        edges |= one.edges
    return blocks, edges


def _parcels(held: Iterable[HeldBlocks]) -> list[TaskRecord]:
    """Records of parcels travel on with what they were for; those of steps are reported."""
    made = [one.records[-1] for one in held if one.records]
    return [record for record in made if record.part == "parcel"]


def _work(order: TaskOrder) -> PipelineWork:
    plugin = get_worker().plugins.get(plugin_name(order.pipeline))
    if plugin is None:
        raise RuntimeError(f"pipeline {order.pipeline} has ended")
    found: PipelineWork = plugin.work
    return found


@contextmanager
def _told(where: str) -> Any:
    """An error of the user's function says where it happened."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise
