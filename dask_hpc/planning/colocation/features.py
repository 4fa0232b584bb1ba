"""What is known of a task beside others, as rows of numbers for predictors (seed 003, tables 2.1 and 2.2)."""

from collections.abc import Iterable, Sequence

import numpy as np

from dask_hpc.model.errors import insist
from dask_hpc.model.interference import ClassAverages, TaskKind

#: in an order in which every set is the beginning of the next one
FEATURES = (
    "seconds alone",
    "tasks beside",
    "intensity beside",
    "intensity",
    "miss ratio beside",
    "access rate beside",
    "miss ratio",
    "access rate",
)
#: how many of them are in each set: what a manager knows who learns more and more
SETS = {"A": 1, "B": 2, "C": 3, "D": 4, "E": 6, "F": 8}


def features(
    target: TaskKind, beside: Sequence[TaskKind], averages: ClassAverages | None = None
) -> tuple[float, ...]:
    """All eight of a task of one kind beside tasks of others; nan where one is not known. What is not
    measured of a kind is the average of its class, if that is known."""
    averages = ClassAverages() if averages is None else averages
    own = averages.use(target)
    intensities, ratios, rates = (
        (_sum(column) for column in zip(*map(averages.use, beside), strict=True))
        if beside
        else (0.0, 0.0, 0.0)
    )
    return (target.seconds, float(len(beside)), intensities, _known(own.intensity),
            ratios, rates, _known(own.miss_ratio), _known(own.access_rate))  # fmt: skip


def _sum(values: Iterable[float | None]) -> float:
    return sum(map(_known, values), 0.0)


def _known(value: float | None) -> float:
    return float("nan") if value is None else value


def richest_set(rows: np.ndarray) -> str:
    """The largest set whose features are all known, of all rows."""
    known = np.isfinite(np.atleast_2d(rows)).all(axis=0)
    insist(bool(known[0]), FEATURES[0], rows, "known for every row")
    return max((name for name, count in SETS.items() if known[:count].all()), key=SETS.__getitem__)


def columns_of(rows: np.ndarray, name: str) -> np.ndarray:
    """Only the features of a set."""
    insist(name in SETS, "set", name, ", ".join(SETS))
    return np.atleast_2d(rows)[:, : SETS[name]]
