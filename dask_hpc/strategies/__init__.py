"""The verbs: decision code, one idea per file. Found by concern and name."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from dask_hpc.strategies.conservative_backfill import ConservativeBackfill
from dask_hpc.strategies.easy_backfill import EasyBackfill
from dask_hpc.strategies.fcfs import Fcfs

_OURS: tuple[type, ...] = (Fcfs, EasyBackfill, ConservativeBackfill)

#: what a policy decides about; "none" may be said of every concern but the queue
CONCERNS: tuple[str, ...] = ("queue", "malleability", "power")


@cache
def strategies(concern: str) -> Mapping[str, Any]:
    """Strategy classes of a concern by name: ours, and those of the group ``dask_hpc.strategies``."""
    found = {cls.name: cls for cls in _OURS if cls.concern == concern}  # type: ignore[attr-defined]
    for point in entry_points(group="dask_hpc.strategies"):
        cls = point.load()
        if cls.concern == concern:
            found.setdefault(cls.name, cls)
    return found
