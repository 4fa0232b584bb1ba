"""Root tasks of a restricted job pass as slots open; a job that is alone is not restricted."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import dask
import pytest
from distributed import Event, Nanny, SchedulerPlugin, Worker, fire_and_forget, secede, wait, worker_client
from distributed.utils_test import async_poll_for, gen_cluster, inc
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cluster import blocked, cluster2, cluster4, held, live, lose, plugin_of, until, where

import dask_hpc
from dask_hpc import dask as compat

pytestmark = pytest.mark.queue

SLOTS = 2  # of a worker with one thread: ceil(1.1 * 1)


def in_flight(s, job):
    """How many of the job's tasks each worker has been sent."""
    owner = plugin_of(s).control.gate.owner
    return {a: sum(owner.get(t.key) is job for t in ws.processing) for a, ws in s.workers.items()}


@asynccontextmanager
async def running_job(c, s, nodes=2, name="a", **options):
    """A job that runs, with one task done."""
    with dask_hpc.job(name, nodes=nodes, **options):
        await c.submit(inc, 0, pure=False)
        yield await until(s, name, "running")


class Steps:
    """Tasks that run until they are told, and who runs where; on the scheduler's event loop."""

    def __init__(self, s, job):
        self.s, self.job, self.most = s, job, 0

    async def settle(self, expected):
        """Wait for so many in flight, and that it stays so."""
        await async_poll_for(lambda: sum(in_flight(self.s, self.job).values()) == expected, 10)
        for _ in range(20):
            await asyncio.sleep(0)
        assert sum(in_flight(self.s, self.job).values()) == expected


def gated(i, name="go"):
    Event(f"{name}-{i}").wait(60)
    return where()


@cluster4
async def test_no_more_in_flight_than_slots(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s) as job:
        futures = c.map(gated, range(20), key=[f"t-{i}" for i in range(20)])
        steps = Steps(s, job)
        await steps.settle(2 * SLOTS)
        flying = in_flight(s, job)
        assert {a: n for a, n in flying.items() if n} == dict.fromkeys(job.workers, SLOTS)
        assert len(job.ready) == 16 and not job.held
        assert sorted(job.passed) == ["t-0", "t-1", "t-2", "t-3"]  # the best first
        assert all(s.tasks[key].worker_restrictions is job.gate for key in job.passed)
        await Event("go-0").set()
        await futures[0]
        await async_poll_for(lambda: "t-4" in job.passed, 10)
        await steps.settle(2 * SLOTS)
        for i in range(20):
            await Event(f"go-{i}").set()
        assert set(await c.gather(futures)) == job.workers
        await async_poll_for(lambda: not job.passed and not job.ready, 10)
        assert not plugin_of(s).control.gate.waves.pending
        assert all(s.tasks[f.key].worker_restrictions is job.wave for f in futures)
    assert plugin_of_is_gone(s)


def plugin_of_is_gone(s):
    """Nothing of ours is left in the scheduler."""
    return (
        "dask-hpc" not in s.plugins
        and "stimulus_queue_slots_maybe_opened" not in vars(s)
        and "bulk_schedule_unrunnable_after_adding_worker" not in vars(s)
        and "valid_workers" not in vars(s)
        and not any(task.worker_restrictions for task in s.tasks.values())
    )


@cluster4
async def test_what_depends_on_roots_goes_first(c, s, *workers):
    order = []

    async with await dask_hpc.manage(c), running_job(c, s):
        roots = [dask.delayed(inc)(i, dask_key_name=("root", i)) for i in range(40)]
        leaves = [dask.delayed(inc)(r, dask_key_name=("leaf", i)) for i, r in enumerate(roots)]
        await c.compute(dask.delayed(sum)(leaves))
        order = [t.key for t in s.transition_log if t.finish == "memory" and t.key[0] in ("root", "leaf")]
    most = open_roots = 0
    for name, _ in order:
        open_roots += 1 if name == "root" else -1
        most = max(most, open_roots)
    assert len(order) == 80 and most <= 3 * SLOTS, order


@cluster2
async def test_each_root_runs_once_and_in_order_of_priority(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1):
        first = c.submit(blocked, "go")
        await async_poll_for(lambda: first.key in s.tasks, 10)
        low = c.map(inc, range(10), priority=-5, key=[("low", i) for i in range(10)])
        high = c.map(inc, range(10), priority=5, key=[("high", i) for i in range(10)])
        await async_poll_for(lambda: ("high", 9) in s.tasks, 10)
        await Event("go").set()
        await wait([*low, *high])
    done = [t.key for t in s.transition_log if t.start == "processing" and t.finish == "memory"]
    places = {key: i for i, key in enumerate(done)}
    assert len(places) == len(done)
    # one slot was open when those of low priority came
    assert sorted(places[f.key] for f in low)[1] > max(places[f.key] for f in high)


@cluster4
async def test_a_waiting_jobs_roots_do_not_pass_before_it_starts(c, s, *workers):
    async with await dask_hpc.manage(c):
        async with running_job(c, s, nodes=3):
            with dask_hpc.job("b", nodes=2):
                futures = c.map(where, range(20), pure=False)
                last = c.submit(len, futures)
            b = await until(s, "b", "waiting")
            await async_poll_for(lambda: len(b.ready) == 20, 10)
            assert b not in plugin_of(s).control.gate.waves.pending and not b.passed
            assert set(plugin_of(s).control.held_by_waiting()) == {f.key for f in futures}
        assert await last == 20
        assert len(set(await c.gather(futures))) <= 2
        assert b.state == "done" or await until(s, "b", "done")
        assert b.gate == set() == b.wave


@cluster4
async def test_a_shrink_and_a_grow(c, s, *workers):
    async with await dask_hpc.manage(c):
        control = plugin_of(s).control
        async with running_job(c, s, nodes=3) as job:
            futures = c.map(gated, range(30), key=[f"t-{i}" for i in range(30)])
            steps = Steps(s, job)
            await steps.settle(3 * SLOTS)
            small = sorted(job.workers)[:1]
            gone = sorted(job.workers)[1:]
            control.gate.move(job, small)
            for i in range(6):
                await Event(f"go-{i}").set()
            await wait(futures[:6])
            await steps.settle(SLOTS)
            assert {a for a, n in in_flight(s, job).items() if n} == set(small)
            control.gate.move(job, [*small, *gone])
            await steps.settle(3 * SLOTS)
            for i in range(30):
                await Event(f"go-{i}").set()
            assert set(await c.gather(futures)) == {*small, *gone}


@cluster4
async def test_a_lost_workers_roots_come_through_again(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=2) as job:
        done = c.map(inc, range(12), key=[f"d-{i}" for i in range(12)])
        await wait(done)
        futures = c.map(gated, range(12), key=[f"t-{i}" for i in range(12)])
        steps = Steps(s, job)
        await steps.settle(2 * SLOTS)
        lost, kept = sorted(job.workers)
        victim = next(w for w in workers if w.address == lost)
        # else one of them would take the place of the lost one
        plugin_of(s).control.holds.hold([a for a in s.workers if a not in job.workers], "test")
        n_lost = sum(f.key in victim.data for f in done)
        assert n_lost
        await s.remove_worker(lost, stimulus_id="test")
        await steps.settle(SLOTS)  # of those that are lost none was pushed to the other worker at once
        assert len(job.ready) == 12 - SLOTS + n_lost
        for i in range(12):
            await Event(f"go-{i}").set()
        assert set(await c.gather(futures)) == {kept}
        assert await c.gather(done) == list(range(1, 13))


@cluster2
async def test_requeued_and_started_again(c, s, a, b):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        (address,) = job.workers
        victim = next(w for w in (a, b) if w.address == address)
        with dask_hpc.job("other", nodes=1):
            other = c.submit(blocked, "other-go")
        await until(s, "other", "running")
        futures = c.map(gated, range(8), key=[f"t-{i}" for i in range(8)])
        await Steps(s, job).settle(SLOTS)
        await lose(victim)
        await until(s, "a", "waiting")
        await async_poll_for(lambda: len(job.ready) == 8, 10)
        assert not job.passed and not job.held and job.gate == {compat.GATE} == job.wave
        await Event("other-go").set()
        await other
        await until(s, "a", "running")
        for i in range(8):
            await Event(f"go-{i}").set()
        assert len(set(await c.gather(futures))) == 1


@cluster2
async def test_cancelled_roots_leave_nothing(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        stays = c.submit(blocked, "go")
        futures = c.map(gated, range(30), key=[f"t-{i}" for i in range(30)])
        await async_poll_for(lambda: len(job.ready) > 20, 10)
        await c.cancel(futures)
        await async_poll_for(lambda: not job.ready and len(s.tasks) <= 2, 10)
        await Event("go").set()
        await stays
        for i in range(30):
            await Event(f"go-{i}").set()
        await async_poll_for(lambda: not job.passed, 10)
        assert await c.gather(c.map(inc, range(30), pure=False)) == list(range(1, 31))


@cluster2
async def test_errors_and_retries(c, s, *workers):
    def fails(i):
        raise ZeroDivisionError

    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        futures = c.map(fails, range(10), retries=2)
        await wait(futures)
        assert {f.status for f in futures} == {"error"}
        assert not job.passed and not job.ready
        log = [t for t in s.transition_log if t.finish == "processing"]
        counts = Counter(t.key for t in log)
        assert {counts[f.key] for f in futures} == {3}
        # tried again by hand they come through the wave, too
        blocker = c.submit(blocked, "go", pure=False)
        await async_poll_for(lambda: sum(in_flight(s, job).values()) == 1, 10)
        await asyncio.gather(*(f.retry() for f in futures[:5]))
        assert len(job.passed | set(job.ready)) >= 4
        await Event("go").set()
        await blocker
        await wait(futures)
        await async_poll_for(lambda: not job.passed and not job.ready, 10)


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 2, Worker=Nanny, timeout=60)
async def test_restart_forgets_what_waits(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        futures = c.map(gated, range(20))
        await async_poll_for(lambda: job.ready, 10)
        await c.restart()
        assert not job.ready and not job.passed and not plugin_of(s).control.gate.waves.pending
        del futures
    assert await c.submit(inc, 1) == 2


@cluster2
async def test_a_task_that_secedes_opens_its_slot(c, s, *workers):
    def outer(i):
        secede()
        Event("all").wait(60)
        return i

    async with await dask_hpc.manage(c), running_job(c, s, nodes=1):
        futures = c.map(outer, range(10), pure=False)
        job = live(s, "a")
        await async_poll_for(lambda: len(s.workers[next(iter(job.workers))].long_running) == 10, 10)
        await Event("all").set()
        assert await c.gather(futures) == list(range(10))


@cluster2
async def test_tasks_from_tasks(c, s, *workers):
    def outer(i):
        with worker_client() as client:
            return sum(client.gather(client.map(inc, range(i), pure=False)))

    async with await dask_hpc.manage(c), running_job(c, s, nodes=1):
        assert await c.gather(c.map(outer, range(8))) == [sum(range(1, i + 1)) for i in range(8)]


@cluster2
async def test_fire_and_forget(c, s, *workers):
    def tell(i):
        Event(f"told-{i}").set()

    async with await dask_hpc.manage(c), running_job(c, s, nodes=1):
        fire_and_forget(c.map(tell, range(10)))
        for i in range(10):
            assert await Event(f"told-{i}").wait(10)


@cluster4
async def test_paused_workers_have_no_slots(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=2) as job:
        idle, busy = sorted(job.workers)
        s.handle_worker_status_change("paused", idle, "test")
        futures = c.map(gated, range(10), key=[f"t-{i}" for i in range(10)])
        await Steps(s, job).settle(SLOTS)
        assert in_flight(s, job)[busy] == SLOTS
        s.handle_worker_status_change("running", idle, "test")
        await Steps(s, job).settle(2 * SLOTS)
        for i in range(10):
            await Event(f"go-{i}").set()
        assert set(await c.gather(futures)) == {idle, busy}


@cluster2
async def test_paused_as_the_only_one(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        (address,) = job.workers
        s.handle_worker_status_change("paused", address, "test")
        futures = c.map(where, range(10), pure=False)
        await async_poll_for(lambda: len(job.ready) == 10, 10)
        s.handle_worker_status_change("running", address, "test")
        assert set(await c.gather(futures)) == {address}


@gen_cluster(
    client=True, nthreads=[("", 1)] * 2, config={"distributed.scheduler.no-workers-timeout": "300 ms"}
)
async def test_no_workers_timeout_spares_roots_that_wait_for_a_slot(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        futures = c.map(gated, range(6), key=[f"t-{i}" for i in range(6)])
        await Steps(s, job).settle(SLOTS)
        deadline = asyncio.get_running_loop().time() + 1
        await async_poll_for(lambda: asyncio.get_running_loop().time() > deadline, 10)
        assert len(job.ready) == 4 and {f.status for f in futures} == {"pending"}
        for i in range(6):
            await Event(f"go-{i}").set()
        await c.gather(futures)


@cluster2
async def test_what_the_user_restricted_or_dask_does_not_queue_is_no_wave(c, s, a, b):
    class Counts:
        pass

    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        (address,) = job.workers
        named = c.map(gated, range(5), key=[f"n-{i}" for i in range(5)], workers=[address])
        await async_poll_for(lambda: in_flight(s, job)[address] == 5, 10)
        assert not job.ready and not job.passed
        few = c.map(inc, range(2), key=["f-0", "f-1"])
        await async_poll_for(lambda: "f-1" in s.tasks, 10)
        assert not job.ready
        actors = c.map(lambda i: Counts(), range(8), actors=True, pure=False)
        await async_poll_for(lambda: len(s.tasks) >= 15, 10)
        for i in range(5):
            await Event(f"go-{i}").set()
        await wait([*named, *few, *actors])
        assert set(await c.gather(named)) == {address}


@cluster2
async def test_what_is_submitted_while_slots_are_open_waits_for_no_wave(c, s, a, b):
    """One task after the other, as loops do that submit more when results come."""
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        done = []
        for i in range(8):
            done.append(c.submit(inc, i, key=f"t-{i}"))
            await done[-1]
        ways = {key: finish for key, _, finish, *_ in s.transition_log if finish == "no-worker"}
        assert not ways and not job.passed
        gated_ones = [c.submit(gated, i, key=f"t-{100 + i}") for i in range(6)]
        await Steps(s, job).settle(SLOTS)
        await async_poll_for(lambda: len(job.ready) == 4, 10)
        for i in range(6):
            await Event(f"go-{i}").set()
        assert set(await c.gather(gated_ones)) == job.workers


@cluster4
async def test_a_graph_that_needs_others_waits_for_its_wave_however_small(c, s, *workers):
    """It may be ready when many others are, and then not all of them have slots."""
    async with await dask_hpc.manage(c), running_job(c, s, nodes=2) as job:
        first = c.submit(gated, 0, key="first")
        await Steps(s, job).settle(1)
        after = [c.submit(lambda _, i: i, first, i, key=f"t-{i}") for i in range(12)]
        await async_poll_for(lambda: "t-11" in s.tasks, 10)
        roots = [f for f in after if s.tasks[f.key].worker_restrictions is job.wave]
        assert len(roots) == 8  # from the fifth on they are many
        await Event("go-0").set()
        assert await c.gather(after) == list(range(12))


@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.scheduler.worker-saturation": "inf"})
async def test_without_a_bound_all_pass(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        futures = c.map(gated, range(10))
        await Steps(s, job).settle(10)
        for i in range(10):
            await Event(f"go-{i}").set()
        assert set(await c.gather(futures)) == job.workers


@cluster2
async def test_others_in_daks_queue_do_not_starve_the_job(c, s, *workers):
    async with await dask_hpc.manage(c):
        outside = c.map(gated, range(40), ["out"] * 40, key=[f"o-{i}" for i in range(40)])
        await async_poll_for(lambda: len(s.queued) == 36, 10)
        with dask_hpc.job("a", nodes=1):
            futures = c.map(where, range(10), pure=False)
            job = await until(s, "a", "running")
            await async_poll_for(lambda: len(job.passed) == 1, 10)  # one thread, one task, besides the others
            for i in range(4):  # what was there before; the rest of them stays blocked or queued
                await Event(f"out-{i}").set()
            (address,) = job.workers
            for i in range(4, 40):
                if job.ready or job.passed:
                    await Event(f"out-{i}").set()
            assert set(await c.gather(futures)) == {address}
        for i in range(40):
            await Event(f"out-{i}").set()
        await wait(outside)


@cluster2
async def test_our_errors_switch_control_off_and_all_runs(
    c,
    s,
    *workers,
):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1) as job:
        plugin = plugin_of(s)

        def fails(job, slots, places):
            raise RuntimeError("on purpose")

        plugin.control.gate.waves._choose = fails
        futures = c.map(inc, range(20), pure=False)
        assert await c.gather(futures) == list(range(1, 21))
        assert not plugin.is_on and not job.ready
        assert any("a wave" in h.reason for h in plugin.story.happenings)


@cluster2
async def test_a_passing_error_does_no_harm(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=1):
        plugin = plugin_of(s)
        waves = plugin.control.gate.waves
        plain, failed = waves._choose, []

        def fails_once(job, slots, places):
            if not failed:
                failed.append(job)
                raise RuntimeError("on purpose")
            plain(job, slots, places)

        waves._choose = fails_once
        assert await c.gather(c.map(inc, range(20), pure=False)) == list(range(1, 21))
        assert plugin.errors == 1 and plugin.is_on


# --- a job that holds every node


def is_shut(s):
    """Whether nothing leaves Dask's queue."""
    return plugin_of(s).control.gate.waves.is_shut


def is_free(s, job):
    """Whether nothing restricts the job's tasks."""
    return not job.confined and job.gate == set() == job.wave


@cluster2
async def test_alone_it_is_not_restricted_and_dask_queues(c, s, *workers):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=2) as job:
        await async_poll_for(lambda: is_free(s, job), 10)
        futures = c.map(gated, range(20), key=[f"t-{i}" for i in range(20)])
        await async_poll_for(lambda: len(s.queued) == 20 - 2 * SLOTS, 10)
        assert not job.ready and not job.passed and not job.held
        for i in range(20):
            await Event(f"go-{i}").set()
        assert set(await c.gather(futures)) == job.workers
    assert plugin_of_is_gone(s)


@pytest.mark.slow
@cluster2
async def test_what_waited_is_handed_to_dask(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2):
            futures = c.map(gated, range(700), key=[f"t-{i}" for i in range(700)])
            last = c.submit(len, futures)
            job = await until(s, "a", "running")
            await async_poll_for(lambda: is_free(s, job), 10)
            assert len(s.queued) == 700 - 2 * SLOTS and not job.ready
            assert {t.key for t in in_processing(s)} == {"t-0", "t-1", "t-2", "t-3"}
            await asyncio.gather(*(Event(f"go-{i}").set() for i in range(700)))
            assert await last == 700


def in_processing(s):
    return [task for ws in s.workers.values() for task in ws.processing]


@pytest.mark.slow
@cluster2
async def test_a_new_node_confines_it_and_takes_back_what_dask_queued(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2):
            futures = c.map(gated, range(600), key=[f"t-{i}" for i in range(600)])
        job = await until(s, "a", "running")
        await async_poll_for(lambda: is_free(s, job) and len(s.queued) == 600 - 2 * SLOTS, 10)
        home = set(job.workers)
        async with Worker(s.address, nthreads=4) as stranger:
            assert job.confined and job.gate == home
            await async_poll_for(lambda: len(job.ready) == 600 - 2 * SLOTS, 10)
            assert not s.queued and not is_shut(s)
            assert set(job.passed) == {"t-0", "t-1", "t-2", "t-3"}
            for i in range(300):
                await Event(f"go-{i}").set()
            assert set(await c.gather(futures[:300])) == home
            assert not stranger.data
            assert stranger.address in await c.gather(c.map(where, range(40), pure=False))
        await async_poll_for(lambda: is_free(s, job), 10)  # alone again
        for i in range(300, 600):
            await Event(f"go-{i}").set()
        assert set(await c.gather(futures)) == home
        await until(s, "a", "done")
    assert plugin_of_is_gone(s)


@cluster4
async def test_shrunk_for_another_job_it_stays_on_its_nodes(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            futures = c.map(gated, range(200), key=[f"t-{i}" for i in range(200)])
            m = await until(s, "m", "running")
            await async_poll_for(lambda: is_free(s, m) and len(s.queued) > 100, 10)
            with dask_hpc.job("r", nodes=3, walltime="1h"):
                others = c.map(blocked, ["r-go"] * 30, range(30), pure=False)
            await async_poll_for(lambda: m.confined and len(m.ready) > 100, 10)  # gives its nodes up
            home = set(m.workers)
            was_there = {task.key for task in in_processing(s)}
            assert was_there <= m.passed and len(home) == 1 and not s.queued
            for key in was_there:
                await Event(f"go-{key[2:]}").set()
            r = await until(s, "r", "running")
            theirs = set(r.workers)
            assert len(theirs) == 3 and not home & theirs
            for i in range(200):
                await Event(f"go-{i}").set()
            places = dict(zip([f.key for f in futures], await c.gather(futures), strict=True))
            assert {places[key] for key in places if key not in was_there} == home
            await Event("r-go").set()
            assert set(await c.gather(others)) == theirs
            await until(s, "r", "done")
            await async_poll_for(lambda: is_free(s, m), 10)
    runs = Counter(t.key for t in s.transition_log if t.start == "processing" and t.finish == "memory")
    assert {runs[f.key] for f in [*futures, *others]} == {1}


@cluster2
async def test_wishes_confine_a_job_alone(c, s, a, b):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=2) as job:
        await async_poll_for(lambda: is_free(s, job), 10)
        assert await c.submit(where, pure=False, workers=[b.address]) == b.address
        assert job.confined and job.gate == {a.address, b.address}
        assert len(set(await c.gather(c.map(where, range(20), pure=False)))) == 2
        await async_poll_for(lambda: is_free(s, job), 10)  # the wish is forgotten with its task


@cluster2
async def test_alone_and_lost(c, s, a, b):
    async with await dask_hpc.manage(c), running_job(c, s, nodes=2) as job:
        await async_poll_for(lambda: is_free(s, job), 10)
        futures = c.map(gated, range(30), key=[f"t-{i}" for i in range(30)])
        await async_poll_for(lambda: len(s.queued) == 30 - 2 * SLOTS, 10)
        await lose(a)
        assert not job.confined and job.state == "running"
        await lose(b)
        await until(s, "a", "waiting")
        await async_poll_for(lambda: len(held(job)) == 30, 10)
        assert not s.queued and not is_shut(s)
        async with Worker(s.address, nthreads=1), Worker(s.address, nthreads=1):
            for i in range(30):
                await Event(f"go-{i}").set()
            await c.gather(futures)


@cluster2
async def test_closed_while_dasks_queue_stands_still(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2):
            futures = c.map(gated, range(20), key=[f"t-{i}" for i in range(20)])
            job = await until(s, "a", "running")
            await async_poll_for(lambda: is_free(s, job), 10)
            plugin_of(s).control.gate.confine(job)
            assert is_shut(s)
            await plugin_of(s).stop()
    assert plugin_of_is_gone(s) and len(s.queued) == 20 - 2 * SLOTS
    for i in range(20):
        await Event(f"go-{i}").set()
    await c.gather(futures)


@cluster2
async def test_the_first_job_starts_before_its_tasks_move(c, s, *workers):
    async with await dask_hpc.manage(c):
        for nodes in (2, 1):
            with dask_hpc.job("a", nodes=nodes):
                futures = c.map(inc, range(20), pure=False)
            await c.gather(futures)
            job = await until(s, "a", "done")
            log = [t for t in s.transition_log if t.key == futures[0].key]
            assert "no-worker" not in {t.finish for t in log} or nodes == 1
            if nodes == 2:  # with queuing: not one step more than on a plain cluster
                assert [t.finish for t in log if t.start != t.finish][:3] == [
                    "waiting",
                    "processing",
                    "memory",
                ]
            assert job.performance.tasks == 20


# --- whatever happens to the job's nodes

ROOTS = 24


class Placed(SchedulerPlugin):
    """Where root tasks are sent, and how many of them a worker has at a time."""

    def __init__(self, s, job):
        self.s, self.job = s, job
        self.wrong, self.most, self.runs = [], 0, Counter()

    def transition(self, key, start, finish, *args, **kwargs):
        if not str(key).startswith("t-"):
            return
        if finish == "processing":
            ws = self.s.tasks[key].processing_on
            if self.job.confined and ws.address not in self.job.workers:
                self.wrong.append((key, ws.address))
            self.most = max(self.most, sum(t.key.startswith("t-") for t in ws.processing))
        elif start == "processing" and finish == "memory":
            self.runs[key] += 1


steps = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.booleans()), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(steps)
def test_moved_at_random_every_root_runs_once_and_on_its_nodes(steps):
    @cluster4
    async def body(c, s, *workers):
        async with await dask_hpc.manage(c):
            plugin = plugin_of(s)
            plugin.control._free_a_job_alone = lambda: None  # here the test moves the job
            async with running_job(c, s, nodes=1) as job:
                s.add_plugin(placed := Placed(s, job), name="placed")
                futures = c.map(gated, range(ROOTS), key=[f"t-{i}" for i in range(ROOTS)])
                await async_poll_for(lambda: f"t-{ROOTS - 1}" in s.tasks, 10)
                done, addresses = 0, sorted(s.workers)
                for size, ends, reverse in steps:
                    plugin.control.gate.move(job, sorted(addresses, reverse=reverse)[:size])
                    for i in range(done, min(done + ends, ROOTS)):
                        await Event(f"go-{i}").set()
                    done = min(done + ends, ROOTS)
                for i in range(done, ROOTS):
                    await Event(f"go-{i}").set()
                await c.gather(futures)
                assert placed.wrong == []
                assert placed.most <= SLOTS
                assert placed.runs == Counter({f"t-{i}": 1 for i in range(ROOTS)})
                assert plugin.errors == 0 and not job.ready and not job.passed
        s.validate_state()

    body()
