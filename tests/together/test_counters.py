"""What the processor counts for each task.

Virtual machines show no counters of their processor, so the whole way is gone here with events of software
(``SOFTWARE``), which any Linux counts; with those of the cache where there are any. What does not happen on
such machines (counters shared out in time, that wrap, that are forbidden) is put in by hand.
"""

import errno
import os
import sys
import threading
from time import perf_counter, thread_time

import numpy as np
import pytest

from dask_hpc.together.worker import counters as module
from dask_hpc.together.worker.counters import (
    CACHE,
    SOFTWARE,
    CounterGroup,
    Counters,
    CpuEvent,
    counted,
    why_not,
)

WHY_NOT = why_not(SOFTWARE)
pytestmark = pytest.mark.skipif(
    "not allowed" in WHY_NOT or "no perf_event_open" in WHY_NOT, reason=WHY_NOT or "it counts"
)


def burn(seconds):
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def open_counters():
    """How many counters this process has open."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum("perf_event" in os.readlink(link) for link in links if os.path.islink(link))


@pytest.fixture
def counters():
    before = open_counters()
    found = Counters(SOFTWARE)
    assert found.why_not == ""
    yield found
    found.close()
    assert open_counters() == before


def test_of_a_thread_only_itself_is_counted():
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})  # not the first one
    group = CounterGroup(SOFTWARE)
    stop, began = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (began.set(), [burn(0.01) for _ in iter(stop.is_set, True)]))
    other.start()
    began.wait(10)
    before, own = group.read(), thread_time()
    burn(0.05)
    after, own = group.read(), thread_time() - own
    stop.set()
    other.join()
    group.close()
    os.sched_setaffinity(0, cpus)
    nanoseconds, _ = counted(before, after)
    assert nanoseconds / 1e9 == pytest.approx(own, rel=0.1)
    with pytest.raises(OSError):
        group.read()


def test_each_task_has_its_own_counts(counters):
    counters.begins("cpu")
    burn(0.03)
    counters.ends("cpu")
    burn(0.03)  # nobody's
    counters.begins("faults")
    np.ones(64 << 20, np.uint8)  # in pages that may be large
    counters.ends("faults")
    nanoseconds, faults = counters.take("cpu")
    assert 0.027e9 < nanoseconds < 0.06e9 and faults < 20
    nanoseconds, faults = counters.take("faults")
    assert nanoseconds > 0 and faults >= 24  # of 2 MB, but for those at its ends
    assert counters.take("faults") is None, "once"
    assert counters.take("never") is None


def test_threads_count_apart_and_those_that_are_gone_are_closed(counters):
    before = open_counters()
    go = threading.Barrier(3)

    def work(name, seconds):
        counters.begins(name)
        burn(seconds)
        counters.ends(name)
        go.wait(10)  # both are there
        go.wait(10)

    threads = [threading.Thread(target=work, args=(f"t{i}", 0.02 * (i + 1))) for i in range(2)]
    for thread in threads:
        thread.start()
    go.wait(10)
    assert open_counters() == before + 2 * len(SOFTWARE)
    counters.forget_threads()
    assert open_counters() == before + 2 * len(SOFTWARE), "they are alive"
    go.wait(10)
    for thread in threads:
        thread.join()
    counters.forget_threads()
    assert open_counters() == before
    assert 0.018e9 < counters.take("t0")[0] < 0.035e9 < counters.take("t1")[0] < 0.08e9


def test_a_task_that_was_not_seen_to_begin_has_no_counts(counters):
    counters.ends("old")
    counters.begins("a")
    counters.ends("b")  # it was another
    counters.ends("a")
    assert [counters.take(key) for key in ("old", "a", "b")] == [None] * 3


def test_a_counter_that_somebody_closed_is_opened_once_more(counters):
    counters.begins("a")
    for group in counters._groups.values():
        group.close()
    counters.ends("a")
    assert counters.take("a") is None
    counters.begins("b")
    counters.ends("b")
    assert counters.take("b") is not None


def test_a_counter_of_a_thread_that_is_gone_is_not_taken_for_ones_own(counters):
    """Numbers of threads are given again."""
    gone = threading.Thread(target=lambda: (counters.begins("x"), counters.ends("x")))
    gone.start()
    gone.join()
    while os.path.exists(f"/proc/self/task/{gone.native_id}"):
        pass  # Python has let go of it a moment before the system
    (group,) = counters._groups.values()
    counters._groups = {threading.get_ident(): group}
    for key in ("a", "b"):
        counters.begins(key)
        burn(0.001)
        counters.ends(key)
    assert counters.take("a") is None and counters.take("b") is not None


def test_counts_that_nobody_takes_do_not_pile_up(counters):
    for number in range(2100):
        counters.begins(number)
        counters.ends(number)
    assert counters.take(99) is None and counters.take(100) is not None


def test_after_the_end_nothing_is_counted(counters):
    counters.begins("a")
    counters.close()
    counters.ends("a")
    counters.begins("b")
    counters.ends("b")
    assert counters.take("a") is None and counters.take("b") is None
    assert not counters._groups


def test_a_reading_costs_little(counters):
    best = min(_seconds_of_one(counters) for _ in range(5))
    assert best < 50e-6  # 3 us on an idle machine


def _seconds_of_one(counters):
    start = perf_counter()
    for number in range(200):
        counters.begins(number)
        counters.ends(number)
    return (perf_counter() - start) / 200


def test_no_more_files_ends_counting_and_is_said(counters, monkeypatch):
    def full(event, leader):
        raise OSError(errno.EMFILE, "full")

    monkeypatch.setattr(module, "_open", full)
    counters.begins("a")
    counters.ends("a")
    assert counters.take("a") is None
    assert counters.why_not == "too many files are open"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0, 0, 5), (10, 10, 105), (100,)),
        ((10, 10, 5), (30, 20, 55), (100,)),  # half of the time it was counted
        ((0, 0, 2**64 - 10), (10, 10, 90), (100,)),  # it began anew
        ((0, 0, 7), (10, 0, 7), None),  # never counted
        ((0, 0, 100), (10, 10, 5), None),  # it ran backwards
        ((0, 0, 1, 2), (10, 5, 2, 4), (2, 4)),
    ],
)
def test_what_was_counted_between_two_readings(before, after, expected):
    assert counted(before, after) == expected


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EACCES, "kernel.perf_event_paranoid is"),
        (errno.EPERM, "kernel.perf_event_paranoid is"),
        (errno.ENOENT, "virtual machine"),
        (errno.EOPNOTSUPP, "virtual machine"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EINVAL, "cannot be opened"),
    ],
)
def test_why_nothing_is_counted_is_said(code, words, monkeypatch):
    def refuse(event, leader):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module, "_open", refuse)
    found = Counters(CACHE)
    assert words in found.why_not and "\n" not in found.why_not
    found.begins("a")
    found.ends("a")
    assert found.take("a") is None


def test_elsewhere_than_on_linux_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert why_not() == "this system has no perf_event_open"


def test_an_event_that_does_not_exist_leaves_nothing_open():
    before = open_counters()
    with pytest.raises(OSError):
        CounterGroup((*SOFTWARE, CpuEvent("nonsense", 1, 9999)))
    assert open_counters() == before


def test_misses_of_the_cache_where_the_machine_shows_them():
    if problem := why_not(CACHE):
        pytest.skip(problem)
    counters = Counters(CACHE)
    counters.begins("a")
    sum(range(100_000))
    counters.ends("a")
    misses, accesses, instructions = counters.take("a")
    counters.close()
    assert instructions > 1e5 and 0 <= misses <= accesses < instructions
