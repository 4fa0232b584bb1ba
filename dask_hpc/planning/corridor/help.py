"""What would make a corridor possible that no distribution of the nodes can keep, in words."""

from functools import partial
from math import ceil

import numpy as np

from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.planning.corridor.enumeration import common_step, reachable
from dask_hpc.planning.corridor.problem import TINY, CorridorProblem, Distribution

_watts = partial(show_large, unit="W")


def what_would_help(problem: CorridorProblem, answer: Distribution) -> str:
    """Why the answer is outside and what would bring it in; nothing if it is inside."""
    if answer.is_feasible:
        return ""
    lowest, highest = reachable(problem)
    if problem.floor > problem.ceiling + TINY:
        return f"a margin of {_watts(problem.margin)} on both sides leaves nothing of the corridor"
    if lowest > problem.ceiling + TINY:
        return _too_much(problem, lowest)
    if highest < problem.floor - TINY:
        return _too_little(problem, highest)
    return _between(problem, answer)


def _too_much(problem: CorridorProblem, lowest: float) -> str:
    lacks = lowest - problem.ceiling
    text = f"the least that can be drawn is {_watts(lowest)}: raise the upper bound by {_watts(lacks)}"
    ways = []
    idle = problem.nodes - sum(part.sizes[0] for part in problem.parts)
    if problem.idle > 0 and 0 < ceil(lacks / problem.idle - TINY) <= idle:
        ways.append(f"release {count_nodes(ceil(lacks / problem.idle - TINY), 'idle')}")
    held = [(part.power.most - problem.idle, part.sizes[0], part.id) for part in problem.parts]
    if saving := [(watts * (least - 1), job, least) for watts, least, job in held if least > 1 and watts > 0]:
        saved, job, least = max(saving)
        ways.append(f"let {job} run on fewer than {count_nodes(least)} (saves up to {_watts(saved)})")
    if without := [(watts * least, job) for watts, least, job in held if least]:
        saved, job = max(without)
        ways.append(f"run without {job} (saves {_watts(saved)})")
    return ", or ".join([text, *ways])


def _too_little(problem: CorridorProblem, highest: float) -> str:
    lacks = problem.floor - highest
    text = f"the most that can be drawn is {_watts(highest)}: lower the lower bound by {_watts(lacks)}"
    ways = []
    idle = problem.nodes - sum(part.sizes[-1] for part in problem.parts)
    growing = [
        ((part.power.least - problem.idle) * idle, part.id, part.sizes[-1])
        for part in problem.parts
        if part.power.least > problem.idle
    ]
    if growing and idle > 0:
        added, job, most = max(growing)
        ways.append(f"let {job} run on more than {count_nodes(most)} (adds up to {_watts(added)})")
    if idle > 0:
        per_node = problem.idle + lacks / idle
        ways.append(f"start a job that draws {_watts(per_node)} per node on the {count_nodes(idle, 'idle')}")
    else:
        ways.append("start a job that draws more per node than those that run")
    return ", or ".join([text, *ways])


def _between(problem: CorridorProblem, answer: Distribution) -> str:
    width = problem.ceiling - problem.floor
    text = f"no distribution hits the {_watts(width)} of the corridor"
    spread = answer.power.most - answer.power.least
    if spread > width:
        text += f" (least and most power are {_watts(spread)} apart)"
    else:
        powers = {part.power.most for part in problem.parts if len(part.sizes) > 1}
        step = common_step(np.array([problem.idle, *powers]))
        if step > width:
            text += f" (whole nodes change power in steps of {_watts(step)})"
    is_below = answer.power.least < problem.floor
    bound, way = ("lower", "down") if is_below else ("upper", "up")
    return f"{text}: move the {bound} bound {way} by {_watts(answer.outside)}"
