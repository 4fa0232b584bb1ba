"""When to come back to agents after they could not be reached."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.strategies.checkpoint.agent_rule import (
    FIRST_WAIT,
    LONGEST_WAIT,
    failed,
    overhead,
    overhead_published,
    pays,
)

seconds = st.floats(0.001, 1000)


def test_published_overhead():
    """Four tries of 5 s each, a checkpoint each 10 s that takes 2 s longer, 1 s to ask and 3 s for agents."""
    assert overhead_published(1.0, 3.0, 4 * 5.0, 2.5, 0.5, 10.0) == 8.0


def test_whoever_never_comes_back_pays_for_each_try_and_for_no_agent():
    assert overhead(1.0, 4, 20.0, 2.5, 0.5, 10.0) == 8.0
    assert overhead(1.0, 4, 20.0, 2.5, 0.5, 10.0, new_agents=3.0) == 11.0


@given(seconds, seconds, seconds, seconds, st.integers(0, 1000))
def test_it_pays_if_what_is_left_costs_less(probe, new_agents, slow, fast, left):
    stay = left * slow
    back = probe + new_agents + left * fast
    if abs(stay - back) > 1e-6 * (stay + back):
        assert pays(probe, new_agents, slow, fast, left) is (back < stay)
    assert pays(probe, new_agents, slow, fast, inf) is (fast < slow)


def test_waits_grow_up_to_a_limit():
    known = failed(None, 10.0)
    assert (known.since, known.tries, known.again_at) == (10.0, 0, 10.0 + FIRST_WAIT)
    waits = []
    for _ in range(20):
        now = known.again_at
        known = failed(known, now)
        waits.append(known.again_at - now)
    assert known.since == 10.0 and known.tries == 20
    assert waits == sorted(waits) and waits[0] == 2 * FIRST_WAIT and waits[-1] == LONGEST_WAIT
