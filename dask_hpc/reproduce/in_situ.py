"""Which analyses run in situ: the published orders against the optimum (seed 004, chapter 5; digest 5.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pandas as pd

from dask_hpc.planning.in_situ.partition import (
    Analysis,
    EqualNodes,
    Mode,
    Partition,
    PartitionProblem,
    Simulation,
)
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Outcome,
    around,
    at_least,
    at_most,
    claim,
    direction,
    exactly,
    figure,
)

HEURISTICS = ("increasing-time", "decreasing-time", "increasing-peak", "decreasing-peak", "random")
OPTIMAL, OURS = "enumerate", "exact"
ORDERS = (*HEURISTICS, OPTIMAL, OURS)
#: what is kept of each partition
FIELDS = ("time", "memory", "work", "simulation", "in_situ", "in_transit", "mix")
NODES, CORES, ANALYSES = 50, 8, 8
CAPACITY = 1.33
#: application memory loads; closer to each other where the source sees something happen
LOADS = (1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4, 1.5, 1.6, 1.8, 2.0)
BANDWIDTHS = (0.1, 0.25, 0.5, 1.0)
T_SIM = 1000.0
#: "close" and "far", in per cent: the source calls so much between two curves little (5.4)
CLOSE = 10.0
_LEAST, _MOST = 0.01, 0.1


@dataclass(frozen=True, slots=True)
class Setup:
    """What is compared, at every load and for every sample."""

    t_sim: float = T_SIM
    modes: tuple[Mode, ...] = ("async",)
    bandwidths: tuple[float, ...] = BANDWIDTHS
    orders: tuple[str, ...] = ORDERS
    cores: int = CORES


class Curves:
    """Figures by load, sample, mode, bandwidth, order and field."""

    def __init__(self, setup: Setup, loads: tuple[float, ...], values: np.ndarray) -> None:
        self.setup, self.loads, self._values = setup, loads, values

    def of(self, field: str, order: str, bandwidth: float, mode: Mode = "async") -> np.ndarray:
        """By load and sample."""
        setup = self.setup
        at = setup.modes.index(mode), setup.bandwidths.index(bandwidth), setup.orders.index(order)
        return cast(np.ndarray, self._values[(slice(None), slice(None), *at, FIELDS.index(field))])

    def normalised(self, order: str, bandwidth: float, mode: Mode = "async") -> np.ndarray:
        """Times over the optimum's in the same mode."""
        return self.of("time", order, bandwidth, mode) / self.of("time", OPTIMAL, bandwidth, mode)


def curves(bench: Bench, setup: Setup, loads: tuple[float, ...]) -> Curves:
    """Every seed of the bench is a sample at every load."""
    found = bench.each(sampled, [(setup, load, seed) for load in loads for seed in range(bench.seeds)])
    return Curves(setup, loads, np.array(found).reshape(len(loads), bench.seeds, *found[0].shape))


def ranked(found: Curves, bandwidth: float, mode: Mode = "async") -> list[str]:
    """The orders by their mean time over all loads, the fastest first."""
    means = {order: float(found.normalised(order, bandwidth, mode).mean()) for order in HEURISTICS}
    return sorted(HEURISTICS, key=lambda order: means[order])


def sampled(setup: Setup, load: float, seed: int) -> np.ndarray:
    """One sample: figures by mode, bandwidth, order and field."""
    rows = []
    for mode in setup.modes:
        for bandwidth in setup.bandwidths:
            problem = problem_of(setup, load, seed, bandwidth, mode)
            rows.append([_figures(problem, partition(problem, order, seed=seed)) for order in setup.orders])
    shape = len(setup.modes), len(setup.bandwidths), len(setup.orders), len(FIELDS)
    return np.array(rows).reshape(shape)


def problem_of(setup: Setup, load: float, seed: int, bandwidth: float, mode: Mode) -> PartitionProblem:
    """The same analyses for every bandwidth and mode; memory in units of what the simulation needs."""
    random = np.random.default_rng([seed, round(1000 * load)])
    peaks = random.random(ANALYSES)
    peaks *= (load - 1) / peaks.sum()
    times = random.uniform(_LEAST, _MOST, ANALYSES) * setup.t_sim
    memory = CAPACITY / NODES
    return PartitionProblem(
        EqualNodes(count=NODES, cores=setup.cores, memory=memory, bandwidth=bandwidth * memory),
        Simulation(time=setup.t_sim, memory=1.0),
        tuple(
            Analysis(name=f"A{number + 1}", time=float(time), memory=float(peak))
            for number, (time, peak) in enumerate(zip(times, peaks, strict=True))
        ),
        mode,
    )


def _figures(problem: PartitionProblem, found: Partition) -> list[float]:
    inside = [one for one in problem.analyses if one.name in found.in_situ]
    is_mix = bool(found.in_situ) and bool(found.in_transit)
    memory, work = sum(one.memory for one in inside), sum(one.time for one in inside)
    return [found.iteration, memory, work, *found.phases, float(is_mix)]


def per_cent(ratios: np.ndarray) -> np.ndarray:
    """How much more than one, over the samples (the last axis; others are averaged first)."""
    return 100 * (by_sample(ratios) - 1)


def by_sample(values: np.ndarray) -> np.ndarray:
    """One number for each sample."""
    return cast(np.ndarray, values.reshape(-1, values.shape[-1]).mean(axis=0))


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


def asynchronous(bench: Bench) -> Outcome:
    """Analyses beside the next iteration: published orders against the optimum (seed 004, 5.2 and 5.3)."""
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
    beside = (*_async_beside(found), *_helpers(found), *_async_sensitivity({**others, T_SIM: found}))
    return Outcome(claims, beside)


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
                  gap, at_least(0.0), "points"),
        claim(f"{at}: orders are slower than the optimum, at their worst load by", "often far",
              per_cent(there), at_least(CLOSE), "%",
              "no number is printed: the mean over orders, more than the 10 % of 5.4"),
        direction(f"{at}: {_BOTH} are faster than each other order by", "the best two",
                  100 * (faster / slower - 1), at_least(0.0)),
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
                  "relatively close", 100 * (least - most), at_least(0.0), "points"),
        direction("INCREASING-PEAK has more in situ memory than DECREASING-TIME by", "more",
                  100 * (share[peak] - share[time]), at_least(0.0), "points"),
        direction("DECREASING-TIME has more in situ work than INCREASING-PEAK by", "more",
                  100 * (work[time] - work[peak]), at_least(0.0), "points"),
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
        claim("optimum: part of the analyses in situ, part in transit", "often", mix, at_least(50.0),
              "%", "no number is printed: in half of all samples"),
        *longest,
    ]  # fmt: skip


def _not_longest(found: Curves, order: str, phase: str, rows: Sequence[int]) -> float:
    """At how many of these loads another phase takes longer on average."""
    means = {name: found.of(name, order, BANDWIDTHS[0]).mean(axis=1) for name in _PHASES}
    return float(sum(means[phase][row] < max(means[name][row] for name in _PHASES) for row in rows))


def _async_beside(found: Curves) -> list[Figure]:
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
        idle = 100 * (1 - by_sample(busy[busy.mean(axis=1) > 0]))
        text = f"b = {BANDWIDTHS[0]:.0%}: helper cores idle under {order}"
        figures.append(figure(text, idle, "%"))
    return figures


def _async_sensitivity(found: dict[float, Curves]) -> list[Figure]:
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
            figures.append(figure(text, _not_longest(one, order, "in_transit", rows), f"of {len(rows)}"))
    return figures


def _figure(text: str, ratios: np.ndarray) -> Figure:
    one = per_cent(np.atleast_2d(ratios))
    return figure(text, one, "%")


def _share(found: Curves, field: str, order: str) -> np.ndarray:
    """Of the optimum's, over all loads and bandwidths, by sample."""
    mine, best = (
        np.sum([found.of(field, one, bandwidth) for bandwidth in BANDWIDTHS], axis=(0, 1))
        for one in (order, OPTIMAL)
    )
    return np.asarray(mine / best)


def _correlation(found: Curves, field: str) -> np.ndarray:
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
    return np.array(each)


_SYNC_BANDWIDTHS = (0.25, 1.0)
_MORE_CORES = 64
_VERY_SIMILAR = 1.0  # per cent
_DRAWN = "of the means over the samples, which the figure draws"
_ABOVE = [row for row, load in enumerate(LOADS) if load > CAPACITY]


def synchronous(bench: Bench) -> Outcome:
    """The simulation waits for analyses in situ, which then have all cores of their nodes (seed 004, 5.4)."""
    setup = Setup(modes=("async", "sync"), bandwidths=_SYNC_BANDWIDTHS)
    found = curves(bench, setup, LOADS)
    optima = replace(setup, orders=(OPTIMAL,))
    more = curves(bench, replace(optima, cores=_MORE_CORES), LOADS)
    others = {t_sim: curves(bench, replace(optima, t_sim=t_sim), _SENSITIVE_LOADS) for t_sim in _SENSITIVITY}
    claims = [
        one
        for bandwidth in _SYNC_BANDWIDTHS
        for one in (*_optima(found, more, bandwidth), *_orders(found, bandwidth))
    ]
    return Outcome(claims, [*_sync_beside(found), *_sync_sensitivity({**others, T_SIM: found})])


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
                  per_cent(ratio), at_least(0.0),
                  by_construction="the formula itself: no partition takes longer where analyses are added"),
        claim(f"{at}: samples at loads above 1.33 in which the asynchronous optimum is faster", "can be",
              faster, at_least(1.0), "%", "no number is printed: in one of a hundred samples"),
        direction(f"{at}: the two optima differ less with {_MORE_CORES} cores, by", "tends to reduce",
                  less, at_least(0.0), "points"),
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


def _sync_beside(found: Curves) -> list[Figure]:
    figures = []
    for bandwidth in _SYNC_BANDWIDTHS:
        at = f"b = {bandwidth:.0%}, sync"
        ours = found.of("time", OURS, bandwidth, "sync")
        for order in (*HEURISTICS, OPTIMAL):
            name = "the published optimum (rounded up)" if order == OPTIMAL else order.upper()
            ratios = found.of("time", order, bandwidth, "sync") / ours
            figures.append(_figure(f"{at}: {name} is slower than ours (exact) by", ratios))
        both = _async_over_sync(found, OURS, bandwidth)
        figures.append(_figure(f"{at}: ours (exact) is faster than ours in async by", both))
    return figures


def _sync_sensitivity(found: dict[float, Curves]) -> list[Figure]:
    """What t_sim, which the source does not give, decides."""
    figures = []
    for t_sim, one in sorted(found.items()):
        for bandwidth in _SYNC_BANDWIDTHS:
            ratio = _async_over_sync(one, OPTIMAL, bandwidth)
            for load in _SENSITIVE_LOADS:
                at = f"t_sim = {t_sim:g}, b = {bandwidth:.0%}, load {load:g}"
                text = f"{at}: the synchronous optimum is faster by"
                figures.append(_figure(text, ratio[one.loads.index(load)]))
    return figures
