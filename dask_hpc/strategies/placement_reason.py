"""Why the parts of an in situ pipeline change their place, in words for a person."""

from math import inf

from dask_hpc.model.partition import Partition, PartitionProblem, Phases
from dask_hpc.model.units import count_nodes, show_duration, show_large

#: a part whose cost changed by less than this share of it is not what anything is put down to
_NOTICEABLE = 0.1
_PHASES = ("the simulation takes", "analyses in situ take", "staging nodes take")


def difference(before: PartitionProblem, now: PartitionProblem, expected: Phases, found: Phases) -> str:
    """What is not as it was: the part of an iteration that costs most more or less, else the phase."""
    costs = {f"analysis {one.name} takes": one.time for one in before.analyses}
    costs["the simulation takes"] = before.simulation.time
    parts = {f"analysis {one.name} takes": one.time for one in now.analyses}
    parts["the simulation takes"] = now.simulation.time
    changed = {
        name: abs(time - costs[name])
        for name, time in parts.items()
        if name in costs and abs(time - costs[name]) > _NOTICEABLE * costs[name]
    }
    if changed:
        name = max(changed, key=lambda name: changed[name])
        return f"{name} {show_duration(parts[name])} of a core instead of {show_duration(costs[name])}"
    at = max(range(3), key=lambda at: abs(found[at] - expected[at]))
    return f"{_PHASES[at]} {show_duration(found[at])} an iteration instead of {show_duration(expected[at])}"


def come_or_gone(before: PartitionProblem, now: PartitionProblem) -> str:
    """Which nodes and analyses came or went; empty if none did. What moving costs does not count: it is
    measured anew all the time."""
    words = []
    for name, unit in (("count", ""), ("cores", ""), ("memory", "B")):
        old, new = getattr(before.nodes, name), getattr(now.nodes, name)
        if old != new:
            values = [
                show_large(value, unit) if unit and value < inf else f"{value:g}" for value in (old, new)
            ]
            words.append(f"{'nodes' if name == 'count' else f'{name} of a node'} {' -> '.join(values)}")
    old_names, new_names = ([one.name for one in problem.analyses] for problem in (before, now))
    words += [f"analysis {name} is new" for name in new_names if name not in old_names]
    words += [f"analysis {name} is gone" for name in old_names if name not in new_names]
    return ", ".join(words)


def too_large(needed: float, room: float, nodes: float) -> str:
    """What runs in situ does not fit any more."""
    return (
        f"simulation and analyses in situ need {show_large(needed, 'B')}, "
        f"{count_nodes(round(nodes))} have {show_large(room, 'B')}"
    )


def change(before: Partition | None, after: Partition, problem: PartitionProblem) -> str:
    """What is done differently from now on, and what is expected of it."""
    words = _first(after, problem) if before is None else _changes(before, after)
    words.append(f"{show_duration(after.iteration)} an iteration expected")
    return ", ".join(words) + (f" ({after.warning})" if after.warning else "")


def _first(after: Partition, problem: PartitionProblem) -> list[str]:
    words = [f"the simulation runs on {after.nodes:g} of {count_nodes(problem.nodes.count)}"]
    if after.in_situ:
        helped = f" on {after.helper_cores:g} of {problem.nodes.cores} cores" if after.mode == "async" else ""
        words.append(f"{_names(after.in_situ, 'runs', 'run')} in situ{helped}")
    if after.in_transit:
        words.append(f"{_names(after.in_transit, 'runs', 'run')} on staging nodes")
    return words


def _changes(before: Partition, after: Partition) -> list[str]:
    words = []
    if leave := [name for name in after.in_transit if name not in before.in_transit]:
        words.append(f"{_names(leave, 'goes', 'go')} to staging nodes")
    if come := [name for name in after.in_situ if name not in before.in_situ]:
        words.append(f"{_names(come, 'runs', 'run')} in situ")
    if before.mode != after.mode:
        words.append(f"{before.mode} -> {after.mode}")
    for name, old, new in (
        ("simulation nodes", before.nodes, after.nodes),
        ("helper cores", before.helper_cores, after.helper_cores),
    ):
        if old != new:
            words.append(f"{name} {old:g} -> {new:g}")
    return words


def _names(names: list[str] | tuple[str, ...], one: str, several: str) -> str:
    if len(names) == 1:
        return f"{names[0]} {one}"
    return f"{', '.join(names[:-1])} and {names[-1]} {several}"
