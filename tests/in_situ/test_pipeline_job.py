"""A pipeline as a job: it waits for its nodes, keeps to them, follows their number, and stays right."""

import dask
import heat
import pytest
import xarray as xr
from distributed import Event, wait
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, cluster2, cluster4, live, lose, plugin_of, until

import dask_hpc

whole = dask_hpc.InSituPipeline.whole
per_block = dask_hpc.InSituPipeline.per_block
STATE = heat.plate((32, 8))
ANALYSES = {
    "mean": whole(heat.mean, variables=["heat"]),
    "total": per_block(heat.total, sum, variables=["heat"]),
}
LONG = 10**6  # iterations: more than any test waits for


def make(c, name="heat", **wishes):
    wishes = {"placement": "in situ", "chunks": {"y": 4}, "halo": {"y": 1}} | wishes
    return dask_hpc.InSituPipeline(heat.advance, STATE, ANALYSES, name=name, client=c, **wishes)


class Checked:
    """Iterations of a pipeline, each compared to the loop without Dask, and who took part in them."""

    def __init__(self, s, pipe, iterations=LONG):
        self._scheduler, self._pipe = s, pipe
        self._run = aiter(pipe.run(iterations))
        self._state = STATE
        self.number = 0

    async def one(self):
        number, results = await anext(self._run)
        self.number += 1
        self._state = heat.advance(self._state)
        assert number == self.number and set(results) == set(ANALYSES)
        assert results["mean"] == heat.mean(self._state)

    async def until(self, is_so, most=3000):
        """Iterate until that is so."""
        for _ in range(most):
            await self.one()
            if is_so():
                return
        raise AssertionError("it never came to that")

    async def rest(self):
        """To the end; the state that is left is right, too."""
        async for number, results in self._run:
            self.number += 1
            self._state = heat.advance(self._state)
            assert number == self.number and results["mean"] == heat.mean(self._state)
        found = await self._pipe._the_client().compute(await self._pipe.state)
        xr.testing.assert_identical(found, self._state)

    async def leave(self):
        await self._run.aclose()


def decisions(pipe, kind):
    return [line["reason"] for line in pipe.story() if line["decision"] == kind]


def places(s, pipe):
    """Nodes that the pipeline uses now, and those that its job holds and keeps."""
    job = live(s, pipe.name)
    running = plugin_of(s).control.indices.running[job.id]
    return set(pipe.status()["nodes"]), set(running.nodes[: running.target])


def runs(s, name):
    """Whether a job of that name has arrived and runs."""
    return any(job.name == name and job.state == "running" for job in plugin_of(s).control.jobs.values())


def ran_outside(s, pipe):
    """Tasks of the pipeline that are placed outside of its job's workers now."""
    job = live(s, pipe.name)
    at = {key: s.tasks[key].processing_on for key in job.unfinished}
    return [key for key, worker in at.items() if worker and worker.address not in job.workers]


@pytest.mark.slow
@cluster4
async def test_keeps_to_its_nodes_beside_another_job(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs") as manager:
        with dask_hpc.job("other", nodes=2):
            other = c.submit(blocked, "go")
        await until(s, "other", "running")
        pipe = make(c, nodes=2)
        run = Checked(s, pipe, 12)
        for _ in range(6):
            await run.one()
            assert not ran_outside(s, pipe)
        used, held = places(s, pipe)
        assert used == held and len(held) == 2 and not held & set(live(s, "other").nodes)
        assert pipe.status()["job"] == live(s, "heat").id
        assert any("job heat-" in line for line in decisions(pipe, "pipeline"))
        assert decisions(pipe, "placement")
        await run.rest()
        await until(s, "heat", "done")
        rows = [row["reason"] for row in await manager.story() if row["decision"] == "placement"]
        assert any(reason.startswith("pipeline heat: from iteration") for reason in rows)
        assert other.status == "pending"
        await Event("go").set()
        await other


@cluster4
async def test_waits_until_its_job_starts(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"):
        with dask_hpc.job("other", nodes=3):
            other = c.submit(blocked, "go")
        await until(s, "other", "running")
        pipe = make(c, nodes=2)
        run = Checked(s, pipe, 5)
        first = c.loop.asyncio_loop.create_task(run.one())
        assert (await until(s, "heat", "waiting")).nodes == ()
        assert not first.done()
        await Event("go").set()
        await other
        await first
        assert len(places(s, pipe)[1]) == 2
        await run.rest()


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["in situ", "in transit", "auto"])
@gen_cluster(client=True, nthreads=[("", 1)] * 4, timeout=60)
async def test_grows_when_another_ends_and_shrinks_when_one_starts(c, s, *workers, placement):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("first", nodes=2, walltime="1h"):
            first = c.submit(blocked, "first")
        await until(s, "first", "running")
        pipe = make(c, nodes=2, min_nodes=1, max_nodes=4, walltime="1h", placement=placement)
        run = Checked(s, pipe)
        await run.one()
        assert len(places(s, pipe)[0]) == 2
        await Event("first").set()
        await first
        await run.until(lambda: len(places(s, pipe)[0]) == 4)
        with dask_hpc.job("second", nodes=3, walltime="1h"):
            second = c.map(blocked, ["second"] * 3, range(3), pure=False)
        await run.until(lambda: runs(s, "second"))
        await run.until(lambda: len(places(s, pipe)[0]) == 1)
        # the other job's tasks have all of its nodes for themselves, and the pipeline goes on
        await async_poll_for(lambda: len({w.address for w in workers if w.state.executing}) >= 3, 10)
        for _ in range(5):
            await run.one()
            assert not ran_outside(s, pipe)
        used, held = places(s, pipe)
        assert used == held and not held & set(live(s, "second").nodes)
        told = plugin_of(s).story.happenings
        assert not [h for h in told if h.decision == "hand-over" and "drain budget" in h.reason]
        assert not decisions(pipe, "recovered")
        await Event("second").set()
        await wait(second)
        await run.until(lambda: len(places(s, pipe)[0]) == 4)
        assert len(decisions(pipe, "nodes-changed")) >= 3
        await run.leave()
        await until(s, "heat", "done")


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 4, timeout=60)
async def test_an_idle_pipeline_hands_its_blocks_over(c, s, *workers):
    """Nobody asks for its next iteration while the job shrinks: its blocks are moved, it goes on there."""
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        pipe = make(c, nodes=4, min_nodes=1, max_nodes=4, walltime="1h")
        run = Checked(s, pipe)
        await run.one()
        job = live(s, "heat")
        await async_poll_for(lambda: not job.unfinished, 10)
        with dask_hpc.job("second", nodes=3, walltime="1h"):
            second = c.map(blocked, ["second"] * 3, range(3), pure=False)
        await until(s, "second", "running")
        assert len(job.nodes) == 1
        for _ in range(10):
            await run.one()
        assert len(places(s, pipe)[0]) == 1 and not decisions(pipe, "recovered")
        await run.leave()
        await Event("second").set()
        await wait(second)


@pytest.mark.slow
@cluster4
async def test_two_pipelines_are_two_jobs(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"):
        pipes = [make(c, name=name, nodes=2) for name in ("one", "two")]
        runs = [Checked(s, pipe, 10) for pipe in pipes]
        for _ in range(5):
            for run in runs:
                await run.one()
        (used, held), (used_too, held_too) = (places(s, pipe) for pipe in pipes)
        assert used == held and used_too == held_too and not held & held_too
        for run in runs:
            await run.rest()
        assert {job.state for job in plugin_of(s).control.jobs.values()} == {"done"}


@pytest.mark.slow
@cluster4
async def test_another_run_is_another_job_that_goes_on_with_the_state(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"):
        pipe = make(c, nodes=2)
        await Checked(s, pipe, 3).rest()
        before = await until(s, "heat", "done")
        with dask_hpc.job("other", nodes=2):  # perhaps where the state is
            other = c.submit(blocked, "go")
        await until(s, "other", "running")
        numbers = [number async for number, _ in pipe.run(4)]
        assert numbers == [4, 5, 6, 7]
        assert (await until(s, "heat", "done")).id != before.id
        found = await c.compute(await pipe.state)
        xr.testing.assert_identical(found, heat.serial(STATE, 7)[-1])
        await Event("go").set()
        await other


@pytest.mark.slow
@cluster2
async def test_a_job_that_loses_a_node_goes_on(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"):
        pipe = make(c, nodes=2, keep_every=2)
        run = Checked(s, pipe)
        for _ in range(5):
            await run.one()
        lost = next(w for w in workers if w.address in live(s, "heat").workers)
        await lose(lost)
        await run.until(lambda: len(places(s, pipe)[0]) == 1)
        await run.one()
        await run.leave()


@cluster4
async def test_a_job_that_is_cancelled_ends_the_run(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs") as manager:
        pipe = make(c, nodes=2)
        run = Checked(s, pipe)
        await run.one()
        job = live(s, "heat")
        await c.scheduler.hpc_cancel(id=job.id)
        with pytest.raises((Exception,), match="cancelled"):
            await run.until(lambda: False)
        assert pipe.status()["state"] == "failed"
        assert (await manager.status())["errors"] == 0


@cluster2
async def test_goes_on_plainly_when_management_ends(c, s, a, b):
    manager = await dask_hpc.manage(c, policy="fcfs")
    pipe = make(c, nodes=1)
    run = Checked(s, pipe)
    await run.one()
    await manager.close()
    await run.until(lambda: len(pipe.status()["nodes"]) == 2)
    await run.leave()


@cluster2
async def test_on_a_cluster_that_is_not_managed_it_is_plain_dask(c, s, a, b):
    pipe = make(c, nodes=1)
    run = Checked(s, pipe, 4)
    await run.rest()
    assert len(pipe.status()["nodes"]) == 2 and pipe.status()["job"] is None
    assert decisions(pipe, "pipeline") == ["uses all workers: the cluster is not managed"]


@cluster2
async def test_in_a_dry_run_it_uses_all_workers(c, s, a, b):
    with dask.config.set({"hpc.dry-run": True}):
        async with await dask_hpc.manage(c, policy="fcfs"):
            pipe = make(c, nodes=1)
            await Checked(s, pipe, 4).rest()
            assert len(pipe.status()["nodes"]) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"nodes": 1.5},
        {"min_nodes": 1},
        {"walltime": "1h"},
        {"nodes": 2, "min_nodes": 3},
        {"nodes": "all"},
    ],
)
def test_what_it_asks_for_is_checked(wrong):
    with pytest.raises(dask_hpc.InputError, match="nodes"):
        make(None, **wrong)


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 4, timeout=60)
async def test_a_worker_leaves_a_pipeline_that_is_no_job(c, s, *workers):
    """Tasks are bound to the worker nearly all the time: it can leave as the pipeline hears of it."""
    async with await dask_hpc.manage(c, policy="fcfs"):
        pipe = make(c)
        run = Checked(s, pipe)
        for _ in range(3):
            await run.one()
        address = workers[1].address
        leaves = c.loop.asyncio_loop.create_task(c.retire_workers([address]))
        await run.until(leaves.done)
        assert address in await leaves and address not in s.workers
        for _ in range(5):
            await run.one()
        assert len(pipe.status()["nodes"]) == 3
        assert all("whose state was not lost" in reason for reason in decisions(pipe, "recovered"))
        assert plugin_of(s).status.lost == 0
        await run.leave()
