"""Which of several policies is better: means of each, and what differs with the same draw.

One rule for all who compare (what-if, two studies side by side): the interval of the mean of the differences,
draw by draw, decides, and nothing is called better or worse where other jobs were served.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

from dask_hpc.simulator.study import Study

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
#: what became of jobs that did not end by themselves
_LEFT_OUT = ("killed", "cancelled", "rejected", "dropped", "unfinished")
_NOTHING = 1e-9  # of a value: as much is lost in adding up


@dataclass(frozen=True, slots=True)
class Figure:
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
class Row:
    """One policy."""

    policy: str
    is_base: bool
    #: whether it completes as many jobs as the one that it is compared with, with every draw
    is_alike: bool
    figures: Mapping[str, Figure]


def compared(study: Study, base: str | None = None) -> list[Row]:
    """A row for each policy in the order of the study, compared with ``base``: the first one."""
    runs = study.runs
    runs = runs.assign(
        power=runs["energy"] / runs["makespan"], not_completed=runs[list(_LEFT_OUT)].sum(axis=1)
    )
    study = Study(runs[["policy", "seed", "completed", *COMPARED]])
    base = str(runs["policy"].iloc[0]) if base is None else base
    completed = runs.pivot(index="seed", columns="policy", values="completed")
    alike = {str(name): bool(completed[name].equals(completed[base])) for name in completed}
    more = study.differences(base)
    rows = []
    for policy, found in study.summary.iterrows():
        policy, figures = str(policy), {}
        for name, (_, _, is_less_better) in COMPARED.items():
            mean, half = found[name], found[f"{name}_ci"]
            if policy == base:
                figures[name] = Figure(_plain(mean), _plain(half))
                continue
            by, by_half = more.loc[policy, name], more.loc[policy, f"{name}_ci"]
            is_comparable = alike[policy] or name == "not_completed"
            verdict = _verdict(by, by_half, mean, is_less_better) if is_comparable else "other jobs"
            if not is_comparable:
                by = by_half = float("nan")
            figures[name] = Figure(_plain(mean), _plain(half), _plain(by), _plain(by_half), verdict)
        rows.append(Row(policy, policy == base, alike[policy], figures))
    return _with_best(rows, study)


def _verdict(more: float, half: float, mean: float, is_less_better: bool | None) -> Verdict:
    if is_less_better is None or not isfinite(more):
        return ""
    if abs(more) <= _NOTHING * abs(mean) and half <= _NOTHING * abs(mean):
        return "same"
    if not isfinite(half) or abs(more) <= half:
        return "undecided"
    return "better" if (more < 0) == is_less_better else "worse"


def _with_best(rows: list[Row], study: Study) -> list[Row]:
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
            runs = study.runs[study.runs["policy"].isin(list(found))][["policy", "seed", name]]
            for policy, more in Study(runs).differences(first).iterrows():
                if policy in found and not abs(more[name]) > more[f"{name}_ci"]:
                    best[name].add(str(policy))
    return [
        replace(
            row, figures={n: replace(one, is_best=row.policy in best[n]) for n, one in row.figures.items()}
        )
        for row in rows
    ]


def told(rows: list[Row]) -> Iterator[str]:
    """The metrics that have anything to say: no power without powers, no jobs left out where none is."""
    for name in COMPARED:
        values = [row.figures[name].mean for row in rows]
        if any(values) if name in ("not_completed", "time_outside") else any(v is not None for v in values):
            yield name


def _plain(value: Any) -> float | None:
    return float(value) if isfinite(value) else None
