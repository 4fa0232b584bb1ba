"""What a worker's heartbeats say of its tasks, on clusters of one process and of several."""

import threading
from pathlib import Path
from time import sleep, thread_time, time

import dask
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, get_worker, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc, slowinc

from dask_hpc.planning.colocation.observed import Observations
from dask_hpc.together.worker import counters as module
from dask_hpc.together.worker.counters import SOFTWARE, why_not
from dask_hpc.together.worker.host import cpu_model, physical_cores, this_host
from dask_hpc.together.worker.observer import METRIC, TaskObserver
from dask_hpc.together.worker.peaks import TOPIC

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 2)] * 2)


def blocked(go, x=None):
    Event(f"{go}-began").set()
    Event(go).wait(60)
    return x


async def word(worker):
    """What its next heartbeat would say; it sends none of its own from now on."""
    worker.periodic_callbacks["heartbeat"].stop()
    return worker.metrics[METRIC](worker)


async def observed(c, *workers, **how):
    await c.register_plugin(TaskObserver(**how))
    for worker in workers:
        await word(worker)


@two
async def test_heartbeats_say_what_ended_and_what_runs(c, s, a, b):
    before = time()
    await observed(c, a, b)
    keys = ["done-0", "done-1", "done-2"]
    await c.gather(c.map(slowinc, range(3), delay=0.02, key=keys, workers=[a.address]))
    running = c.submit(blocked, "go", key="on-1", workers=[a.address])
    await Event("go-began").wait(10)
    told = await word(a)
    rows = told["tasks"].pop("done")
    assert told["tasks"] == {} and told["ended"] == {} and len(rows) == 3
    for start, stop, inputs, output, counts in rows:
        assert before <= told["since"] <= start and start + 0.02 <= stop <= told["until"]
        assert (inputs, output, counts) == (0, 28, None)
    assert list(told["running"]) == ["on"]
    assert rows[-1][1] - 0.1 <= told["running"]["on"][0] <= told["until"]
    assert told["counters"] is None and told["why_not"] == "" and told["peaks"] is None
    cpu, cores = this_host()
    assert told["host"] == {"cpu": cpu, "cores": cores, "limit": a.memory_manager.memory_limit}
    again = await word(a)
    assert again["number"] == told["number"] + 1 and again["since"] == told["until"]
    assert again["tasks"] == {} and len(again["running"]["on"]) == 1
    assert (await word(b))["tasks"] == {}
    await Event("go").set()
    await running
    assert [len(rows) for rows in (await word(a))["tasks"].values()] == [1]
    await c.unregister_worker_plugin(METRIC)
    assert METRIC not in a.metrics


@two
async def test_bytes_of_what_a_task_needs_and_gives(c, s, a, b):
    await observed(c, a)
    here = c.submit(np.ones, 1000, key="here-1", workers=[a.address])
    there = c.submit(np.ones, 2000, key="there-1", workers=[b.address])
    total = c.submit(np.concatenate, [here, there], key="total-1", workers=[a.address])
    await wait(total)
    ((_, _, inputs, output, _),) = (await word(a))["tasks"]["total"]
    assert inputs == pytest.approx(24_000, rel=0.1) and output == pytest.approx(24_000, rel=0.1)


@one
async def test_of_many_tasks_some_are_told_and_all_are_counted(c, s, a):
    await observed(c, a)
    await c.gather(c.map(inc, range(300), key=[f"many-{i}" for i in range(300)]))
    await c.gather(c.map(inc, range(100), key=[f"few-{i}" for i in range(100)]))
    told = await word(a)
    assert told["ended"] == {"many": 300, "few": 100}
    assert {kind: len(rows) for kind, rows in told["tasks"].items()} == {"many": 150, "few": 50}
    starts = [start for start, *_ in told["tasks"]["many"]]
    assert starts == sorted(starts) and starts[-1] - starts[0] > 0
    assert (await word(a))["tasks"] == {}


@gen_cluster(client=True, nthreads=[("", 1)], config={"distributed.admin.low-level-log-length": 100})
async def test_what_the_worker_has_forgotten_is_said_to_be_missing(c, s, a):
    await observed(c, a)
    first = await word(a)
    futures = c.map(inc, range(200))
    await wait(futures)
    told = await word(a)
    (rows,) = told["tasks"].values()
    assert len(rows) < 100
    assert first["until"] < told["since"], "not everything since the last word"
    assert all(stop >= told["since"] - 0.05 for _, stop, *_ in rows)
    await c.submit(inc, -1, key="x")
    assert (await word(a))["since"] == told["until"]


@one
async def test_failed_tasks_and_tasks_of_no_time_are_left_out(c, s, a):
    await observed(c, a)
    future = c.submit(lambda: 1 / 0, key="bad-1")
    await wait(future)
    event = next(e for e in reversed(a.state.stimulus_log) if type(e).__name__ == "ExecuteFailureEvent")
    assert event.key == "bad-1"
    done = c.submit(inc, 1, key="none-1")
    await wait(done)
    event = next(e for e in reversed(a.state.stimulus_log) if type(e).__name__ == "ExecuteSuccessEvent")
    event.stop = event.start
    assert (await word(a))["tasks"] == {}


@one
async def test_another_one_takes_its_place(c, s, a):
    await c.register_plugin(TaskObserver())
    await c.submit(inc, 1, key="x-1")
    await c.register_plugin(TaskObserver(counters=True, peaks=True))
    told = await word(a)
    assert told["number"] == 1 and told["peaks"]["kinds"] is None and told["tasks"] == {}
    await c.register_plugin(TaskObserver())
    assert (await word(a))["peaks"] is None
    assert [thread.name for thread in threading.enumerate()].count("dask-hpc-peaks") == 0


@one
async def test_setup_and_teardown_while_a_task_runs(c, s, a):
    running = c.submit(blocked, "go", key="on-1")
    await Event("go-began").wait(10)
    await c.register_plugin(TaskObserver(peaks=True))
    await c.unregister_worker_plugin(METRIC)
    await c.register_plugin(TaskObserver(peaks=True))
    assert list((await word(a))["running"]) == ["on"]
    await Event("go").set()
    await running
    assert await c.submit(inc, 1) == 2
    second = c.submit(blocked, "stop", key="on-2")
    await Event("stop-began").wait(10)
    await c.unregister_worker_plugin(METRIC)
    await Event("stop").set()
    await second
    assert await c.submit(key_here, key="me") == "me"
    await c.register_plugin(TaskObserver(peaks=True))
    await c.unregister_worker_plugin(METRIC)
    assert type(a.active_threads) is dict and not a.active_threads


def key_here():
    return get_worker().get_current_task()


@pytest.mark.skipif(bool(why_not(SOFTWARE)), reason=why_not(SOFTWARE))
def test_what_the_processor_counts_is_told(monkeypatch):
    """With events of software: virtual machines show no others."""

    @gen_cluster(client=True, nthreads=[("", 2)])
    async def check(c, s, a):
        monkeypatch.setattr(module.Counters.__init__, "__defaults__", (SOFTWARE,))
        await observed(c, a, counters=True)
        await c.gather(c.map(slowinc, range(4), delay=0.02, key=[f"sleep-{i}" for i in range(4)]))
        await c.gather(c.map(spin, range(2), key=["spin-0", "spin-1"]))
        told = await word(a)
        assert told["counters"] == ["nanoseconds", "faults"] and told["why_not"] == ""
        assert len(told["tasks"]["sleep"]) == 4
        assert all(0 < counts[0] < 0.015e9 for *_, counts in told["tasks"]["sleep"])
        assert all(0.027e9 < counts[0] < 0.06e9 for *_, counts in told["tasks"]["spin"])

    check()


def spin(i):
    end = thread_time() + 0.03
    while thread_time() < end:
        pass


@one
async def test_why_the_processor_does_not_count_is_told(c, s, a):
    await c.register_plugin(TaskObserver(counters=True))
    told = await word(a)
    assert (told["counters"] is None) == bool(told["why_not"])
    assert told["why_not"] == why_not()


@one
async def test_an_error_of_ours_is_no_error_of_a_task(c, s, a):
    await c.register_plugin(TaskObserver(peaks=True))
    watch = a.plugins[METRIC]._peaks
    watch._memory.look = lambda: 1 / 0
    assert await c.gather(c.map(inc, range(10))) == list(range(1, 11))
    assert a.active_threads.begins is None, "nobody looks any more"


@one
async def test_in_a_process_that_is_shared_nothing_is_said_but_why(c, s, a):
    messages = []
    c.subscribe_topic(TOPIC, messages.append)
    await c.register_plugin(TaskObserver(peaks=True))
    assert np.sum(await c.submit(np.ones, 10_000_000)) == 1e7
    await async_poll_for(lambda: METRIC in s.workers[a.address].metrics, 5)
    told = (await word(a))["peaks"]
    assert told["kinds"] is None and told["how"] == "the scheduler runs in the worker's process"
    assert messages == []


def test_other_processes_tell_as_well_and_their_nannies_bring_it_back():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit="1GiB"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(TaskObserver(peaks=True))
        client.submit(takes, 80_000_000, key="a-1").result()
        client.restart()
        client.run(stop_heartbeats)
        found = Observations()
        ((address, first),) = client.run(say).items()
        found.hear("host", address, first)
        client.submit(takes, 160_000_000, key="b-1").result()
        ((_, last),) = client.run(say).items()
        found.hear("host", address, last)
        assert list(found.kinds()) == ["b"] and found.cpus == [this_host()[0]]
        (about,) = last["peaks"]["kinds"].values()
        assert about["bytes"] == pytest.approx(160e6, rel=0.1) and about["how"] == "alone"
        assert last["host"]["limit"] == 1 << 30
        client.run(start_heartbeats)
        for _ in range(200):
            if heard := client.run_on_scheduler(words)[address]:
                break
            sleep(0.05)
        assert heard["number"] > last["number"] and set(heard) == set(last)


def takes(size):
    return len(np.ones(size, np.uint8))


def stop_heartbeats(dask_worker):
    dask_worker.periodic_callbacks["heartbeat"].stop()


def start_heartbeats(dask_worker):
    dask_worker.periodic_callbacks["heartbeat"].start()


def say(dask_worker):
    return dask_worker.metrics[METRIC](dask_worker)


def words(dask_scheduler):
    """That have come with heartbeats since those began again."""
    found = {worker.address: worker.metrics.get(METRIC) for worker in dask_scheduler.workers.values()}
    return {address: said if said and said["number"] > 2 else None for address, said in found.items()}


# the host


def made_up(folder: Path, siblings):
    for cpu, text in enumerate(siblings):
        place = folder / f"cpu{cpu}" / "topology"
        place.mkdir(parents=True)
        if text is not None:
            (place / "thread_siblings_list").write_text(text + "\n")
    (folder / "cpufreq").mkdir()
    return folder


@pytest.mark.parametrize(
    ("siblings", "cores"),
    [
        (["0,4", "1,5", "2,6", "3,7"] * 2, 4),
        (["0-1", "0-1", "2-3", "2-3"], 2),
        (["0", "1", None], 2),  # one is switched off
        ([], 0),
    ],
)
def test_hyper_threads_are_no_cores(siblings, cores, tmp_path):
    assert physical_cores(made_up(tmp_path, siblings)) == cores


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "processor\t: 0\nmodel name\t: Intel(R)  Xeon\n\nprocessor: 1\nmodel name: B\n",
            "Intel(R) Xeon",
        ),
        ("processor : 0\ncpu : POWER9, altivec supported\n", "POWER9, altivec supported"),
    ],
)
def test_a_processor_has_a_name(text, name, tmp_path):
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_model(tmp_path / "cpuinfo") == name


def test_a_processor_that_nobody_describes_has_some_name(tmp_path):
    assert cpu_model(tmp_path / "nothing")


def test_not_more_cores_than_one_may_use():
    assert 1 <= this_host()[1] <= dask.system.CPU_COUNT
