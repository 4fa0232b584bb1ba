"""What is measured of a job, what follows from it, and what measuring costs."""

from inspect import signature
from math import inf, isclose
from time import sleep, thread_time

import dask.array as da
import numpy as np
import pytest
from distributed import Event, SchedulerPlugin
from distributed.utils_test import async_poll_for, gen_cluster, inc
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import blocked, cluster2, live, plugin_of, until

import dask_hpc
from dask_hpc.cluster.scheduler.jobs import ENOUGH, Performance
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices


def nothing(prefix):
    return None


def spent(seconds, transfer=0.0, disk=0.0):
    found = [{"action": "compute", "start": 100.0, "stop": 100.0 + seconds}]
    if transfer:
        found.append({"action": "transfer", "start": 5.0, "stop": 5.0 + transfer, "source": "tcp://x"})
    if disk:
        found.append({"action": "disk-read", "start": 5.0, "stop": 5.0 + disk})
    return found


def filled(done, left, seconds=2.0, transfer=0.5):
    performance = Performance()
    work = performance.work("p")
    work.left = left
    for _ in range(done):
        performance.add(work, spent(seconds, transfer), 10)
    return performance


def test_nothing_is_said_without_evidence():
    fresh = Performance()
    assert fresh.mtct is None and fresh.progress(nothing) is None and fresh.time_left(5.0, nothing) is None
    few = filled(ENOUGH - 1, 10)
    assert few.mtct is None and few.time_left(5.0, nothing) is None and few.progress(nothing) is not None
    early = filled(ENOUGH, 100 * ENOUGH)  # 1 % of the work
    assert early.mtct == 0.25 and early.time_left(5.0, nothing) is None


def test_a_change_of_size_asks_for_new_evidence():
    performance = filled(20, 20)
    assert performance.mtct == 0.25
    assert isclose(performance.time_left(10.0, nothing), 10.0)  # 40 s of work done in 10 s, 40 s left
    performance.resized(10.0)
    assert performance.mtct is None and performance.time_left(11.0, nothing) is None
    for _ in range(ENOUGH):
        performance.add(performance.work("p"), spent(2.0, 3.0), 10)
    assert performance.mtct == 1.5
    assert isclose(performance.time_left(30.0, nothing), 40.0)  # 20 s of work done in 20 s
    assert performance.compute == 60.0 and performance.tasks == 30 and performance.nbytes == 300


def test_evidence_is_looked_at_whenever_it_has_doubled():
    performance = Performance()
    told = [performance.add(performance.work("p"), spent(1.0), 1) for _ in range(8 * ENOUGH)]
    assert [i + 1 for i, one in enumerate(told) if one] == [ENOUGH, 2 * ENOUGH, 4 * ENOUGH, 8 * ENOUGH]
    performance.resized(5.0)
    told = [performance.add(performance.work("p"), spent(1.0), 1) for _ in range(2 * ENOUGH)]
    assert [i + 1 for i, one in enumerate(told) if one] == [ENOUGH, 2 * ENOUGH]


def test_an_unknown_prefix_is_expected_as_elsewhere_or_as_the_mean():
    performance = filled(10, 0)
    performance.work("new").left = 5
    assert performance.seconds_left(nothing) == 10.0
    assert performance.seconds_left({"new": 8.0}.get) == 40.0
    assert performance.progress({"new": 4.0}.get) == 0.5


moves = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["owe", "settle", "add", "resize"]),
        st.floats(0, 1e6),
        st.floats(0, 1e6),
    ),
    max_size=60,
)


@given(moves, st.sampled_from([nothing, lambda prefix: 3.0]))
def test_progress_is_a_share_and_sums_are_sums(script, expected):
    performance, now = Performance(), 0.0
    compute = transfer = 0.0
    for prefix, what, seconds, more in script:
        work = performance.work(prefix)
        now += 1.0
        if what == "owe":
            work.left += 1
        elif what == "settle" and work.left:
            work.left -= 1
        elif what == "add":
            performance.add(work, spent(seconds, more), 1)
            compute, transfer = compute + seconds, transfer + more
        elif what == "resize":
            performance.resized(now)
        progress = performance.progress(expected)
        assert progress is None or 0 <= progress <= 1
        if progress is not None and not any(work.left for work in performance.works.values()):
            assert progress == 1
        left = performance.time_left(now, expected)
        assert left is None or left >= 0
        assert performance.mtct is None or performance.mtct >= 0
    assert isclose(performance.compute, compute, abs_tol=1e-3)
    assert isclose(performance.transfer, transfer, abs_tol=1e-3)


def test_the_users_walltime_stays_the_limit():
    indices = Indices([Node("a"), Node("b")])
    for number, (name, walltime) in enumerate((("free", inf), ("said", 100.0))):
        indices.waiting.add(Job(id=name, nodes=1, walltime=walltime), number)
        indices.start(name, 1)
    indices.now = 10.0
    for name in ("free", "said"):
        filled(20, 20).note(name, 0.3, indices, nothing)
    assert indices.progress == {"free": 0.5, "said": 0.5} and indices.mtct == {"free": 0.3, "said": 0.3}
    assert indices.running["free"].expected_end == 20.0
    assert indices.running["said"].expected_end == 100.0
    revision = indices.revision
    indices.now = 10.5  # nothing new, or hardly anything: no new end
    performance = filled(20, 20)
    performance.note("free", None, indices, nothing)
    performance.note("free", None, indices, nothing)
    assert indices.revision == revision


def produce(number):
    return bytes(2_000_000)


def consume(one, other):
    return len(one) + len(other)


@cluster2
async def test_a_live_job_is_measured(c, s, a, b):
    async with await dask_hpc.manage(c) as m, dask_hpc.job("m", nodes=1, min_nodes=1, max_nodes=2):
        on_a = c.map(produce, range(6), workers=[a.address], pure=False)
        on_b = c.map(produce, range(6), workers=[b.address], pure=False)
        sums = c.map(consume, on_a, on_b, pure=False)
        waits = c.submit(blocked, "go", sums)
        assert await c.gather(sums) == [4_000_000] * 6
        job = await until(s, "m", "running")
        await async_poll_for(lambda: job.performance.tasks == 18, 10)
        row = (await m.status())["jobs"][0]
        assert row["finished_tasks"] == 18 and row["bytes"] > 24_000_000
        assert row["compute"] > 0 and row["transfer"] > 0
        assert 0 < row["progress"] <= 1 and row["unfinished_tasks"] == 1
        plugin_of(s).context.wake()
        await async_poll_for(lambda: plugin_of(s).control.indices.mtct.get(job.id), 10)
        assert (await m.status())["jobs"][0]["mtct"] > 0
        await Event("go").set()
        await waits
        assert {work.left for work in live(s, "m").performance.works.values()} == {0}


def compute(number):
    """For a while."""
    until = thread_time() + 0.004
    while thread_time() < until:
        number += 1
    return number


@gen_cluster(client=True, nthreads=[("", 2)] * 4, config={"hpc.drain": 0})
async def test_who_transfers_most_gives_nodes(c, s, *workers):
    """Measured, from real transfers: without that, the one that started last would be the one to give."""
    sizes = {"nodes": 2, "min_nodes": 1, "max_nodes": 2, "walltime": "1 h"}
    async with await dask_hpc.manage(c, policy="performance-aware"):
        with dask_hpc.job("transfers", **sizes):
            ends = [c.submit(blocked, "go", pure=False)]
            one, other = (await until(s, "transfers", "running")).workers
            parts = [c.map(produce, range(8), workers=[at], pure=False) for at in (one, other)]
            await c.gather(c.map(consume, *parts, pure=False))
        with dask_hpc.job("computes", **sizes):
            ends.append(c.submit(blocked, "go", pure=False))
            await until(s, "computes", "running")
            await c.gather(c.map(compute, range(16), pure=False))
        with dask_hpc.job("third"):
            ends.append(c.submit(blocked, "go", pure=False))
        await until(s, "third", "running")
        transfers, computes = live(s, "transfers"), live(s, "computes")
        assert (len(transfers.nodes), len(computes.nodes)) == (1, 2)
        mtct = plugin_of(s).control.indices.mtct
        assert mtct[transfers.id] > 0.1 > mtct[computes.id]
        await Event("go").set()
        await c.gather(ends)


def test_reads_and_writes_are_a_share_of_all_of_its_time():
    performance = Performance()
    shares = {"reads": 1.0, "half": 0.5, "computes": 0.0}

    def of_tasks(work):
        return shares[work.prefix]

    assert performance.io_share(of_tasks) is None
    for number in range(3 * ENOUGH):
        assert (performance.io_share(of_tasks) is None) == (number < ENOUGH)
        performance.add(performance.work(list(shares)[number % 3]), spent(2.0, 1.0, 1.0), 8)
    # of each three tasks 2 + 1 + 0 s of computing is reading, and 1 s each is spilling; of 12 s
    assert isclose(performance.io_share(of_tasks), (3 + 3) / 12)
    performance.resized(5.0)
    assert performance.io_share(of_tasks) is not None  # it is the job's, whatever its size


@cluster2
async def test_tasks_that_dask_marks_as_producers_read(c, s, a, b):
    async with await dask_hpc.manage(c) as m, dask_hpc.job("m", min_nodes=1, max_nodes=2, nodes=2) as job:
        arrays = da.from_array(OnDisk(), chunks=1, asarray=False, fancy=False, inline_array=True)
        assert (await c.compute(arrays.sum(split_every=100))) == 12 * 7
        plugin_of(s).context.wake()
        await async_poll_for(lambda: live(s, "m").model.io_intensity is not None, 10)
        assert live(s, "m").model.io_intensity.intensity(2) > 0.5
        running = plugin_of(s).control.indices.running[job.id]
        assert running.job == live(s, "m").model
        assert not (await m.status())["errors"]


class OnDisk:
    """What a reader of files gives to Dask."""

    shape, dtype, ndim = (12,), np.dtype("i8"), 1

    def __getitem__(self, index):
        sleep(0.002)
        return np.full(12, 7)[index]


@gen_cluster(client=True, nthreads=[("", 2)])
async def test_backfilling_has_an_end_to_go_by(c, s, a):
    async with await dask_hpc.manage(c), dask_hpc.job("r", nodes=1):
        plugin = plugin_of(s)
        first = c.map(blocked, ["begin"] * 20, range(20), pure=False)
        waits = c.map(blocked, ["go"] * 10, range(10), pure=False, priority=-1)
        job = await until(s, "r", "running")
        news = plugin.control.lifecycle.news
        await async_poll_for(lambda: len(job.unfinished) == 30 and not news.is_set, 10)
        await Event("begin").set()
        await c.gather(first)
        # nothing else happens: the evidence itself makes somebody look
        await async_poll_for(lambda: plugin.control.indices.running[job.id].expected_end < inf, 10)
        await Event("go").set()
        await c.gather(waits)


@pytest.mark.timed
@cluster2
async def test_a_transition_costs_less_than_five_microseconds(c, s, *workers, seconds_of):
    async with await dask_hpc.manage(c), dask_hpc.job("r", nodes=1):
        futures = c.map(blocked, ["go"] * 200, range(200), pure=False)
        job = await until(s, "r", "running")
        await async_poll_for(lambda: len(job.unfinished) == 200, 10)
        plugin, keys = plugin_of(s), list(job.unfinished)[-100:]
        measured = {
            "startstops": spent(1.0, 0.1),
            "nbytes": 28,
            "worker": workers[0].address,
            "typename": "int",
        }

        def every_transition_of_a_task():
            for key in keys * 10:
                plugin.transition(key, "released", "waiting", stimulus_id="test")
                plugin.transition(key, "waiting", "processing", stimulus_id="test")
                plugin.transition(key, "processing", "memory", stimulus_id="test", **measured)

        def plain():
            for _ in keys * 10:
                plugin.transition("of no job", "released", "waiting", stimulus_id="test")

        whole = seconds_of(every_transition_of_a_task, times=60) / 1000
        other = seconds_of(plain, times=60) / 1000
        print(
            f"\na task of a job: {whole * 1e6:.2f} us in all its transitions; of no job: {other * 1e6:.2f} us"
        )
        assert whole < 5e-6
        await Event("go").set()
        await c.gather(futures)


class Ear(SchedulerPlugin):
    """Hears what Dask says of tasks."""

    def __init__(self):
        self.said = set()

    def transition(self, key, start, finish, *args, **kwargs):
        assert not args
        self.said |= kwargs.keys()


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_all_that_dask_says_of_a_task_that_ends_has_a_name(c, s, *workers):
    ear = Ear()
    s.add_plugin(ear, name="ear")
    async with await dask_hpc.manage(c):
        named = [
            name
            for name, one in signature(plugin_of(s).transition).parameters.items()
            if one.kind is one.KEYWORD_ONLY
        ]
        sums = c.map(consume, c.map(produce, range(4), pure=False), [b""] * 4, pure=False)
        assert await c.gather(sums) == [2_000_000] * 4
    assert {"startstops", "nbytes"} <= ear.said, "what is measured of a task has other names"
    assert ear.said <= {*named}, "it takes longer to gather than to find by name: name it in the hook"


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_with_no_job_restricted_nothing_of_daks_is_in_other_hands_than_it_must(c, s, *workers):
    """A job on all nodes, or none: Dask looks up where tasks may run as without us, and slots are nobody's
    business. As soon as a job is restricted to some nodes that is so."""
    async with await dask_hpc.manage(c):
        waves = plugin_of(s).control.gate.waves
        heard, work = [], waves._look_later
        waves._look_later = lambda: heard.append(1) or work()
        assert await c.gather(c.map(inc, range(6), pure=False)) == list(range(1, 7))
        assert not heard and not waves.is_awaited and "valid_workers" not in vars(s)
        async with dask_hpc.job("all", nodes=2):
            await c.gather(c.map(inc, range(6), pure=False))
            assert "valid_workers" not in vars(s)
        async with dask_hpc.job("one", nodes=1):
            await c.gather(c.map(inc, range(6), pure=False))
            assert "valid_workers" in vars(s) and heard
        assert plugin_of(s).errors == 0
    assert "valid_workers" not in vars(s)


def test_progress_of_short_tasks_counts_their_seconds():
    performance = Performance()
    performance.add(performance.work("x"), spent(0.1), 8)
    performance.work("y").left = 1
    assert isclose(performance.progress(lambda prefix: 0.3), 0.25)
