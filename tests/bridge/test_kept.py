"""What a producer keeps, and that it does not cost a new array each time."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_hpc.bridge.producer import KeptSteps

# On a loaded machine a single draw may take a second.
loaded = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@loaded
@given(most=st.integers(0, 4), taken=st.lists(st.booleans(), max_size=20), blocks=st.integers(1, 3))
def test_the_last_steps_that_were_taken_are_kept(most, taken, blocks):
    kept = KeptSteps(most)
    block = np.empty(3)
    for step, is_taken in enumerate(taken):
        for i in range(blocks):
            block[:] = 10 * step + i
            kept.add("t", step, (i,), block)
            if is_taken:
                kept.trim()
            else:
                kept.drop(step)
                break
    there = [step for step, is_taken in enumerate(taken) if is_taken][-most:] if most else []
    for step in range(len(taken)):
        for i in range(blocks):
            found = kept.find("t", step, (i,))
            assert (found is not None) == (step in there)
            assert found is None or (found == 10 * step + i).all()


def test_memory_is_used_again():
    kept, block = KeptSteps(2), np.zeros(3)
    seen = set()
    for step in range(10):
        kept.add("t", step, (0,), block)
        seen.add(id(kept._steps[step]["t", (0,)]))
        kept.trim()
    assert len(seen) == 3


def test_what_was_found_does_not_change():
    kept = KeptSteps(1)
    kept.add("t", 0, (0,), np.zeros(3))
    found = kept.find("t", 0, (0,))
    for step in range(1, 5):
        kept.add("t", step, (0,), np.full(3, step))
        kept.trim()
    assert (found == 0).all()
