"""Workers go in the middle of a run, with or without a word: every iteration is there, and right."""

import asyncio
import time

import dask
import heat
import pytest
import xarray as xr
from distributed import Client, LocalCluster, get_worker
from distributed.utils_test import async_poll_for

import dask_hpc
from dask_hpc.in_situ.client.loop import IterationLoop
from dask_hpc.in_situ.client.steering import Auto
from dask_hpc.planning.in_situ.partition import Partition, Phases

whole = dask_hpc.InSituPipeline.whole
per_block = dask_hpc.InSituPipeline.per_block
STATE = heat.plate((16, 8))
ANALYSES = {
    "mean": whole(heat.mean, variables=["heat"]),
    "total": per_block(heat.total, sum, variables=["heat"]),
}


@pytest.fixture
def four():
    """Four nodes with one core each, in this process."""
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def run(client, happens, iterations=17, happens_at=10, **wishes):
    """A pipeline in which something happens at an iteration; gives it when it has ended, all right."""
    pipe = dask_hpc.InSituPipeline(
        heat.advance, STATE, ANALYSES, chunks={"y": 4}, halo={"y": 1}, client=client, **wishes
    )
    wanted = heat.serial(STATE, iterations)
    numbers = []
    for i, results in pipe.run(iterations):
        numbers.append(i)
        assert results["mean"] == heat.mean(wanted[i - 1])
        assert set(results) == set(ANALYSES)
        if i == happens_at:
            happens(pipe)
    assert numbers == [*range(1, iterations + 1)]
    xr.testing.assert_identical(pipe.state.compute(), wanted[-1])
    return pipe


def recovered(pipe):
    return [line["reason"] for line in pipe.story() if line["decision"] == "recovered"]


def kill(client, name):
    """It is gone at once, with all it holds: nothing is moved before."""

    async def close():
        worker = client.cluster.workers[name]
        client.cluster.worker_spec.pop(name)
        await worker.close(executor_wait=False, reason="killed by a test", nanny=False)

    client.sync(close)


IN_SITU = Partition("async", 4, 1, ("mean", "total"), (), Phases(0, 0, 0))
MIXED = Partition("sync", 2, 0, ("total",), ("mean",), Phases(0, 0, 0))


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["auto", IN_SITU, MIXED])
@pytest.mark.parametrize("keep_every", [None, 4])
def test_a_worker_that_is_lost_costs_no_iteration(four, placement, keep_every):
    pipe = run(four, lambda pipe: kill(four, 0), placement=placement, keep_every=keep_every)
    reasons = recovered(pipe)
    assert len(reasons) == 1 or placement == "auto"  # which may not have used it: then it is no loss
    if keep_every:
        assert not any("with which it began" in reason for reason in reasons)
    assert "0" not in pipe.status()["nodes"]


def copies(client):
    """The tasks that copy a state which is kept."""
    return [task for task in client.cluster.scheduler.tasks.values() if task.key.startswith("in-situ-copied")]


async def are_done(client):
    await async_poll_for(lambda: {task.state for task in copies(client)} == {"memory"}, 10)


@pytest.mark.slow
def test_a_kept_state_does_not_depend_on_what_dask_drops(four):
    """Of what a copy fetched, Dask has two replicas and drops one: here always the one at home."""
    four.amm.stop()

    async def drop():
        await are_done(four)
        # of the two copies of a step, the one at home is the first
        fetched = {step: copy for copy in copies(four) for step in copy.dependencies}
        dropped = [(w, step) for step, copy in fetched.items() for w in step.who_has - copy.who_has]
        assert dropped
        for worker, step in dropped:
            four.cluster.scheduler.request_remove_replicas(worker.address, [step.key], stimulus_id="test")
        await async_poll_for(lambda: not any(w in (step.who_has or ()) for w, step in dropped), 10)

    def happens(pipe):
        four.sync(drop)
        kill(four, 0)

    reasons = recovered(run(four, happens, placement=IN_SITU, keep_every=4))
    assert len(reasons) == 1 and "which was kept on another node" in reasons[0]


@pytest.mark.slow
def test_a_kept_state_survives_one_loss_after_the_other(four):
    """After the first, what is left of it is copied again."""
    pipe = dask_hpc.InSituPipeline(
        heat.advance,
        STATE,
        ANALYSES,
        chunks={"y": 4},
        halo={"y": 1},
        client=four,
        placement=IN_SITU,
        keep_every=8,
    )
    for i, _ in pipe.run(15):
        if i in (10, 13):
            four.sync(are_done, four)
            kill(four, i // 13)
    assert ["from iteration 8," in reason for reason in recovered(pipe)] == [True, True]


@pytest.mark.slow
def test_a_worker_that_gives_its_data_away(four):
    """Where nobody manages the cluster, Dask closes it whatever it runs: a step may be done again."""

    def retire(pipe):
        four.retire_workers([four.cluster.workers[1].address])

    pipe = run(four, retire, placement=IN_SITU)
    assert pipe.status()["nodes"] == ["0", "2", "3"]


@pytest.mark.slow
def test_what_is_done_is_handed_out_although_its_state_was_let_go(four, monkeypatch):
    """A worker leaves when an iteration is done but for its results, which are not here yet, and two more
    are: their states are held, that of the first is not."""
    begins_again, late = asyncio.Event(), []
    finish, deliver, orders = IterationLoop._finish, IterationLoop.deliver, Auto.orders

    async def finishes(loop, one, submitted):
        if one.iteration == 12:
            late.append(loop)
            await begins_again.wait()
        return await finish(loop, one, submitted)

    async def delivers(loop):
        asyncio.get_running_loop().call_soon(begins_again.set)
        await deliver(loop)

    async def stops_before(steering, iteration, *rest):
        if iteration == 15:
            await begins_again.wait()
        return await orders(steering, iteration, *rest)

    monkeypatch.setattr(IterationLoop, "_finish", finishes)
    monkeypatch.setattr(IterationLoop, "deliver", delivers)
    monkeypatch.setattr(Auto, "orders", stops_before)

    async def three_are_done():
        def are_done():
            under_way = late[0].unfinished if late else ()
            return [one.iteration for one in under_way if one.is_done] == [12, 13, 14]

        await async_poll_for(are_done, 10)
        assert not late[0].unfinished[0].groups

    def retire(pipe):
        four.sync(three_are_done)
        four.retire_workers([four.cluster.workers[1].address])

    (reason,) = recovered(run(four, retire, happens_at=11, placement=IN_SITU))
    assert "from iteration 14, whose state was not lost" in reason


@pytest.mark.slow
def test_one_after_the_other_may_go_and_another_come(four):
    def happens(pipe):
        kill(four, 3)
        four.cluster.scale(5)

    pipe = run(four, happens, iterations=24, placement=IN_SITU, keep_every=3)
    assert len(recovered(pipe)) == 1


def test_an_error_of_a_step_is_no_loss(four):
    def fails(block):
        raise ZeroDivisionError("in a step")

    pipe = dask_hpc.InSituPipeline(fails, STATE, ANALYSES, chunks={"y": 4}, client=four)
    with pytest.raises(ZeroDivisionError, match="in a step"):
        list(pipe.run(3))
    assert not recovered(pipe) and pipe.status()["state"] == "failed"


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "often"])
def test_how_often_a_state_is_kept_is_checked(wrong):
    with pytest.raises(dask_hpc.InputError, match="keep_every"):
        dask_hpc.InSituPipeline(heat.advance, STATE, {}, chunks={"y": 4}, keep_every=wrong)


def deadly(block):
    """Its worker is gone in the middle of it."""
    worker = get_worker()
    worker.loop.add_callback(worker.close, executor_wait=False, reason="killed by a test", nanny=False)
    time.sleep(1)
    return block


def test_a_step_that_kills_its_workers_ends_the_run(four):
    """As with Dask's own tasks: before no worker is left, and with a clear error."""
    pipe = dask_hpc.InSituPipeline(deadly, STATE, {}, chunks={"y": 16}, client=four, placement="in situ")
    allowed = dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with allowed, pytest.raises(RuntimeError, match="iteration 1: 2 times in a row workers died"):
        list(pipe.run(3))
    assert len(recovered(pipe)) == 1 and pipe.status()["state"] == "failed"
    assert len(four.scheduler_info()["workers"]) == 2
