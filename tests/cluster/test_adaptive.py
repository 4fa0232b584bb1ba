"""The scheduler decides how many units there are, the cluster object acts."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from textwrap import dedent

import pytest
from batch_cluster import batch_cluster, names_of, napping
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker, get_worker, wait
from distributed.utils_test import async_poll_for, gen_test, inc
from small_cluster import looks

import dask_hpc
from dask_hpc import HPCAdaptive, InputError, malleable
from dask_hpc.cluster.units import Facts, UnitFacts, read_facts

QUIET = {"processes": False, "dashboard_address": ":0", "asynchronous": True, "threads_per_worker": 1}
QUICK = {"interval": "20ms", "cool_down": 0, "idle_grace": "100ms"}


class Gated(Worker):
    """Starts when it may; counts how often that was asked for."""

    asked = 0
    may_start = True
    is_broken = False

    async def start_unsafe(self):
        Gated.asked += 1
        if Gated.is_broken:
            raise OSError("the batch system says no")
        while not Gated.may_start:
            await asyncio.sleep(0.01)
        return await super().start_unsafe()


@pytest.fixture(autouse=True)
def gates():
    Gated.asked, Gated.may_start, Gated.is_broken = 0, True, False


def gated_cluster():
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": ":0", "port": 0}},
        worker={"cls": Gated, "options": {"nthreads": 1}},
        asynchronous=True,
    )


async def told(client, *kinds):
    return [row["reason"] for row in await client.scheduler.hpc_story() if row["decision"] in kinds]


@gen_test()
async def test_it_grows_with_the_work_and_shrinks_without_loss():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        cluster.adapt(Adaptive=HPCAdaptive, minimum=0, maximum=3, **QUICK)
        futures = client.map(inc, range(60), pure=False)
        assert await client.gather(futures) == list(range(1, 61))
        await async_poll_for(lambda: len(cluster.plan) == 1, 10)
        assert all(future.status == "finished" for future in futures), "results keep their last place"
        del futures
        await async_poll_for(lambda: not cluster.plan and not cluster.workers, 10)
        assert await client.submit(inc, 1) == 2, "and it grows again from nothing"


@gen_test()
async def test_every_decision_says_why():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        manager = await malleable(cluster)
        cluster.adapt(minimum=0, maximum=2, **QUICK)
        future = client.submit(inc, 1)
        await future
        more = client.map(inc, range(200), pure=False)
        await wait(more)
        del more
        await async_poll_for(lambda: len(cluster.plan) == 1, 10)
        rows = [row for row in await manager.story() if row["decision"] in ("submit-units", "unit-leaves")]
        assert len(rows) >= 1
        for row in rows:
            assert row["rule"] == "size: demand"
            assert row["inputs"]["maximum"] == 2 and row["inputs"]["target"] in (0, 1, 2)
        assert rows[0]["inputs"]["tasks"] == 1 and "1 unit wanted: 1 task with" in rows[0]["reason"]
        await manager.close()


@gen_test()
async def test_an_unmanaged_cluster_is_managed_by_the_configured_policy():
    async with LocalCluster(n_workers=1, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        assert await client.scheduler.hpc_status() is None
        cluster.adapt(Adaptive=HPCAdaptive, minimum=1, maximum=3, **QUICK)
        await async_poll_for(lambda: "dask-hpc" in cluster.scheduler.plugins, 10)
        assert (await client.scheduler.hpc_status())["policy"] == "easy-backfill"


@gen_test()
async def test_pending_units_are_not_asked_for_again():
    Gated.may_start = False
    async with gated_cluster() as cluster, Client(cluster, asynchronous=True) as client:
        adaptive = cluster.adapt(Adaptive=HPCAdaptive, maximum=2, **QUICK)
        futures = client.map(inc, range(100), pure=False)
        await async_poll_for(lambda: Gated.asked == 2, 10)
        await looks(adaptive, 20)
        assert Gated.asked == 2 and len(cluster.plan) == 2
        Gated.may_start = True
        assert await client.gather(futures) == list(range(1, 101))
        assert Gated.asked == 2


@gen_test()
async def test_what_fails_to_start_is_tried_again_a_few_times_and_told():
    Gated.is_broken = True
    async with gated_cluster() as cluster, Client(cluster, asynchronous=True) as client:
        adaptive = cluster.adapt(Adaptive=HPCAdaptive, maximum=1, retries=2, retry_delay="100ms", **QUICK)
        future = client.submit(inc, 1)
        await async_poll_for(lambda: "dask-hpc" in cluster.scheduler.plugins, 10)
        story = cluster.scheduler.plugins["dask-hpc"].story
        await async_poll_for(lambda: any(h.decision == "warning" for h in story.happenings), 20)
        asked = Gated.asked
        assert asked == 3  # the first, and two more
        (words,) = await told(client, "warning")
        assert "3 units in a row have died" in words and "the batch system says no" in words
        await looks(adaptive, 20)
        assert Gated.asked == asked and not cluster.plan
        Gated.is_broken = False
        cluster.adapt(Adaptive=HPCAdaptive, maximum=1, **QUICK)  # asked anew: tries anew
        assert await future == 2


@pytest.mark.queue
@gen_test()
async def test_a_job_that_waits_for_nodes_gets_them():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        manager = await malleable(cluster)
        adaptive = cluster.adapt(minimum=0, maximum=4, **QUICK)
        async with dask_hpc.job("wide", nodes=3, client=client):
            found = await client.gather(client.map(lambda x: get_worker().address, range(30), pure=False))
            assert len(set(found)) == 3
            await asyncio.sleep(0.3)  # idle, but the job holds its nodes
            await looks(adaptive, 3)
            assert len(cluster.plan) == 3
        await async_poll_for(lambda: not cluster.plan and not cluster.scheduler.workers, 10)
        assert (await manager.status())["nodes"] == []
        await manager.close()


@gen_test()
async def test_somebody_stays_for_tasks_that_wait():
    """They wait for something that no worker has yet, and will run on one that is there by then."""
    async with LocalCluster(n_workers=1, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        adaptive = cluster.adapt(Adaptive=HPCAdaptive, minimum=0, maximum=2, **QUICK)
        futures = client.map(inc, range(4), resources={"token": 1})
        await asyncio.sleep(0.3)
        await looks(adaptive, 3)
        assert cluster.plan == {0}
        worker = cluster.workers[0]
        await worker.set_resources(token=1)
        again = client.map(inc, range(4), resources={"token": 1}, pure=False)
        assert await client.gather(again) == [1, 2, 3, 4]
        del futures


@gen_test()
async def test_a_unit_that_vanishes_is_replaced():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        adaptive = cluster.adapt(Adaptive=HPCAdaptive, minimum=2, maximum=2, **QUICK)
        await async_poll_for(lambda: len(cluster.scheduler.workers) == len(cluster.workers) == 2, 10)
        first = set(cluster.workers)
        victim = cluster.workers[min(first)]
        await victim.close(nanny=False)
        await async_poll_for(lambda: set(cluster.workers) - first and len(cluster.scheduler.workers) == 2, 10)
        while not (words := await told(client, "unit-dead")):  # while it closes it may still be connected
            await looks(adaptive, 1)
        assert len(words) == 1 and words[0].startswith(f"{min(first)}: its process is")


@gen_test()
async def test_it_closes_in_the_middle_of_everything():
    for pause in (0, 0.02, 0.1):
        async with (
            LocalCluster(n_workers=2, **QUIET) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            adaptive = cluster.adapt(Adaptive=HPCAdaptive, minimum=0, maximum=4, **QUICK)
            futures = client.map(inc, range(50), pure=False)
            await asyncio.sleep(pause)
            del futures
        assert adaptive.state == "stopped"


@gen_test()
async def test_a_manager_that_is_closed_leaves_the_size_alone():
    async with LocalCluster(n_workers=2, **QUIET) as cluster:
        async with await malleable(cluster):
            adaptive = cluster.adapt(minimum=0, maximum=2, interval="20ms")
        assert adaptive.state == "stopped"
        assert len(cluster.plan) == 2


@gen_test()
async def test_while_control_is_paused_nothing_changes():
    async with LocalCluster(n_workers=2, **QUIET) as cluster, await malleable(cluster) as manager:
        await manager.pause()
        adaptive = cluster.adapt(minimum=0, maximum=2, **QUICK)
        await asyncio.sleep(0.3)
        await looks(adaptive, 3)
        assert len(cluster.plan) == 2
        await manager.resume()
        await async_poll_for(lambda: not cluster.plan, 10)


@gen_test()
async def test_parameters_can_be_changed_while_it_adapts():
    async with LocalCluster(n_workers=1, **QUIET) as cluster, await malleable(cluster) as manager:
        adaptive = cluster.adapt(minimum=0, maximum=2, interval="20ms", cool_down=0)
        await looks(adaptive, 10)
        assert len(cluster.plan) == 1
        await manager.set(**{"size.idle_grace": 0})
        await async_poll_for(lambda: not cluster.plan, 10)


def facts(**more):
    return asdict(Facts("x", 1.0, **more))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {"asker": "x"},
        facts() | {"more": 1},
        facts() | {"interval": 0},
        facts() | {"minimum": -1},
        facts() | {"minimum": 2, "maximum": 1},
        facts() | {"maximum": float("nan")},
        facts() | {"units": 3},
        facts() | {"units": [{"name": 3}]},
        facts() | {"units": [{"name": "a", "state": "fine"}]},
        facts() | {"units": [{"name": "a", "members": "abc"}]},
        facts() | {"units": [{"name": "a", "age": "old"}]},
        facts() | {"news": ["words"]},
        facts() | {"parameters": {"idle_grace": "soon"}},
        facts() | {"parameters": {"grace": 1}},
        facts() | {"parameters": {3: 1}},
    ],
)
@gen_test()
async def test_bad_facts_are_told(wrong):
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        manager = await dask_hpc.manage(client)
        with pytest.raises(InputError):
            await client.scheduler.hpc_size(facts=wrong)
        assert (await manager.status())["errors"] == 0
        await manager.close()


def test_facts_survive_the_wire():
    one = Facts("x", 0.5, (UnitFacts("a", ("a-0", "a-1"), "running", "", 3.0, 2.0, 60.0),), 1, 4.0, 2, 8, 1e9)
    assert read_facts(asdict(one)) == one


@pytest.mark.parametrize("wrong", [{"cluster": None}, {"idle": 3}])
def test_bad_arguments_are_told(wrong):
    with pytest.raises(InputError, match="adapt"):
        HPCAdaptive(**{"cluster": object(), **wrong})


# --- with real processes


@pytest.mark.slow
def test_a_batch_job_that_is_killed_is_noticed_and_replaced():
    """D8: Dask itself never notices that a job of several workers is gone."""
    with batch_cluster(2, 2) as cluster, Client(cluster) as client, malleable(cluster) as manager:
        cluster.adapt(minimum_jobs=2, maximum_jobs=2, interval="200ms")
        client.wait_for_workers(4, timeout=30)
        client.sync(async_poll_for, lambda: len(cluster.workers) == 2, 30)  # the cluster hears of them later
        victim = min(cluster.workers)
        futures = client.map(napping(0.1), range(40), pure=False)
        os.kill(cluster.workers[victim].process.pid, signal.SIGKILL)
        assert client.gather(futures) == list(range(40))
        client.wait_for_workers(4, timeout=30)
        assert len(cluster.plan) == 4 and victim not in cluster.worker_spec
        assert names_of(client) <= cluster.plan
        (words,) = [row["reason"] for row in manager.story() if row["decision"] == "unit-dead"]
        assert words == f"{victim}: its process was killed by signal 9"


FROZEN = """
    import sys
    from time import sleep
    from distributed import Client, wait
    from distributed import Nanny, SpecCluster
    from distributed.deploy.subprocess import SubprocessScheduler
    import dask_hpc

    def work(x):
        sleep(0.2)
        return x

    if __name__ == "__main__":
        scheduler = {"cls": SubprocessScheduler, "options": {"scheduler_kwargs": {"dashboard": False}}}
        worker = {"cls": Nanny, "options": {"nthreads": 1}}
        with SpecCluster(scheduler=scheduler, worker=worker) as cluster, Client(cluster) as client:
            assert not hasattr(cluster.scheduler, "workers")  # it is in another process
            with dask_hpc.malleable(cluster) as manager:
                cluster.adapt(minimum=0, maximum=2, interval="200ms", idle_grace="3s")
                futures = client.map(work, range(60), pure=False)
                print("running", flush=True)
                wait(futures)
                assert client.gather(futures) == list(range(60))
                for _ in range(20):
                    sleep(0.1)
                events = [event for _, event in client.get_events("all")]
                lost = sum(len(event.get("lost-computed-tasks", ())) for event in events)
                rows = [row for row in manager.story() if row["decision"] == "submit-units"]
                submitted = sum(int(row["reason"].split()[0]) for row in rows)
                connected = client.run_on_scheduler(
                    lambda dask_scheduler: {str(w.name) for w in dask_scheduler.workers.values()}
                )
                print("result", lost, submitted, connected == {str(n) for n in cluster.plan}, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.5, 3.0])
def test_a_frozen_notebook_neither_stacks_nor_loses(after, tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text(dedent(FROZEN))
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "running\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(after)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(8)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    words, lost, submitted, agree = out.split()
    assert (words, lost, agree) == ("result", "0", "True")
    assert int(submitted) <= 2
