"""Solving the power corridor's program."""

from collections.abc import Callable
from time import perf_counter

import numpy as np

from dask_hpc.model.power import PowerRange
from dask_hpc.planning.corridor import CorridorProblem, Part, reachable, solve
from dask_hpc.planning.corridor.integer_program import Solver, solve_milp
from dask_hpc.reproduce.claim import Bench, Claim, Figure, Outcome, at_most, claim, figure

_WATTS = {"pi": 170.0, "heat": 250.0}
_IDLE = 71.0
_SIZES = (2, 4, 8, 16)
_INSTANCES = 10
_NODES = 32
#: mixes of running jobs of the batch study, and its corridors on 14 nodes
_MIXES = [(pi, heat) for pi in range(0, 11, 3) for heat in range(1, 11, 3) if pi + heat <= 14]
_CORRIDORS = ((1700.0, 2500.0), (1000.0, 1700.0), (2500.0, 3500.0))

Way = Callable[[CorridorProblem], object]


def run(bench: Bench) -> Outcome:
    """How long the power corridor's program takes to solve (seed 000, 5.2 and 9.2.4)."""
    _warm_up()
    ways = {"the source's program, CBC": _source, "CBC": _cbc, "HiGHS": _highs, "no solver": _fast}
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
    mixes = [_batch(pi, heat, *bounds) for pi, heat in _MIXES for bounds in _CORRIDORS]
    for name, way in ways.items():
        mean = 1e3 * float(np.mean(bench.each(_seconds, [(way, problem) for problem in mixes])))
        if name == "the source's program, CBC":
            note = "not slower than published counts, although the machine is another"
            claims.append(claim("mean solve time in the batch study", 20, mean, at_most(20), "ms", note))
        else:
            beside.append(figure(f"mean solve time in the batch study, {name}", mean, "ms", note=_OURS))
    for name in list(ways)[1:]:
        for jobs in _SIZES:
            longest = 1e3 * max(times[name, jobs])
            beside.append(figure(f"longest solve time for K = {jobs}, {name}", longest, "ms", note=_OURS))
    return Outcome(claims, beside)


_OURS = "all four levels, proven"


def _seconds(way: Way, problem: CorridorProblem) -> float:
    began = perf_counter()
    way(problem)
    return perf_counter() - began


def _source(problem: CorridorProblem) -> object:
    return solve_milp(problem, "CBC", 60, levels=("idle",))


def _cbc(problem: CorridorProblem) -> object:
    return solve(problem, 60, "CBC")


def _highs(problem: CorridorProblem) -> object:
    return solve(problem, 60, "HiGHS")


def _fast(problem: CorridorProblem) -> object:
    return solve(problem, how="fast")


def _warm_up() -> None:
    """Load the solvers; complain now if they are not there."""
    solvers: tuple[Solver, ...] = ("HiGHS", "CBC")
    for solver in solvers:
        solve_milp(_batch(1, 1, 1000, 1700), solver, 60)


def _random(jobs: int, seed: int) -> CorridorProblem:
    random = np.random.default_rng([jobs, seed])
    sizes = random.multinomial(_NODES - jobs, np.ones(jobs + 1) / (jobs + 1))[:jobs] + 1
    kinds = random.choice(list(_WATTS), jobs)
    parts = tuple(
        _part(number, kind, int(size), _NODES)
        for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    )
    low, high = reachable(CorridorProblem(_NODES, _IDLE, 0, 1, parts))
    width = (high - low) / 10
    lower = low + (high - low - width) * random.random()
    return CorridorProblem(_NODES, _IDLE, lower, lower + width, parts)


def _batch(pi: int, heat: int, lower: float, upper: float) -> CorridorProblem:
    kinds = ["pi"] * pi + ["heat"] * heat
    parts = tuple(_part(number, kind, 1, 14) for number, kind in enumerate(kinds))
    return CorridorProblem(14, _IDLE, lower, upper, parts)


def _part(number: int, kind: str, now: int, nodes: int) -> Part:
    watts = _WATTS[kind]
    return Part(f"{kind}{number}", PowerRange(watts, watts), range(1, nodes + 1), now)
