"""Twenty jobs in a power corridor."""

import numpy as np

from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Columns,
    Figure,
    Outcome,
    around,
    change,
    claim,
    direction,
    exactly,
    figure,
    rounded,
)
from dask_hpc.simulator import Workload
from dask_hpc.simulator.built_in import built_in

_SCHEDULERS = {
    "easy-backfill": "backfilling",
    "power-corridor-reactive": "running jobs only",
    "power-corridor-queue-aware": "queue and running jobs",
    "power-corridor": "ours",
}
_STATIC, _RUNNING, _QUEUE, _OURS = _SCHEDULERS
_OTHER_SPEEDUPS = (0.7, 1.0)
_SINGLE = "one run in an unknown order; how a count was made is not said: from half to twice it"
_QUARTERS = "printed in quarters of a minute: what rounds to it, on average over the orders"

Runs = dict[str, Columns]


def run(bench: Bench) -> Outcome:
    """Twenty jobs in a power corridor that moves twice, on 14 nodes (seed 000, 9.2.4; digest 3.3.3).

    The source compares three schedulers: backfilling alone, backfilling with running jobs resized for power,
    and one that also holds and chooses waiting jobs. Ours is beside them, with the same jobs.
    """
    found = bench.study("builtin:power-batch", list(_SCHEDULERS))
    blind = Policy.load(_QUEUE).with_(**{"power.lookahead": "0 s"})
    without = bench.study("builtin:power-batch", [blind])[_QUEUE]
    beside = [*_ours(found, ""), *_others(found), *_blind(without)]
    for speedup in _OTHER_SPEEDUPS:
        other = bench.study(f"builtin:power-batch?speedup={speedup:g}", list(_SCHEDULERS))
        beside += _at(bench, speedup, other)
    return Outcome(_claims(found), beside)


def _claims(found: Runs) -> list[Claim]:
    violations = {policy: columns["violations"] for policy, columns in found.items()}
    outside = {policy: columns["time_outside"] for policy, columns in found.items()}
    rows = [
        claim(f"{_SCHEDULERS[_STATIC]}: violations", 6, violations[_STATIC], (3, 12), "", _SINGLE),
        claim(f"{_SCHEDULERS[_RUNNING]}: violations", 2, violations[_RUNNING], (1, 4), "", _SINGLE),
        claim(f"{_SCHEDULERS[_QUEUE]}: violations", 0, violations[_QUEUE], exactly(0), "",
              "none is none, in every order"),
        direction("seconds outside: running jobs only less backfilling", "less",
                  outside[_RUNNING] - outside[_STATIC], (-np.inf, 0), "s"),
        direction("seconds outside: queue and running jobs less running jobs only", "less",
                  outside[_QUEUE] - outside[_RUNNING], (-np.inf, 0), "s"),
    ]  # fmt: skip
    for policy, minutes in ((_STATIC, 13.75), (_RUNNING, 14.25), (_QUEUE, 14.0)):
        note = "an input: the lengths are chosen for it" if policy == _STATIC else _QUARTERS
        band = around(minutes, 0.1) if policy == _STATIC else rounded(minutes, 0.25)
        makespan = found[policy]["makespan"] / 60
        rows.append(claim(f"{_SCHEDULERS[policy]}: makespan", minutes, makespan, band, "min", note))
    return rows


def _ours(found: Runs, how: str) -> list[Figure]:
    """Violations, and the makespan against the one of backfilling that knows no corridor."""
    ours = found[_OURS]
    longer = change(ours["makespan"], found[_STATIC]["makespan"])
    return [
        figure(f"ours{how}: violations", ours["violations"]),
        figure(f"ours{how}: seeds without any violation", _none(ours), "%"),
        figure(f"ours{how}: makespan", ours["makespan"] / 60, "min"),
        figure(f"ours{how}: makespan over backfilling without a corridor", longer, "%"),
    ]


def _others(found: Runs) -> list[Figure]:
    figures = [
        figure(f"{_SCHEDULERS[policy]}: seeds without any violation", _none(found[policy]), "%")
        for policy in (_STATIC, _RUNNING, _QUEUE)
    ]
    for policy, who in _SCHEDULERS.items():
        figures += [
            figure(f"{who}: seconds outside", found[policy]["time_outside"], "s"),
            figure(f"{who}: energy outside", found[policy]["energy_outside"] / 1000, "kJ"),
            figure(f"{who}: resizes", found[policy]["resizes"]),
        ]
    return figures


def _blind(columns: Columns) -> list[Figure]:
    how = f"{_SCHEDULERS[_QUEUE]}, without looking ahead"
    return [
        figure(f"{how}: violations", columns["violations"]),
        figure(f"{how}: makespan", columns["makespan"] / 60, "min"),
    ]


def _at(bench: Bench, speedup: float, found: Runs) -> list[Figure]:
    how = f", speed-up n ** {speedup:g}"
    queue = found[_QUEUE]["makespan"] / 60
    least = np.array(
        [
            least_makespan(built_in("power-batch", seed=seed, speedup=speedup)) / 60
            for seed in range(bench.seeds)
        ]
    )
    return [
        *_ours(found, how),
        figure(f"{_SCHEDULERS[_QUEUE]}{how}: makespan", queue, "min"),
        figure(f"least makespan that the corridor's energy allows{how}", least, "min"),
    ]


def _none(columns: Columns) -> float:
    """The share of the seeds without a violation, in per cent."""
    return float(100 * (columns["violations"] == 0).mean())


def least_makespan(workload: Workload) -> float:
    """No schedule that stays below the upper bounds ends sooner, whatever it does.

    Every job needs the energy of its nodes above idle, and least of it on one node; the upper bound less
    the power of an idle machine is what there is of it at any time.
    """
    platform = workload.platform
    assert platform is not None and platform.metering is not None and platform.metering.corridor is not None
    idle = platform.idle_power
    needed = 0.0
    for arrival in workload:
        assert arrival.job.power is not None
        alone = arrival.runtime * arrival.speedup.factor(arrival.job.nodes)
        needed += alone * (arrival.job.power.least - idle)
    steps = platform.metering.corridor.steps
    ends = [time for time, _, _ in steps[1:]] + [np.inf]
    for (begin, _, upper), end in zip(steps, ends, strict=True):
        room = upper - idle * platform.nodes
        if needed <= room * (end - begin):
            return begin + needed / room
        needed -= room * (end - begin)
    raise AssertionError("the last step has no end")
