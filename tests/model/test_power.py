"""Power ranges as people write them."""

from dataclasses import replace
from math import inf

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.power import PowerRange, Verdict


@pytest.mark.parametrize(
    "written, read",
    [("250 W", (250, 250)), (170, (170, 170)), (("150 W", "0.25 kW"), (150, 250)), ([0, 1], (0, 1))],
)
def test_one_quantity_or_a_pair(written, read):
    assert PowerRange.read(written) == read
    assert PowerRange.read(PowerRange.read(written)) == read


@pytest.mark.parametrize(
    "written", [("2 W", "1 W"), (1, 2, 3), (), None, "much", -1, float("nan"), float("inf")]
)
def test_anything_else_is_refused(written):
    with pytest.raises(InputError):
        PowerRange.read(written)


def test_a_verdict_in_words():
    verdict = Verdict(1700.0, inf, False, PowerRange(900, 1000), 500.0, 1200.0, "more work would be needed")
    assert str(verdict) == "the corridor (at least 1.7 kW) cannot be kept: more work would be needed"
    assert str(replace(verdict, is_kept=True, reason="")) == "the corridor (at least 1.7 kW) can be kept"
