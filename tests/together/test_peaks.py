"""How much memory tasks of a kind take: measured on workers of their own, told at once, and by whom."""

import ctypes
import os
import threading
from time import monotonic, sleep

import numpy as np
import psutil
import pytest
from distributed import Client, Event, LocalCluster, wait

from dask_hpc.together.worker import resident as module
from dask_hpc.together.worker.estimate import HOWS, Estimate, Estimates, TaskRun
from dask_hpc.together.worker.observer import METRIC, TaskObserver
from dask_hpc.together.worker.peaks import TOPIC
from dask_hpc.together.worker.resident import HighWater, Resident, Statm, resident_memory

MB = 1 << 20


def has_high_water():
    memory = resident_memory()
    memory.close()
    return memory.is_exact


exactly = pytest.mark.skipif(not has_high_water(), reason="the system keeps no high-water mark for us")


# the process's memory


@exactly
def test_the_mark_sees_what_is_gone_again():
    memory = HighWater()
    before = memory.now()
    memory.highest()
    np.ones(64 * MB, np.uint8)
    assert memory.now() < before + 16 * MB
    assert memory.highest() - before == pytest.approx(64 * MB, rel=0.1)
    assert memory.highest() < before + 16 * MB, "it began anew"
    memory.close()


@pytest.mark.parametrize("kind", [Resident, Statm])
def test_others_see_what_is_there_when_they_look(kind):
    memory = kind()
    before = memory.now()
    memory.highest()
    block = np.ones(64 * MB, np.uint8)
    assert memory.now() - before == pytest.approx(64 * MB, rel=0.1)
    del block
    assert memory.highest() - before == pytest.approx(64 * MB, rel=0.1), "it has looked meanwhile"
    np.ones(64 * MB, np.uint8)
    assert memory.highest() < before + 16 * MB, "and now it has not"
    assert memory.now() == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
    memory.close()


@pytest.mark.parametrize(("forbidden", "kind"), [("clear_refs", Statm), ("self", Resident)])
def test_what_the_system_does_not_let_us_is_done_without(forbidden, kind, monkeypatch):
    plain, files = os.open, len(os.listdir("/proc/self/fd"))

    def refuse(path, *how):
        if forbidden in path:
            raise PermissionError(path)
        return plain(path, *how)

    monkeypatch.setattr(module.os, "open", refuse)
    memory = resident_memory()
    assert type(memory) is kind and not memory.is_exact and memory.now() > MB
    memory.close()
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_mark_that_cannot_be_reset_is_none(monkeypatch):
    files = len(os.listdir("/proc/self/fd"))

    def refuse(file, text):
        raise PermissionError

    monkeypatch.setattr(module.os, "write", refuse)
    memory = resident_memory()
    assert type(memory) is Statm
    memory.close()
    assert len(os.listdir("/proc/self/fd")) == files


# who has taken it


def run(kind, **how):
    return TaskRun(f"{kind}-{np.random.default_rng().integers(1 << 60)}", kind, 0.0, **how)


def learned(**kinds):
    """Estimates of kinds that were seen alone."""
    found = Estimates()
    for kind, peak in kinds.items():
        one = run(kind)
        found.share(peak, [one])
        found.end(one, 0, 0)
    return found


def ended(estimates, *runs, result=0):
    return [estimates.end(one, result, 0) for one in runs]


def test_one_alone_has_taken_all():
    found, a = Estimates(), run("a")
    for grown in (10, 70, 30):
        found.share(grown, [a])
    assert a.level == 30
    (one,) = ended(found, a)
    assert one.tell() == {"bytes": 70, "mean": 70, "inputs": 0, "result": 0, "tasks": 1, "how": "alone"}


def test_several_of_a_kind_have_taken_the_same():
    found, runs = Estimates(), [run("a") for _ in range(3)]
    found.share(90, runs)
    assert [one.level for one in runs] == [30] * 3
    assert {one.tell()["how"] for one in ended(found, *runs)} == {"alike"}
    assert found.kinds["a"].bytes == 30 and found.kinds["a"].tasks == 3


def test_what_is_known_of_others_is_not_ones_own():
    found = learned(a=100)
    runs = [run("a"), run("b"), run("c")]
    found.share(160, runs)
    assert [one.level for one in runs] == [100, 30, 30]
    ended(found, *runs)
    assert found.kinds["b"].bytes == 30 and found.kinds["b"].tell()["how"] == "rest"
    assert found.kinds["a"].bytes == 100 and found.kinds["a"].tell()["how"] == "alone"


def test_strangers_share():
    found, runs = Estimates(), [run("a"), run("b")]
    found.share(100, runs)
    assert [one.level for one in runs] == [50, 50]
    assert {one.tell()["how"] for one in ended(found, *runs)} == {"shared"}


def test_of_acquaintances_each_has_its_part():
    found = learned(a=100, b=300)
    runs = [run("a"), run("b")]
    found.share(200, runs)
    assert [one.level for one in runs] == [50, 150]
    zeros = learned(a=0, b=0)
    zeros.share(10, runs)
    assert [one.level for one in runs] == [5, 5]


def test_others_that_are_not_at_their_most_yet_take_nothing_negative():
    found = learned(a=100)
    runs = [run("a"), run("b")]
    found.share(60, runs)
    assert [one.level for one in runs] == [60, 0]


def test_ones_own_result_is_the_least():
    found, runs = Estimates(), [run("a"), run("b")]
    found.share(100, runs)
    found.end(runs[0], 90, 0)
    found.end(runs[1], 10**6, 0)  # a view of what was there before
    assert found.kinds["a"].bytes == 90
    assert found.kinds["b"].bytes == 100, "all together have not grown by more"
    one = run("c")
    found.share(5, [one])
    found.end(one, 10**6, 0)
    assert found.kinds["c"].bytes == 5, "who was alone is known"


def test_who_was_not_alone_all_the_time_is_less_sure():
    found, a, b = Estimates(), run("a"), run("b")
    found.share(40, [a, b])
    found.share(80, [a])
    assert ended(found, a)[0].tell()["how"] == "alike"
    assert found.kinds["a"].bytes == 80


def test_the_newest_most_counts_and_fades_slowly():
    one = Estimate()
    for peak in [100] * 5 + [200] + [100] * 10:
        one.learn(peak, 3)
    assert one.bytes == pytest.approx(100 + 100 * 0.95**10)
    one.learn(300, 3)
    assert one.bytes == 300
    for _ in range(200):
        one.learn(50, 3)
    assert one.bytes == pytest.approx(50, rel=0.01) and one.mean == pytest.approx(50, rel=0.01)


@pytest.mark.parametrize("low", range(3))
def test_what_is_surer_replaces_what_is_not(low):
    one = Estimate()
    one.learn(500, low)
    one.learn(100, low + 1)
    assert one.bytes == one.mean == 100 and one.tell()["how"] == HOWS[low + 1]
    one.learn(50, low)
    assert one.bytes == 100, "less, and less sure"
    one.learn(200, low)
    assert one.bytes == pytest.approx(110), "more, but less sure"
    assert one.tasks == 4


def test_what_is_told_at_once():
    one = Estimate()
    one.learn(100 * MB, 3)
    assert one.has_news()
    one.tell()
    assert not one.has_news()
    one.learn(119 * MB, 3)
    assert not one.has_news()
    one.learn(121 * MB, 3)
    assert one.has_news(), "a fifth more than was told"
    small = Estimate()
    small.learn(1000, 3)
    small.tell()
    small.learn(MB, 3)
    assert not small.has_news(), "nobody's trouble"


def test_kinds_that_are_not_seen_any_more_make_room():
    found = Estimates()
    for number in range(201):
        ended(found, run(f"k{number}"))
        if number == 199:
            ended(found, run("k0"))
    assert len(found.kinds) == 200 and "k0" in found.kinds and "k1" not in found.kinds


def test_many_kinds_are_told_in_turn():
    found = learned(**{f"k{i}": i for i in range(7)})
    told = [set(found.tell(3, skip)) for skip in range(3)]
    assert set().union(*told) == set(found.kinds) and {len(one) for one in told} == {3}
    assert set(found.tell(7)) == set(found.kinds)


# on workers


def grow(mb, i=0):
    """Takes so much for a moment."""
    np.ones(mb * MB, np.uint8)
    return i


def make(mb, i=0):
    return np.ones(mb * MB, np.uint8)


def hold(mb, go, i=0):
    """Takes so much until somebody sets the event."""
    block = np.ones(mb * MB, np.uint8)
    Event(f"{go}-began").set()
    Event(go).wait(60)
    return int(block[0])


def keep_the_gil(mb, seconds):
    """No other thread of the process runs meanwhile."""
    libc = ctypes.PyDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    block = libc.malloc(mb * MB)
    libc.memset(ctypes.c_void_p(block), 1, mb * MB)
    libc.usleep(int(seconds * 1e6))
    libc.free(ctypes.c_void_p(block))


def same(x):
    return x


def tail(x, go):
    Event(f"{go}-began").set()
    Event(go).wait(60)
    return 1


class Heard:
    """What was told at once."""

    def __init__(self, client):
        self._client = client
        self._lock = threading.Condition()
        self.messages = []
        client.subscribe_topic(TOPIC, self)

    def __call__(self, event):
        with self._lock:
            self.messages.append(event[1])
            self._lock.notify_all()

    def last(self, kind):
        found = [one["kinds"][kind] for one in self.messages if kind in one.get("kinds", ())]
        return found[-1] if found else None

    def until(self, found, seconds=10):
        with self._lock:
            assert self._lock.wait_for(found, seconds), self.messages
            return found()


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0", memory_limit="1GiB"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def heard(client):
    """Each time from the beginning, on workers without results."""
    client.register_plugin(TaskObserver(peaks=True))
    # heartbeats tell of peaks as well: what is told at once needs none
    client.run(lambda dask_worker: dask_worker.periodic_callbacks["heartbeat"].stop())
    heard = Heard(client)
    yield heard
    client.unsubscribe_topic(TOPIC)
    client.run(lambda dask_worker: dask_worker.periodic_callbacks["heartbeat"].start())
    client.unregister_worker_plugin(METRIC)
    assert client.run(lambda dask_worker: type(dask_worker.active_threads)) == dict.fromkeys(
        worker_addresses(client), dict
    )


def worker_addresses(client):
    return list(client.scheduler_info(n_workers=-1)["workers"])


def on(client, number=0):
    return {"workers": [worker_addresses(client)[number]], "pure": False}


@exactly
@pytest.mark.parametrize("mb", [20, 100, 300])
def test_a_kind_that_was_alone_is_known_at_once(client, heard, mb):
    client.submit(grow, mb, **on(client)).result()
    told = heard.until(lambda: heard.last("grow"), 2)
    assert told["bytes"] == pytest.approx(mb * MB, rel=0.1)
    assert told["how"] == "alone" and told["tasks"] == 1
    assert heard.messages[0]["worker"] == worker_addresses(client)[0]


def test_a_result_counts_until_it_is_dasks(client, heard):
    for i in range(3):
        made = client.submit(make, 100, i, **on(client))
        wait(made)
        client.submit(same, made, **on(client)).result()
        del made
    told = heard.until(lambda: heard.last("make"))
    assert told["bytes"] == pytest.approx(100 * MB, rel=0.1)
    assert told["result"] == pytest.approx(100 * MB, rel=0.01)
    told = heard.until(lambda: heard.last("same"))
    assert told["bytes"] < 10 * MB, "its result was there before"
    assert told["inputs"] == 0


def test_growth_is_told_again_only_if_it_is_much_more(client, heard):
    for mb in (50, 52, 51, 100):
        client.submit(grow, mb, **on(client)).result()
    heard.until(lambda: heard.last("grow")["bytes"] > 90 * MB)
    told = [one["kinds"]["grow"]["bytes"] / MB for one in heard.messages if "kinds" in one]
    assert told == pytest.approx([50, 100], rel=0.1)


@exactly
def test_a_task_that_keeps_the_gil_is_seen_all_the_same(client, heard):
    client.submit(keep_the_gil, 200, 0.3, **on(client)).result()
    told = heard.until(lambda: heard.last("keep_the_gil"))
    assert told["bytes"] == pytest.approx(200 * MB, rel=0.1) and told["how"] == "alone"


def test_several_of_a_kind(client, heard):
    where = on(client)["workers"]
    futures = [client.submit(hold, 80, f"go-{i}", key=f"alike-{i}", workers=where) for i in (1, 2)]
    for i in (1, 2):
        Event(f"go-{i}-began", client=client).wait(10)
    running = heard.until(lambda: [one for one in heard.messages if len(one.get("running", ())) == 2])
    assert {row[1] for row in running[-1]["running"]} == {"alike"}
    for i in (1, 2):
        Event(f"go-{i}", client=client).set()
    client.gather(futures)
    told = heard.until(lambda: heard.last("alike"))
    assert told["bytes"] == pytest.approx(80 * MB, rel=0.1) and told["how"] == "alike"


def test_two_kinds_at_once(client, heard):
    """One is known: the other one has taken the rest."""
    client.submit(grow, 60, key="known-0", workers=on(client)["workers"]).result()
    where = on(client)["workers"]
    first = client.submit(hold, 60, "go-a", key="known-1", workers=where)
    Event("go-a-began", client=client).wait(10)
    second = client.submit(hold, 150, "go-b", key="other-1", workers=where)
    Event("go-b-began", client=client).wait(10)
    rows = heard.until(
        lambda: {
            row[1]: row[3] for one in heard.messages for row in one.get("running", ()) if row[3] > 100 * MB
        }
    )
    assert list(rows) == ["other"], "as far as it had come; less than 51 MB more are not told"
    Event("go-b", client=client).set()
    second.result()
    told = heard.until(lambda: heard.last("other"))
    assert told["bytes"] == pytest.approx(150 * MB, rel=0.1) and told["how"] == "rest"
    Event("go-a", client=client).set()
    first.result()
    assert heard.last("known")["bytes"] == pytest.approx(60 * MB, rel=0.1)


def test_what_runs_is_told_while_it_runs(client, heard):
    future = client.submit(hold, 200, "go-r", key="long-1", workers=on(client)["workers"])
    Event("go-r-began", client=client).wait(10)
    message = heard.until(
        lambda: next((m for m in heard.messages if "running" in m and m["running"][0][3] > 150 * MB), None)
    )
    ((key, kind, start, grown),) = message["running"]
    assert (key, kind) == ("long-1", "long") and 150 * MB < grown < 220 * MB
    assert message["resident"] > 150 * MB
    assert not future.done() and start > 1e9
    told = len([one for one in heard.messages if "running" in one])
    sleep(0.5)  # nothing happens: nothing is told
    assert len([one for one in heard.messages if "running" in one]) == told
    Event("go-r", client=client).set()
    future.result()


def test_what_runs_long_is_told_of_known_kinds_as_well(client, heard):
    where = on(client)["workers"]
    for i in range(3):
        client.submit(grow, 5, key=f"long-{i}", workers=where).result()
    future = client.submit(hold, 200, "go-k", key="long-3", workers=where)
    heard.until(lambda: [m for m in heard.messages if "running" in m and m["running"][0][3] > 100 * MB])
    assert not future.done()
    Event("go-k", client=client).set()
    future.result()


def test_what_arrives_or_goes_meanwhile_is_of_nobody(client, heard):
    here, there = worker_addresses(client)
    old = client.submit(make, 120, key="old", workers=[here])
    far = client.submit(make, 150, key="far", workers=[there])
    wait([old, far])
    waits = client.submit(hold, 30, "go-t", key="waits-1", workers=[here])
    Event("go-t-began", client=client).wait(10)
    view = client.submit(same, far, key="view-1", workers=[here])  # as large, and of no memory of its own
    wait(view)
    del old, view
    until_gone(client, here, "old", "view-1")
    sleep(0.2)  # it is looked at
    Event("go-t", client=client).set()
    waits.result()
    told = heard.until(lambda: heard.last("waits"))
    assert told["bytes"] == pytest.approx(30 * MB, rel=0.1, abs=8 * MB)
    assert heard.last("view")["bytes"] < 20 * MB or heard.last("view")["how"] != "alone"


def until_gone(client, here, *keys):
    end = monotonic() + 10
    while client.run(lambda dask_worker: any(key in dask_worker.data for key in keys))[here]:
        assert monotonic() < end
        sleep(0.02)


def test_what_is_scattered_to_a_worker_makes_it_less_sure(client, heard):
    """It comes by another way, of which one hears when it has come."""
    here, _ = worker_addresses(client)
    waits = client.submit(hold, 30, "go-s", key="waits-1", workers=[here])
    Event("go-s-began", client=client).wait(10)
    data = client.scatter(np.ones(100 * MB, np.uint8), workers=[here], direct=True)
    sleep(0.2)
    Event("go-s", client=client).set()
    waits.result()
    told = heard.until(lambda: heard.last("waits"))
    assert told["how"] == "alike"
    del data
    client.submit(grow, 30, key="waits-2", workers=[here]).result()
    told = heard.until(lambda: heard.last("waits"))
    assert client.run(estimate_of, "waits", workers=[here])[here]["how"] == "alone"


def estimate_of(kind, dask_worker):
    return dask_worker.plugins[METRIC]._peaks.estimates.kinds[kind].tell()


def test_a_view_changes_nothing_for_who_runs_when_it_goes(client, heard):
    here, _ = worker_addresses(client)
    made = client.submit(make, 200, key="made-1", workers=[here])
    view = client.submit(same, made, key="view-1", workers=[here])
    wait(view)
    waits = client.submit(hold, 30, "go-v", key="waits-1", workers=[here])
    Event("go-v-began", client=client).wait(10)
    del view
    until_gone(client, here, "view-1")
    sleep(0.2)
    Event("go-v", client=client).set()
    waits.result()
    told = heard.until(lambda: heard.last("waits"))
    assert told["bytes"] == pytest.approx(30 * MB, rel=0.1) and told["how"] == "alone"
    assert client.run(lessened, workers=[here]) == {here: {}}


def lessened(dask_worker):
    return dask_worker.plugins[METRIC]._peaks._less


def test_what_was_brought_for_a_task_is_told_apart(client, heard):
    here, there = worker_addresses(client)
    far = client.submit(make, 70, key="far-1", workers=[there])
    wait(far)
    client.submit(same, far, key="needy-1", workers=[here]).result()
    told = heard.until(lambda: heard.last("needy"))
    assert told["inputs"] == pytest.approx(70 * MB, rel=0.01) and told["bytes"] < 20 * MB


def looks(dask_worker):
    """Whether the worker's memory is looked at, and whether it would be."""
    watch = dask_worker.plugins[METRIC]._peaks
    return watch._awake.is_set(), watch._thread.is_alive()


def test_nobody_looks_while_nothing_runs(client, heard):
    client.submit(grow, 10, **on(client)).result()
    here = worker_addresses(client)[0]
    end = monotonic() + 10
    while client.run(looks)[here][0] and monotonic() < end:
        sleep(0.05)
    assert client.run(looks)[here] == (False, True)
    future = client.submit(hold, 10, "go-l", key="l-1", workers=[here])
    Event("go-l-began", client=client).wait(10)
    assert client.run(looks)[here] == (True, True)
    Event("go-l", client=client).set()
    future.result()


def noted(dask_worker):
    """Tasks of the kind that were looked at, and what is still kept of any."""
    watch = dask_worker.plugins[METRIC]._peaks
    left = len(watch._runs) + len(watch._ended) + len(watch._young)
    return watch.estimates.kinds["short"].tasks, left


def test_of_many_short_tasks_some_are_looked_at(client, heard):
    where = on(client)["workers"]
    keys = [f"short-{i}" for i in range(2000)]
    client.gather(client.map(same, range(2000), key=keys, workers=where))
    ((tasks, kept),) = client.run(noted, workers=where).values()
    assert 3 <= tasks < 2000 and kept == 0


def test_short_tasks_that_nobody_looks_at_are_not_taken_for_growth(client, heard):
    where = on(client)["workers"]
    for i in range(3):
        client.submit(grow, 60, key=f"short-{i}", workers=where).result()
    long = client.submit(hold, 30, "go-q", key="long-1", workers=where)
    Event("go-q-began", client=client).wait(10)
    keys = [f"short-{i}" for i in range(3, 103)]
    client.gather(client.map(grow, [60] * 100, key=keys, workers=where))
    Event("go-q", client=client).set()
    long.result()
    told = heard.until(lambda: heard.last("long"))
    assert told["bytes"] == pytest.approx(30 * MB, rel=0.1, abs=10 * MB)
    ((tasks, kept),) = client.run(noted, workers=where).values()
    assert 3 < tasks < 103 and kept == 0
    assert heard.last("short")["bytes"] == pytest.approx(60 * MB, rel=0.1)


def open_things(dask_worker):
    """Threads and files of ours."""
    names = [thread.name for thread in threading.enumerate()]
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    files = [os.readlink(link) for link in links if os.path.islink(link)]
    return names.count("dask-hpc-peaks"), sum(name.endswith(("/statm", "/clear_refs")) for name in files)


def test_threads_and_files_are_gone_at_the_end(client):
    assert set(client.run(open_things).values()) == {(0, 0)}
    for _ in range(3):
        client.register_plugin(TaskObserver(peaks=True))
    assert {threads for threads, _ in client.run(open_things).values()} == {1}
    client.unregister_worker_plugin(METRIC)
    assert set(client.run(open_things).values()) == {(0, 0)}
