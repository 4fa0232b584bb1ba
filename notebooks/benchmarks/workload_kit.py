"""What a real workload is: for those who write one (array_workloads.py ...) and those who run all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from distributed import Client

SIZES = ("tiny", "small", "full")
#: by name, in the order in which they are written down
WORKLOADS: dict[str, "Workload"] = {}


@dataclass(frozen=True)
class Workload:
    """One piece of work as people give it to Dask, and what of Dask and of us it stresses."""

    name: str
    stresses: str
    function: Callable[..., Any]
    sizes: Mapping[str, Mapping[str, Any]]
    #: False: it has actors, which stay with their worker, so nobody may tell that to go
    can_move: bool = True

    def run(self, client: Client, size: str) -> Any:
        """Do it on this cluster: all that computes happens in here. Gives the same, to rounding, wherever
        and however often it runs."""
        return self.function(client, **self.sizes[size])


def workload(
    stresses: str, *, can_move: bool = True, **sizes: Mapping[str, Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of a client and some numbers, with these numbers for each size."""
    assert set(sizes) == set(SIZES), sorted(sizes)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", "-")
        assert name not in WORKLOADS, name
        WORKLOADS[name] = Workload(name, stresses, function, sizes, can_move)
        return function

    return register


def computed(client: Client, *collections: Any) -> Any:
    """What these collections are, computed at once on this cluster; of one its value alone."""
    found = client.gather(client.compute(list(collections)))
    return found[0] if len(collections) == 1 else found


def is_same(found: Any, wanted: Any) -> bool:
    """Whether a result is what plain Dask gives: numbers to rounding (Dask adds in any order), all else
    exactly."""
    if isinstance(wanted, pd.DataFrame | pd.Series):
        return (
            type(found) is type(wanted)
            and list(found.index) == list(wanted.index)
            and is_same(found.to_numpy(), wanted.to_numpy())
        )
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(is_same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    if isinstance(wanted, np.ndarray | np.generic | float):
        one, other = np.asarray(found), np.asarray(wanted)
        if one.shape != other.shape:
            return False
        if one.dtype.kind == "f" or other.dtype.kind == "f":
            return bool(np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True))
        return bool((one == other).all())
    return bool(found == wanted)
