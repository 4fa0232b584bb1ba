"""Ready is a priority queue from which anything may be taken out: checked against a plain list."""

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.cluster.scheduler.jobs import Ready

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.integers(0, 20)),
        st.tuples(st.just("discard"), st.integers(0, 20)),
        st.tuples(st.just("pop")),
    ),
    max_size=200,
)


@given(steps)
def test_gives_the_best_first(steps):
    ready, plain, arrivals = Ready(), {}, 0
    for step in steps:
        if step[0] == "add":
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
