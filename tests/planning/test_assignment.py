"""Heaviest assignments against every one there is."""

import subprocess
import sys
from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dask_hpc.planning.moves.assignment import heaviest


@given(arrays(int, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(0, 50)))
def test_no_other_is_heavier(weights):
    rows, columns = heaviest(weights)
    fewer, more = sorted(weights.shape)
    assert len(set(rows)) == len(set(columns)) == len(rows) == fewer
    table = weights if weights.shape == (fewer, more) else weights.T
    most = max(sum(table[i, j] for i, j in enumerate(chosen)) for chosen in permutations(range(more), fewer))
    assert weights[rows, columns].sum() == most


def test_a_scheduler_does_not_wait_for_scipy():
    code = "import sys, dask_hpc.cluster.client.adaptive; print(*(n for n in sys.modules if 'scipy' in n))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


def test_nothing_to_assign():
    assert [len(one) for one in heaviest(np.zeros((0, 0)))] == [0, 0]
