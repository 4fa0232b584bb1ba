"""Power ranges as people write them."""

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.power import PowerRange


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
