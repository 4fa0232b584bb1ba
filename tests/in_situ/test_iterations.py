"""What runs beside what, what is moved, what is in memory, and what is left at the end."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from time import sleep

import heat
import numpy as np
import pytest
import xarray as xr
from distributed import Event, Future, get_worker
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc.in_situ.client.iteration import Orders
from dask_hpc.in_situ.client.steering import look
from dask_hpc.in_situ.worker import HeldBlocks
from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.partition import Partition, Phases
from dask_hpc.planning.in_situ.places import make_places

Pipeline = dask_hpc.InSituPipeline
cluster2 = gen_cluster(client=True, nthreads=[("", 2)] * 2)
cluster3 = gen_cluster(client=True, nthreads=[("", 2)] * 3)
UNKNOWN = Phases(0, 0, 0)


def pipeline(c, step=heat.advance, analyses=None, **rest):
    rest = {"chunks": {"y": 6}, "halo": {"y": 1, "x": 1}, "client": c} | rest
    return Pipeline(step, heat.plate(), analyses or {}, **rest)


class Noting:
    """Steers by partitions that take turns, and keeps what it is told."""

    def __init__(self, client, blocks, partitions):
        self.client, self.blocks, self.partitions = client, blocks, partitions
        self.nodes = None
        self.done = []

    def begin(self, last, job=None):
        pass

    def look_again(self):
        self.nodes = None

    async def orders(self, iteration, home, running):
        late = [end for runs in running.values() for one, end in runs.items() if one < iteration - 1]
        if late:
            await asyncio.wait(late)
        self.nodes = self.nodes or (await look(self.client, 1e8)).nodes
        partition = self.partitions[iteration % len(self.partitions)]
        places = make_places(partition, self.nodes, self.blocks, home)
        return Orders(places, places.in_situ | places.in_transit)

    async def finished(self, done):
        self.done.append(done)


def noted(c, pipe, *partitions):
    """From now on the pipeline has these partitions in turns; what it tells is kept in what this gives."""
    found = Noting(c, len(pipe._work.grid), partitions)
    pipe._steered_by = lambda client: found
    return found


async def run(pipe, iterations):
    return {i: results async for i, results in pipe.run(iterations)}


def held_on(*workers):
    """What a pipeline holds on workers."""
    return [one for worker in workers for one in worker.data.values() if isinstance(one, HeldBlocks)]


async def is_clean(s, *workers):
    await async_poll_for(lambda: not any("in-situ" in str(key) for key in s.tasks), 10)
    await async_poll_for(lambda: not held_on(*workers), 10)
    for worker in workers:
        assert not [name for name in (*worker.plugins, *worker.executors) if "in-situ" in name]


# beside one another


def slow_hottest(state):
    if int(state["step"]) == 1:
        assert Event("second step").wait(30)
    return heat.hottest(state)


def telling(block):
    if int(block["step"]) == 1:
        Event("second step").set()
    return heat.advance(block)


@pytest.mark.parametrize("placement", ["in situ", "in transit"])
def test_the_next_step_overlaps_the_analyses(placement):
    @cluster2
    async def test(c, s, a, b):
        pipe = pipeline(c, telling, {"slow": slow_hottest}, placement=placement)
        found = await run(pipe, 3)
        wanted = heat.serial(heat.plate(), 3)
        assert found == {i: {"slow": heat.hottest(wanted[i - 1])} for i in (1, 2, 3)}

    test()


@cluster2
async def test_a_synchronous_step_waits_for_the_analyses_in_situ(c, s, a, b):
    analyses = {"mean": heat.mean, "total": Pipeline.per_block(heat.total)}
    pipe = pipeline(c, analyses=analyses)
    notes = noted(c, pipe, Partition("sync", 2, 0, ("mean", "total"), (), UNKNOWN))
    await run(pipe, 4)
    steps, analyses = ({}, {})
    for done in notes.done:
        for record in done.records:
            kind = {"step": steps, "analysis": analyses}.get(record.part)
            if kind is not None:
                kind.setdefault(done.iteration, []).append(record)
    for i in (1, 2, 3):
        assert max(one.stop for one in analyses[i]) <= min(one.start for one in steps[i + 1])


class Count:
    """How many are inside at a time, and the most that ever were. One for all workers of this process."""

    now = {}
    most = {}

    def __init__(self, side):
        self.key = (side, get_worker().address)

    def __enter__(self):
        self.now[self.key] = self.now.get(self.key, 0) + 1
        self.most[self.key] = max(self.most.get(self.key, 0), self.now[self.key])
        sleep(0.01)  # work of some length: the cores are what is counted

    def __exit__(self, *error):
        self.now[self.key] -= 1


def counted_step(block):
    with Count("simulation"):
        return heat.decay(block)


def counted_total(block):
    with Count("in situ"):
        return heat.total(block)


@gen_cluster(client=True, nthreads=[("", 4)] * 2)
async def test_each_side_keeps_to_its_cores(c, s, a, b):
    Count.now.clear(), Count.most.clear()
    names = ("one", "two", "three")
    analyses = {name: Pipeline.per_block(counted_total) for name in names}
    pipe = pipeline(c, counted_step, analyses, chunks={"y": 1}, halo=None)
    notes = noted(c, pipe, Partition("async", 2, 1, names, (), UNKNOWN))
    await run(pipe, 4)
    for worker in (a, b):
        assert Count.most["simulation", worker.address] <= 3
        assert Count.most["in situ", worker.address] == 1
        for done in notes.done:
            parts = [one.part for one in done.records if one.worker == worker.address]
            assert parts.count("step") == 3 and parts.count("analysis") == 3


# memory and movement


def where(block):
    """Where the array of a block is in memory, and the thread that looks at it."""
    return block["heat"].values.__array_interface__["data"][0], threading.current_thread().name


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_nothing_is_copied_in_situ(mode):
    @cluster2
    async def test(c, s, a, b):
        pipe = pipeline(c, heat.decay, {"where": Pipeline.per_block(where)}, halo=None, mode=mode)
        found = await run(pipe, 3)
        await async_poll_for(lambda: iterations_on(a, b) == {3}, 10)  # workers hear of it that 2 may go
        blocks = [(number, block) for held in held_on(a, b) for number, block in held.blocks.items()]
        assert sorted(number for number, _ in blocks) == [0, 1, 2, 3]
        for number, block in blocks:
            address, thread = found[3]["where"][number]
            assert address == block["heat"].values.__array_interface__["data"][0]
            assert thread.startswith("in-situ")

    test()


def waiting_mean(state):
    assert Event("go").wait(30)
    return heat.mean(state)


def iterations_on(*workers):
    return {int(block["step"]) for held in held_on(*workers) for block in held.blocks.values()}


@pytest.mark.parametrize(
    ("mode", "placement", "most"),
    [("async", "in situ", 2), ("async", "in transit", 2), ("sync", "in situ", 1), ("sync", "in transit", 2)],
)
def test_at_most_two_iterations_are_in_memory(mode, placement, most):
    """While an analysis of the first does not end, nothing beyond is begun."""

    @cluster2
    async def test(c, s, a, b):
        pipe = pipeline(c, analyses={"mean": waiting_mean}, mode=mode, placement=placement)
        results = pipe.run(5).__aiter__()
        first = asyncio.ensure_future(anext(results))

        def is_stuck():
            tasks = [one for worker in (a, b) for one in worker.state.tasks.values()]
            working = {
                str(one.key) for one in tasks if one.state in ("executing", "ready", "fetch", "flight")
            }
            # the scheduler hears of a step's end after its worker: only both together say that all is still
            working |= {str(task.key) for task in s.tasks.values() if task.state == "processing"}
            return most in iterations_on(a, b) and all("in-situ-analyse" in key for key in working)

        await async_poll_for(is_stuck, 10)
        await async_poll_for(lambda: iterations_on(a, b) <= {most - 1 or most, most}, 10)
        assert is_stuck()
        await Event("go").set()
        assert (await first)[0] == 1
        assert [i async for i, _ in results] == [2, 3, 4, 5]
        await async_poll_for(lambda: iterations_on(a, b) == {5}, 10)

    test()


def waiting_advance(block):
    assert Event("go").wait(30)
    return heat.advance(block)


@cluster2
async def test_what_is_submitted_first_runs_first(c, s, a, b):
    """Also what is submitted within the tenth of a second in which Dask takes tasks of a client for equal."""
    analyses = {"blocks": Pipeline.per_block(heat.mean), "whole": heat.mean}
    pipe = pipeline(c, step=waiting_advance, analyses=analyses, placement="in transit")
    running = asyncio.ensure_future(run(pipe, 2))

    def looks():
        """Tasks of analyses as they were submitted."""
        found = [task for key, task in s.tasks.items() if "in-situ-analyse" in str(key)]
        return sorted(found, key=lambda task: int(str(task.key).rpartition("-")[2]))

    await async_poll_for(lambda: len(looks()) == 6, 10)  # of two iterations, on two cores
    order = [task.priority for task in looks()]
    assert order == sorted(set(order))
    await Event("go").set()
    assert set(await running) == {1, 2}


def names_of(state):
    return sorted(map(str, state.variables))


@cluster3
async def test_only_what_an_analysis_declares_is_moved_to_it(c, s, *workers):
    analyses = {
        "names": Pipeline.whole(names_of, variables=["material"]),
        "also": Pipeline.per_block(names_of, variables=["material"]),
        "all": names_of,
    }
    pipe = pipeline(c, analyses=analyses, chunks={"y": 12})
    notes = noted(c, pipe, Partition("async", 2, 0, (), tuple(analyses), UNKNOWN))
    found = await run(pipe, 2)
    assert found[1]["names"] == ["material", "x"]
    assert found[1]["also"] == [["material", "x"]] * 2
    assert found[1]["all"] == names_of(heat.plate())
    (places,) = {done.orders.places for done in notes.done}
    staging = {place.address for place in places.staging}
    state = heat.plate()
    for done in notes.done:
        analysed = [one for one in done.records if one.part in ("analysis", "combine")]
        assert {one.worker for one in analysed} == staging and {one.side for one in analysed} == {
            "in transit"
        }
        assert {one.worker for one in done.records if one.part == "step"}.isdisjoint(staging)
        moved = {one.name: one.bytes_out for one in done.records if one.part == "parcel" and one.name}
        assert set(moved) == {"names", "all"}  # "also" shares the parcels of "names"
        assert moved["names"] < state["heat"].nbytes / 2 < moved["all"]


@pytest.mark.parametrize("side", ["in situ", "in transit"])
@pytest.mark.parametrize("cores", [1, 2])
def test_what_one_core_analyses_it_combines_at_once(side, cores):
    """A task for that would wait behind the next iteration's analysis, and the next step but one for it."""
    in_situ, in_transit = (("total",), ()) if side == "in situ" else ((), ("total",))

    @gen_cluster(client=True, nthreads=[("", 1 + cores)] + [("", cores)] * bool(in_transit))
    async def test(c, s, *workers):
        pipe = pipeline(
            c, analyses={"total": Pipeline.per_block(heat.total, sum, keep=True)}, chunks={"y": 3}
        )
        notes = noted(c, pipe, Partition("async", 1, cores * bool(in_situ), in_situ, in_transit, UNKNOWN))
        found = await run(pipe, 3)
        for i, state in enumerate(heat.serial(heat.plate(), 3), 1):
            assert await found[i]["total"] == pytest.approx(float(state["heat"].sum()))
        made = {move.key for move in s.transition_log if move.finish == "memory"}
        ran = {key.split("-")[2] for key in made if key.startswith("in-situ-")}
        looked = {"analyse_and_combine"} if cores == 1 else {"analyse", "combine"}
        assert ran & {"analyse", "combine", "analyse_and_combine"} == looked
        for done in notes.done:
            assert {"analysis", "combine"} <= {one.part for one in done.records}

    test()


@cluster2
async def test_only_edges_travel_between_steps(c, s, a, b):
    pipe = pipeline(c, chunks={"y": 6}, halo={"y": 1})
    notes = noted(c, pipe, Partition("async", 2, 0, (), (), UNKNOWN))
    await run(pipe, 3)
    state = heat.plate()
    row = sum(one.isel(y=0).nbytes for one in state.variables.values() if "y" in one.dims)
    for done in notes.done:
        parcels = [one for one in done.records if one.part == "parcel"]
        assert len(parcels) == 2  # one each way
        for one in parcels:
            assert row <= one.bytes_out < state.nbytes / 4


# another placement in the middle


@pytest.mark.slow
@cluster3
async def test_another_partition_at_every_iteration_changes_no_result(c, s, *workers):
    names = ("mean", "total")
    partitions = [
        Partition("async", 3, 1, names, (), UNKNOWN),
        Partition("async", 1, 1, ("mean",), ("total",), UNKNOWN),
        Partition("sync", 2, 0, ("total",), ("mean",), UNKNOWN),
        Partition("async", 2, 1, (), names, UNKNOWN),
        Partition("sync", 3, 0, names, (), UNKNOWN),
    ]
    pipe = pipeline(c, analyses={"mean": heat.mean, "total": Pipeline.per_block(heat.total)}, chunks={"y": 3})
    notes = noted(c, pipe, *partitions)
    wanted = heat.serial(heat.plate(), 12)
    async for i, results in pipe.run(12):
        assert results["mean"] == heat.mean(wanted[i - 1])
        assert results["total"] == [
            heat.total(wanted[i - 1].isel(y=slice(at, at + 3))) for at in range(0, 24, 3)
        ]
    xr.testing.assert_identical(await c.compute(await pipe.state), wanted[-1])
    for done in notes.done:  # nothing was stolen, nothing ran anywhere else
        home, places = done.orders.places.home, done.orders.places
        staging = {place.address for place in places.staging}
        for one in done.records:
            if one.part == "step" or (one.name == "total" and one.part == "analysis" and not staging):
                assert {home[block] for block in one.blocks} == {one.worker}
            if one.side == "in transit" and one.part != "parcel":
                assert one.worker in staging and one.name in places.in_transit


class Spilling(Noting):
    """Waits for nothing: what comes while an analysis runs waits in files."""

    async def orders(self, iteration, home, running):
        late = frozenset(
            name for name, runs in running.items() if min(runs, default=iteration) < iteration - 1
        )
        orders = await super().orders(iteration, home, {})
        return replace(orders, spilled=frozenset(late))


def first_two_wait(state):
    if int(state["step"]) <= 2:  # a staging worker has two cores
        assert Event("go").wait(30)
    return heat.mean(state)


@pytest.mark.parametrize("side", ["in situ", "in transit"])
@pytest.mark.parametrize("kind", [Pipeline.whole, Pipeline.per_block])
def test_what_is_late_waits_in_files(side, kind):
    @cluster3
    async def test(c, s, *workers):
        analyses = {"slow": kind(first_two_wait, variables=["heat", "step"])}
        pipe = pipeline(c, analyses=analyses, chunks={"y": 4})
        sides = (("slow",), ()) if side == "in situ" else ((), ("slow",))
        steering = Spilling(c, 6, [Partition("async", 2, 1, *sides, UNKNOWN)])
        pipe._steered_by = lambda client: steering
        results = pipe.run(7).__aiter__()
        first = asyncio.ensure_future(anext(results))

        def files():
            folders = [Path(worker.local_directory) / f"in-situ-{pipe.id}" for worker in workers]
            return [path for folder in folders if folder.is_dir() for path in folder.iterdir()]

        def is_waiting():
            """All steps are done; in memory is what came before anything was late, and what comes next."""
            held = iterations_on(*workers)
            return {1, 2, 7} <= held <= {1, 2, 6, 7} and len(files()) == 5 * 6

        await async_poll_for(is_waiting, 20)
        await Event("go").set()
        found = dict([await first] + [one async for one in results])
        wanted = heat.serial(heat.plate(), 7)
        for i, state in enumerate(wanted, 1):
            blocks = [heat.mean(state.isel(y=slice(at, at + 4))) for at in range(0, 24, 4)]
            assert found[i]["slow"] == (heat.mean(state) if kind is Pipeline.whole else blocks)
        assert not files()

    test()


@cluster2
async def test_the_user_may_say_that_late_analyses_spill(c, s, a, b):
    analyses = {"slow": Pipeline.whole(first_two_wait, variables=["heat", "step"])}
    pipe = pipeline(c, analyses=analyses, placement="in situ", when_slow="spill", stall=0)
    results = pipe.run(6).__aiter__()
    first = asyncio.ensure_future(anext(results))
    await async_poll_for(lambda: 6 in iterations_on(a, b), 20)  # nothing holds the steps back
    await Event("go").set()
    found = dict([await first] + [one async for one in results])
    wanted = heat.serial(heat.plate(), 6)
    assert found == {i: {"slow": heat.mean(state)} for i, state in enumerate(wanted, 1)}
    assert pipe.skipped == []


# what is left


@cluster2
async def test_afterwards_the_last_state_is_there_and_nothing_else(c, s, a, b):
    pipe = pipeline(c, analyses={"mean": heat.mean})
    assert await run(pipe, 0) == {}
    assert list(await run(pipe, 2)) == [1, 2]
    assert list(await run(pipe, 3)) == [3, 4, 5] and pipe.iteration == 5
    state = await pipe.state
    assert state["heat"].chunks == ((6, 6, 6, 6), (16,)) and isinstance(state["x"].values, np.ndarray)
    xr.testing.assert_identical(await c.compute(state), heat.serial(heat.plate(), 5)[-1])
    for worker in (a, b):
        assert not [name for name in (*worker.plugins, *worker.executors) if "in-situ" in name]
    del state, pipe
    await is_clean(s, a, b)


@pytest.mark.parametrize("is_lazy", [False, True])
def test_the_scheduler_forgets_past_iterations(is_lazy):
    """It would remember all of them, and how the first state was computed: ten tasks of each."""

    @cluster2
    async def test(c, s, a, b):
        analyses = {"mean": Pipeline.whole(heat.mean), "total": Pipeline.per_block(heat.total)}
        state = heat.plate().chunk(y=6) if is_lazy else heat.plate()
        chunks = None if is_lazy else {"y": 6}
        halo = {"y": 1, "x": 1}
        pipe = Pipeline(
            heat.advance, state, analyses, chunks=chunks, halo=halo, placement="in situ", client=c
        )
        await run(pipe, 10)
        await async_poll_for(lambda: len(s.tasks) <= 20, 10)
        assert not [key for key in s.tasks if "xarray" in str(key) or "hold" in str(key)]

    test()


@cluster2
async def test_leaving_early_leaves_nothing(c, s, a, b):
    pipe = pipeline(c, analyses={"mean": heat.mean})
    results = pipe.run(1000).__aiter__()
    assert (await anext(results))[0] == 1
    with pytest.raises(RuntimeError, match="is running"):
        await anext(pipe.run(1).__aiter__())
    with pytest.raises(RuntimeError, match="is running"):
        _ = pipe.state
    await results.aclose()
    await is_clean(s, a, b)
    with pytest.raises(RuntimeError, match="left early"):
        _ = pipe.state
    with pytest.raises(RuntimeError, match="left early"):
        await run(pipe, 1)


def failing_step(block):
    if int(block["step"]) == 2:
        raise ZeroDivisionError("in vain")
    return heat.advance(block)


def failing_analysis(state):
    if int(state["step"]) == 3:
        raise ZeroDivisionError("in vain")
    return heat.mean(state)


def failing_combine(results):
    raise ZeroDivisionError("in vain")


def overwriting(block):
    block["heat"].values[0] = 0
    return block


def cutting(block):
    return block.isel(y=slice(2))


@pytest.mark.parametrize(
    ("step", "analysis", "halo", "kind", "note", "good"),
    [
        (failing_step, heat.mean, {"y": 1}, ZeroDivisionError, "in the step of iteration 3, block (", 2),
        (heat.advance, failing_analysis, {"y": 1}, ZeroDivisionError, "in analysis 'a' of iteration 3", 2),
        (
            heat.advance,
            Pipeline.per_block(failing_analysis),
            {"y": 1},
            ZeroDivisionError,
            "in analysis 'a' of iteration 3, block (",
            2,
        ),
        (
            heat.advance,
            Pipeline.per_block(heat.total, failing_combine),
            {"y": 1},
            ZeroDivisionError,
            "in combining analysis 'a' of iteration 1",
            0,
        ),
        (overwriting, heat.mean, {}, ValueError, "in the step of iteration 1, block (", 0),
        (cutting, heat.mean, {}, ValueError, "in the step of iteration 1, block (", 0),
        (heat.total, heat.mean, {}, TypeError, "in the step of iteration 1, block (", 0),
    ],
)
def test_an_error_is_the_users_own_and_says_where(step, analysis, halo, kind, note, good):
    @cluster2
    async def test(c, s, a, b):
        pipe = pipeline(c, step, {"a": analysis}, halo=halo)
        seen = []
        with pytest.raises(kind) as caught:
            async for i, _ in pipe.run(10):
                seen.append(i)
        assert seen == list(range(1, good + 1))
        assert any(line.startswith(note) for line in caught.value.__notes__)
        del caught
        await is_clean(s, a, b)
        again = pipeline(c, analyses={"mean": heat.mean})
        assert list(await run(again, 2)) == [1, 2]

    test()


@cluster2
async def test_results_may_stay_and_analyses_may_be_rare(c, s, a, b):
    analyses = {
        "kept": Pipeline.whole(heat.mean, keep=True),
        "rare": Pipeline.per_block(heat.total, sum, every=3),
    }
    pipe = pipeline(c, analyses=analyses)
    found = await run(pipe, 4)
    assert [list(results) for results in found.values()] == [["kept"], ["kept"], ["kept", "rare"], ["kept"]]
    kept = [results["kept"] for results in found.values()]
    assert all(isinstance(one, Future) for one in kept)
    assert await c.gather(kept) == [heat.mean(one) for one in heat.serial(heat.plate(), 4)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"state": heat.plate()["heat"]}, "state: found DataArray; allowed: an xarray Dataset"),
        ({"chunks": None}, "state: found a Dataset in one piece"),
        ({"chunks": {"z": 3}}, "state: found no dimension 'z'; allowed: y, x"),
        ({"chunks": {"y": (3, 4)}}, "chunks: found .3, 4. along y; allowed: lengths of together 24"),
        ({"halo": {"t": 1}}, "state: found no dimension 't'"),
        ({"halo": {"y": 7}}, "halo: y: found 7; allowed: at most the shortest block's 6 cells"),
        ({"mode": "later"}, "mode: found 'later'; allowed: async, sync"),
        ({"placement": "moon"}, "placement: found 'moon'"),
        ({"placement": Partition("async", 1, 0, ("b",), (), UNKNOWN)}, "each once: a"),
        ({"analyses": {"a": 3}}, "analyses: a: analysis: found 3; allowed: a function"),
        ({"analyses": {"": heat.mean}}, "analyses: found the name ''"),
        ({"analyses": [heat.mean]}, "analyses: found .*allowed: functions by name"),
        (
            {"analyses": {"a": Pipeline.whole(heat.mean, variables="hot")}},
            "analyses: a: variables: found 'hot'",
        ),
        ({"step": None}, "step: found None"),
    ],
)
def test_bad_input_is_one_line(given, words):
    good = {"step": heat.advance, "state": heat.plate(), "analyses": {"a": heat.mean}, "chunks": {"y": 6}}
    with pytest.raises(InputError, match=words) as caught:
        Pipeline(**(good | given))
    assert "\n" not in str(caught.value)


def test_bad_declarations_are_one_line():
    for wrong in ({"every": 0}, {"combine": 1}, {"variables": 1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Pipeline.per_block(heat.total, **wrong)


@gen_cluster(client=True, nthreads=[])
async def test_without_workers_nothing_runs(c, s):
    with pytest.raises(InputError, match="no worker"):
        await run(pipeline(c), 1)
    with pytest.raises(TypeError, match="async for"):
        next(iter(pipeline(c).run(1)))
