"""One iteration: what is asked before it (``Orders``), told after it (``Finished``), and its tasks: which
they are, where they run, and what waits for what.

1. A worker's blocks are stepped in as many tasks as it has cores for that, its analyses in situ run in as
   many rows of tasks as it has helper cores; a task of a row waits for the one before, also for that of the
   iteration before. So neither side uses more cores than it has, and no more tasks are needed than cores.
   (Limits by worker resources would not do: a task that waits for its resource keeps others from starting.)
   Parcels, combines and reports are small and start first, on whichever core is free; what a single core
   analyses it combines in the same task, as another would wait there behind whatever is next.
2. All tasks are bound to their worker. What is on it already is used where it is. From other workers come
   parcels, cut out where the data are: edges for a step, blocks that move to another worker, and of an
   analysis only the variables that it declares. Two analyses that need the same share a parcel.
3. Synchronous: a step waits, on all workers, for the analyses in situ of the iteration before.
4. What a spilled analysis looks at is written to files where it is as soon as the step is done, and leaves
   memory; it is read, and moved, once the analysis has done with the iteration before.
5. A whole analysis in situ runs on one of the simulation's workers, to which the blocks of the others go.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

import dask
import xarray as xr
from distributed import Client, Future

from dask_hpc.in_situ import worker as tasks
from dask_hpc.in_situ.blocks import Offset, cut
from dask_hpc.in_situ.worker import PipelineWork, TaskOrder, TaskRecord, plugin_name
from dask_hpc.planning.in_situ.places import Places, SimulationPlace

#: by analysis, the iterations whose run has not ended, each with what ends with it (without an error)
Running = Mapping[str, Mapping[int, "asyncio.Future[None]"]]


@dataclass(frozen=True, slots=True)
class Orders:
    """How one iteration runs: where, and the analyses that are done."""

    places: Places
    analyses: frozenset[str]
    #: those of them whose data wait in files until the run before has ended
    spilled: frozenset[str] = frozenset()
    #: workers that have nothing to do, each with its node
    idle: tuple[tuple[str, str], ...] = ()

    @property
    def workers(self) -> frozenset[str]:
        return self.places.addresses | {address for address, _ in self.idle}


@dataclass(frozen=True, slots=True)
class Finished:
    """An iteration that is done, with all of its analyses."""

    iteration: int
    orders: Orders
    #: of every task: steps, parcels, analyses and combines
    records: tuple[TaskRecord, ...]
    #: by the client's clock: when it was submitted, when its last step was known to be done, and its last
    #: analysis
    submitted: float
    stepped: float
    ended: float
    results: Mapping[str, Any] = field(default_factory=dict)


class Steering(Protocol):
    """What the loop asks, on the client's event loop, one question at a time."""

    def look_again(self) -> None:
        """Workers are gone: which nodes there are is to be looked at before the next orders."""

    async def orders(self, iteration: int, home: Mapping[int, str], running: Running) -> Orders:
        """How this iteration is to run; ``home`` is where the blocks are (empty before the first).

        Asked once per iteration, in order, before it is submitted; the step of the iteration before may still
        run. To wait here is what holds the simulation back: for the analyses of the last iteration
        but one, or there is a third iteration of the state in memory. Places that differ from the last
        take effect with this iteration: its blocks move with its steps."""

    async def finished(self, done: Finished) -> None:
        """An iteration is done. They come in order, too."""


class Group(NamedTuple):
    """Blocks that one task made, on the worker that has them."""

    future: Future
    address: str
    blocks: tuple[int, ...]


@dataclass
class Submitted:
    """One iteration on its way."""

    iteration: int
    orders: Orders
    groups: list[Group] = field(default_factory=list)
    #: by worker, what its steps measured (synchronous: it waits for the analyses there, too)
    reports: dict[str, Future] = field(default_factory=dict)
    #: by analysis, what it answered
    outcomes: dict[str, Future] = field(default_factory=dict)
    #: of those whose results stay on the cluster: these, and what was measured
    kept: dict[str, tuple[Future, Future]] = field(default_factory=dict)
    #: by worker and helper core, the last task of its row
    rows: dict[tuple[str, int], Future] = field(default_factory=dict)
    #: by analysis, what it answered the last time that it was to be done
    latest: dict[str, Future] = field(default_factory=dict)

    @property
    def home(self) -> dict[int, str]:
        return {block: group.address for group in self.groups for block in group.blocks}

    def futures(self) -> list[Future]:
        """All that is held of it."""
        groups = (group.future for group in self.groups)
        kept = (future for pair in self.kept.values() for future in pair)
        rest = (self.reports, self.outcomes, self.rows)
        return [*groups, *kept, *(future for some in rest for future in some.values())]

    @property
    def is_done(self) -> bool:
        """Whether all that is asked of it is on the cluster, fetched or not."""
        kept = (records for _, records in self.kept.values())
        awaited = (self.reports.values(), self.outcomes.values(), kept)
        return all(future.status == "finished" for some in awaited for future in some)

    def bring_to(self, orders: Orders) -> None:
        """Blocks on workers that are not to be used any more go to those that have them next: Dask fetches
        them, wherever they are by then, and no task has to run where they were."""
        here, home = orders.workers, orders.places.home
        self.groups[:] = [
            group if group.address in here else group._replace(address=home[group.blocks[0]])
            for group in self.groups
        ]


class Submitter:
    """Submits iterations of one pipeline, each on what the one before left."""

    def __init__(
        self, client: Client, pipeline: str, work: PipelineWork, annotations: Mapping[str, Any]
    ) -> None:
        self._client = client
        self._pipeline = pipeline
        self._work = work
        self._annotations = annotations
        self._run = token_hex(4)  # keys of a later run are others
        self._count = 0

    def submit(self, iteration: int, orders: Orders, before: Submitted, again: bool = False) -> Submitted:
        """All tasks of an iteration. ``again``: ``before`` is its state, which is there already."""
        one = _Builder(self, iteration, orders, before)
        one.steps(again)
        for number, name in enumerate(self._work.analyses):
            if name in orders.analyses and iteration % self._work.analyses[name].every == 0:
                one.analysis(number, name)
        one.report()
        return one.made

    async def lay(self, state: xr.Dataset, steering: Steering) -> Submitted:
        """The state that a pipeline begins with, every block on its worker: what is in memory is sent there,
        what Dask is to compute is computed by the workers that simulate.

        Dask remembers how all that is in memory was made, so of every past iteration, unless it began with
        data that were scattered: when these are gone, it forgets whatever came of them as soon as that is
        released. So what Dask computes comes of something scattered here, too. (No use is lost: Dask cannot
        repeat past steps, as they are bound to workers; the pipeline itself begins again if it must.)
        """
        orders = await steering.orders(0, {}, {})
        client, addresses = self._client, [place.address for place in orders.places.simulation]
        made = Submitted(0, orders)
        with dask.annotate(**self._annotations):
            root = None
            if state.chunks:
                state = client.persist(state, workers=addresses)
                (root,) = await client.scatter([None], workers=addresses[:1], hash=False)
            for place in orders.places.simulation:
                for some in parts(place.blocks, place.step_cores):
                    blocks = [cut(state, self._work.grid, block) for block in some]
                    order, here = TaskOrder(self._pipeline, 0, "simulation", tuple(some)), [place.address]
                    if state.chunks:
                        future = client.compute(dask.delayed(tasks.hold)(order, blocks, root), workers=here)
                    else:
                        (future,) = await client.scatter(
                            [tasks.hold(order, blocks)], workers=here, hash=False
                        )
                    made.groups.append(Group(future, place.address, tuple(some)))
            there = [client.submit(_there, one.future, workers=[one.address]) for one in made.groups]
            await client.gather(there)
        return made

    def task(
        self,
        address: str,
        function: Callable[..., Any],
        *args: Any,
        helper: bool = False,
        urgent: bool = False,
    ) -> Future:
        """A task on one worker; ``urgent`` ones are small, and others wait for them."""
        self._count += 1
        executor = plugin_name(self._pipeline) if helper else "default"
        with dask.annotate(executor=executor, **self._annotations):
            return self._client.submit(
                function,
                *args,
                key=f"in-situ-{function.__name__}-{self._run}-{self._count}",
                workers=[address],
                allow_other_workers=False,
                pure=False,
                priority=int(urgent),
                fifo_timeout=0,  # what is submitted first runs first, also within the same tenth of a second
            )


def _there(held: tasks.HeldBlocks) -> None:
    """Nothing: a task that needs what it is given to be there."""


class _Builder:
    """One iteration in the making."""

    def __init__(self, by: Submitter, iteration: int, orders: Orders, before: Submitted) -> None:
        self._task = by.task
        self._pipeline = by._pipeline
        self._work = by._work
        self._places = orders.places
        self._spilled = orders.spilled
        self._filed: dict[str, list[Group]] = {}
        self._before = before
        self._parcels: dict[Any, Future] = {}
        self._rows = {place.address: place.helper_cores for place in orders.places.simulation}
        rows = {row: future for row, future in before.rows.items() if row[0] in self._rows}
        self.made = Submitted(iteration, orders, rows=rows, latest=dict(before.latest))

    def order(self, side: str, blocks: Iterable[int] = (), analysis: str = "", **rest: Any) -> TaskOrder:
        return TaskOrder(self._pipeline, self.made.iteration, side, tuple(blocks), analysis, **rest)

    def steps(self, again: bool = False) -> None:
        function = tasks.carry if again else tasks.step
        is_sync = self._places.mode == "sync"
        waits = [*self._before.reports.values()] if is_sync else []
        of_block = {block: group for group in self._before.groups for block in group.blocks}
        for place in self._places.simulation:
            needs = {block: {} if again else self._needs(block) for block in place.blocks}
            parcels = self._moves(place, needs, of_block)
            for blocks in parts(place.blocks, place.step_cores):
                used = [of_block[one] for block in blocks for one in (block, *needs[block].values())]
                given = {group.future.key: parcels.get(group.future.key, group.future) for group in used}
                order = self.order("simulation", blocks)
                future = self._task(place.address, function, order, *given.values(), *waits)
                self.made.groups.append(Group(future, place.address, tuple(blocks)))

    def _needs(self, block: int) -> dict[Offset, int]:
        return self._work.halo.neighbours(self._work.grid, block)

    def _moves(
        self, place: SimulationPlace, needs: Mapping[int, Mapping[Offset, int]], of_block: Mapping[int, Group]
    ) -> dict[Any, Future]:
        """Parcels of what the blocks of a worker need from others, by the task that made it."""
        wanted: dict[Any, tuple[Group, list[int], set[tuple[int, Offset]]]] = {}
        for block in place.blocks:
            for offset, other in ((None, block), *needs[block].items()):
                group = of_block[other]
                if group.address == place.address:
                    continue
                _, moved, edges = wanted.setdefault(group.future.key, (group, [], set()))
                if offset is None:
                    moved.append(block)
                else:
                    edges.add((other, offset))
        return {
            key: self._task(
                group.address,
                tasks.parcel,
                self.order("simulation", moved, edges=tuple(sorted(edges))),
                group.future,
                urgent=True,
            )
            for key, (group, moved, edges) in wanted.items()
        }

    def report(self) -> None:
        by_worker: dict[str, list[Future]] = {}
        for group in self.made.groups:
            by_worker.setdefault(group.address, []).append(group.future)
        for address, futures in by_worker.items():
            if self._places.mode == "sync":
                futures += [future for row, future in self.made.rows.items() if row[0] == address]
            self.made.reports[address] = self._task(address, tasks.report, *futures, urgent=True)

    def analysis(self, number: int, name: str) -> None:
        is_staged = name in self._places.in_transit
        side = "in transit" if is_staged else "in situ"
        where = self._turn(number, is_staged)
        if not self._work.analyses[name].per_block:
            outcome = self._whole(number, name, where, is_staged)
        elif len(shares := self._shares(is_staged)) == 1:
            (outcome,) = self._analysed(tasks.analyse_and_combine, name, is_staged, shares)
        else:
            outcomes = self._analysed(tasks.analyse, name, is_staged, shares)
            order = self.order(side, range(len(self._work.grid)), name)
            outcome = self._task(where, tasks.combine, order, *outcomes, helper=not is_staged, urgent=True)
        self.made.outcomes[name] = self.made.latest[name] = outcome
        if self._work.analyses[name].keep:
            value = self._task(where, tasks.value, outcome, urgent=True)
            self.made.kept[name] = (value, self._task(where, tasks.records, outcome, urgent=True))

    def _turn(self, number: int, is_staged: bool) -> str:
        """The worker of what cannot be divided: analyses take turns."""
        places: Sequence[Any] = self._places.staging if is_staged else self._places.simulation
        return str(places[number % len(places)].address)

    def _shares(self, is_staged: bool) -> list[tuple[str, int, Sequence[int]]]:
        """By core that analyses per block: its worker, its number there and its blocks."""
        if is_staged:
            cores = [(place.address, core) for place in self._places.staging for core in range(place.cores)]
            several = parts(range(len(self._work.grid)), len(cores))
            return [(*core, blocks) for core, blocks in zip(cores, several, strict=False)]
        return [
            (place.address, row, blocks)
            for place in self._places.simulation
            for row, blocks in enumerate(parts(place.blocks, place.helper_cores))
        ]

    def _analysed(
        self, function: Any, name: str, is_staged: bool, shares: Iterable[tuple[str, int, Sequence[int]]]
    ) -> Iterator[Future]:
        """By block, on these cores; in transit on whichever core of that worker is free."""
        for address, row, blocks in shares:
            if is_staged:
                order = self.order("in transit", blocks, name)
                parcels = self._fetched(name, address, blocks, "in transit")
                yield self._task(address, function, order, *parcels)
            else:
                order = self.order("in situ", blocks, name)
                groups = [group.future for group in self._groups(name, address, blocks)]
                yield self._in_row((address, row), function, order, *groups)

    def _whole(self, number: int, name: str, where: str, is_staged: bool) -> Future:
        everything = range(len(self._work.grid))
        side = "in transit" if is_staged else "in situ"
        order = self.order(side, everything, name)
        if is_staged:
            return self._task(where, tasks.analyse, order, *self._fetched(name, where, everything, side))
        here = [group.future for group in self._groups(name, where)]
        away = self._fetched(name, where, everything, side)
        (cores,) = (place.helper_cores for place in self._places.simulation if place.address == where)
        row = number // len(self._places.simulation) % cores
        return self._in_row((where, row), tasks.analyse, order, *here, *away)

    def _fetched(self, name: str, address: str, blocks: Iterable[int], side: str) -> list[Future]:
        """Parcels with what an analysis on a worker needs of blocks that are on others."""
        variables, asked, found = self._work.analyses[name].variables, set(blocks), []
        waits = [self._before.latest[name]] if name in self._spilled and name in self._before.latest else []
        for group in self._looks_at(name):
            there = tuple(block for block in group.blocks if block in asked)
            if there and group.address != address:
                key = (group.future.key, address, there, variables)
                if key not in self._parcels:
                    order = self.order(side, there, name, variables=variables)
                    self._parcels[key] = self._task(
                        group.address, tasks.parcel, order, group.future, *waits, urgent=True
                    )
                found.append(self._parcels[key])
        return found

    def _looks_at(self, name: str) -> list[Group]:
        """The blocks that an analysis looks at: in memory, or filed away for it."""
        if name not in self._spilled:
            return self.made.groups
        if name not in self._filed:
            self._filed[name] = [self._file_away(name, group) for group in self.made.groups]
        return self._filed[name]

    def _file_away(self, name: str, group: Group) -> Group:
        variables = self._work.analyses[name].variables
        order = self.order("simulation", group.blocks, name, variables=variables)
        future = self._task(group.address, tasks.spill, order, group.future, urgent=True)
        return group._replace(future=future)

    def _groups(self, name: str, address: str, blocks: Iterable[int] | None = None) -> list[Group]:
        asked = None if blocks is None else set(blocks)
        return [
            group
            for group in self._looks_at(name)
            if group.address == address and (asked is None or not asked.isdisjoint(group.blocks))
        ]

    def _in_row(self, row: tuple[str, int], *what: Any) -> Future:
        """A task on a helper core, after the last of its row. If there were more rows until now, it waits for
        those, too."""
        address, rows = row[0], self.made.rows
        before = [
            rows[one] for one in rows if one[0] == address and (one == row or one[1] >= self._rows[address])
        ]
        rows[row] = self._task(address, *what, *before, helper=True)
        return rows[row]


def parts(blocks: Sequence[int], many: int) -> list[Sequence[int]]:
    """Blocks in at most so many even, contiguous parts, none of them empty."""
    many = min(many, len(blocks))
    cuts = [round(len(blocks) * at / many) for at in range(many + 1)] if many else []
    return [blocks[low:high] for low, high in pairwise(cuts)]
