"""Nodes: powers that make sense."""

import math

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.node import Node


def test_powers():
    assert Node("n1", 100.0, 350.0).active_power == 350
    assert Node("n1").idle_power == 0


@pytest.mark.parametrize(
    "fields",
    [
        ("n1", 5, 4),
        ("n1", -1, 4),
        ("n1", math.nan, 4),
        ("n1", 0, math.nan),
        ("n1", 0, math.inf),
        ("n1", "1 kW", 5),
        ("n1", 1, None),
        ("", 1, 2),
        (None, 1, 2),
    ],
)
def test_bad_nodes(fields):
    with pytest.raises(InputError) as caught:
        Node(*fields)
    assert len(str(caught.value).splitlines()) == 1
