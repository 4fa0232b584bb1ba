"""Jobs in a power corridor: malleable jobs that never end in time, their sizes and the machine's power over
time (seed 000, 9.2.2 and 9.2.3; digest 3.3.2), twenty jobs that end, and how long the program takes to solve.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, product
from time import perf_counter
from typing import Any

import numpy as np

from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.planning.corridor import CorridorProblem, Part, reachable, solve
from dask_hpc.planning.corridor.integer_program import Solver, solve_milp
from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Columns,
    Figure,
    Outcome,
    around,
    at_most,
    change,
    claim,
    direction,
    exactly,
    figure,
    rounded,
)
from dask_hpc.simulator import Arrival, Metering, Platform, Result, Workload, simulate
from dask_hpc.simulator.built_in import built_in

#: one reading and one decision every so many seconds; what that sets right counts as no violation
_TICK = 10.0
_POLICY = "power-corridor-reactive"
_FOREVER = 1e6

_PRINTED = "printed as a number of nodes"
_WATTS = "solved: watts and most nodes, for these sizes"
_SAID = "said in words; a redistribution may take two passes, because growths wait for the nodes of shrinks"


@dataclass(frozen=True)
class _App:
    """A malleable job: watts of a node, the size it starts with, the most it can use."""

    name: str
    watts: float
    nodes: int
    most: int


class _Observed:
    """One run under the published reactive strategy."""

    def __init__(self, nodes: int, apps: tuple[_App, ...], corridor: Corridor, seconds: float) -> None:
        jobs = [
            Job(
                id=app.name,
                nodes=app.nodes,
                kind="malleable",
                min_nodes=1,
                max_nodes=app.most,
                power=(app.watts, app.watts),  # type: ignore[arg-type]
            )
            for app in apps
        ]
        platform = Platform(nodes, tick=_TICK, metering=Metering(corridor=corridor))
        workload = Workload("corridor", [Arrival(job, _FOREVER) for job in jobs], platform=platform)
        self.result: Result = simulate(
            workload, policy=Policy.load(_POLICY), horizon=seconds, allotments=True
        )

    def sizes(self, app: str) -> list[tuple[float, int]]:
        """From when on it had how many nodes."""
        row = self.result.record.id.index(app)
        return [(time, len(nodes)) for time, one, nodes in self.result.record.allotments or () if one == row]

    def size_at(self, app: str, time: float) -> int:
        """Its nodes at that time."""
        return next(size for since, size in reversed(self.sizes(app)) if since <= time)

    def last_change(self) -> float:
        """When anybody changed size last; 0 if nobody did."""
        return max(sizes[-1][0] for app in self.result.record.id if (sizes := self.sizes(app)))

    def changes_after(self, time: float) -> int:
        """How often anybody changed size later."""
        return sum(since > time for app in self.result.record.id for since, _ in self.sizes(app))

    def inside_from(self) -> float:
        """From when on it was inside the corridor for good."""
        trace: Any = self.result.power
        out = (trace.watts < trace.lower) | (trace.watts > trace.upper)
        last = [at for at, is_out in enumerate(out[:-1]) if is_out]
        return float(trace.time[last[-1] + 1]) if last else float(trace.time[0])


def _moved(
    apps: tuple[_App, ...], corridor: Corridor, come_to: tuple[int, int], inside_by: float
) -> tuple[Claim, ...]:
    """Two applications on 32 nodes: one shrinks, the other grows, and then there is peace."""
    seen = _Observed(32, apps, corridor, 1000.0)
    inside = seen.inside_from()
    sizes = [
        claim(f"{app.name} comes to", size, seen.size_at(app.name, 1000), exactly(size), "nodes", _PRINTED,
              _WATTS)
        for app, size in zip(apps, come_to, strict=True)
    ]  # fmt: skip
    return (
        *sizes,
        claim("inside the corridor from", inside_by, inside, at_most(inside_by), "s",
              "read off a plot that has no time of the first decision: by then"),
        claim("resizes after that", 0, seen.changes_after(inside + _TICK), exactly(0), "", _SAID),
    )  # fmt: skip


def upper(bench: Bench) -> Outcome:
    """Two applications draw too much: one shrinks, the other grows (seed 000, 9.2.2; digest 3.3.2)."""
    apps = (_App("App 1", 320.0, 12, 32), _App("App 2", 125.0, 2, 24))
    claims = _moved(apps, Corridor.constant(3000, 4000), (3, 24), 300)
    return Outcome(claims, _swept(bench, (3000, 4000), (12, 2), (3, 24), is_too_much=True))


def lower(bench: Bench) -> Outcome:
    """Two applications draw too little: one shrinks, the other grows more (seed 000, 9.2.2)."""
    apps = (_App("App 1", 240.0, 4, 32), _App("App 2", 125.0, 4, 16))
    claims = _moved(apps, Corridor.constant(1500, 2500), (2, 16), 500)
    return Outcome(claims, _swept(bench, (1500, 2500), (4, 4), (2, 16), is_too_much=False))


#: watts of a node and most nodes of a job, as far as anybody would believe them
_PLAUSIBLE = range(75, 351, 25)
_MOSTS = ((16, 32), (8, 16, 24, 32))
_PLAUSIBLE_PI = range(75, 351, 5)
_MOSTS_PI = (10, 12, 14, 16)

#: watts of a node, nodes, and most nodes of a job
_Size = tuple[float, int, int]


def settled(nodes: int, bounds: tuple[float, float], jobs: Sequence[_Size]) -> tuple[int, ...]:
    """The sizes that running jobs come to: others if their power is outside, by the strategy's program."""
    now = tuple(size for _, size, _ in jobs)
    lower, upper = bounds
    if lower <= sum(watts * size for watts, size, _ in jobs) <= upper:
        return now
    parts = tuple(
        Part(str(number), PowerRange(watts, watts), range(1, most + 1), size)
        for number, (watts, size, most) in enumerate(jobs)
    )
    found = solve(CorridorProblem(nodes, 0.0, lower, upper, parts))
    return tuple(found.sizes[part.id] for part in parts)


def _swept(
    bench: Bench,
    bounds: tuple[float, float],
    begin: tuple[int, int],
    come_to: tuple[int, int],
    is_too_much: bool,
) -> list[Figure]:
    """How many watts and maxima that one could believe lead to the published sizes."""
    cases = [
        tuple(zip(watts, begin, mosts, strict=True))
        for watts in product(_PLAUSIBLE, repeat=2)
        for mosts in product(*_MOSTS)
    ]
    found = bench.each(settled, [(_NODES, bounds, jobs) for jobs in cases])
    draws = [sum(watts * size for watts, size, _ in jobs) for jobs in cases]
    outside = [watts > bounds[1] if is_too_much else watts < bounds[0] for watts in draws]
    return _share(found, come_to, "begins outside, as said", list(compress(found, outside)))


def _share(
    found: Sequence[tuple[int, ...]], wanted: tuple[int, ...], which: str, of: Sequence[tuple[int, ...]]
) -> list[Figure]:
    text = f"plausible watts and maxima, {len(found):,} of them"
    same = sum(sizes == wanted for sizes in found)
    return [
        figure(f"{text}: come to the published sizes", 100 * same / len(found), "%"),
        figure(f"{text}: with which it {which}", 100 * len(of) / len(found), "%"),
        figure("of these: come to the published sizes", 100 * same / len(of), "%"),
    ]


def _followed(watts: float, most: int) -> tuple[int, ...]:
    """Sizes of one job of one node at first in the four corridors, one after the other."""
    sizes = [1]
    for _, lower, upper in _STEPS:
        sizes += settled(16, (lower, upper), [(watts, sizes[-1], most)])
    return tuple(sizes[1:])


_PI = 125.0
_PI_WATTS = "solved: watts, for 9 nodes and 4"
_STEPS = ((0.0, 100.0, 600.0), (240.0, 700.0, 1200.0), (470.0, 1300.0, 1900.0), (700.0, 100.0, 600.0))


def dynamic(bench: Bench) -> Outcome:
    """A corridor that moves three times, and one application that follows it (seed 000, 9.2.3)."""
    seen = _Observed(16, (_App("Pi", _PI, 1, 16),), Corridor(_STEPS), 1000.0)
    second, third = seen.size_at("Pi", 460), seen.size_at("Pi", 690)
    followed = bench.each(_followed, list(product(_PLAUSIBLE_PI, _MOSTS_PI)))
    grown = next((time for time, size in seen.sizes("Pi") if size == second and time >= 240), float("inf"))
    claims = (
        claim("nodes in the first corridor", 1, seen.size_at("Pi", 230), exactly(1), "nodes", _PRINTED,
              "what we put in: the size it starts with"),
        claim("nodes in the second corridor", 9, second, exactly(9), "nodes", _PRINTED, _PI_WATTS),
        claim("there from", 250, grown, (240, 250), "s", "the corridor moves at 240 s"),
        claim("nodes in the third corridor over those in the second", "more", third - second, (1, 7), "nodes",
              "said in words: at least one more, and there are 16"),
        claim("nodes in the first corridor when it comes back", 4, seen.size_at("Pi", 1000), exactly(4),
              "nodes", _PRINTED, _PI_WATTS),
        claim("last change", 700, seen.last_change(), (700, 710), "s",
              "about 700 s: within one decision of that",
              "what we put in: the corridor moves for the last time at 700 s"),
        claim("times outside for longer than one decision", 0, len(seen.result.power.violations), exactly(0),
              "", "said in words"),
    )  # fmt: skip
    beside = (
        figure("nodes in the third corridor", third, "nodes"),
        figure("power in the third corridor", third * _PI, "W"),
        *_share(
            [(one, two, four) for one, two, three, four in followed],
            (1, 9, 4),
            "grows in the second corridor and again in the third, as said",
            [sizes for sizes in followed if sizes[0] < sizes[1] < sizes[2]],
        ),
    )
    return Outcome(claims, beside)


_SCHEDULERS = {
    "easy-backfill": "backfilling",
    "power-corridor-reactive": "running jobs only",
    "power-corridor-queue-aware": "queue and running jobs",
    "power-corridor-clairvoyant": "queue and running jobs, clairvoyant",
    "power-corridor": "ours",
}
_STATIC, _RUNNING, _QUEUE, _AHEAD, _OURS = _SCHEDULERS
_KNOWS = "picked: that it knows the corridor to come, and when jobs end"
_OTHER_SPEEDUPS = (0.7, 1.0)
_SINGLE = "one run in an unknown order; how a count was made is not said: from half to twice it"
_EXPONENT = "picked: n ** 0.5, with which the corridor's energy is enough for this"
_QUARTERS = "printed in quarters of a minute: what rounds to it, on average over the orders"

Runs = dict[str, Columns]


def batch(bench: Bench) -> Outcome:
    """Twenty jobs in a power corridor that moves twice, on 14 nodes (seed 000, 9.2.4; digest 3.3.3).

    The source compares three schedulers: backfilling alone, backfilling with running jobs resized for power,
    and one that also holds and chooses waiting jobs. As printed the last one looks at the corridor of now
    alone; one that knows the corridor to come is compared as well ("clairvoyant"). Ours is beside them, with
    the same jobs.
    """
    found = bench.study("builtin:power-batch", list(_SCHEDULERS))
    beside = [*_ours(found, ""), *_others(found)]
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
        *[
            claim(f"{_SCHEDULERS[policy]}: violations", 0, violations[policy], exactly(0), "",
                  "none is none, in every order", why)
            for policy, why in ((_QUEUE, ""), (_AHEAD, _KNOWS))
        ],
        direction("seconds outside: running jobs only less backfilling", "less",
                  outside[_RUNNING] - outside[_STATIC], (-np.inf, 0), "s"),
        *[
            direction(f"seconds outside: {_SCHEDULERS[policy]}, less running jobs only", "less",
                      outside[policy] - outside[_RUNNING], (-np.inf, 0), "s", why)
            for policy, why in ((_QUEUE, ""), (_AHEAD, _KNOWS))
        ],
    ]  # fmt: skip
    for policy, minutes in ((_STATIC, 13.75), (_RUNNING, 14.25), (_QUEUE, 14.0), (_AHEAD, 14.0)):
        why = "solved: the lengths, for this" if policy == _STATIC else _EXPONENT
        band = around(minutes, 0.1) if policy == _STATIC else rounded(minutes, 0.25)
        makespan = found[policy]["makespan"] / 60
        text = f"{_SCHEDULERS[policy]}: makespan"
        rows.append(claim(text, minutes, makespan, band, "min", _QUARTERS, why))
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
        for policy in (_STATIC, _RUNNING, _QUEUE, _AHEAD)
    ]
    for policy, who in _SCHEDULERS.items():
        figures += [
            figure(f"{who}: seconds outside", found[policy]["time_outside"], "s"),
            figure(f"{who}: energy outside", found[policy]["energy_outside"] / 1000, "kJ"),
            figure(f"{who}: resizes", found[policy]["resizes"]),
        ]
    return figures


def _at(bench: Bench, speedup: float, found: Runs) -> list[Figure]:
    how = f", speed-up n ** {speedup:g}"
    theirs = [(policy, found[policy]["makespan"] / 60) for policy in (_QUEUE, _AHEAD)]
    least = np.array(
        [
            least_makespan(built_in("power-batch", seed=seed, speedup=speedup)) / 60
            for seed in range(bench.seeds)
        ]
    )
    return [
        *_ours(found, how),
        *(figure(f"{_SCHEDULERS[policy]}{how}: makespan", ours, "min") for policy, ours in theirs),
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


_KINDS = {"pi": 170.0, "heat": 250.0}
_IDLE = 71.0
_SIZES = (2, 4, 8, 16)
_INSTANCES = 10
_NODES = 32
#: mixes of running jobs of the batch study, and its corridors on 14 nodes
_MIXES = [(pi, heat) for pi in range(0, 11, 3) for heat in range(1, 11, 3) if pi + heat <= 14]
_CORRIDORS = ((1700.0, 2500.0), (1000.0, 1700.0), (2500.0, 3500.0))

Way = Callable[[CorridorProblem], object]


def solve_time(bench: Bench) -> Outcome:
    """How long the power corridor's program takes to solve (seed 000, 5.2 and 9.2.4)."""
    _warm_up()
    ways: dict[str, Way] = {
        "the source's program, CBC": partial(solve_milp, solver="CBC", time_limit=60, levels=("idle",)),
        "CBC": partial(solve, time_limit=60, how="CBC"),
        "HiGHS": partial(solve, time_limit=60, how="HiGHS"),
        "no solver": partial(solve, how="fast"),
    }
    claims: list[Claim] = []
    beside: list[Figure] = []
    times: dict[tuple[str, int], list[float]] = {}
    for jobs in _SIZES:
        problems = [_random(jobs, seed) for seed in range(_INSTANCES)]
        for name, way in ways.items():
            times[name, jobs] = bench.each(_seconds, [(way, problem) for problem in problems])
        longest = max(times["the source's program, CBC", jobs])
        note = f"always, so the longest of {_INSTANCES} counts; another machine than the source's"
        claims.append(claim(f"solve time for K = {jobs}", 0.5, longest, at_most(0.5), "s", note))
    mixes = [_mix(pi, heat, *bounds) for pi, heat in _MIXES for bounds in _CORRIDORS]
    for name, way in ways.items():
        mean = 1e3 * float(np.mean(bench.each(_seconds, [(way, problem) for problem in mixes])))
        if name == "the source's program, CBC":
            note = "not slower than published counts, although the machine is another"
            claims.append(claim("mean solve time in the batch study", 20, mean, at_most(20), "ms", note))
        else:
            beside.append(figure(f"mean solve time in the batch study, {name}", mean, "ms", note=_PROVEN))
    for name in list(ways)[1:]:
        for jobs in _SIZES:
            longest = 1e3 * max(times[name, jobs])
            beside.append(figure(f"longest solve time for K = {jobs}, {name}", longest, "ms", note=_PROVEN))
    return Outcome(claims, beside)


_PROVEN = "all four levels, proven"


def _seconds(way: Way, problem: CorridorProblem) -> float:
    began = perf_counter()
    way(problem)
    return perf_counter() - began


def _warm_up() -> None:
    """Load the solvers; complain now if they are not there."""
    solvers: tuple[Solver, ...] = ("HiGHS", "CBC")
    for solver in solvers:
        solve_milp(_mix(1, 1, 1000, 1700), solver, 60)


def _random(jobs: int, seed: int) -> CorridorProblem:
    random = np.random.default_rng([jobs, seed])
    sizes = random.multinomial(_NODES - jobs, np.ones(jobs + 1) / (jobs + 1))[:jobs] + 1
    kinds = random.choice(list(_KINDS), jobs)
    parts = tuple(
        _part(number, kind, int(size), _NODES)
        for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    )
    low, high = reachable(CorridorProblem(_NODES, _IDLE, 0, 1, parts))
    width = (high - low) / 10
    lower = low + (high - low - width) * random.random()
    return CorridorProblem(_NODES, _IDLE, lower, lower + width, parts)


def _mix(pi: int, heat: int, lower: float, upper: float) -> CorridorProblem:
    kinds = ["pi"] * pi + ["heat"] * heat
    parts = tuple(_part(number, kind, 1, 14) for number, kind in enumerate(kinds))
    return CorridorProblem(14, _IDLE, lower, upper, parts)


def _part(number: int, kind: str, now: int, nodes: int) -> Part:
    watts = _KINDS[kind]
    return Part(f"{kind}{number}", PowerRange(watts, watts), range(1, nodes + 1), now)
