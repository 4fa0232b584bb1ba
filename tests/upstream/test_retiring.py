"""Workers that are retired, where Dask's active memory manager has rules for what may come between."""

import asyncio
from time import monotonic

import pytest
from distributed import Event, Security, Status, wait
from distributed.utils_test import BlockedGatherDep, async_poll_for, captured_logger, inc
from preloaded import both, run, told


class Counter:
    n = 0

    def add(self):
        self.n += 1
        return self.n


@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
def test_over_tls(ours):
    pytest.importorskip("cryptography")  # makes the certificates

    async def body(c, s, a, b, ours):
        began = monotonic()
        assert list(await c.retire_workers([a.address])) == [a.address]
        assert monotonic() - began < 5 and set(s.workers) == {b.address}

    run(
        ours,
        body,
        scheduler="tls://127.0.0.1",
        nthreads=[("tls://127.0.0.1", 1), ("tls://127.0.0.1", 2)],
        security=Security.temporary(),
    )


@both
async def test_a_worker_with_an_actor_stays_and_is_warned_of(c, s, a, b, ours):
    actor = await c.submit(Counter, key="actor", actor=True, workers=[a.address])
    proxy = c.submit(lambda counter: counter.add().result(), actor, key="proxy", workers=[b.address])
    assert await proxy == 1
    with captured_logger("dask_hpc" if ours else "distributed.active_memory_manager") as log:
        assert await c.retire_workers([a.address]) == {}
    assert "actor" in log.getvalue() and a.address in log.getvalue()
    await async_poll_for(lambda: s.workers[a.address].status == Status.running, 10)
    assert await actor.add() == 2 and a.state.actors
    # a proxy binds nobody
    assert list(await c.retire_workers([b.address])) == [b.address]
    assert await proxy == 1


SOON = {
    "distributed.scheduler.active-memory-manager.start": True,
    "distributed.scheduler.active-memory-manager.interval": "50ms",
    "distributed.scheduler.active-memory-manager.measure": "managed",
    "distributed.worker.memory.pause": False,
}


@both(config=SOON)
async def test_who_should_take_a_result_does_not_answer(c, s, a, b, ours):
    """It goes to another worker at the latest when the first choice is gone."""
    x = c.submit(inc, 1, key="x", workers=[a.address])
    await x
    b.status = Status.paused
    await async_poll_for(lambda: s.workers[b.address].status == Status.paused, 10)
    async with BlockedGatherDep(s.address) as silent:
        await async_poll_for(lambda: len(s.running) == 2, 10)
        retiring = asyncio.ensure_future(c.retire_workers([a.address]))
        await silent.in_gather_dep.wait()
        assert not retiring.done()  # nobody else may take it
        b.status = Status.running
        await async_poll_for(lambda: s.workers[b.address].status == Status.running, 10)
    assert list(await retiring) == [a.address]
    assert dict(b.data) == {"x": 2} and set(s.workers) == {b.address}


@both(config={"distributed.scheduler.active-memory-manager.start": True})
async def test_results_that_arrive_when_all_others_have_moved(c, s, a, b, ours):
    """With us, what runs may end, and its result moves; plain Dask may run it again elsewhere."""
    xs = c.map(inc, range(200), workers=[a.address])
    await wait(xs)
    late = c.submit(lambda: Event("go").wait(20), workers=[a.address], allow_other_workers=True, key="late")
    await async_poll_for(lambda: a.state.executing_count == 1, 10)
    retiring = asyncio.ensure_future(c.retire_workers([a.address]))
    if not ours:
        await async_poll_for(lambda: len(s.workers[b.address].has_what) == len(xs), 10)
    else:
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
    await Event("go").set()
    assert list(await asyncio.wait_for(retiring, 20)) == [a.address]
    assert await late and sum(await c.gather(xs)) == sum(range(1, 201))
    assert not ours or not any(row[1:3] == ("ready", "executing") for row in b.state.story("late"))


@both(nthreads=[("", 1)] * 4)
async def test_retirements_at_once_and_copies_meanwhile(c, s, a, b, d, e, ours):
    """Two retirements do not hinder each other, nor who copies results meanwhile."""
    xs = c.map(inc, range(20))
    await wait(xs)
    one, other, _ = await asyncio.gather(
        c.retire_workers([a.address]), c.retire_workers([b.address]), c.replicate(xs, n=2)
    )
    assert (list(one), list(other)) == ([a.address], [b.address])
    assert set(s.workers) == {d.address, e.address}
    assert sum(await c.gather(xs)) == 210
    assert not ours or not told(s, "not-retired", "restart")
