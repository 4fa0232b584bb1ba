"""What a store says of arrays to those who know nothing but Zarr."""

import json
from uuid import uuid4

import cftime
import numpy as np
import pytest
import xarray as xr

from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.seal import Services
from dask_hpc.checkpoint.store.versions import save


def told(data, attrs=None):
    """Of an array."""
    root = f"memory://{uuid4()}"
    save(root, "run", {"u": xr.DataArray(data, dims="x", attrs=attrs)}, services=Services("never"))
    return json.loads(Files(root).read("run/00000001/u.zarr/data/zarr.json"))


@pytest.mark.parametrize(
    "data, kind, order",
    [
        (np.array([1.5], "<f8"), "float64", "little"),
        (np.array([1], ">i4"), "int32", "big"),
        (np.array([True]), "bool", None),
        (np.array(["2000"], "<M8[s]"), "int64", "little"),
        (np.array([cftime.DatetimeNoLeap(2000, 1, 1)], object), "int64", "little"),
        (np.array(["ab"], ">U2"), {"length_bytes": 8}, "big"),
        (np.array([b"ab"]), {"length_bytes": 2}, None),
        (np.array(["a"], object), "string", None),
    ],
)
def test_the_type_of_elements_and_the_order_of_their_bytes(data, kind, order):
    found = told(data)
    said = found["data_type"]
    assert (said if isinstance(said, str) else said["configuration"]) == kind
    assert found["codecs"][0].get("configuration", {}).get("endian") == order


def test_attributes_that_json_can_say_and_that_change_no_value():
    attrs = {"units": "m", "of": np.arange(2), "scale_factor": 2.0, 3: "a number", "nan": np.nan}
    assert told(np.zeros(1), attrs)["attributes"] == {"units": "m", "of": [0, 1]}
