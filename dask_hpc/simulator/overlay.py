"""Malleability over a rigid trace: what if a share of these jobs could change size?

Which jobs are chosen depends on the seed alone, and shares are nested: the jobs malleable at 20 % are
among those at 50 %, so that a sweep compares like with like.
"""

import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import ceil, floor, isfinite

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.job import Job
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.speedup import CONSTRAINTS, Constraint, Speedup, is_legal, largest_legal, smallest_legal
from dask_hpc.simulator.workload import Arrival, Workload

#: a job and the nodes of the machine -> fewest and most nodes it might use
Range = Callable[[Job, int], tuple[int, int]]

#: ready-made rules; every range is then narrowed to sizes that the job's constraint allows
RULES: dict[str, Range] = {
    "constraint": lambda job, machine: (1, machine),
    "half-double": lambda job, machine: (ceil(job.nodes / 2), 2 * job.nodes),
    "shrink-only": lambda job, machine: (1, job.nodes),
    "grow-only": lambda job, machine: (job.nodes, machine),
}
_FACTORS = re.compile(r"([0-9.]+):([0-9.]+)", re.ASCII)


def malleable_overlay(
    workload: Workload,
    share: float = 0.5,
    seed: int = 0,
    rule: str | tuple[float, float] | Range = "constraint",
    speedup: Speedup | None = None,
    *,
    constraint: Constraint | None = None,
    nodes: int | None = None,
) -> Workload:
    """The same workload with a share of its rigid jobs made malleable.

    ``rule`` says between which sizes: a name out of ``RULES``, two factors of the start size (``(0.5,
    4)`` or ``"0.5:4"``), or any function. ``speedup`` holds for the chosen jobs (unchanged by default);
    ``constraint`` too, for those whose start size it allows. Start sizes, runtimes and walltimes stay:
    a walltime is meant for the start size. ``nodes`` is the machine, if the workload does not say.
    """
    if not is_number(share, 0, 1):
        raise InputError("share", f"found {shown(share)}", "0 to 1")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError("seed", f"found {shown(seed)}", "a whole number")
    if constraint is not None and constraint not in CONSTRAINTS:
        raise InputError("constraint", f"found {shown(constraint)}", ", ".join(CONSTRAINTS))
    machine = nodes if nodes is not None else workload.nodes
    if machine is None:
        raise InputError("nodes", f"{workload.name} does not say how many nodes its machine has", "nodes=N")
    sizes = _rule(rule)
    rigid = [at for at, arrival in enumerate(workload) if arrival.job.kind == "rigid"]
    random.Random(seed).shuffle(rigid)
    arrivals = list(workload)
    for at in rigid[: round(share * len(rigid))]:
        arrivals[at] = _malleable(arrivals[at], sizes, machine, speedup, constraint)
    return replace(workload, arrivals=arrivals)


def _rule(rule: str | tuple[float, float] | Range) -> Range:
    if callable(rule):
        return rule
    if isinstance(rule, str):
        if rule in RULES:
            return RULES[rule]
        match = _FACTORS.fullmatch(rule)
        with suppress(ValueError):
            rule = (float(match[1]), float(match[2])) if match else rule
    if isinstance(rule, tuple) and len(rule) == 2:
        low, high = rule
        if not (is_number(low, 0, 1) and is_number(high, 1, float("inf")) and isfinite(high)):
            raise InputError("rule", f"found {shown(rule)}", "a factor from 0 to 1 and one of 1 or more")
        return lambda job, machine: (ceil(low * job.nodes), floor(high * job.nodes))
    allowed = ", ".join(RULES) + ", or two factors such as 0.5:4"
    raise InputError("rule", f"found {shown(rule)}{nearest(rule, RULES)}", allowed)


def _malleable(
    arrival: Arrival,
    sizes: Range,
    machine: int,
    speedup: Speedup | None,
    constraint: Constraint | None,
) -> Arrival:
    job = arrival.job
    if constraint is None or not is_legal(constraint, job.nodes):
        constraint = job.constraint
    low, high = sizes(job, machine)
    # a job larger than the machine stays what it is: the body rejects it
    low, high = min(max(low, 1), job.nodes), max(min(high, machine), job.nodes)
    changed = replace(
        job,
        kind="malleable",
        constraint=constraint,
        min_nodes=smallest_legal(constraint, low, job.nodes) or job.nodes,
        max_nodes=largest_legal(constraint, job.nodes, high) or job.nodes,
        speedup=speedup if speedup is not None else job.speedup,
    )
    return replace(arrival, job=changed, speedup=speedup if speedup is not None else arrival.speedup)
