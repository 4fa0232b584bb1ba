"""Which of several policies is better: means of each, and what differs with the same draw.

One rule for all who compare (what-if, two studies side by side): the interval of the mean of the differences,
draw by draw, decides, and nothing is called better or worse where other jobs were served.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite, sqrt
from typing import Any, Literal

import numpy as np
import pandas as pd

from dask_hpc.model.errors import InputError, shown

Verdict = Literal["better", "worse", "undecided", "same", "other jobs", ""]

#: metric -> what people read, unit, whether less is better (None: a fact, neither good nor bad)
COMPARED: Mapping[str, tuple[str, str, bool | None]] = {
    "mean_wait": ("waiting, mean", "s", True),
    "max_wait": ("waiting, longest", "s", True),
    "mean_response": ("response, mean", "s", True),
    "makespan": ("all done after", "s", True),
    "energy": ("energy until then", "J", True),
    "power": ("power, mean", "W", None),
    "time_outside": ("outside the corridor", "s", True),
    "resizes": ("resizes", "", None),
    "not_completed": ("not completed", "jobs", True),
}
_IF_ANY = {"not_completed", "time_outside"}  # said if it is not zero everywhere
#: what became of jobs that did not end by themselves
_LEFT_OUT = ("killed", "cancelled", "rejected", "dropped", "unfinished")
# Student's t for 95 %, by degrees of freedom 1 to 30.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042)  # fmt: skip
_NOTHING = 1e-9  # of a value: as much is lost in adding up


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One metric of one policy: mean and half the width of its interval; then what it has more than the
    policy that it is compared with, by draws, and what that means. What is not known is None."""

    mean: float | None
    half: float | None
    more: float | None = None
    more_half: float | None = None
    verdict: Verdict = ""
    #: better than what it is compared with, and than all others or as good as can be told
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """One policy."""

    policy: str
    is_base: bool
    #: whether it completes as many jobs as the one that it is compared with, with every draw
    is_alike: bool
    figures: Mapping[str, ComparedFigure]


@dataclass(frozen=True)
class ComparedPolicies:
    """All of a study, in its order."""

    rows: list[ComparedPolicy]

    @property
    def shown(self) -> list[tuple[str, str, str]]:
        """The metrics that have anything to say, as name, words, unit: no power without powers, no jobs left
        out where none is."""
        found = []
        for name, (words, unit, _) in COMPARED.items():
            values = [row.figures[name].mean for row in self.rows]
            if any(values) if name in _IF_ANY else any(value is not None for value in values):
                found.append((name, words, unit))
        return found

    def as_rows(self) -> list[dict[str, Any]]:
        """As plain data."""
        return [asdict(row) for row in self.rows]


def mean_and_half_width(values: Any) -> tuple[float, float]:
    """The mean and half the width of its 95 % confidence interval."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return float("nan"), float("nan")
    if len(values) == 1:
        return float(values[0]), float("nan")
    free = len(values) - 1
    # beyond the table by the first terms of its expansion, right to four digits
    t = _T95[free - 1] if free <= len(_T95) else 1.95996 + 2.3723 / free + 2.8225 / free**2
    return float(values.mean()), float(t * values.std(ddof=1) / sqrt(len(values)))


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """For each policy the mean of every metric, and in ``NAME_ci`` half the width of its interval."""
    rows: dict[Any, dict[str, float]] = {}
    for policy, group in runs.groupby("policy", sort=False):
        row = rows[policy] = {}
        for name in _metrics_of(runs):
            row[name], row[f"{name}_ci"] = mean_and_half_width(group[name].to_numpy())
    return pd.DataFrame.from_dict(rows, orient="index")


def differences(runs: pd.DataFrame, base: str | None = None) -> pd.DataFrame:
    """The same of what each other policy has more than ``base`` (the first one) with the same seed.

    Seeds differ by far more than policies do: the intervals of two means overlap where policies differ in one
    direction with every single seed.
    """
    policies = list(dict.fromkeys(runs["policy"]))
    base = policies[0] if base is None else base
    if base not in policies:
        raise InputError("differences", f"found {shown(base)}", ", ".join(map(str, policies)))
    names = _metrics_of(runs)
    by_seed = {name: found.set_index("seed")[names] for name, found in runs.groupby("policy")}
    rows: dict[str, dict[str, float]] = {}
    for policy in policies:
        if policy != base:
            row = rows[policy] = {}
            for name, values in (by_seed[policy] - by_seed[base]).items():
                row[str(name)], row[f"{name}_ci"] = mean_and_half_width(values.to_numpy(dtype=float))
    return pd.DataFrame.from_dict(rows, orient="index")


def _metrics_of(runs: pd.DataFrame) -> list[str]:
    return [name for name in runs.columns if name not in ("policy", "seed")]


def compared(runs: pd.DataFrame, base: str | None = None) -> ComparedPolicies:
    """A row for each policy in the order of a study's runs, compared with ``base``: the first one."""
    runs = runs.assign(
        power=runs["energy"] / runs["makespan"], not_completed=runs[list(_LEFT_OUT)].sum(axis=1)
    )
    runs = runs[["policy", "seed", "completed", *COMPARED]]
    base = str(runs["policy"].iloc[0]) if base is None else base
    more = differences(runs, base)
    completed = runs.pivot(index="seed", columns="policy", values="completed")
    alike = {str(name): bool(completed[name].equals(completed[base])) for name in completed}
    rows = []
    for policy, found in summary(runs).iterrows():
        policy, figures = str(policy), {}
        for name, (_, _, is_less_better) in COMPARED.items():
            mean, half = found[name], found[f"{name}_ci"]
            if policy == base:
                figures[name] = ComparedFigure(_plain(mean), _plain(half))
                continue
            by, by_half = more.loc[policy, name], more.loc[policy, f"{name}_ci"]
            is_comparable = alike[policy] or name == "not_completed"
            verdict = _verdict(by, by_half, mean, is_less_better) if is_comparable else "other jobs"
            if not is_comparable:
                by = by_half = float("nan")
            figures[name] = ComparedFigure(_plain(mean), _plain(half), _plain(by), _plain(by_half), verdict)
        rows.append(ComparedPolicy(policy, policy == base, alike[policy], figures))
    return ComparedPolicies(_with_best(rows, runs))


def _verdict(more: float, half: float, mean: float, is_less_better: bool | None) -> Verdict:
    if is_less_better is None or not isfinite(more):
        return ""
    if abs(more) <= _NOTHING * abs(mean) and half <= _NOTHING * abs(mean):
        return "same"
    if not isfinite(half) or abs(more) <= half:
        return "undecided"
    return "better" if (more < 0) == is_less_better else "worse"


def _with_best(rows: list[ComparedPolicy], runs: pd.DataFrame) -> list[ComparedPolicy]:
    """In each metric the best of those that are better is the best, and so are those that cannot be told
    from it."""
    best: dict[str, set[str]] = {name: set() for name in COMPARED}
    for name, (_, _, is_less_better) in COMPARED.items():
        found = {
            row.policy: row.figures[name].mean or 0.0 for row in rows if row.figures[name].verdict == "better"
        }
        if not found:
            continue
        first = min(found, key=lambda one: found[one] if is_less_better else -found[one])
        best[name].add(first)
        if len(found) > 1:
            those = runs[runs["policy"].isin(list(found))][["policy", "seed", name]]
            for policy, more in differences(those, first).iterrows():
                if not abs(more[name]) > more[f"{name}_ci"]:
                    best[name].add(str(policy))
    return [
        replace(
            row, figures={n: replace(one, is_best=row.policy in best[n]) for n, one in row.figures.items()}
        )
        for row in rows
    ]


def _plain(value: Any) -> float | None:
    return float(value) if isfinite(value) else None
