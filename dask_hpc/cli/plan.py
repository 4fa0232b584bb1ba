"""``dask-hpc plan``: optimisation that people call directly, as a table, JSON and a picture."""

import csv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack
from math import ceil, inf
from typing import Any

import click

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.given_file import LARGEST, given_bytes, naming
from dask_hpc.cli.plan_colocation import colocation
from dask_hpc.cli.plan_interval import interval
from dask_hpc.cli.plan_network import network
from dask_hpc.cli.plan_reservation import reservation
from dask_hpc.cli.plan_resilience import resilience
from dask_hpc.cli.terminal import print_json, print_table, progress_bar
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.model.units import (
    count_nodes,
    parse_quantity,
    show_bytes,
    show_duration,
    show_large,
    write_quantity,
)
from dask_hpc.planning.corridor.plan import CorridorPlan, plan_corridor
from dask_hpc.planning.in_situ.partition import Partition
from dask_hpc.planning.in_situ.plan import ALL_ORDERS, PartitionPlan, plan_partition
from dask_hpc.view.in_situ import plan_svg


@click.group()
def plan() -> None:
    """Plan something for a machine before you use it.

    \b
    Example:
      dask-hpc plan corridor --nodes 14 --jobs jobs.yaml --lower 1.7kW --upper 2.5kW
      dask-hpc plan partition heat.yaml --plot heat.svg
      dask-hpc plan interval --level partner 5s 10h --level store 150s 7d
      dask-hpc plan reservation --law "lognormal mean=21h std=20h" --checkpoint 1h
      dask-hpc plan resilience --nodes 6000 --run 24h --memory 32GB --mtbf 2.5y
      dask-hpc plan colocation tasks.csv --cores 4
      dask-hpc plan network cluster.yaml --plot cluster.svg
    """


plan.add_command(colocation)
plan.add_command(interval)
plan.add_command(network)
plan.add_command(reservation)
plan.add_command(resilience)


# -- corridor --------------------------------------------------------------------------------------------


@plan.command()
@click.option("--nodes", type=int, required=True, help="Nodes of the machine.")
@click.option(
    "--jobs", "file", required=True, metavar="FILE", help="Jobs that run or wait, as .yaml or .csv."
)
@click.option("--lower", default="0", metavar="WATTS", help="Lower bound of power; 0 is none.")
@click.option("--upper", default="inf", metavar="WATTS", help="Upper bound of power; inf is none.")
@click.option("--idle", default="0", metavar="WATTS", help="Power of an idle node; default: 0 W.")
@click.option("--margin", default="0", metavar="WATTS", help="Distance to keep from both bounds.")
@click.option(
    "--time-limit", default="10s", metavar="TIME", help="For the solver, if one is needed; default: 10 s."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; watts.")
def corridor(
    nodes: int, file: str, lower: str, upper: str, idle: str, margin: str, time_limit: str, as_json: bool
) -> None:
    """Choose the sizes of jobs so that power stays between two bounds, or say why that is impossible.

    FILE lists the jobs. Each has an id, nodes (its size now; 0 if it waits), power (of one node: "170 W", or
    a pair of the least and the most), and if it can change: min_nodes, max_nodes, constraint (any, even, odd,
    pof2, square, cube) and kind (malleable unless said otherwise). In a .csv these are columns; power may be
    two, least and most.

    \b
    Example:
      dask-hpc plan corridor --nodes 14 --jobs jobs.yaml --lower 1.7kW --upper 2.5kW --idle 71W
    \b
      jobs.yaml:
        - {id: pi, nodes: 4, min_nodes: 1, max_nodes: 14, power: 170 W}
        - {id: heat, nodes: 8, min_nodes: 1, max_nodes: 14, power: [240 W, 260 W]}
        - {id: next, nodes: 0, min_nodes: 2, max_nodes: 4, power: 200 W}
    """
    limit = parse_quantity(time_limit, "s")
    data = given_bytes(file)
    with naming(file):
        jobs = _rows(data) if file.lower().endswith(".csv") else _listed(data)
    with ThreadPoolExecutor(1) as pool, progress_bar("solving [s]", ceil(min(limit, 1e6))) as progress:
        found = pool.submit(
            plan_corridor, nodes, jobs, lower, upper, idle=idle, margin=margin, time_limit=limit
        )
        tenths = 0
        while progress is not None:
            try:
                found.exception(0.1)
                break
            except NotYet:
                tenths += 1
                progress(tenths // 10)
        try:
            answer = found.result()
        except InputError as error:
            # What is wrong with a job is the file's, what is wrong with a bound the command line's.
            raise (error.in_file(one_line(file)) if error.where.startswith("job ") else error) from None
    if as_json:
        print_json(_corridor_data(answer))
    else:
        _print_corridor(answer)


def _listed(text: bytes) -> list[dict[str, Any]]:
    """The jobs of a YAML file, as mappings that are still to be checked."""
    found = read_yaml(text, LARGEST)
    if isinstance(found, dict):
        check_keys(found, ("jobs",), "")
        if "jobs" not in found:
            raise InputError("jobs", "is missing", "a list of jobs")
        found = found["jobs"]
    if not isinstance(found, list):
        raise InputError("", f"found {shown(found)}", "a list of jobs")
    return found


def _rows(text: bytes) -> list[dict[str, Any]]:
    """The rows of a CSV file; numbers as numbers, least and most as one power."""
    try:
        lines = text.decode("utf-8-sig").splitlines()
        rows = list(csv.DictReader(lines, skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError("", f"not CSV: {error}") from None
    jobs = []
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise InputError(f"line {number}", "not as many values as there are columns")
        job: dict[str, Any] = {key: value.strip() for key, value in row.items() if value.strip()}
        if "least" in job and "most" in job:
            job["power"] = (job.pop("least"), job.pop("most"))
        for key in ("nodes", "min_nodes", "max_nodes"):
            if job.get(key, "").isdecimal():
                job[key] = int(job[key])
        jobs.append(job)
    return jobs


def _print_corridor(plan: CorridorPlan) -> None:
    bounds = [f"from {write_quantity(plan.lower, 'W')}"] if plan.lower > 0 else []
    bounds += [f"up to {write_quantity(plan.upper, 'W')}"] if plan.upper < inf else []
    click.echo(f"corridor   {' '.join(bounds) or 'none'}")
    click.echo(f"before     {_range(plan.before)}, {_place(plan, plan.before)}")
    click.echo(f"after      {_range(plan.after)}, {_place(plan, plan.after)}")
    # As uncertain as power is, the least of its most may be above the most of its least.
    click.echo(f"reachable  {_range(PowerRange(*sorted((plan.lowest, plan.highest))))}\n")
    rows: list[tuple[object, ...]] = []
    for job in plan.jobs:
        size = plan.sizes[job.id]
        rows.append((job.id, job.nodes, size, _change(job.nodes, size), _range(job.power)))
    rows.append(("(idle)", plan.idle_before, plan.idle_after, "", _watts(plan.idle)))
    print_table(("job", "nodes", "then", "change", "power per node"), rows)
    click.echo(f"\n{one_line(plan.reason)}")


def _watts(watts: float) -> str:
    return show_large(watts, "W")


def _range(power: PowerRange) -> str:
    least, most = _watts(power.least), _watts(power.most)
    return least if least == most else f"{least} to {most}"


def _place(plan: CorridorPlan, power: PowerRange) -> str:
    """Where a power lies beside the corridor."""
    above, below = power.most - plan.upper, plan.lower - power.least if plan.lower > 0 else -inf
    words = [f"{_watts(above)} above" if above > 0 else "", f"{_watts(below)} below" if below > 0 else ""]
    return " and ".join(filter(None, words)) or "inside"


def _change(now: int, then: int) -> str:
    if now == then:
        return "waits" if not now else ""
    return "starts" if not now else f"{then - now:+d}"


def _corridor_data(plan: CorridorPlan) -> dict[str, Any]:
    found = plan.distribution
    return {
        "feasible": plan.is_feasible,
        "lower": plan.lower,
        "upper": plan.upper,
        "before": list(plan.before),
        "after": list(plan.after),
        "lowest": plan.lowest,
        "highest": plan.highest,
        "nodes": plan.sizes,
        "changes": {name: list(change) for name, change in plan.changes.items()},
        "idle_before": plan.idle_before,
        "idle_after": plan.idle_after,
        "optimal": found.is_optimal,
        "gap": found.gap,
        "unproven": found.unproven,
        "found_by": found.how,
        "reason": plan.reason,
        "help": plan.help,
    }


# -- partition -------------------------------------------------------------------------------------------


@plan.command()
@click.argument("file", metavar="FILE")
@click.option("--order", type=click.Choice(ALL_ORDERS), default=None, help="How to choose; default: exact.")
@click.option("--plot", metavar="OUT.SVG", help="Draw nodes, cores and times into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; seconds.")
def partition(file: str, order: str | None, plot: str | None, as_json: bool) -> None:
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
        data = given_bytes(file)
        with naming(file):
            answer = _partition_plan(data, order)
        if picture:
            drawn = plan_svg(answer.problem, answer.partition, _other_ways(answer), answer.reason)
            picture.write_text(drawn, encoding="utf-8")
    if as_json:
        print_json(_partition_plan_data(answer))
    else:
        _print_partition(answer)


def _partition_plan(text: bytes, order: str | None) -> PartitionPlan:
    found = read_yaml(text, LARGEST)
    check_keys(found, ("platform", "simulation", "analyses", "mode", "order"), "")
    for key in ("platform", "simulation"):
        if key not in found:
            raise InputError(key, "is missing", "platform and simulation, and analyses if there are any")
    platform = found.pop("platform")
    check_keys(platform, ("nodes", "cores", "memory", "bandwidth"), "platform")
    for key in ("nodes", "cores"):
        if key not in platform:
            raise InputError(f"platform.{key}", "is missing", "nodes and cores")
    return plan_partition(**platform, **found | ({"order": order} if order else {}))


def _other_ways(plan: PartitionPlan) -> dict[str, Partition | None]:
    return {"all in situ": plan.all_in_situ, "all in transit": plan.all_in_transit}


def _print_partition(plan: PartitionPlan) -> None:
    machine, found = plan.problem.nodes, plan.partition
    nodes, helpers = int(found.nodes), int(found.helper_cores)
    click.echo(f"machine     {count_nodes(machine.count)}, cores of each: {machine.cores}")
    if found.mode == "sync":
        click.echo(f"simulation  {count_nodes(nodes)}, by turns with what is in situ")
    else:
        click.echo(f"simulation  {count_nodes(nodes)}, cores of each: {machine.cores - helpers}")
        click.echo(f"in situ     on the same nodes, helper cores of each: {helpers}")
    click.echo(f"staging     {count_nodes(machine.count - nodes)}\n")
    rows = []
    for one in plan.problem.analyses:
        where = ("", "in situ") if one.name in found.in_situ else (show_bytes(one.volume), "in transit")
        rows.append((one.name, show_duration(one.time), show_bytes(one.memory), *where))
    if rows:
        print_table(("analysis", "single core", "memory", "moves", "runs"), rows)
        click.echo()
    ways: list[tuple[object, ...]] = [("this plan", *_times(found), "")]
    for name, other in _other_ways(plan).items():
        if other is not None:
            ways.append((name, *_times(other), other.warning and "does not fit"))
    ways.append(("if nodes and cores could be divided", "", "", "", show_duration(plan.bound), ""))
    print_table(("each iteration", "simulation", "in situ", "in transit", "in all", ""), ways)
    click.echo(f"\n{one_line(plan.reason)}")


def _times(found: Partition) -> Iterator[str]:
    return map(show_duration, (*found.phases, found.iteration))


def _partition_plan_data(plan: PartitionPlan) -> dict[str, Any]:
    return {
        **_partition_data(plan.partition),
        "order": plan.order,
        "staging_nodes": plan.problem.nodes.count - int(plan.partition.nodes),
        "bound": plan.bound,
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
        "phases": found.phases._asdict(),
        "iteration": found.iteration,
        "warning": found.warning,
    }
