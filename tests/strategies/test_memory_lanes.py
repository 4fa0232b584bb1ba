"""As many tasks at once on a worker as its memory has room for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.policy import Policy
from dask_hpc.strategies.memory.memory_lanes import MemoryLanes
from dask_hpc.strategies.memory.memory_view import KindMemory, WorkerMemory

GB = 1e9
LANES = MemoryLanes()


def worker(limit=10, threads=4, base=0, needed=0, running=0, of_kind=0):
    return WorkerMemory(limit * GB, threads, base * GB, needed * GB, running, of_kind)


def kind(peak=None, grown=0.0, still=0.0):
    return KindMemory("k", None if peak is None else peak * GB, grown * GB, still)


@pytest.mark.parametrize(
    "peak, threads, base, at_once, keeps",
    [
        (2.25, 4, 0, 4, False),  # 9 GB of the 9 that may be used
        (2.26, 4, 0, 3, True),
        (3, 4, 0, 3, True),
        (3, 4, 0.1, 2, True),
        (9, 4, 0, 1, True),
        (20, 4, 0, 1, True),
        (9, 1, 0, 1, False),
        (9.1, 1, 0, 1, True),
        (0, 4, 9, 4, False),  # what needs nothing always fits
        (1, 4, 12, 1, True),  # there is more than there may be
    ],
)
def test_how_many_at_once(peak, threads, base, at_once, keeps):
    one, there = kind(peak), worker(threads=threads, base=base)
    assert LANES.at_once(one, there) == at_once
    assert LANES.keeps(one, there) is keeps


def test_who_is_not_known_begins_with_one_and_counts_for_half():
    assert LANES.keeps(kind(), worker()) and LANES.at_once(kind(), worker()) == 1
    assert LANES.need(kind(), worker()) == 4.5 * GB
    assert LANES.fits(kind(), worker()) and not LANES.fits(kind(), worker(needed=4.5, running=1, of_kind=1))
    assert LANES.fits(kind(), worker(needed=4.5, running=1))  # of another kind
    assert not LANES.fits(kind(), worker(needed=4.6, running=1))


def test_its_growth_counts_twice_after_a_second_without_more_of_it():
    judged = kind(grown=1, still=1)
    assert LANES.need(judged, worker()) == 2 * GB and not LANES.keeps(judged, worker())
    assert LANES.at_once(judged, worker()) == 4
    assert LANES.fits(judged, worker(needed=6, running=3, of_kind=3))
    assert not LANES.fits(judged, worker(needed=8, running=4, of_kind=4))
    assert LANES.need(kind(grown=1, still=0.99), worker()) == 4.5 * GB
    assert MemoryLanes(patience=5).keeps(judged, worker())


def test_without_a_probe_nobody_is_kept_who_is_not_known():
    lanes = MemoryLanes(probe=False)
    assert not lanes.keeps(kind(), worker()) and lanes.at_once(kind(), worker()) == 4
    assert lanes.keeps(kind(grown=2), worker())  # it has grown that far


def test_bounds():
    for name, value in (("most", 0.05), ("most", 1.2), ("patience", -1)):
        with pytest.raises(InputError):
            Policy.parse(
                f"{{queue: {{strategy: fcfs}}, memory: {{strategy: memory-lanes, {name}: {value}}}}}"
            )


amounts = st.floats(0, 50)
kinds = st.builds(
    kind, st.none() | amounts, amounts, st.floats(0, 5)
)  # known or not, and judged by its growth or not


@given(
    most=st.floats(0.1, 1),
    probe=st.booleans(),
    of=st.lists(kinds, min_size=1, max_size=4),
    order=st.lists(st.integers(0, 3), max_size=30),
    limit=st.floats(0.1, 50),
    base=st.floats(0, 60),
)
def test_what_is_let_pass_never_needs_more_than_there_is_or_is_alone(most, probe, of, order, limit, base):
    lanes, running = MemoryLanes(most=most, probe=probe), []

    def now(one):
        need = sum(lanes.need(other, worker(limit, base=base)) for other in running)
        return worker(limit, base=base, needed=need / GB, running=len(running), of_kind=running.count(one))

    for number in order:
        one = of[number % len(of)]
        if lanes.fits(one, now(one)):
            running.append(one)
        else:
            assert running  # where nothing runs that is let pass one by one, everything may
    needs = sum(lanes.need(one, worker(limit, base=base)) for one in running)
    assert len(running) <= 1 or needs <= (most * limit - base) * GB * (1 + 1e-9) + 1e-6


@given(kinds, st.floats(0.1, 50), st.integers(1, 64), st.floats(0, 60), st.booleans())
def test_what_is_not_kept_fits_on_each_thread(one, limit, threads, base, probe):
    lanes, there = MemoryLanes(probe=probe), worker(limit, threads, base)
    at_once = lanes.at_once(one, there)
    assert 1 <= at_once <= threads
    if not lanes.keeps(one, there):
        assert at_once == threads
        need = lanes.need(one, there)
        full = WorkerMemory(there.limit, threads, there.base, need * (threads - 1), threads - 1, threads - 1)
        assert threads == 1 or need == 0 or lanes.fits(one, WorkerMemory(
            full.limit * (1 + 1e-9), threads, full.base, full.needed, full.running, full.of_kind
        ))  # fmt: skip
    elif at_once > 1:
        assert lanes.need(one, there) * at_once <= (0.9 * limit - base) * GB * (1 + 1e-9)
