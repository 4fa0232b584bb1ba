"""When to come back to agents after they could not be reached."""

from dask_hpc.strategies.checkpoint.agent_rule import FIRST_WAIT, LONGEST_WAIT, failed


def test_waits_grow_up_to_a_limit():
    known = failed(None, 10.0)
    assert (known.tries, known.again_at) == (0, 10.0 + FIRST_WAIT)
    waits = []
    for _ in range(20):
        now = known.again_at
        known = failed(known, now)
        waits.append(known.again_at - now)
    assert known.tries == 20
    assert waits == sorted(waits) and waits[0] == 2 * FIRST_WAIT and waits[-1] == LONGEST_WAIT
