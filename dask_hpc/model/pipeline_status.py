"""How a pipeline goes, as plain data: told by whoever steers it, shown by status, pages and metrics.

It crosses the wire, so there are only texts, numbers, lists and dicts in it, and None for what nobody knows.
"""

from collections.abc import Mapping
from math import inf
from typing import Any, TypedDict

from dask_hpc.model.partition import Partition, Phases


class PartitionStatus(TypedDict):
    """A partition; ``planned`` are seconds of each part, ``expected`` those until the next iteration."""

    mode: str
    nodes: float
    helper_cores: float
    in_situ: list[str]
    in_transit: list[str]
    planned: dict[str, float]
    expected: float
    warning: str


class IterationStatus(TypedDict):
    """One iteration that is done: seconds until the next, and of each part, measured and planned."""

    iteration: int
    seconds: float
    measured: dict[str, float]
    planned: dict[str, float] | None
    expected: float | None


class ChangeStatus(TypedDict):
    """From this iteration on, another partition."""

    iteration: int
    time: float
    reason: str
    partition: PartitionStatus


class PipelineStatus(TypedDict):
    """One pipeline. ``iterations`` is how many there will be (None: nobody knows), ``history`` and
    ``changes`` are the newest ones, oldest first, and ``skipped`` says of each analysis how many iterations
    it did not look at, and which ones those were last."""

    name: str
    #: "running", "done" or "failed"
    state: str
    job: str | None
    #: how many iterations are done
    iteration: int
    iterations: int | None
    #: nodes that it has, those that simulate first, and cores of each of them
    nodes: list[str]
    cores: int
    analyses: list[str]
    when_slow: str
    partition: PartitionStatus | None
    history: list[IterationStatus]
    changes: list[ChangeStatus]
    #: how often another partition came into force, including what is forgotten
    changed: int
    skipped: dict[str, "SkippedStatus"]


class SkippedStatus(TypedDict):
    """Iterations that an analysis did not look at: how many, the newest of them, and what was done."""

    count: int
    newest: list[int]
    how: str


def tell_partition(partition: Partition) -> PartitionStatus:
    """A partition as plain data."""
    return {
        "mode": partition.mode,
        "nodes": partition.nodes,
        "helper_cores": partition.helper_cores,
        "in_situ": list(partition.in_situ),
        "in_transit": list(partition.in_transit),
        "planned": partition.phases._asdict(),
        "expected": partition.iteration,
        "warning": partition.warning,
    }


def hear_partition(told: Mapping[str, Any]) -> Partition:
    """The partition that was told."""
    return Partition(
        told["mode"],
        told["nodes"],
        told["helper_cores"],
        tuple(told["in_situ"]),
        tuple(told["in_transit"]),
        Phases(**told["planned"]),
        told["warning"],
    )


def tell_iteration(
    number: int, seconds: float, measured: Phases, partition: Partition | None
) -> IterationStatus:
    """An iteration that is done, under the partition that was in force."""
    return {
        "iteration": number,
        "seconds": seconds,
        "measured": measured._asdict(),
        "planned": None if partition is None else partition.phases._asdict(),
        "expected": None if partition is None or partition.iteration == inf else partition.iteration,
    }
