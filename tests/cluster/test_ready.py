"""Ready is a priority queue from which anything may be taken out: checked against a plain list."""

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_hpc.cluster.scheduler import jobs
from dask_hpc.cluster.scheduler.jobs import Ready

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.integers(0, 20)),
        st.tuples(st.just("many"), st.integers(0, 5), st.integers(0, 20)),
        st.tuples(st.just("discard"), st.integers(0, 20)),
        st.tuples(st.just("pop")),
    ),
    max_size=200,
)


@pytest.mark.parametrize("aside", [0, 3, 100])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_gives_the_best_first(aside, steps, monkeypatch):
    monkeypatch.setattr(jobs, "_ASIDE", aside)
    ready, plain, arrivals = Ready(), {}, 0
    for step in steps:
        if step[0] == "many":  # so that what comes late is little beside them
            for i in range(30):
                arrivals += 1
                ready.add(step[1] + i // 9, 100 + i)
                plain[100 + i] = (step[1] + i // 9, arrivals)
        elif step[0] == "add":
            arrivals += 1
            ready.add(*step[1:])
            plain[step[2]] = (step[1], arrivals)
        elif step[0] == "discard":
            ready.discard(step[1])
            plain.pop(step[1], None)
        else:
            best = min(plain, key=plain.get, default=None)
            assert ready.first() == (None if best is None else (plain[best][0], best))
            assert ready.pop() == best
            plain.pop(best, None)
        assert len(ready) == len(plain) and set(ready) == set(plain) and all(key in ready for key in plain)
    assert [ready.pop() for _ in range(len(ready))] == sorted(plain, key=plain.get)


def test_what_was_taken_out_is_not_kept():
    ready = Ready()
    for i in range(10_000):
        ready.add(0, i)
        ready.discard(i)
    assert len(ready._row) + len(ready._late) + len(ready._void) < 400
    for i in range(10_000):
        ready.add(-i, i)
        ready.add(-i, i + 1)
        ready.discard(i)
        ready.discard(i + 1)
    assert len(ready._row) + len(ready._late) + len(ready._void) < 400
    ready.add(0, "x")
    ready.clear()
    assert ready.pop() is None and ready.first() is None


@pytest.mark.parametrize("few", [False, True])
def test_what_comes_out_of_order_takes_little(few):
    ready, count = Ready(), 2**14
    order = [i * 7919 % count for i in range(count)]
    if few:
        order = [*range(0, count, 2), *range(1, 1000, 2)]
    for i in order:
        ready.add(i, ("read", i))
    assert ready.first() == (0, ("read", 0))
    sizes = sum(sys.getsizeof(getattr(ready, name)) for name in Ready.__slots__)
    sizes += sum(sys.getsizeof(late) for late in ready._late)
    assert bool(ready._late) == few and sizes / len(ready) < 80
    assert [ready.pop() for _ in range(len(order))] == [("read", i) for i in sorted(order)]
