"""Heaviest assignments against every one there is."""

import subprocess
import sys
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.moves.redistribution import heaviest


@given(st.data(), st.integers(0, 4), st.integers(0, 4))
def test_no_other_is_heavier(data, things, more):
    names = [f"n{number}" for number in range(things + more)]
    pairs = st.tuples(st.sampled_from([*names, "somebody else"]), st.integers(0, max(0, things - 1)))
    weights = data.draw(st.dictionaries(pairs, st.integers(0, 50))) if things else {}

    def total(order):
        return sum(weights.get((name, thing), 0) for thing, name in enumerate(order))

    found = heaviest(weights, names, things)
    assert len({*found}) == things and {*found} <= {*names}
    assert total(found) == max(total(order) for order in permutations(names, things))


def test_a_scheduler_does_not_wait_for_scipy():
    code = "import sys, dask_hpc.cluster.client.adaptive; print(*(n for n in sys.modules if 'scipy' in n))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []
