"""Analyses beside the next iteration: the published orders against the optimum (seed 004, 5.2 and 5.3)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Measured,
    Outcome,
    around,
    at_least,
    at_most,
    claim,
    direction,
    exactly,
    mean,
)
from dask_hpc.reproduce.in_situ_study import (
    ASSUMPTIONS,
    BANDWIDTHS,
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

#: the two that the source finds best
BEST = ("increasing-peak", "decreasing-time")
_BOTH = "INCREASING-PEAK and DECREASING-TIME"
_OTHERS = tuple(order for order in HEURISTICS if order not in BEST)
_CLOSE = "no number is printed: within 10 %, which 5.4 calls little"
_LOWEST = 1.2  # the lowest loads: the first four
_ALL = [*range(len(LOADS))]
_PHASES = ("simulation", "in_situ", "in_transit")
_SENSITIVITY = (100.0, 10_000.0)
_SENSITIVE_LOADS = (1.1, 1.2, 1.3, 1.5)
_JUST_BELOW = 1.3  # the capacity of 1.33, where most is at stake


def run(bench: Bench) -> Outcome:
    """Every order at every load and bandwidth; then at 10 % with a shorter and a longer simulation."""
    setup = Setup()
    found = curves(bench, setup, LOADS)
    others = {
        t_sim: curves(bench, replace(setup, t_sim=t_sim, bandwidths=BANDWIDTHS[:1]), _SENSITIVE_LOADS)
        for t_sim in _SENSITIVITY
    }
    claims: list[Claim] = []
    for bandwidth in BANDWIDTHS:
        claims += _times(found, bandwidth)
    claims += [*_memory(found), *_points(found), *_phases(found)]
    samples = f"{bench.seeds} samples at each load, the same for every order and bandwidth."
    beside = (*_ours(found), *_helpers(found), *_sensitivity({**others, T_SIM: found}))
    return Outcome(tuple(claims), (*ASSUMPTIONS, samples), beside)


def _times(found: Curves, bandwidth: float) -> list[Claim]:
    """Figures 5.1 to 5.4."""
    at = f"b = {bandwidth:.0%}"
    over = {order: found.normalised(order, bandwidth) for order in HEURISTICS}
    worst = [max((over[order][row] for order in HEURISTICS), key=np.mean) for row in _ALL]
    middle = max(_ALL[1:-1], key=lambda row: float(worst[row].mean()))
    gap = 100 * (worst[middle] - np.maximum(worst[0], worst[-1]))
    each = {order: by_sample(values) for order, values in over.items()}
    slower = max((each[order] for order in BEST), key=np.mean)
    faster = min((each[order] for order in _OTHERS), key=np.mean)
    there = np.stack([over[order][middle] for order in HEURISTICS])
    ends = [
        claim(f"{at}, memory load {LOADS[row]:g}: the worst order is slower than the optimum by",
              "converges to the optimum", per_cent(worst[row]), around(0, CLOSE), "%", _CLOSE)
        for row in (0, -1)
    ]  # fmt: skip
    return [
        *ends,
        direction(f"{at}: between them it is slower, by more than at both ends by", "far from the optimum",
                  mean(gap), at_least(0.0), "points"),
        claim(f"{at}: orders are slower than the optimum, at their worst load by", "often far",
              per_cent(there), at_least(CLOSE), "%",
              "no number is printed: the mean over orders, more than the 10 % of 5.4"),
        direction(f"{at}: {_BOTH} are faster than each other order by", "the best two",
                  mean(100 * (faster / slower - 1)), at_least(0.0)),
    ]  # fmt: skip


def _memory(found: Curves) -> list[Claim]:
    """The lower halves of figures 5.1 to 5.4."""
    share = {order: _share(found, "memory", order) for order in HEURISTICS}
    work = {order: _share(found, "work", order) for order in BEST}
    least = min((share[order] for order in BEST), key=np.mean)
    most = max((share[order] for order in _OTHERS), key=np.mean)
    others = sum({*ranked(found, bandwidth)[:2]} != {*BEST} for bandwidth in BANDWIDTHS)
    peak, time = BEST
    return [
        claim("bandwidths at which other orders are the best two", "none", float(others), exactly(0),
              f"of {len(BANDWIDTHS)}", "bandwidths do not influence the policy: by mean time over all loads"),
        direction(f"{_BOTH} are nearer to the optimum's in situ memory than the others by",
                  "relatively close", mean(100 * (least - most)), at_least(0.0), "points"),
        direction("INCREASING-PEAK has more in situ memory than DECREASING-TIME by", "more",
                  mean(100 * (share[peak] - share[time])), at_least(0.0), "points"),
        direction("DECREASING-TIME has more in situ work than INCREASING-PEAK by", "more",
                  mean(100 * (work[time] - work[peak])), at_least(0.0), "points"),
    ]  # fmt: skip


def _points(found: Curves) -> list[Claim]:
    """Figure 5.5: every point of figures 5.1 to 5.4."""
    shares = [
        (load, float(mine.mean() / best.mean()))
        for bandwidth in BANDWIDTHS
        for order in HEURISTICS
        for load, mine, best in zip(
            LOADS,
            found.of("memory", order, bandwidth),
            found.of("memory", OPTIMAL, bandwidth),
            strict=True,
        )
        if best.any()
    ]
    above = [load for load, share in shares if share > 1 + 1e-9]
    less = 100 * (1 - len(above) / len(shares))
    late = float(sum(load > _LOWEST for load in above))
    memory, work = (_correlation(found, field) for field in ("memory", "work"))
    return [
        claim("points with no more in situ memory than the optimum", "most", less, at_least(90.0), "%",
              "no number is printed: nine in ten"),
        claim(f"points with more of it at loads above {_LOWEST:g}", "none", late, exactly(0),
              f"of {len(shares)}", "exceptions at the lowest loads only: the first four"),
        direction("in situ memory goes with time by a rank correlation of", "less time", memory,
                  at_most(0.0), ""),
        direction("in situ work goes with time by a rank correlation of", "less time", work,
                  at_most(0.0), ""),
    ]  # fmt: skip


def _phases(found: Curves) -> list[Claim]:
    """Figures 5.6 to 5.8."""
    below = [row for row in _ALL if LOADS[row] < CAPACITY]
    above = [row for row in _ALL if LOADS[row] > CAPACITY]
    mix = 100 * by_sample(found.of("mix", OPTIMAL, BANDWIDTHS[0]))
    cases = (
        ("optimum: loads below 1.33 at which the simulation is not the longest", OPTIMAL, 0, below),
        ("optimum: loads above 1.33 at which in transit is not the longest", OPTIMAL, 2, above),
        ("INCREASING-PEAK: loads at which in transit is not the longest", "increasing-peak", 2, _ALL),
        ("RANDOM: loads at which in transit is not the longest", "random", 2, _ALL),
    )
    longest = [
        claim(text, "none", _not_longest(found, order, _PHASES[phase], rows), exactly(0), f"of {len(rows)}",
              "of the means over the samples, which the figure draws")
        for text, order, phase, rows in cases
    ]  # fmt: skip
    return [
        claim("optimum: part of the analyses in situ, part in transit", "often", mean(mix), at_least(50.0),
              "%", "no number is printed: in half of all samples"),
        *longest,
    ]  # fmt: skip


def _not_longest(found: Curves, order: str, phase: str, rows: Sequence[int]) -> float:
    """At how many of these loads another phase takes longer on average."""
    means = {name: found.of(name, order, BANDWIDTHS[0]).mean(axis=1) for name in _PHASES}
    return float(sum(means[phase][row] < max(means[name][row] for name in _PHASES) for row in rows))


def _ours(found: Curves) -> list[Figure]:
    """How much longer an iteration takes than with ours."""
    figures = []
    for order in (*HEURISTICS, OPTIMAL):
        name = "the published optimum (rounded up)" if order == OPTIMAL else order.upper()
        for bandwidth in BANDWIDTHS:
            ratios = found.of("time", order, bandwidth) / found.of("time", OURS, bandwidth)
            figures.append(_figure(f"b = {bandwidth:.0%}: {name} is slower than ours (exact) by", ratios))
    for bandwidth in BANDWIDTHS:
        ratios = found.of("time", OPTIMAL, bandwidth) / found.of("time", OURS, bandwidth)
        row = int(ratios.mean(axis=1).argmax())
        at = f"b = {bandwidth:.0%}, load {LOADS[row]:g}, where rounding matters most"
        figures.append(_figure(f"{at}: the published optimum is slower by", ratios[row]))
    return figures


def _helpers(found: Curves) -> list[Figure]:
    """What the source says of helper cores that idle (5.3): for how much of an iteration they do."""
    figures = []
    for order in (*BEST, OPTIMAL, OURS):
        times, inside = (found.of(field, order, BANDWIDTHS[0]) for field in ("time", "in_situ"))
        busy = inside / times
        idle = mean(100 * (1 - by_sample(busy[busy.mean(axis=1) > 0])))
        text = f"b = {BANDWIDTHS[0]:.0%}: helper cores idle under {order}"
        figures.append(Figure(text, idle.mean, "%", idle.half_width))
    return figures


def _sensitivity(found: dict[float, Curves]) -> list[Figure]:
    """What t_sim, which the source does not give, decides."""
    figures: list[Figure] = []
    for t_sim, one in sorted(found.items()):
        over = {order: one.normalised(order, BANDWIDTHS[0]) for order in HEURISTICS}
        rows = [one.loads.index(load) for load in _SENSITIVE_LOADS]
        for load, row in zip(_SENSITIVE_LOADS, rows, strict=True):
            text = f"t_sim = {t_sim:g}, load {load:g}: the orders are slower than the optimum by"
            figures.append(_figure(text, np.stack([values[row] for values in over.values()])))
        for order, values in over.items():
            text = f"t_sim = {t_sim:g}, load {_JUST_BELOW:g}: {order.upper()} is slower than the optimum by"
            figures.append(_figure(text, values[one.loads.index(_JUST_BELOW)]))
        for order in ("increasing-peak", "random"):
            text = f"t_sim = {t_sim:g}: {order.upper()}: loads at which in transit is not the longest"
            figures.append(Figure(text, _not_longest(one, order, "in_transit", rows), f"of {len(rows)}"))
    return figures


def _figure(text: str, ratios: np.ndarray) -> Figure:
    one = per_cent(np.atleast_2d(ratios))
    return Figure(text, one.mean, "%", one.half_width)


def _share(found: Curves, field: str, order: str) -> np.ndarray:
    """Of the optimum's, over all loads and bandwidths, by sample."""
    mine, best = (
        np.sum([found.of(field, one, bandwidth) for bandwidth in BANDWIDTHS], axis=(0, 1))
        for one in (order, OPTIMAL)
    )
    return np.asarray(mine / best)


def _correlation(found: Curves, field: str) -> Measured:
    """Spearman's, over all orders, loads and bandwidths of a sample, both over the optimum's."""
    shares, times = [], []
    for bandwidth in BANDWIDTHS:
        best = found.of(field, OPTIMAL, bandwidth)
        for order in HEURISTICS:
            with np.errstate(divide="ignore", invalid="ignore"):
                shares.append(found.of(field, order, bandwidth) / best)
            times.append(found.normalised(order, bandwidth))
    x, y = (np.concatenate(values) for values in (shares, times))
    known = np.isfinite(x)
    each = []
    for at in range(x.shape[1]):
        ranks = pd.DataFrame([x[known[:, at], at], y[known[:, at], at]]).rank(axis=1).to_numpy()
        each.append(np.corrcoef(ranks)[0, 1])
    return mean(np.array(each))
