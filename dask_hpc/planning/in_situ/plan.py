"""A partition for a machine in human units: what ``dask-hpc plan partition`` prints, for programs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from operator import attrgetter
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.safe_yaml import check_keys, nearest
from dask_hpc.model.units import parse_quantity, show_bytes
from dask_hpc.planning.in_situ.orders import (
    MOST_ENUMERATED,
    ORDERS,
    Choice,
    enumerated,
    greedy,
    relaxed,
    subset_sums,
)
from dask_hpc.planning.in_situ.partition import (
    MODES,
    Analysis,
    EqualNodes,
    Partition,
    PartitionProblem,
    Simulation,
)
from dask_hpc.planning.in_situ.phases import (
    PhaseWork,
    iteration_time,
    least_memory,
    phase_times,
    placed,
    with_split,
    work_of_each,
)
from dask_hpc.planning.in_situ.search import (
    Array,
    Pairs,
    Places,
    SplitPlace,
    all_pairs,
    best_split,
    bounds,
    costs,
    quick_bounds,
)

#: how the analyses that run in situ may be chosen
ALL_ORDERS: tuple[str, ...] = ("exact", "enumerate", *ORDERS, "random")


def partition(problem: PartitionProblem, order: str = "exact", *, seed: int = 0) -> Partition:
    """Who runs where so that an iteration takes as short as possible.

    With n nodes that simulate, h helper cores of each and some analyses in situ, an iteration takes, in whole
    numbers, max(simulation on n (c - h) cores, analyses in situ on n h cores, the others on C - n nodes) in
    mode "async", and max(simulation, then analyses in situ, each on n c cores; the others on C - n nodes) in
    mode "sync", where h is 0.

    "exact" is the optimum over all splits, n and h, to a hundred-thousandth of an iteration; if that is not
    proven, ``warning`` says how much shorter an iteration could be. The other orders are the source's:
    "enumerate" tries all subsets with nodes and helper cores rounded up, the rest move one analysis after
    another in situ. ``seed`` is that of "random".
    """
    insist(order in ALL_ORDERS, "order", order, ", ".join(ALL_ORDERS))
    warning = ""
    machine = problem.nodes
    if problem.mode == "async" and machine.count == machine.cores == 1 and problem.analyses:
        problem = replace(problem, mode="sync")
        warning = "a single core: analyses run after the simulation's step, not beside it"
    if order == "enumerate" and len(problem.analyses) > MOST_ENUMERATED:
        order = "exact"
        warning = f"{len(problem.analyses)} analyses have too many subsets to try all: exact instead"
    if order == "exact":
        choice, gap = optimum(problem)
        if gap and choice.time < inf:
            warning = f"not proven to be the best: an iteration could be shorter by {gap:.2g} of its time"
    elif order == "enumerate":
        choice = enumerated(problem)
    else:
        choice = greedy(problem, order, seed)
    if choice.time == inf:
        return least_memory(problem, warning)
    return placed(problem, choice.nodes, choice.helper, choice.in_situ, warning)


_MOST_CORES = 4_000_000
_MOST_ANALYSES = 1_000
_UNITS = {"time": "s", "memory": "B", "moved": "B", "serial": ""}
_CLOSE = 0.001  # phases that differ by less than this share are equally long for a person
_PARTS = {
    "simulation": "the simulation",
    "in_situ": "analyses in situ",
    "in_transit": "analyses in transit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """Who runs where, and how that compares."""

    problem: PartitionProblem
    order: str
    partition: Partition
    #: the best whole numbers with every analysis in situ, or none; None if that cannot be
    all_in_situ: Partition | None
    all_in_transit: Partition | None
    #: this split with fractions of nodes and cores: no whole numbers are faster
    bound: float

    @property
    def reason(self) -> str:
        """What limits the iteration, for a person."""
        if self.partition.warning:
            return self.partition.warning
        phases = self.partition.phases
        if self.partition.mode == "sync":
            times = {"the simulation and then analyses in situ": phases.simulation + phases.in_situ}
            times["analyses in transit"] = phases.in_transit
        else:
            times = {_PARTS[name]: seconds for name, seconds in phases._asdict().items()}
        time = self.partition.iteration
        longest = [name for name, seconds in times.items() if seconds >= time * (1 - _CLOSE)]
        text = f"limited by {' and '.join(longest)}" if time > 0 else "nothing takes any time"
        return f"{text}; {self._memory()}"

    def _memory(self) -> str:
        nodes = self.problem.nodes
        if not isfinite(nodes.memory):
            return "memory is not limited"
        names = set(self.partition.in_situ)
        used = self.problem.simulation.memory + sum(
            one.memory for one in self.problem.analyses if one.name in names
        )
        share = used / (nodes.memory * self.partition.nodes)
        return f"{share:.0%} of the {show_bytes(nodes.memory)} of each simulation node are used"


def plan_partition(
    nodes: int,
    cores: int,
    memory: float | str = inf,
    bandwidth: float | str = inf,
    *,
    simulation: Mapping[str, Any],
    analyses: Iterable[Mapping[str, Any]] = (),
    mode: str = "async",
    order: str = "exact",
    seed: int = 0,
) -> PartitionPlan:
    """Which analyses should run in situ, and how many of ``nodes`` and ``cores`` they should have.

    ``memory`` and ``bandwidth`` are those of a node. ``simulation`` is a mapping with ``time`` (of one
    iteration on a single core), ``memory`` (at its peak, over all nodes) and ``serial`` (the share of its
    time that no further core makes shorter); each analysis has a ``name`` too, and ``moved``, what it needs
    if it runs in transit (as much as ``memory`` unless said otherwise). Quantities may be written as
    ``"64 GiB"``, ``"10 GB/s"`` or ``"2 h"``. A plan is always made; what does not fit is its ``warning``.
    """
    for name, value in (("nodes", nodes), ("cores", cores)):
        fine = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_CORES
        insist(fine, name, value, f"a whole number from 1 to {_MOST_CORES:,}")
    if nodes * cores > _MOST_CORES:
        raise InputError("nodes", f"found {nodes:,} of {cores:,} cores", f"{_MOST_CORES:,} cores in all")
    machine = EqualNodes(
        count=nodes,
        cores=cores,
        memory=parse_quantity(memory, "B", "memory"),
        bandwidth=parse_quantity(bandwidth, "B/s", "bandwidth"),
    )
    fine = isinstance(analyses, Iterable) and not isinstance(analyses, str | Mapping)
    insist(fine, "analyses", analyses, "a list of analyses")
    problem = PartitionProblem(
        machine,
        read_simulation(simulation),
        tuple(read_analysis(one, number) for number, one in enumerate(analyses, 1)),
        _choice("mode", mode, MODES),
    )
    if len(problem.analyses) > _MOST_ANALYSES:
        raise InputError("analyses", f"found {len(problem.analyses):,}", f"at most {_MOST_ANALYSES:,}")
    found = partition(problem, _choice("order", order, ALL_ORDERS), seed=seed)
    names = [one.name for one in problem.analyses]
    return PartitionPlan(
        problem=problem,
        order=order,
        partition=found,
        all_in_situ=with_split(problem, names),
        all_in_transit=with_split(problem, ()),
        bound=relaxed(problem, found.in_situ).iteration,
    )


def read_simulation(found: Any) -> Simulation:
    """From a mapping, as in a file."""
    check_keys(found, ("time", "memory", "serial"), "simulation")
    if "time" not in found:
        raise InputError("simulation.time", "is missing", "seconds of one iteration on a single core")
    return Simulation(**_quantities(found, "simulation"))


def read_analysis(found: Any, number: int) -> Analysis:
    """From a mapping, as in a file; it is the ``number``-th until its name is known."""
    where = f"analysis {number}"
    check_keys(found, ("name", *_UNITS), where)
    name = found.get("name")
    if isinstance(name, str) and name:
        where = f"analysis {shown(name)}"
    for key in ("name", "time"):
        if key not in found:
            raise InputError(f"{where}: {key}", "is missing", "a name and the seconds on a single core")
    return Analysis(name=name, **_quantities(found, where))


def _quantities(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {
        key: parse_quantity(found[key], unit, f"{where}: {key}") if unit else found[key]
        for key, unit in _UNITS.items()
        if key in found
    }


def _choice(where: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise InputError(where, f"found {shown(value)}{nearest(value, known)}", ", ".join(known))
    return value


by_time = attrgetter("time")
_FEW = 12  # analyses of which all subsets are tried
_NEGLIGIBLE = 1e-6  # share of an iteration that is not looked for any more
_SAID = 1e-5  # share of an iteration from which on it is said that a better one is not ruled out
_TOGETHER = 16  # pairs that are bounded at a time
_AT_ONCE = 256  # numbers of nodes that are bounded together
_EFFORT = 5  # sums that could be looked at while an analysis is bounded
_WORK = 6_000_000  # sums that are looked at, before the search is given up


def optimum(problem: PartitionProblem) -> tuple[Choice, float]:
    """The best choice, and by which share of its time a better one could be shorter; inf if none fits.

    Ours. Every pair of nodes and helper cores has a bound that no split can beat; pairs are searched in the
    order of their bounds until the next bound is no better than what was found. All splits are tried where
    there are few analyses; else ``search`` looks for the best one near the bound. The result is the optimum
    to a hundred-thousandth (mostly to a millionth, for few analyses to rounding errors), or it is said how
    far from it it may be: where very many splits are as good as each other, or after very much work.
    """
    everything = frozenset(one.name for one in problem.analyses)
    best = min((_alone(problem, names) for names in (everything, frozenset[str]())), key=by_time)
    if not problem.analyses or problem.nodes.count == 1:
        return best, 0.0
    each, pairs = work_of_each(problem.analyses), all_pairs(problem)
    low = quick_bounds(problem, each, pairs)
    good = np.flatnonzero(low < best.time)
    if not len(good):
        return best, 0.0
    pairs, low = pairs.at(good), low[good]
    if len(problem.analyses) <= _FEW:
        return _of_all_subsets(problem, each, pairs, low, best), 0.0
    return _Pruned(problem, each, pairs, low, best).run()


def _alone(problem: PartitionProblem, names: frozenset[str]) -> Choice:
    """Everything in situ, or nothing."""
    found = with_split(problem, names)
    if not found or found.warning:
        return Choice(inf, 1, 0, names)
    return Choice(found.iteration, int(found.nodes), int(found.helper_cores), names)


def _of_all_subsets(
    problem: PartitionProblem, each: PhaseWork, pairs: Pairs, low: Array, best: Choice
) -> Choice:
    """The best of all subsets on all pairs whose bound is below what was found."""
    inside = subset_sums(each)
    sums = PhaseWork(*(column[None, :] for column in inside))
    outside = PhaseWork(*(column[-1] for column in inside)).without(inside)
    rest = PhaseWork(*(column[None, :] for column in outside))
    order, chunk = np.argsort(low, kind="stable"), max(1, (1 << 16) // len(inside.count))
    for first in range(0, len(low), chunk):
        if low[order[first]] >= best.time:
            break
        now = pairs.at(order[first : first + chunk])
        phases = phase_times(problem, now.nodes[:, None], now.helper[:, None], sums, rest)
        times = np.where(sums.memory <= now.room[:, None], iteration_time(problem, phases), inf)
        row, place = (int(at) for at in np.unravel_index(np.argmin(times), times.shape))
        if times[row, place] < best.time:
            names = frozenset(one.name for bit, one in enumerate(problem.analyses) if place >> bit & 1)
            best = Choice(float(times[row, place]), int(now.nodes[row]), int(now.helper[row]), names)
    return best


class _Pruned:
    """Pairs searched in the order of their bounds, for more analyses than have subsets to try."""

    def __init__(self, problem: PartitionProblem, each: PhaseWork, pairs: Pairs, least: Array, best: Choice):
        self.problem, self.each, self.pairs, self.best = problem, each, pairs, best
        #: no split takes less on a pair
        self.least = least
        #: the best time that was known when a pair was searched
        self.searched = np.full(len(least), inf)
        self.bounded = np.zeros(len(least), dtype=np.bool_)
        self.work = 0

    def run(self) -> tuple[Choice, float]:
        """The best choice, and how far it is proven."""
        while self.work <= _WORK and len(open_ := self._open()):
            if not (self.work and self._bound_of_most_helpers(open_)):
                self._search(open_)
        if self._gap() > _SAID:  # then at least as good as the orders
            self.best = min((self.best, *(greedy(self.problem, order) for order in ORDERS)), key=by_time)
        return self.best, self._gap() if self._gap() > _SAID else 0.0

    def _gap(self) -> float:
        return 1 - float(self.least.min()) / self.best.time if self.best.time > 0 else 0.0

    def _open(self) -> Places:
        return np.flatnonzero(
            (self.least < self.best.time * (1 - _NEGLIGIBLE)) & (self.best.time < self.searched)
        )

    def _bound_of_most_helpers(self, open_: Places) -> bool:
        """Of each number of nodes, bound the open pair with most helper cores: analyses take no less with
        fewer. Whether that was worth while."""
        pairs = self.pairs
        last = open_[np.append(np.diff(pairs.nodes[open_]) != 0, True)]
        last = last[~self.bounded[last]]
        last = last[np.argsort(self.least[last], kind="stable")[:_AT_ONCE]]
        if len(last) <= _TOGETHER:
            return False
        self.bounded[last] = True
        self.work += _EFFORT * len(last) * len(self.each.count)
        cost = costs(self.problem, self.each, pairs.at(last))
        known = np.zeros(self.problem.nodes.count + 1)
        known[pairs.nodes[last].astype(int)] = bounds(cost, self.each.memory, pairs.room[last]).time
        self.least[open_] = np.maximum(self.least[open_], known[pairs.nodes[open_].astype(int)])
        return True

    def _search(self, open_: Places) -> None:
        """Search the pairs with the least bounds; of equal ones first that with most helper cores. Last
        again those of which nothing was proven; now there is less to be gained."""
        again = self.searched[open_] < inf
        order = np.lexsort((-self.pairs.helper[open_], self.least[open_], again))
        places = open_[order[:_TOGETHER]]
        pairs = self.pairs.at(places)
        cost = costs(self.problem, self.each, pairs)
        bound = bounds(cost, self.each.memory, pairs.room)
        self.least[places] = np.maximum(self.least[places], bound.time)
        for row, place in enumerate(places):
            if self.least[place] >= self.best.time * (1 - _NEGLIGIBLE):
                continue
            step, room, before = float(pairs.step[row]), float(pairs.room[row]), float(cost.before[row])
            proof = (float(column[row]) for column in bound)
            splits = cost.in_situ[row], cost.in_transit[row], self.each.memory
            found = best_split(SplitPlace(step, room, before, *splits, *proof), self.best.time, _NEGLIGIBLE)
            self.work += found.work
            nodes, helper = pairs.nodes[row], pairs.helper[row]
            fewer = (self.pairs.nodes == nodes) & (self.pairs.helper <= helper)
            self.least[fewer] = np.maximum(self.least[fewer], found.bound)
            if found.time < self.best.time:
                analyses = zip(self.problem.analyses, found.in_situ, strict=True)
                names = frozenset(one.name for one, yes in analyses if yes)
                self.best = Choice(found.time, int(nodes), int(helper), names)
            self.searched[place] = self.best.time
