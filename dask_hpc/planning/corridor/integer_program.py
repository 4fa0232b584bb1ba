"""The corridor's integer program written in PuLP, solved by HiGHS or CBC, one level after another."""

from collections.abc import Sequence
from contextlib import suppress
from math import inf, isfinite
from typing import Any, Literal

from dask_hpc.model.errors import InputError
from dask_hpc.model.job import runs
from dask_hpc.planning.corridor.enumeration import enumerate_all, reachable
from dask_hpc.planning.corridor.fast import NEAR, search
from dask_hpc.planning.corridor.problem import (
    TINY,
    CorridorProblem,
    Distribution,
    Groups,
    Part,
    distribution,
)

Solver = Literal["HiGHS", "CBC"]
#: watts outside within which an answer counts as the nearest, and the share of the slack that does not matter
_CLOSE = 1e-4
LEVELS = ("outside", "idle", "changed", "slack")


def solve_milp(
    problem: CorridorProblem,
    solver: Solver,
    time_limit: float,
    levels: Sequence[str] = LEVELS,
    known: Distribution | None = None,
) -> Distribution | None:
    """The optimum, or the best found in ``time_limit`` seconds, or None if nothing was found in that time.

    Only ``levels`` count; without "outside" what is outside is no answer. The source's program is "idle".
    Levels that ``known`` proves are not solved again.
    """
    if not problem.parts:
        return distribution(problem, {}, solver)
    program = _Program(problem, solver)
    if "outside" not in levels:
        program.keep("outside", 0.0)
    found: dict[str, int] | None = None
    unproven, gap = "", 0.0
    for level in levels:
        if level in ("outside", "slack") and not program.has_edges:
            continue
        if known is not None and level in LEVELS[: LEVELS.index(known.unproven) if known.unproven else None]:
            program.keep(level, known.levels[LEVELS.index(level)])
            continue
        time_limit, bound = program.improve(level, time_limit)
        if program.is_solved:
            found = program.sizes()
        if not program.is_proven:
            unproven, gap = level, program.gap(level, bound)
            break
        program.keep(level, program.value(level))
    return None if found is None else distribution(problem, found, solver, gap, unproven)


class _Program:
    """Sizes, idle nodes, changes, watts outside and slack as variables of one PuLP model."""

    def __init__(self, problem: CorridorProblem, solver: Solver) -> None:
        self._pulp: Any = _pulp(solver)
        self._problem, self._solver = problem, solver
        self._model = self._pulp.LpProblem("corridor", self._pulp.LpMinimize)
        self._sizes = {part.id: self._size(number, part) for number, part in enumerate(problem.parts)}
        idle = self._variable("idle", 0, problem.nodes)
        changes = [self._change(number, part) for number, part in enumerate(problem.parts)]
        outside = self._variable("outside", 0, None, "Continuous")
        slack = self._variable("slack", 0, None, "Continuous")
        levels = (outside, idle, self._pulp.lpSum(changes), -slack)
        self._values = dict(zip(LEVELS, levels, strict=True))
        self._outside, self._idle, self._slack = outside, idle, slack
        self._model += self._pulp.lpSum(self._sizes.values()) + idle == problem.nodes
        watts = idle * problem.idle
        powers = [(part.power, self._sizes[part.id]) for part in problem.parts]
        least = watts + self._pulp.lpSum(power.least * size for power, size in powers)
        most = watts + self._pulp.lpSum(power.most * size for power, size in powers)
        if isfinite(problem.floor):
            self._model += least + problem.constant.least + outside - slack >= problem.floor
        if isfinite(problem.ceiling):
            self._model += most + problem.constant.most - outside + slack <= problem.ceiling
        self.has_edges = isfinite(problem.floor) or isfinite(problem.ceiling)

    def _variable(self, name: str, low: float, high: float | None, kind: str = "Integer") -> Any:
        return self._model.add_variable(name, low, high, kind)

    def _size(self, number: int, part: Part) -> Any:
        """A number from the part's sizes: of its runs of neighbouring sizes exactly one is chosen."""
        if part.is_contiguous:
            return self._variable(f"size_{number}", part.sizes[0], part.sizes[-1])
        terms, chosen = [], []
        for run, (low, high) in enumerate(runs(part.sizes)):
            is_chosen = self._variable(f"in_{number}_{run}", 0, 1)
            chosen.append(is_chosen)
            terms.append(low * is_chosen)
            if high > low:
                beyond = self._variable(f"beyond_{number}_{run}", 0, high - low)
                self._model += beyond <= (high - low) * is_chosen
                terms.append(beyond)
        self._model += self._pulp.lpSum(chosen) == 1
        return self._pulp.lpSum(terms)

    def _change(self, number: int, part: Part) -> Any:
        size = self._sizes[part.id]
        change = self._variable(f"change_{number}", 0, None, "Continuous")
        self._model += change >= size - part.now
        self._model += change >= part.now - size
        return change

    def improve(self, level: str, time_limit: float) -> tuple[float, float]:
        """Minimise one level; answer the seconds that are left and the best bound on the level's value."""
        self._slack.upBound = None if level == "slack" else 0
        self._model.setObjective(self._values[level])
        share = _CLOSE if level == "slack" else 0.0
        options = {"msg": False, "timeLimit": max(time_limit, 0.01), "gapRel": share}
        if self._solver == "HiGHS":
            engine = self._pulp.HiGHS(**options, gapAbs=_CLOSE)
        else:
            engine = self._pulp.COIN_CMD(path=self._pulp.PULP_CBC_CMD.pulp_cbc_path, **options)
        self._model.solve(engine)
        #: whether the solver says that there is none better, or has found a distribution at least
        self.is_proven = self._model.sol_status == self._pulp.LpSolutionOptimal
        self.is_solved = self.is_proven or self._model.sol_status == self._pulp.LpSolutionIntegerFeasible
        bound = -inf
        if self._solver == "HiGHS":
            bound = float(self._model.solverModel.getInfo().mip_dual_bound)
        return time_limit - float(self._model.solutionTime), bound

    def value(self, level: str) -> float:
        """Of what was found."""
        return float(self._pulp.value(self._values[level]) or 0.0)

    def gap(self, level: str, bound: float) -> float:
        """How much better the level could be, as a share of its value."""
        if not self.is_solved:
            return inf
        value = self.value(level)
        return max(0.0, value - bound) / max(abs(value), TINY)

    def keep(self, level: str, value: float) -> None:
        """From now on this level stays as good as that."""
        if level == "outside":
            is_inside = value <= TINY
            self._outside.upBound = 0 if is_inside else value + _CLOSE
            self.has_edges = self.has_edges and is_inside
        elif level == "idle":
            self._idle.upBound = round(value)
        elif level == "changed":
            self._model += self._values["changed"] <= round(value) + 0.5

    def sizes(self) -> dict[str, int]:
        """What was found."""
        return {name: round(self._pulp.value(size)) for name, size in self._sizes.items()}


def has_solver(solver: Solver) -> bool:
    """Whether it is installed."""
    with suppress(InputError):
        return _pulp(solver) is not None
    return False


def _pulp(solver: Solver) -> Any:
    try:
        import pulp

        if solver == "HiGHS":
            import highspy  # noqa: F401
    except ImportError as error:
        hint = 'pip install "dask-hpc[power]", or the path that needs no solver (fast)'
        raise InputError("solver", f"{solver} is not installed ({error.name} is missing)", hint) from None
    return pulp


How = Literal["auto", "fast", "HiGHS", "CBC"]

_LIMIT = 20_000  # ways to size some of the parts that are looked at


def solve(problem: CorridorProblem, time_limit: float = 1.0, how: How = "auto") -> Distribution:
    """The best distribution.

    "fast" needs no solver. "auto" is that too, and asks HiGHS, if it is installed, for at most ``time_limit``
    seconds only where bounds do not prove the answer: idle or changed nodes, or more than a thousandth of the
    watts outside. Tiny problems are proven by looking at every distribution.
    """
    if how == "HiGHS" or how == "CBC":
        return solve_milp(problem, how, time_limit) or _as_little_as_possible(problem)
    if not problem.parts:
        return distribution(problem, {}, "fast")
    groups = Groups(problem)
    found = search(groups.merged)
    if found is None or not found.is_optimal or found.gap:
        proven = found if found is not None and found.unproven in ("", "changed", "slack") else None
        sizes = enumerate_all(groups.merged, groups.merged.parts, _LIMIT, proven)
        if sizes is not None:
            return distribution(problem, groups.split(sizes), "fast")
    # whether a solver may find something that matters
    level, gap = ("idle", 1.0) if found is None else (found.unproven, found.gap)
    is_doubtful = level in ("idle", "changed") or (level == "outside" and gap > NEAR)
    if how == "auto" and is_doubtful and has_solver("HiGHS"):
        solved = solve_milp(groups.merged, "HiGHS", time_limit, known=found)
        if solved is not None and (found is None or solved.is_optimal or _order(solved) < _order(found)):
            found = solved
    if found is None:
        return _as_little_as_possible(problem)
    return distribution(problem, groups.split(found.sizes), found.how, found.gap, found.unproven)


def _order(found: Distribution) -> tuple[float, int, int, float]:
    """Its levels, without differences that are the solver's tolerance."""
    outside, idle, changed, slack = found.levels
    return round(outside, 3), idle, changed, slack


def _as_little_as_possible(problem: CorridorProblem) -> Distribution:
    """What always fits."""
    least = {part.id: part.sizes[0] for part in problem.parts}
    return distribution(problem, least, "least sizes", 1.0, "outside")


def guaranteed(problem: CorridorProblem) -> tuple[bool, bool]:
    """Whether the lower and whether the upper bound can be kept, each for itself (seed 000, 2.10).

    The source's closed forms hold for jobs of 1 to all nodes only, and the one for the lower bound
    has a factor too many; this is exact. That both bounds can be kept does not mean that they can be kept
    at once: between the ends of what is reachable there may be holes. ``solve`` tells.
    """
    lowest, highest = reachable(problem)
    return highest >= problem.floor - TINY, lowest <= problem.ceiling + TINY
