"""``dask-hpc plan``: optimisation that people call directly."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from math import ceil, inf, isinf
from pathlib import Path
from typing import Any

import click

from dask_hpc.cli.plan_interval import plan_interval_command
from dask_hpc.cli.plan_partition import plan_partition_command
from dask_hpc.cli.terminal import print_table, progress_bar
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.model.units import parse_quantity, show_large, write_quantity
from dask_hpc.planning.corridor.plan import CorridorPlan, plan_corridor

_LARGEST_FILE = 10_000_000  # bytes


@click.group()
def plan() -> None:
    """Plan something for a machine before you use it.

    \b
    Example:
      dask-hpc plan corridor --nodes 14 --jobs jobs.yaml --lower 1.7kW --upper 2.5kW
      dask-hpc plan partition heat.yaml --plot heat.svg
      dask-hpc plan interval --level partner 5s 10h --level store 150s 7d
    """


plan.add_command(plan_partition_command)
plan.add_command(plan_interval_command)


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
    jobs = _read_jobs(file)
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
        click.echo(json.dumps(_as_data(answer), indent=2, allow_nan=False))
    else:
        _tell(answer)


def _read_jobs(file: str) -> list[dict[str, Any]]:
    """The jobs of a file, as mappings that are still to be checked."""
    path = Path(file)
    try:
        with path.open("rb") as source:
            text = source.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("", f"cannot be read: {reason}", file=one_line(file)) from None
    try:
        if path.suffix.lower() == ".csv":
            found: Any = _rows(text)
        else:
            found = read_yaml(text, _LARGEST_FILE)
        if isinstance(found, dict):
            check_keys(found, ("jobs",), "")
            found = found["jobs"]
        if not isinstance(found, list):
            raise InputError("", f"found {shown(found)}", "a list of jobs")
        return found
    except InputError as error:
        raise error.in_file(one_line(file)) from None


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


def _tell(plan: CorridorPlan) -> None:
    """The plan for a person."""
    bounds = [f"from {write_quantity(plan.lower, 'W')}"] if plan.lower > 0 else []
    bounds += [f"up to {write_quantity(plan.upper, 'W')}"] if not isinf(plan.upper) else []
    click.echo(f"corridor   {' '.join(bounds) or 'none'}")
    click.echo(f"before     {_range(plan.before)}, {_place(plan, plan.before)}")
    click.echo(f"after      {_range(plan.after)}, {_place(plan, plan.after)}")
    # As uncertain as power is, the least of its most may be above the most of its least.
    click.echo(f"reachable  {_range(PowerRange(*sorted((plan.lowest, plan.highest))))}")
    click.echo()
    rows: list[tuple[object, ...]] = []
    for job in plan.jobs:
        size = plan.sizes[job.id]
        rows.append((job.id, job.nodes, size, _change(job.nodes, size), _range(job.power)))
    rows.append(("(idle)", plan.idle_before, plan.idle_after, "", _watts(plan.idle)))
    print_table(("job", "nodes", "then", "change", "power per node"), rows)
    click.echo()
    click.echo(one_line(plan.reason))


def _watts(watts: float) -> str:
    return show_large(watts, "W")


def _range(power: PowerRange) -> str:
    least, most = _watts(power.least), _watts(power.most)
    return least if least == most else f"{least} to {most}"


def _place(plan: CorridorPlan, power: PowerRange) -> str:
    """Where a power lies beside the corridor."""
    above, below = power.most - plan.upper, plan.lower - power.least if plan.lower > 0 else -inf
    words = [f"{_watts(above)} above" if above > 0 else "", f"{_watts(below)} below" if below > 0 else ""]
    return " and ".join(word for word in words if word) or "inside"


def _change(now: int, then: int) -> str:
    if now == then:
        return "waits" if not now else ""
    return "starts" if not now else f"{then - now:+d}"


def _as_data(plan: CorridorPlan) -> dict[str, Any]:
    found = plan.distribution
    return {
        "feasible": plan.is_feasible,
        "lower": plan.lower,
        "upper": None if isinf(plan.upper) else plan.upper,  # JSON knows no infinity
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
