"""``dask-hpc plan network``: how much of what jobs send a network carries, and what other nodes change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.given_file import LARGEST, given_bytes, given_text, naming
from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.model.errors import InputError, insist, one_line
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.model.units import counted, show_large
from dask_hpc.planning.network.program import SERVED
from dask_hpc.planning.plan_network import BusyLink, JobShare, NetworkPlan, plan_network
from dask_hpc.view.network import DrawnJob, DrawnLevel, DrawnLink, network_svg

_DRAWN = 2_000  # links, at most
_BUSY = 0.5  # a share from which on a link is drawn
_SHOWN = 6  # partners in a line


@click.command()
@click.argument("file")
@click.option(
    "--objective",
    type=click.Choice(SERVED),
    default=SERVED[0],
    show_default=True,
    help="sum: most traffic in all. min: the worst served job first.",
)
@click.option("--partners", is_flag=True, help="Print which node should keep the checkpoints of which.")
@click.option("--plot", metavar="OUT.SVG", help="Draw the machine, its jobs and full links into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; bytes a second.")
def network(file: str, objective: Any, partners: bool, plot: str | None, as_json: bool) -> None:
    """Say how much of what its jobs send each other the network of FILE carries, which links are in the way,
    and what the jobs would get on contiguous nodes.

    FILE is YAML with a topology and jobs. The topology is a preset (xc30, fat-tree), a tree of parts, or
    Slurm's topology.conf; each job says its nodes, the pattern of what it sends (all-to-all, partner, store)
    and the rate: to each other node, to its partner, or to the store. A job that gets a share of its demand
    takes 1/share times as long, if all that it does is to communicate. Traffic is divided among minimal paths
    in the best way that there is, so that congestion may be worse, never better. Up to 2,000 nodes of jobs
    this is a linear programme; of more there are bounds.

    \b
    Example:
      cat > cluster.yaml <<END
      topology: {tree: {rack0: "node[00-07]", rack1: "node[08-15]"}, port: 12.5 GB/s, oversubscription: 4}
      jobs:
        heat: {nodes: "node[04-11]", rate: 2 GB/s}
        save: {nodes: all of rack1, pattern: partner, rate: 1 GB/s}
      END
      dask-hpc plan network cluster.yaml --plot cluster.svg
    """
    topology, jobs = _read(file)
    try:
        plan = plan_network(topology, jobs, objective=objective)
    except InputError as error:
        raise error.in_file(one_line(file)) from None
    if plot is not None:
        with atomic_file(plot) as picture:
            picture.write_text(_drawn(plan), encoding="utf-8")
    if as_json:
        print_json(_as_plain(plan))
    else:
        _print(plan, partners)


def _read(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Topology and jobs as they are described; a Slurm topology is read from beside the file."""
    data = given_bytes(file)
    with naming(file):
        found = read_yaml(data, LARGEST)
        check_keys(found, ("topology", "jobs"), "")
        for name in ("topology", "jobs"):
            insist(isinstance(found.get(name), dict), name, found.get(name), "a mapping")
    topology = found["topology"]
    slurm = topology.get("slurm")
    if isinstance(slurm, str) and "SwitchName=" not in slurm:
        topology = {**topology, "slurm": given_text(Path(file).parent / slurm)}
    return topology, found["jobs"]


def _print(plan: NetworkPlan, partners: bool) -> None:
    rows = [
        (name, len(job.traffic.nodes), job.traffic.pattern, _rate(plan, job), f"{job.theta:.1%}",
         f"{job.alone:.1%}", f"{job.contiguous:.1%}", _slowdown(job))
        for name, job in plan.jobs.items()
    ]  # fmt: skip
    heads = ("job", "nodes", "pattern", "rate", "gets", "alone", "all contiguous", "communication takes")
    print_table(heads, rows)
    click.echo()
    busiest = [
        (one.name, one.level, show_large(one.load, "B/s"), f"{one.share:.1%}") for one in plan.busiest(5)
    ]
    if busiest:
        print_table(("busiest links", "level", "carries", "of its bandwidth"), busiest)
        click.echo()
    levels = [
        (name, f"{use.links:,}", f"{use.full:,}", f"{use.mean:.1%}", f"{use.most:.1%}")
        for name, use in plan.levels.items()
    ]
    print_table(("level", "links", "full", "used on average", "the fullest"), levels)
    click.echo()
    if partners:
        pairs = [
            (name, node, partner) for name, job in plan.jobs.items() for node, partner in job.partners.items()
        ]
        print_table(("job", "node", "partner"), pairs)
        click.echo()
    click.echo(one_line(plan.reason))


def _slowdown(job: JobShare) -> str:
    return f"{job.slowdown:.2f}x" if job.theta > 0 else "never ends"


def _rate(plan: NetworkPlan, job: JobShare) -> str:
    rate = plan.topology.smallest if job.traffic.rate is None else job.traffic.rate
    return show_large(rate, "B/s")


def _drawn(plan: NetworkPlan) -> str:
    jobs = {name: DrawnJob(job.traffic.nodes, job.theta) for name, job in plan.jobs.items()}
    links = [
        DrawnLink(
            one.source, one.target, one.share, f"{_ends(one)}: {show_large(one.load, 'B/s')}, {one.share:.0%}"
        )
        for one in plan.busiest(_DRAWN)
        if one.share >= _BUSY
    ]
    bandwidths = {level.name: level.bandwidth for level in plan.topology.levels}
    levels = {
        name: DrawnLevel(bandwidths[name], use.links, use.full, use.most, use.mean)
        for name, use in plan.levels.items()
    }
    worst = min(plan.jobs, key=lambda name: plan.jobs[name].theta)
    share = plan.jobs[worst].theta
    title = f"{counted(len(jobs), 'job')}: {'all get all' if share > 0.9999 else f'{worst} gets {share:.0%}'}"
    return network_svg(f"{title} of what they send", plan.reason, plan.topology, jobs, links, levels)


def _ends(link: BusyLink) -> str:
    return f"{link.name} ({link.level})"


def _as_plain(plan: NetworkPlan) -> Mapping[str, Any]:
    return {
        "objective": plan.objective,
        "is_exact": plan.is_exact,
        "least": plan.least,
        "most": plan.most,
        "jobs": {
            name: {
                "pattern": job.traffic.pattern,
                "rate": plan.topology.smallest if job.traffic.rate is None else job.traffic.rate,
                "nodes": job.traffic.nodes,
                "theta": job.theta,
                "alone": job.alone,
                "contiguous": job.contiguous,
                "contiguous_nodes": job.nodes,
                "partners": job.partners,
            }
            for name, job in plan.jobs.items()
        },
        "busiest": [
            {"link": one.name, "level": one.level, "load": one.load, "bandwidth": one.bandwidth}
            for one in plan.busiest()
        ],
        "levels": {
            name: {"links": use.links, "full": use.full, "mean": use.mean, "most": use.most}
            for name, use in plan.levels.items()
        },
        "reason": plan.reason,
    }
