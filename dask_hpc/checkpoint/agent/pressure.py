"""How much memory of a worker copies may take now.

For Dask copies are memory that it does not manage: a process that is too full writes results to disk, and
pauses in the end. So copies take at most a share of the worker's limit, and less when the process is fuller
than suits Dask.

Workers get this module by value: it imports nothing of ours.
"""

from math import inf
from typing import Any

from distributed.system import MEMORY_LIMIT

_MARGIN = 0.05  # of the limit, below the mark at which Dask would do something
_MARK = 0.8  # of the limit, if Dask does nothing


def budget(worker: Any, share: float) -> float:
    """Bytes that copies may take at most: a share of the worker's limit, or as many if it is more than 1."""
    return share * _limit(worker) if share <= 1 else min(share, _limit(worker))


def allowed(worker: Any, most: float, used: float) -> float:
    """How many of these bytes they may take now, if they take ``used``."""
    manager = worker.memory_manager
    marks = [mark for mark in (manager.memory_spill_fraction, manager.memory_pause_fraction) if mark]
    mark = max(0.0, min(marks, default=_MARK) - _MARGIN) * _limit(worker)
    return max(0.0, min(most, used + mark - worker.monitor.get_process_memory()))


def _limit(worker: Any) -> float:
    return worker.memory_manager.memory_limit or MEMORY_LIMIT or inf
