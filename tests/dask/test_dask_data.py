"""Results: who has them, how they move, when they are spilled."""

from math import inf
from time import time

from distributed import (
    Client,
    Event,
    Status,
    wait,
)
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked, cluster2, half_shuffled

from dask_hpc import dask as compat

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


@cluster2
async def test_shuffles_are_seen(c, s, a, b):
    assert not compat.is_shuffling(s), "the plugin shuffle, or valid_workers_downscaling, changed"
    shuffled = await half_shuffled(c, s)
    await Event("go").set()
    assert await c.compute(shuffled.sum()) == 36
    await async_poll_for(lambda: not compat.is_shuffling(s), 10)


@two
async def test_copies_are_made_and_dropped(c, s, a, b):
    f = c.submit(inc, 1, key="x", workers=[a.address])
    await f
    task = compat.find_task(s, "x")
    assert compat.keys_on(s, a.address) == ["x"], "WorkerState.has_what changed"
    assert compat.holders(task) == (a.address,), "TaskState.who_has changed"
    assert compat.size(task) > 0, "TaskState.nbytes changed"
    assert compat.is_wanted(task), "TaskState.who_wants changed"
    assert not compat.is_actor(task)
    assert isinstance(s.running, set) and isinstance(s.stream_comms, dict), "Scheduler.running, stream_comms"
    assert compat.is_running(s, b.address), "Scheduler.running changed"
    b.status = Status.paused
    await async_poll_for(lambda: not compat.is_running(s, b.address), 5)
    b.status = Status.running
    await async_poll_for(lambda: compat.is_running(s, b.address), 5)
    compat.copy_to(s, b.address, ["x"], "test")
    await async_poll_for(lambda: len(compat.holders(task)) == 2, 5)
    g = c.submit(lambda x: Event("go").wait(), f, workers=[a.address], key="y")
    await async_poll_for(lambda: compat.is_used_on(task, a.address), 5)
    assert not compat.is_used_on(task, b.address), "TaskState.waiters, processing_on changed"
    await Event("go").set()
    await g
    compat.drop_from(s, a.address, ["x"], "test")
    assert compat.holders(task) == (b.address,), "Scheduler.request_remove_replicas is not at once"
    await async_poll_for(lambda: "x" not in a.data, 5)
    limit, used = compat.memory_of(s, a.address)
    assert limit == a.memory_manager.memory_limit and used >= 0, "WorkerState.memory_limit, memory changed"
    _, at_worst = compat.memory_of(s, a.address, at_worst=True)
    assert at_worst >= used, "WorkerState.memory, nbytes changed"
    a.monitor.update()
    await a.heartbeat()
    when = compat.measured_at(s, a.address)
    assert 0 <= time() - when < 10, "WorkerState.metrics, time_delay or SystemMonitor's time changed"
    assert compat.measured_at(s, "nobody") == inf


@two
async def test_replicas_that_arrive_are_heard_of(c, s, a, b):
    plain, seen = s.stream_handlers["add-keys"], []
    end = compat.follow_replicas(s, lambda address, keys: seen.append((address, list(keys))))
    x = c.submit(inc, 1, key="x", workers=[a.address])
    assert await c.submit(inc, x, key="y", workers=[b.address]) == 3
    await async_poll_for(lambda: len(s.tasks["x"].who_has) == 2, 10)
    assert seen == [(b.address, ["x"])], "the stream handler add-keys no longer hears of what workers fetch"
    end()
    assert s.stream_handlers["add-keys"] == plain
    end()
    assert s.stream_handlers["add-keys"] == plain


@two
async def test_how_long_moving_takes(c, s, a, b):
    futures = await c.scatter({"x": b"0" * 1_000_000}, workers=[a.address])
    s.bandwidth = 1e6
    assert 0.9 < compat.seconds_to_move(s, a.address) < 1.1, "Scheduler.bandwidth, WorkerState.nbytes?"
    assert compat.seconds_to_move(s, b.address) == 0 and futures


@two
async def test_data_of_a_client_are_announced_and_go_home(c, s, a, b):
    heard, home = [], {a.address}

    async def announce(keys):
        heard.append(list(keys))

    compat.announce_scatters(c, announce)
    compat.announce_scatters(c, announce)  # once is enough
    scatters = compat.Scatters(s, lambda keys: home if "y" not in keys else ())

    async def scattered(name, **given):
        futures = await c.scatter({name: 1}, direct=False, **given)
        (where,) = s.tasks[futures[name].key].who_has
        return where.address

    assert await scattered("x") == a.address, "Client.scatter goes another way: PooledRPCCall.scatter?"
    assert await scattered("x2", workers=[b.address]) == b.address and heard == [["x"]]
    home = {"tcp://gone:1"}
    assert await scattered("x3") in s.workers and await scattered("y") in s.workers
    scatters.stop()
    assert s.handlers["scatter"] == s.scatter and not scatters.under_way


@gen_cluster(client=True)
async def test_who_holds(c, s, a, b):
    """Who holds results, lost ones included: those nobody does."""
    x = c.submit(int, 1, workers=[a.address])
    await x
    lost = "a key that is not there"
    found = await compat.who_holds(c, [x.key, lost])
    assert tuple(found[x.key]) == (a.address,), "Scheduler's handler 'who_has' changed"
    assert not found.get(lost)


@two
async def test_settled(c, s, a, b):
    x = c.submit(blocked, "go", workers=[a.address])
    assert not await compat.settled([x], 0.05)
    await c.submit(lambda: Event("go").set(), workers=[b.address], pure=False)
    assert await compat.settled([x], 10) and x.status == "finished"


@two
async def test_spare_copies(c, s, a, b):
    x, y = c.submit(inc, 1, key="x"), c.submit(inc, 2, key="y")
    await wait([x, y])
    end = compat.spare_copies(s, {"x"}.__contains__)
    for worker in (a, b):
        compat.copy_to(s, worker.address, ["x", "y"], "test")
    both = (s.tasks["x"], s.tasks["y"])
    await async_poll_for(lambda: all(len(task.who_has) == 2 for task in both), 5)
    s.extensions["amm"].run_once()
    await async_poll_for(lambda: len(s.tasks["y"].who_has) == 1, 5)
    assert len(s.tasks["x"].who_has) == 2
    end()
    s.extensions["amm"].run_once()
    await async_poll_for(lambda: len(s.tasks["x"].who_has) == 1, 5)


@two
async def test_results_of_others(c, s, a, b):
    assert c.id in s.client_comms, "Scheduler.client_comms has no ids of clients"
    x = await c.scatter(1)
    compat.pin(s, [x.key], "test")
    key = x.key
    x.release()
    await async_poll_for(lambda: not c.futures, 10)
    found = compat.futures_for(c, [key])
    assert await found[key] == 1, "a client does not hear of results that it begins to want"
    compat.unpin_all(s, "test")
    assert key in s.tasks, "client-desires-keys is no message of clients any more"
    assert "test" not in s.client_comms


@two
async def test_what_is_pinned_stays_and_goes_when_it_is_not(c, s, a, b):
    x, y = c.submit(inc, 1), c.submit(inc, 2)
    await wait([x, y])
    keys = [x.key, y.key]
    compat.pin(s, keys, "us")
    assert {task.key for task in s.clients["us"].wants_what} == {*keys}, "ClientState.wants_what changed"
    del x, y
    await async_poll_for(lambda: c.refcount == {}, 10)
    await c.submit(inc, 3)  # the client has said by now that it needs them no more
    assert all(s.tasks[key].state == "memory" for key in keys), "Scheduler.client_desires_keys keeps nothing"
    compat.unpin(s, keys[:1], "us")
    assert keys[0] not in s.tasks and keys[1] in s.tasks, "Scheduler.client_releases_keys releases nothing"
    compat.unpin_all_of(s, "u")
    assert keys[1] not in s.tasks and "us" not in s.clients and c.id in s.clients
    compat.unpin(s, keys, "us")
    compat.unpin_all(s, "us")


@two
async def test_copies_are_asked_for_in_dasks_own_words(c, s, a, b):
    futures = await c.scatter({"x": 1, ("y", 0): 2}, workers=[a.address])
    await wait(list(futures.values()))
    sent, stream = [], s.stream_comms[b.address]
    plain, stream.send = stream.send, sent.append
    s.request_acquire_replicas(b.address, ["x", ("y", 0)], stimulus_id="test")
    compat.copy_to(s, b.address, ["x", ("y", 0)], "test")
    stream.send = plain
    theirs, ours = sent
    ours["who_has"] = {key: list(found) for key, found in ours["who_has"].items()}
    assert ours == theirs, "Scheduler.request_acquire_replicas sends something else"


@two
async def test_copies_are_forgotten_and_the_worker_hears_of_it_later(c, s, a, b):
    kept = await c.scatter({"z": 1}, workers=[a.address])
    futures = await c.scatter({"x": 1, "y": 2}, workers=[b.address])
    assert [compat.key_of(task) for task in compat.tasks_on(s, "nobody")] == []
    assert {compat.key_of(task) for task in compat.tasks_on(s, b.address)} == {"x", "y"}
    there = compat.tasks_on(s, b.address)
    seen = [compat.key_of(next(there))]
    more = await c.scatter({"more": 3}, workers=[b.address])
    assert {*seen, *(compat.key_of(task) for task in there)} == {"x", "y", "more"}, "has_what is no dict"
    del more
    compat.copy_to(s, a.address, ["x", "y"], "test")
    await async_poll_for(lambda: len(s.workers[a.address].has_what) == 3 and len(b.data) == 2, 5)
    compat.forget_copies(s, a.address, ["x", "y"])
    s.validate_state()
    assert compat.keys_on(s, a.address) == ["z"], "Scheduler.remove_replica changed"
    assert await c.submit(inc, 1, workers=[a.address]) == 2 and "x" in a.data
    compat.remind_of_drops(s, a.address, ["x", "y", "z"])
    await async_poll_for(lambda: set(a.data) == {"z"}, 5)
    assert set(b.data) == {"x", "y"} and len(futures) == 2 and len(kept) == 1


@two
async def test_results_of_another_worker_are_entered_and_told_at_once(c, s, a, b):
    assert "acquire-replicas" in b.stream_handlers, "Worker.stream_handlers has no acquire-replicas"
    futures = c.map(inc, range(10), workers=[a.address])
    await wait(futures)
    keys, heard, plain = [f.key for f in futures], [], s.stream_handlers["add-keys"]

    def hear(**message):
        heard.append(message["keys"])
        return plain(**message)

    s.stream_handlers["add-keys"] = hear
    packed = compat.pack_results(a, [*keys, "nobody's"])
    assert not any(compat.is_known_here(b, key) for key in keys) and compat.is_known_here(a, keys[0])
    spared = keys[3]
    b.state._ensure_task_exists(spared, priority=(0,), stimulus_id="test")  # as a task that needs it does
    assert set(compat.enter_results(b, packed, "test")) == {*keys} - {spared}
    await async_poll_for(lambda: len(s.workers[b.address].has_what) == 9, 5)
    assert [set(found) for found in heard] == [{*keys} - {spared}], "Worker.batched_send, add-keys changed"
    assert {b.state.tasks[key].state for key in keys} == {"memory", "released"}, "UpdateDataEvent changed"
    assert await c.submit(sum, futures, workers=[b.address]) == sum(range(11))
    b.state.validate_state()


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    worker_kwargs={"memory_limit": "10 MB"},
    config={"distributed.worker.memory.target": 0.001, "distributed.worker.memory.pause": False},
)
async def test_too_much_that_comes_together_is_spilled(c, s, a, b):
    futures = c.map(bytes, range(1000, 1100), workers=[a.address])
    await wait(futures)
    keys, there = [future.key for future in futures], b.data
    assert set(compat.enter_results(b, compat.pack_results(a, keys), "test")) == set(keys)
    assert b.data is there is b.state.data, "WorkerState.data changed"
    spilled = len(there.slow)
    assert there.fast.total_weight <= there.n == 10_000, "SpillBuffer.set_noevict, evict changed"
    assert 80 < spilled < 100 == len(there)
    assert list(map(len, [there[key] for key in keys])) == [*range(1000, 1100)]


@gen_cluster(
    client=True,
    nthreads=[("", 1)],
    worker_kwargs={"memory_limit": "10 MB"},
    config={"distributed.worker.memory.target": 1e-9, "distributed.worker.memory.pause": False},
)
async def test_who_has_spilled_says_so(c, s, a):
    await a.heartbeat()
    assert not compat.has_spilled(s, a.address) and not compat.has_spilled(s, "nobody")
    x = c.submit(bytes, 1000)
    await x
    await a.heartbeat()
    assert compat.has_spilled(s, a.address), "WorkerState.metrics says nothing of spilled_bytes"


@one
async def test_a_client_that_closes_says_so_first(c, s, a):
    states = []
    async with Client(s.address, asynchronous=True) as other:
        compat.at_close(other, lambda: states.append((other.status, other.scheduler is not None)))
        assert len(list(other.preloads)) == len(other.preloads._preloads), "Client.preloads changed"
    assert states == [("closing", True)]


@two
async def test_a_worker_writes_down_what_it_fetched(c, s, a, b):
    log = compat.ReceivedLog(b)
    one = c.submit(bytes, 10_000, key="one", workers=[a.address])
    two = c.submit(len, one, key="two", workers=[b.address])
    assert await two == 10_000
    assert log.read() == {a.address: s.tasks["one"].nbytes}, "Worker.transfer_incoming_log changed"
    assert log.read() == {} and compat.ReceivedLog(a).read() == {}
    more = [c.submit(bytes, 100 + i, key=f"more-{i}", workers=[a.address]) for i in range(3)]
    await c.gather([c.submit(len, one, key=f"of-{i}", workers=[b.address]) for i, one in enumerate(more)])
    assert log.read() == {a.address: sum(s.tasks[f"more-{i}"].nbytes for i in range(3))}
    b.transfer_incoming_log.clear()
    assert log.read() == {} and log.read() == {}
