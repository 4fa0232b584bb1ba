"""Who manages an exascale machine that fails, and what he knows of it (seed 003, 4.7 to 4.9)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dask_hpc.planning.resilience.hardware import Hardware
from dask_hpc.policy import Policy
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
    figure,
)
from dask_hpc.simulator import simulate
from dask_hpc.simulator.built_in import built_in

_JOBS = 500
#: nodes that the machine is simulated with: each stands for 600
_NODES = 200
FCFS, RANDOM, SLACK = "FCFS", "Random", "Slack"
_VALUES = ("Max Value", "VPT", "VPN", "VPR")
MANAGERS = {
    FCFS: Policy.load("fcfs"),
    RANDOM: Policy.load("random"),
    SLACK: Policy.load("slack").with_(**{"queue.drop": True}),
    **{name: Policy.load(policy) for name, policy in zip(
        _VALUES, ("max-value", "value-per-time", "value-per-node", "value-per-node-time"), strict=True)},
}  # fmt: skip
#: in a queue of which nobody looks ahead, to be aware is to have the best protection
_LOOKS_AHEAD = (SLACK, *_VALUES)
_IDEAL, _POOR, _GOOD = "none", ("restart", "redundancy-1.5", "redundancy-2"), ("multilevel", "recovery")
PATTERNS = ("unbiased", "high-memory", "high-communication", "large")
_ALIKE = 2.0
_SAID = f"no number is printed: within {_ALIKE:g} points"

#: per cent of all value earned, or of all jobs dropped, one for each seed
Found = Mapping[Any, np.ndarray]


def played(manager: str, protocol: str, expected: str, pattern: str, seed: int) -> tuple[float, float]:
    """Per cent of all value that is earned, and of all jobs that are dropped."""
    workload = built_in("exascale", jobs=_JOBS, seed=seed, pattern=pattern, protocol=protocol, nodes=_NODES)
    metrics = simulate(workload, policy=_knowing(manager, expected)).metrics
    jobs = [arrival.job for arrival in workload]
    lost = metrics["dropped"] + metrics["rejected"]
    return 100 * metrics["value_earned"] / sum(job.value or 0.0 for job in jobs), 100 * lost / len(jobs)


def _knowing(manager: str, expected: str) -> Policy:
    policy = MANAGERS[manager]
    if expected == "walltime" or manager not in _LOOKS_AHEAD:
        return policy
    machine = Hardware()
    share = _NODES / machine.nodes  # so many nodes fail, and write, as one
    about = {"expected": expected, "mtbf": share * machine.mtbf, "store": share * machine.store}
    return policy.with_(**{f"queue.{key}": value for key, value in about.items()})


def _all(bench: Bench, cases: Iterable[tuple[str, str, str, str]]) -> tuple[Found, Found]:
    """What each case earns and what it drops."""
    cases = list(cases)
    rows = bench.each(played, [(*case, seed) for case in cases for seed in range(bench.seeds)])
    table = np.array(rows).reshape(len(cases), bench.seeds, 2)
    earned, dropped = ({case: table[at, :, of] for at, case in enumerate(cases)} for of in (0, 1))
    return earned, dropped


def _least(rows: Iterable[np.ndarray]) -> np.ndarray:
    """The row with the least mean."""
    return min(rows, key=np.mean)


def _spread(rows: Iterable[np.ndarray]) -> np.ndarray:
    """How much more the row with the highest mean has than the one with the least."""
    ordered = sorted(rows, key=np.mean)
    return ordered[-1] - ordered[0]


def managers(bench: Bench) -> Outcome:
    """Seven managers and five protections on a machine without enough room for all (seed 003, 4.8).

    Value is what is earned of that of all jobs, in per cent; dropped are those that were given up, stopped at
    their deadline, or too large for the machine with their replicas. Whatever holds "for all" is judged where
    it holds least.
    """
    protocols = (_IDEAL, *_POOR, *_GOOD)
    found = _all(bench, ((m, p, "walltime", "unbiased") for p in protocols for m in MANAGERS))
    (earned, dropped) = ({case[:2]: row for case, row in one.items()} for one in found)
    others = [name for name in MANAGERS if name != FCFS]

    def spread(protocol: str) -> np.ndarray:
        return _spread(earned[name, protocol] for name in others)

    unlike = max((earned[m, "multilevel"] - earned[m, "recovery"] for m in MANAGERS), key=_size)
    equal = max((spread(one) for one in _POOR), key=np.mean)
    gap = _least(earned[m, good] - earned[m, poor] for m in MANAGERS for good in _GOOD for poor in _POOR)
    claims = [
        direction("every protection and manager earns less than without failures, by at least", "less",
                  _least(earned[m, _IDEAL] - earned[m, p] for m in MANAGERS for p in protocols[1:]),
                  at_least(0.0), "points"),
        direction("and drops more, by at least", "more",
                  _least(dropped[m, p] - dropped[m, _IDEAL] for m in MANAGERS for p in protocols[1:]),
                  at_least(0.0), "points"),
        direction("multilevel and recovery earn more than restart and redundancy, by at least",
                  "clearly", gap, at_least(0.0), "points"),
        claim("multilevel and recovery differ, under one manager, by up to", "very similar", unlike,
              around(0, _ALIKE), "points", _SAID),
        direction("FCFS earns less than any other manager, by at least", "always worst",
                  _least(earned[m, p] - earned[FCFS, p] for m in others for p in protocols), at_least(0.0),
                  "points"),
        direction("FCFS drops more than any other manager, by at least", "always worst",
                  _least(dropped[FCFS, p] - dropped[m, p] for m in others for p in protocols), at_least(0.0),
                  "points"),
        claim("restart, redundancy: the other managers differ by up to", "about equal", equal, (0.0, _ALIKE),
              "points", _SAID),
        direction("multilevel, recovery: they differ more than that, by at least", "more",
                  _least(spread(one) for one in _GOOD) - equal, at_least(0.0), "points"),
    ]  # fmt: skip
    return Outcome(claims, [*_table("earns", earned), *_table("drops", dropped)])


def _size(row: np.ndarray) -> float:
    return abs(float(np.mean(row)))


def _table(what: str, rows: Found) -> list[Figure]:
    return [figure(f"{', '.join(case)}: {what}", row, "%") for case, row in rows.items()]


_NAIVE, _AWARE, _PERFECT = "naive", "aware", "perfect"
_KNOWN = {_NAIVE: ("recovery", "walltime"), _AWARE: ("best", "resilient"), _PERFECT: ("best", "history")}


def aware(bench: Bench) -> Outcome:
    """Managers that know what failures will cost, against those that do not (seed 003, 4.9).

    The naive ones protect every job by parallel recovery and take it to last as long as without failures. The
    aware ones choose of restart, multilevel and recovery for each, and reckon with what they foretell; for
    FCFS and Random, which reckon with no time, only the choice makes a difference. Beside stands who knows
    how long each job will take.
    """
    cases = {(who, m, pattern): (m, *_KNOWN[who], pattern)
             for who in (_NAIVE, _AWARE) for pattern in PATTERNS for m in MANAGERS}  # fmt: skip
    cases |= {(_PERFECT, m, PATTERNS[0]): (m, *_KNOWN[_PERFECT], PATTERNS[0]) for m in _LOOKS_AHEAD}
    found = _all(bench, cases.values())
    earned, dropped = ({key: one[case] for key, case in cases.items()} for one in found)
    claims = [one for pattern in PATTERNS for one in _of_pattern(pattern, earned, dropped)]
    gains = {(m, p): earned[_AWARE, m, p] - earned[_NAIVE, m, p] for m in MANAGERS for p in PATTERNS}
    best = {p: max((earned[_AWARE, m, p] for m in MANAGERS), key=np.mean) for p in PATTERNS}
    most = max(gains.values(), key=np.mean)
    little = max((gains[m, p] for m in (FCFS, RANDOM) for p in PATTERNS), key=np.mean)
    claims += [
        claim("aware ones earn more by up to", 10, most, around(10, 5), "points",
              "printed as up to 10 %, which may be of any row: within 5 points"),
        claim("FCFS and Random gain by up to", "little", little, (0.0, _ALIKE), "points", _SAID),
        *(claim(f"{pattern}: the best aware one earns more or less than unbiased by", "like unbiased",
                best[pattern] - best[PATTERNS[0]], around(0, 5), "points",
                "no number is printed: within 5 points") for pattern in PATTERNS[1:3]),
        direction("large: the best aware one earns less than unbiased by", "notably worse",
                  best[PATTERNS[0]] - best["large"], at_least(0.0), "points"),
        claim("large: Slack gains more or less than unbiased by", "similarly",
              gains[SLACK, "large"] - gains[SLACK, PATTERNS[0]], around(0, 5), "points",
              "no number is printed: within 5 points"),
        direction("unbiased: naive Slack earns more than naive Random by", "not even better",
                  earned[_NAIVE, SLACK, PATTERNS[0]] - earned[_NAIVE, RANDOM, PATTERNS[0]], at_most(0.0),
                  "points"),
    ]  # fmt: skip
    return Outcome(claims, [*_table("earns", earned), *_table("drops", dropped)])


def _of_pattern(pattern: str, earned: Found, dropped: Found) -> list[Claim]:
    naive, knowing = ({m: earned[who, m, pattern] for m in MANAGERS} for who in (_NAIVE, _AWARE))
    drops = {m: dropped[_AWARE, m, pattern] for m in MANAGERS}
    off = max((naive[m] - naive[RANDOM] for m in _LOOKS_AHEAD), key=_size)
    others = [m for m in MANAGERS if m != SLACK]
    rows = [
        claim("naive Slack and value managers are off naive Random by up to", "1 to 2", off,
              around(0, _ALIKE), "points", "printed as within 1 to 2 %"),
        direction("Slack and value managers earn more when aware, by at least", "better in all cases",
                  _least(knowing[m] - naive[m] for m in _LOOKS_AHEAD), at_least(0.0), "points"),
        direction("FCFS and Random earn more when aware, by at least", "better in all cases",
                  _least(knowing[m] - naive[m] for m in (FCFS, RANDOM)), at_least(0.0), "points"),
        claim("the aware value managers differ by up to", "hardly matters",
              _spread(knowing[m] for m in _VALUES), (0.0, _ALIKE), "points", _SAID),
        direction("aware Slack earns more than any other aware one, by at least", "a significant margin",
                  _least(knowing[SLACK] - knowing[m] for m in others), at_least(0.0), "points"),
        direction("aware Slack drops less than any other aware one, by at least", "a significant margin",
                  _least(drops[m] - drops[SLACK] for m in others), at_least(0.0), "points"),
    ]  # fmt: skip
    return [replace(one, claim=f"{pattern}: {one.claim}") for one in rows]
