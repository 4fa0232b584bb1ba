"""``dask-hpc plan partition``: who runs where in an in situ pipeline, as a table, JSON and a picture."""

import json
from contextlib import ExitStack
from math import isfinite
from pathlib import Path
from typing import Any

import click

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.terminal import print_table
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.in_situ import Partition
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.model.units import count_nodes, show_bytes, show_duration
from dask_hpc.planning.in_situ.plan import ALL_ORDERS, PartitionPlan, plan_partition
from dask_hpc.view.in_situ import plan_svg

_LARGEST_FILE = 10_000_000  # bytes
_PLATFORM = ("nodes", "cores", "memory", "bandwidth")


@click.command("partition")
@click.argument("file", metavar="FILE")
@click.option("--order", type=click.Choice(ALL_ORDERS), default=None, help="How to choose; default: exact.")
@click.option("--plot", metavar="OUT.SVG", help="Draw nodes, cores and times into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; seconds.")
def plan_partition_command(file: str, order: str | None, plot: str | None, as_json: bool) -> None:
    """Divide nodes and cores between a simulation and its analyses, in situ and in transit.

    FILE is YAML. Times are those of one iteration on a single core; memory is that of a node, and at the peak
    of the simulation and of each analysis over all nodes. An analysis that runs in transit moves as much as
    its memory, or what "moved" says; "serial" is the share of a time that no further core makes shorter.

    \b
    Example:
      dask-hpc plan partition heat.yaml --plot heat.svg
    \b
      heat.yaml:
        platform: {nodes: 50, cores: 8, memory: 64 GiB, bandwidth: 10 GB/s}
        simulation: {time: 30 min, memory: 2 TiB, serial: 0.0005}
        analyses:
          - {name: spectrum, time: 90 s, memory: 300 GiB}
          - {name: front, time: 3 min, memory: 200 GiB, moved: 20 GiB}
        mode: async
    """
    with ExitStack() as files:
        picture = files.enter_context(atomic_file(plot)) if plot else None
        answer = _plan(file, order)
        if picture:
            picture.write_text(
                plan_svg(answer.problem, answer.partition, _others(answer), answer.reason), encoding="utf-8"
            )
    if as_json:
        click.echo(json.dumps(_as_data(answer), indent=2, allow_nan=False))
    else:
        _tell(answer)


def _plan(file: str, order: str | None) -> PartitionPlan:
    try:
        with Path(file).open("rb") as source:
            text = source.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("", f"cannot be read: {reason}", file=one_line(file)) from None
    try:
        found = read_yaml(text, _LARGEST_FILE)
        check_keys(found, ("platform", "simulation", "analyses", "mode", "order"), "")
        for key in ("platform", "simulation"):
            if key not in found:
                raise InputError(key, "is missing", "platform and simulation, and analyses if there are any")
        platform = found.pop("platform")
        check_keys(platform, _PLATFORM, "platform")
        for key in ("nodes", "cores"):
            if key not in platform:
                raise InputError(f"platform.{key}", "is missing", "nodes and cores")
        return plan_partition(**platform, **found | ({"order": order} if order else {}))
    except InputError as error:
        raise error.in_file(one_line(file)) from None


def _others(plan: PartitionPlan) -> dict[str, Partition | None]:
    return {"all in situ": plan.all_in_situ, "all in transit": plan.all_in_transit}


def _tell(plan: PartitionPlan) -> None:
    """The plan for a person."""
    machine, found = plan.problem.nodes, plan.partition
    click.echo(f"machine     {count_nodes(machine.count)}, cores of each: {machine.cores}")
    if found.mode == "sync":
        click.echo(f"simulation  {count_nodes(int(found.nodes))}, by turns with what is in situ")
    else:
        own, helper = machine.cores - int(found.helper_cores), int(found.helper_cores)
        click.echo(f"simulation  {count_nodes(int(found.nodes))}, cores of each: {own}")
        click.echo(f"in situ     on the same nodes, helper cores of each: {helper}")
    click.echo(f"staging     {count_nodes(machine.count - int(found.nodes))}")
    click.echo()
    if plan.problem.analyses:
        inside = set(found.in_situ)
        rows = [
            (
                one.name,
                show_duration(one.time),
                show_bytes(one.memory),
                "" if one.name in inside else show_bytes(one.volume),
                "in situ" if one.name in inside else "in transit",
            )
            for one in plan.problem.analyses
        ]
        print_table(("analysis", "single core", "memory", "moves", "runs"), rows)
        click.echo()
    ways: list[tuple[object, ...]] = [("this plan", *_times(found), "")]
    for name, other in _others(plan).items():
        if other is not None:
            ways.append((name, *_times(other), other.warning and "does not fit"))
    ways.append(("if nodes and cores could be divided", "", "", "", show_duration(plan.bound), ""))
    print_table(("each iteration", "simulation", "in situ", "in transit", "in all", ""), ways)
    click.echo()
    click.echo(one_line(plan.reason))


def _times(found: Partition) -> tuple[str, ...]:
    return (*(show_duration(seconds) for seconds in found.phases), show_duration(found.iteration))


def _as_data(plan: PartitionPlan) -> dict[str, Any]:
    return {
        **_partition_data(plan.partition),
        "order": plan.order,
        "staging_nodes": plan.problem.nodes.count - int(plan.partition.nodes),
        "bound": _finite(plan.bound),
        "reason": plan.reason,
        "all_in_situ": _partition_data(plan.all_in_situ),
        "all_in_transit": _partition_data(plan.all_in_transit),
    }


def _partition_data(found: Partition | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "mode": found.mode,
        "nodes": int(found.nodes),
        "helper_cores": int(found.helper_cores),
        "in_situ": list(found.in_situ),
        "in_transit": list(found.in_transit),
        "phases": {name: _finite(seconds) for name, seconds in found.phases._asdict().items()},
        "iteration": _finite(found.iteration),
        "warning": found.warning,
    }


def _finite(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None  # JSON knows no infinity
