"""Malleable ESP jobs."""

from dataclasses import dataclass

import numpy as np

from dask_hpc.reproduce.claim import (
    Band,
    Bench,
    Claim,
    Columns,
    Figure,
    Outcome,
    around,
    at_least,
    at_most,
    change,
    claim,
    direction,
    exactly,
    figure,
)
from dask_hpc.simulator import Platform
from dask_hpc.simulator.built_in import built_in
from dask_hpc.simulator.built_in.published import NODES
from dask_hpc.simulator.platform import ResizeCost

_SPEEDUP = 0.9
_OTHER_SPEEDUPS = (0.8, 1.0)
_SHARES = (0.1, 0.5, 1.0)
_BASELINE, _OLDER, _BEST, _OURS = "easy-backfill", "fpsma-pwma", "performance-aware", "elastic"
_POINTS = 5.0
_SINGLE = "a single run, and orders alone move the baseline's makespan by some 5 %: within 5 points"
_FIGURES = (("makespan", "makespan"), ("mean response", "mean_response"), ("mean wait", "mean_wait"))


@dataclass(frozen=True)
class _World:
    """A machine and how well people guess."""

    name: str
    platform: Platform
    walltime: str

    def workload(self, share: float, speedup: float = _SPEEDUP) -> str:
        return f"builtin:esp?malleable={share:g}&speedup={speedup:g}&walltime={self.walltime}"


_IDEAL = _World("idealised", Platform(NODES), "1.0")
_HANDICAPPED = _World(
    "handicapped",
    Platform(NODES, tick=60.0, only_ticks=True, launch=30.0, cleanup=30.0, resize=ResizeCost(fixed=2.0)),
    "2000 s",
)
_WORLDS = (_IDEAL, _HANDICAPPED)
_PICKED = "picked: the handicaps, which make gains of this size possible"

Runs = dict[float, dict[str, Columns]]


def run(bench: Bench) -> Outcome:
    """230 ESP jobs on 32 nodes: malleable policies against backfilling (seed 000, 9.1; digest 3.2).

    The source prints relative gains of single runs in one unknown order, from an application whose scaling it
    does not give, and the cut in makespan it claims is more than an ideal backfill leaves room for. So
    everything is done twice: with an idealised machine and with a handicapped one, as the digest describes.
    """
    claims = _work()
    beside: list[Figure] = []
    for world in _WORLDS:
        runs: Runs = {0.0: bench.study(world.workload(0.0), [_BASELINE], world.platform)}
        for share in _SHARES:
            runs[share] = bench.study(world.workload(share), [_OLDER, _BEST, _OURS], world.platform)
        base = runs[0.0][_BASELINE]
        claims += _headlines(world, base, runs) + _other_statements(world, base, runs)
        beside += _baseline(world, base)
        beside += [
            figure for share in _SHARES for figure in _gains(world, share, base, runs[share], (_OURS,))
        ]
        for speedup in _OTHER_SPEEDUPS:
            found = bench.study(world.workload(1.0, speedup), [_OLDER, _BEST, _OURS], world.platform)
            beside += _gains(world, 1.0, base, found, (_OLDER, _BEST, _OURS), f", speed-up n ** {speedup:g}")
    return Outcome(claims, beside)


def _least() -> float:
    """Nobody is faster without scaling better than linearly, or shrinking jobs that scale worse."""
    return sum(arrival.job.nodes * arrival.runtime for arrival in built_in("esp")) / NODES


def _work() -> list[Claim]:
    arrivals = list(built_in("esp"))
    work = _least() * NODES
    exact = "a sum over the source's table of types"
    same = "the formula itself: the source's table, added up"
    return [
        claim("jobs", 230, len(arrivals), exactly(230), "", exact, same),
        claim("total work (digest)", 351_238, work, exactly(351_238), "node-s", exact, same),
        claim("makespan of a perfect packing (digest)", 10_976, _least(), around(10_976, 0.5), "s", exact,
              same),
    ]  # fmt: skip


def _headlines(world: _World, base: Columns, runs: Runs) -> list[Claim]:
    best, older = runs[1.0][_BEST], runs[1.0][_OLDER]
    linear = "; with linear scaling this baseline leaves less room than that: see the perfect packing below"
    rows = (
        ("makespan", "makespan", -19.3, -4.0, linear if world is _IDEAL else ""),
        ("mean response", "mean_response", -29.0, -6.1, ""),
        ("mean wait", "mean_wait", -26.8, -2.0, ""),
    )
    who = f"{world.name}, 100 % malleable:"
    claims = []
    for name, metric, published, _, note in rows:
        text, gain = f"{who} {name}, performance-aware against backfill", change(best[metric], base[metric])
        why = _PICKED if world is _HANDICAPPED else ""
        claims.append(claim(text, published, gain, around(published, _POINTS), "%", _SINGLE + note, why))
    note = "a single run, and the difference is less than that between orders: the sign, and at most twice"
    for name, metric, _, published, _ in rows:
        text, gain = f"{who} {name}, performance-aware against FPSMA", change(best[metric], older[metric])
        claims.append(claim(text, published, gain, (2 * published, 0.0), "%", note))
    return claims


def _other_statements(world: _World, base: Columns, runs: Runs) -> list[Claim]:
    claims = []
    better, worse = at_most(0.0), at_least(0.0)
    for policy, how in ((_OLDER, "FPSMA"), (_BEST, "performance-aware")):
        for name, metric in _FIGURES:
            text = f"{world.name}, 10 % malleable: {name}, {how} against backfill"
            gain = change(runs[0.1][policy][metric], base[metric])
            claims.append(direction(text, "worse", gain, worse))
    for name, metric in _FIGURES:
        text = f"{world.name}, 50 % malleable: {name}, performance-aware against backfill"
        gain = change(runs[0.5][_BEST][metric], base[metric])
        claims.append(direction(text, "better", gain, better))
    full = {policy: 100 * runs[1.0][policy]["utilisation"] for policy in (_OLDER, _BEST)}
    relative = change(runs[1.0][_BEST]["utilisation"], base["utilisation"])
    similar = change(runs[1.0][_BEST]["utilisation"], runs[1.0][_OLDER]["utilisation"])
    highest = max(full.values(), key=np.mean)
    up_to: Band = (25.0, 35.0)
    return [
        *claims,
        claim(f"{world.name}, 100 % malleable: utilisation against backfill", 30, relative, up_to, "%",
              "up to 30, a round figure: within 5 points (elsewhere: almost doubled at 50 %)"),
        claim(f"{world.name}: highest utilisation of both malleable strategies", "never above 85", highest,
              at_most(85.0), "%", "an upper bound, put down to constraints; what is use is not said"),
        claim(f"{world.name}, 100 % malleable: utilisation, performance-aware against FPSMA",
              "about the same", similar, around(0.0, 2.5), "%", "no number is printed: within 2.5 %"),
    ]  # fmt: skip


def _baseline(world: _World, base: Columns) -> list[Figure]:
    room = 100 * (_least() / base["makespan"] - 1)
    rows = (
        ("makespan", base["makespan"], "s"),
        ("makespan of a perfect packing with linear scaling against it", room, "%"),
        ("utilisation", 100 * base["utilisation"], "%"),
        ("mean wait", base["mean_wait"], "s"),
        ("mean response", base["mean_response"], "s"),
    )
    return [figure(f"{world.name}: backfill, {name}", one, unit) for name, one, unit in rows]


def _gains(
    world: _World,
    share: float,
    base: Columns,
    found: dict[str, Columns],
    policies: tuple[str, ...],
    suffix: str = "",
) -> list[Figure]:
    figures = []
    for policy in policies:
        who = f"{policy} (ours)" if policy == _OURS else policy
        for name, metric in _FIGURES:
            gain = change(found[policy][metric], base[metric])
            text = f"{world.name}, {100 * share:g} % malleable{suffix}: {name}, {who} against backfill"
            figures.append(figure(text, gain, "%"))
    return figures
