"""A partition for a machine in human units: what ``dask-hpc plan partition`` prints, for programs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.safe_yaml import check_keys, nearest
from dask_hpc.model.units import parse_quantity, show_bytes
from dask_hpc.planning.in_situ.exact import optimum
from dask_hpc.planning.in_situ.orders import MOST_ENUMERATED, ORDERS, enumerated, greedy, relaxed
from dask_hpc.planning.in_situ.partition import (
    MODES,
    Analysis,
    EqualNodes,
    Partition,
    PartitionProblem,
    Simulation,
)
from dask_hpc.planning.in_situ.phases import least_memory, placed, with_split

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
