"""The simulation waits for analyses in situ, which then have all cores of their nodes (seed 004, 5.4)."""

from dataclasses import replace

import numpy as np

from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Outcome,
    around,
    at_least,
    claim,
    direction,
    exactly,
    mean,
)
from dask_hpc.reproduce.in_situ_study import (
    ASSUMPTIONS,
    CAPACITY,
    CLOSE,
    HEURISTICS,
    LOADS,
    OPTIMAL,
    OURS,
    T_SIM,
    Curves,
    Setup,
    by_sample,
    curves,
    per_cent,
    ranked,
)

_BANDWIDTHS = (0.25, 1.0)
_MORE_CORES = 64
_VERY_SIMILAR = 1.0  # per cent
_SENSITIVITY = (100.0, 10_000.0)
_SENSITIVE_LOADS = (1.1, 1.2, 1.3, 1.5)
_DRAWN = "of the means over the samples, which the figure draws"
_ABOVE = [row for row, load in enumerate(LOADS) if load > CAPACITY]


def run(bench: Bench) -> Outcome:
    """Both modes at two bandwidths; then the optima with more cores, and with other simulations."""
    setup = Setup(modes=("async", "sync"), bandwidths=_BANDWIDTHS)
    found = curves(bench, setup, LOADS)
    optima = replace(setup, orders=(OPTIMAL,))
    more = curves(bench, replace(optima, cores=_MORE_CORES), LOADS)
    others = {t_sim: curves(bench, replace(optima, t_sim=t_sim), _SENSITIVE_LOADS) for t_sim in _SENSITIVITY}
    claims = [
        one
        for bandwidth in _BANDWIDTHS
        for one in (*_optima(found, more, bandwidth), *_orders(found, bandwidth))
    ]
    assumptions = (
        *ASSUMPTIONS,
        "Analyses that run in situ are added to the simulation: its work and its peak. Then no partition "
        "takes longer than in async, as (S + A) / c <= max(S / (c - c*), A / c*): async cannot be faster.",
        f"More cores per node, whose number is not given: {_MORE_CORES}, with the same work and bandwidth.",
        f"{bench.seeds} samples at each load, the same for every order, bandwidth and mode.",
    )
    return Outcome(tuple(claims), assumptions, (*_ours(found), *_sensitivity({**others, T_SIM: found})))


def _optima(found: Curves, more: Curves, bandwidth: float) -> list[Claim]:
    """The two optima of figures 5.9 and 5.10."""
    at = f"b = {bandwidth:.0%}"
    ratio, with_more = (_async_over_sync(one, OPTIMAL, bandwidth) for one in (found, more))
    widest = max(ratio, key=lambda row: abs(float(row.mean()) - 1))
    after = max((ratio[row] for row in _ABOVE), key=lambda row: abs(float(row.mean()) - 1))
    faster = 100 * by_sample(ratio[_ABOVE] < 1 - 1e-9)
    less = 100 * (by_sample(ratio) - by_sample(with_more))
    return [
        claim(f"{at}: the two optima differ, at the load where they do most, by", "at most 10",
              per_cent(widest), around(0, CLOSE), "%", _DRAWN),
        claim(f"{at}: the two optima differ at loads above 1.33, where they do most, by", "very similar",
              per_cent(after), around(0, _VERY_SIMILAR), "%", "no number is printed: within 1 %"),
        direction(f"{at}: the synchronous optimum is faster, over all loads, by", "outperforms",
                  per_cent(ratio), at_least(0.0)),
        claim(f"{at}: samples at loads above 1.33 in which the asynchronous optimum is faster", "can be",
              mean(faster), at_least(1.0), "%", "no number is printed: in one of a hundred samples"),
        direction(f"{at}: the two optima differ less with {_MORE_CORES} cores, by", "tends to reduce",
                  mean(less), at_least(0.0), "points"),
    ]  # fmt: skip


def _orders(found: Curves, bandwidth: float) -> list[Claim]:
    """The orders of figures 5.9 and 5.10, of which the source draws two."""
    at = f"b = {bandwidth:.0%}"
    rows = [row for order in HEURISTICS for row in _async_over_sync(found, order, bandwidth)]
    widest = max(rows, key=lambda row: abs(float(row.mean()) - 1))
    sync, other = (ranked(found, bandwidth, mode) for mode in found.setup.modes[::-1])
    places = sum(one != two for one, two in zip(sync, other, strict=True))
    drawn = {"decreasing-peak", "increasing-time"}
    return [
        claim(f"{at}: an order's two modes differ, at the order and load where they do most, by",
              "at most 10", per_cent(widest), around(0, CLOSE), "%", _DRAWN),
        claim(f"{at}: orders whose place among the five is another than in async", "none", float(places),
              exactly(0), "of 5", "the order of performance is the same (a footnote): by mean time"),
        claim(f"{at}: of the two that are called best here, DECREASING-PEAK and INCREASING-TIME, are",
              "both", float(len({*sync[:2]} & drawn)), exactly(2), "of 2",
              "contradicts the footnote: in async INCREASING-PEAK and DECREASING-TIME are"),
        claim(f"{at}: of the two that are best in async by the text, these are best here", "both",
              float(len({*sync[:2]} & {"increasing-peak", "decreasing-time"})), exactly(2), "of 2",
              "what the footnote says: the same order as in async"),
    ]  # fmt: skip


def _async_over_sync(found: Curves, order: str, bandwidth: float) -> np.ndarray:
    """By load and sample."""
    return found.of("time", order, bandwidth, "async") / found.of("time", order, bandwidth, "sync")


def _ours(found: Curves) -> list[Figure]:
    figures = []
    for bandwidth in _BANDWIDTHS:
        at = f"b = {bandwidth:.0%}, sync"
        ours = found.of("time", OURS, bandwidth, "sync")
        for order in (*HEURISTICS, OPTIMAL):
            name = "the published optimum (rounded up)" if order == OPTIMAL else order.upper()
            ratios = found.of("time", order, bandwidth, "sync") / ours
            figures.append(_figure(f"{at}: {name} is slower than ours (exact) by", ratios))
        both = _async_over_sync(found, OURS, bandwidth)
        figures.append(_figure(f"{at}: ours (exact) is faster than ours in async by", both))
    return figures


def _sensitivity(found: dict[float, Curves]) -> list[Figure]:
    """What t_sim, which the source does not give, decides."""
    figures = []
    for t_sim, one in sorted(found.items()):
        for bandwidth in _BANDWIDTHS:
            ratio = _async_over_sync(one, OPTIMAL, bandwidth)
            for load in _SENSITIVE_LOADS:
                at = f"t_sim = {t_sim:g}, b = {bandwidth:.0%}, load {load:g}"
                text = f"{at}: the synchronous optimum is faster by"
                figures.append(_figure(text, ratio[one.loads.index(load)]))
    return figures


def _figure(text: str, ratios: np.ndarray) -> Figure:
    one = per_cent(np.atleast_2d(ratios))
    return Figure(text, one.mean, "%", one.half_width)
