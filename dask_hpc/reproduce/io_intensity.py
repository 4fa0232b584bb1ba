"""The I/O-aware scheduler against FCFS."""

from dataclasses import replace

import numpy as np

from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Columns,
    Figure,
    Outcome,
    at_least,
    change,
    claim,
    direction,
    figure,
)

_FCFS = "fcfs-malleable"
_ALPHAS = (0.2, 0.3, 0.4, 0.5, 0.6)
_PUBLISHED = {0.2: 31.4, 0.3: 45.9, 0.4: 49.9}
#: reading A is dearer to simulate, and tried at one alpha only
_A_ALPHA = 0.4
_WORKLOAD = "builtin:io-intensity"
_POINTS = 5.0
_BAND = "printed with one decimal, for one draw of jobs of which much is not given: within 5 points"


def run(bench: Bench) -> Outcome:
    """4,000 jobs that compute and write: I/O-aware against FCFS (seed 002, 4.2.5; digest 3.4)."""
    policies = [Policy.load(_FCFS), *(_reading_b(alpha) for alpha in _ALPHAS), _reading_a(_A_ALPHA)]
    runs = bench.study(_WORKLOAD, [*policies])
    base = runs[_FCFS]
    gains = {alpha: _less(runs[f"B {alpha:g}"], base, "mean_transfer") for alpha in _ALPHAS}
    claims = [
        claim(f"alpha {alpha:g}: mean checkpoint time is less by", published, gains[alpha],
              (published - _POINTS, published + _POINTS), "%", _BAND)
        for alpha, published in _PUBLISHED.items()
    ]  # fmt: skip
    claims += _shape(gains, runs, base)
    return Outcome(claims, _beside(runs, base, gains))


def _reading_b(alpha: float) -> Policy:
    return _named(f"B {alpha:g}", {"queue.alpha": alpha})


def _reading_a(alpha: float) -> Policy:
    changes = {"queue.alpha": alpha, "queue.configurations": "all", "malleability.shrink": "queued"}
    return _named(f"A {alpha:g}", changes)


def _named(name: str, changes: dict[str, object]) -> Policy:
    return replace(Policy.load("io-aware").with_(**changes), name=name)


def _less(found: Columns, base: Columns, metric: str) -> np.ndarray:
    return -change(found[metric], base[metric])


def _shape(gains: dict[float, np.ndarray], runs: dict[str, Columns], base: Columns) -> list[Claim]:
    spans = [_less(runs[f"B {alpha:g}"], base, "makespan") for alpha in _ALPHAS]
    best = max(gains.values(), key=np.mean)
    rises = min(float(gains[high].mean() - gains[low].mean()) for low, high in ((0.2, 0.3), (0.3, 0.4)))
    after = [float(gains[alpha].mean()) for alpha in (0.4, 0.5, 0.6)]
    responses = [_less(runs[f"B {alpha:g}"], base, "mean_response") for alpha in _ALPHAS]
    waits = [_less(runs[f"B {alpha:g}"], base, "mean_wait") for alpha in _ALPHAS]
    return [
        claim("the gain rises from 0.2 to 0.3 to 0.4", "rises", rises, at_least(0.0), "points",
              "a direction only: the smaller of the two steps"),
        claim("from 0.4 on the gain differs by", "stagnates", max(after) - min(after), (0.0, _POINTS),
              "points", "no number is printed: within 5 points from 0.4 to 0.6"),
        claim("mean I/O time is less by, at best", 49, best, at_least(49.0), "%", "printed as more than 49"),
        claim("mean I/O time is less by, in its own section", 45, best, at_least(45.0), "%",
              "printed as more than 45"),
        claim("makespan is less by up to", 9.6, max(spans, key=np.mean), (9.6 - _POINTS, 9.6 + _POINTS),
              "%", "printed as up to, for one draw of jobs: the largest over alpha, within 5 points"),
        direction("mean response is less, at the worst alpha, by", "improves", min(responses, key=np.mean),
                  at_least(0.0)),
        direction("mean wait is less, at the worst alpha, by", "improves", min(waits, key=np.mean),
                  at_least(0.0)),
    ]  # fmt: skip


def _beside(runs: dict[str, Columns], base: Columns, gains: dict[float, np.ndarray]) -> list[Figure]:
    spans = {alpha: _less(runs[f"B {alpha:g}"], base, "makespan") for alpha in _ALPHAS}
    read_a = runs[f"A {_A_ALPHA:g}"]
    rows = (("mean checkpoint time", "mean_transfer"), ("makespan", "makespan"))
    return [
        figure("FCFS: makespan", base["makespan"] / 3600, "h"),
        figure("FCFS: mean checkpoint", base["mean_transfer"], "s"),
        figure("FCFS: mean response", base["mean_response"] / 3600, "h"),
        *(figure(f"alpha {a:g}: mean checkpoint time is less by", gains[a], "%") for a in (0.5, 0.6)),
        *(figure(f"alpha {alpha:g}: makespan is less by", one, "%") for alpha, one in spans.items()),
        *(
            figure(f"reading A, alpha {_A_ALPHA:g}: {name} is less by", _less(read_a, base, metric), "%")
            for name, metric in rows
        ),
    ]
