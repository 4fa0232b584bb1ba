"""Clients take turns outside of jobs: the arithmetic for any script, and the order on a real scheduler."""

from math import isclose

import dask
from distributed import Client, Event, worker_client
from distributed.utils_test import async_poll_for, gen_cluster, inc
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import blocked, plugin_of

import dask_hpc
from dask_hpc.cluster.scheduler.fair_shares import VirtualTime

# --- arithmetic

CLIENTS = ("a", "b", "c")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(CLIENTS), st.integers(1, 20)),
        st.tuples(st.just("serve"), st.integers(1, 10), st.none()),
        st.tuples(st.just("cancel"), st.sampled_from(CLIENTS), st.none()),
    ),
    max_size=40,
)
weights = st.fixed_dictionaries({name: st.sampled_from([0.5, 1.0, 3.0]) for name in CLIENTS})


class Server:
    """Serves what has the smallest tag, as Dask's queue does."""

    def __init__(self, weights):
        self.time, self.weights = VirtualTime(7.0), weights
        self.queue, self.number = [], 0

    def submit(self, client, count):
        for _ in range(count):
            self.number += 1
            tag = self.time.tag(client, 0.0, self.weights[client], self.number)
            mine = [entry for entry in self.queue if entry[2] == client]
            assert all(entry[0] < tag for entry in mine), "the order within a client is kept"
            assert tag >= self.time.now(0.0) >= 7.0, "no credit"
            if not mine:
                assert tag <= self.time.now(0.0) + 1 / self.weights[client] + 1e-9, "no debt"
            assert tag < self.time.end
            self.queue.append((tag, self.number, client))

    def serve(self):
        tag, number, client = entry = min(self.queue)
        self.queue.remove(entry)
        before = self.time.now(0.0)
        self.time.settle(number, True)
        assert self.time.now(0.0) == max(before, tag)
        return client

    def cancel(self, client):
        for entry in [entry for entry in self.queue if entry[2] == client]:
            self.queue.remove(entry)
            self.time.settle(entry[1], False)


@given(steps, weights)
def test_no_credit_no_debt_and_everybody_in_order(script, weights):
    server = Server(weights)
    for what, who, count in script:
        if what == "submit":
            server.submit(who, count)
        elif what == "cancel":
            server.cancel(who)
        else:
            for _ in range(min(who, len(server.queue))):
                server.serve()
    while server.queue:
        server.serve()
    assert not server.time._tagged
    for name in CLIENTS:
        server.time.forget(name)
    assert not server.time._flows


@given(steps, weights)
def test_whoever_waits_is_served_by_weight(script, weights):
    """Between any two moments at which two clients have had work all along, what they got, divided by
    their weights, differs by no more than a task of each."""
    server, served = Server(weights), []
    for what, who, count in script:
        if what == "submit":
            server.submit(who, count)
        elif what == "serve":
            for _ in range(min(who, len(server.queue))):
                busy = {entry[2] for entry in server.queue}
                served.append((server.serve(), busy))
    for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
        bound = 1 / weights[one] + 1 / weights[other] + 1e-9
        for begin in range(len(served)):
            got = {one: 0.0, other: 0.0}
            for client, busy in served[begin:]:
                if not {one, other} <= busy:
                    break
                if client in got:
                    got[client] += 1 / weights[client]
                assert abs(got[one] - got[other]) <= bound


def test_levels_have_a_time_of_their_own():
    time = VirtualTime(0.0)
    urgent = [time.tag("a", -5.0, 1.0, f"u{i}") for i in range(100)]
    for i in range(100):
        time.settle(f"u{i}", True)
    assert urgent[-1] == 99.0 and time.now(-5.0) == 99.0
    assert time.tag("b", 0.0, 1.0, "x") == 0.0, "what is urgent takes nothing from the turn of the rest"
    assert isclose(time.tag("b", 0.0, 2.0, "y"), 1.0) and isclose(time.tag("b", 0.0, 2.0, "z"), 1.5)


# --- on a scheduler

one = gen_cluster(client=True, nthreads=[("", 1)])
RAN = []


def note(name, number):
    RAN.append((name, number))


async def queue_up(c, s, other, count=20, few=5):
    """Somebody holds the only thread, then two clients submit, one after the other."""
    RAN.clear()
    blocker = c.submit(blocked, "go", pure=False)
    await async_poll_for(lambda: blocker.key in s.tasks, 10)
    mine = c.map(note, ["first"] * count, range(count), pure=False, fifo_timeout=0)
    await async_poll_for(lambda: len(s.tasks) == count + 1, 10)
    others = other.map(note, ["second"] * few, range(few), pure=False, fifo_timeout=0)
    await async_poll_for(lambda: len(s.tasks) == count + few + 1, 10)
    await Event("go").set()
    await c.gather([blocker, *mine])
    await other.gather(others)
    await Event("go").clear()
    return [place for place, (name, _) in enumerate(RAN) if name == "second"]


@one
async def test_off_by_default_and_no_priority_is_touched(c, s, a):
    async with await dask_hpc.manage(c), Client(s.address, asynchronous=True) as other:
        assert plugin_of(s).control.shares is None
        assert min(await queue_up(c, s, other)) == 20


@one
async def test_clients_take_turns_and_keep_their_order(c, s, a):
    async with await dask_hpc.manage(c) as m, Client(s.address, asynchronous=True, name="bo") as other:
        await m.set(**{"settings.fair-shares": True})
        places = await queue_up(c, s, other)
        assert max(places) <= 12, places
        for name in ("first", "second"):
            numbers = [number for who, number in RAN if who == name]
            assert numbers == sorted(numbers)
        # larger turns for one of them, from now on
        await m.set(**{"settings.fair-shares": {"bo": 4}})
        places = await queue_up(c, s, other, few=8)
        assert max(places) <= 12, places
        assert plugin_of(s).errors == 0


def parent():
    with worker_client() as client:
        client.submit(blocked, "child-go", key="child").result()


@one
async def test_user_priorities_go_first_and_jobs_and_children_are_left_alone(c, s, a):
    with dask.config.set({"hpc.fair-shares": True}):
        m = await dask_hpc.manage(c)
    async with m:
        low = await c.submit(inc, 1, pure=False)
        assert low == 2
        held = [c.submit(blocked, "go", i, priority=p, pure=False) for i, p in enumerate((0, 5, 0))]
        await async_poll_for(lambda: all(f.key in s.tasks for f in held), 10)
        tags = [s.tasks[f.key].priority for f in held]
        assert [tag[0] for tag in tags] == [0, -5, 0] and tags[0][1] < tags[2][1]
        with dask_hpc.job("j", nodes=1):
            job = c.submit(inc, 1, pure=False)
        await async_poll_for(lambda: job.key in s.tasks, 10)
        assert s.tasks[job.key].priority[1] == s.generation
        await Event("go").set()
        await c.gather([*held, job])

        family = c.submit(parent)
        await async_poll_for(lambda: "child" in s.tasks and s.tasks["child"].priority, 10)
        assert isclose(s.tasks["child"].priority[1], -0.01)  # as in plain Dask
        await Event("child-go").set()
        await family
        assert plugin_of(s).errors == 0


@one
async def test_after_it_what_is_new_goes_last(c, s, a):
    m = await dask_hpc.manage(c)
    await m.set(**{"settings.fair-shares": True})
    futures = c.map(blocked, ["go"] * 30, range(30), pure=False)
    await async_poll_for(lambda: len(s.tasks) == 30, 10)
    last = max(s.tasks[f.key].priority for f in futures)
    assert len(plugin_of(s).control.tagged) == 30
    await m.set(**{"settings.fair-shares": False})
    assert plugin_of(s).control.shares is None
    assert not plugin_of(s).control.tagged  # of which every move of a task would be asked
    after = c.submit(inc, 1, pure=False)
    await async_poll_for(lambda: after.key in s.tasks, 10)
    assert s.tasks[after.key].priority > last
    await Event("go").set()
    assert await after == 2
    await c.gather(futures)
    await m.close()


@one
async def test_cancelled_work_is_no_debt(c, s, a):
    async with await dask_hpc.manage(c) as m:
        await m.set(**{"settings.fair-shares": True})
        await Event("go").set()
        lots = c.map(blocked, ["never"] * 1000, range(1000), pure=False)
        await async_poll_for(lambda: len(s.tasks) == 1000, 10)
        time = plugin_of(s).control.shares.time
        assert time.end >= 1000
        del lots
        await async_poll_for(lambda: not s.tasks, 10)
        await Event("never").set()
        f = c.submit(inc, 1, pure=False)
        await async_poll_for(lambda: f.key in s.tasks, 10)
        assert s.tasks[f.key].priority[1] <= time.now(0.0) + 1
        assert await f == 2
