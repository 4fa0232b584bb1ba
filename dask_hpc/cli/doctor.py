"""``dask-hpc doctor``: what this site offers and lacks, and what to do about it."""

from dataclasses import asdict

import click

from dask_hpc.cli.terminal import print_json
from dask_hpc.doctor.batch import judge
from dask_hpc.doctor.gather import gather
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.units import parse_duration


@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs, with all facts.")
@click.option("--lacking", is_flag=True, help="Only what is lacking or unknown.")
@click.option(
    "--patience", default="5s", show_default=True, metavar="TIME", help="How long each program may take."
)
def doctor(as_json: bool, lacking: bool, patience: str) -> None:
    """Say what this site offers and lacks, and what to do: batch systems and their limits, directories that
    nodes share, clocks, the network, limits of processes, power, Python and Dask.

    Nothing is changed, and what hangs is not waited for. Inside of a job of several nodes it asks all of
    them. It exits with 0 whatever it finds.

    \b
    Example:
      dask-hpc doctor
      salloc --nodes=2 dask-hpc doctor --lacking
    """
    try:
        seconds = parse_duration(patience)
    except InputError as error:
        raise error.at("--patience") from None
    if not 0.1 <= seconds <= 600:
        raise InputError("--patience", f"found {shown(patience)}", "100 ms to 10 min")
    facts = gather(seconds)
    found = [one for one in judge(facts) if not lacking or one.state != "ok"]
    if as_json:
        print_json({"findings": [asdict(one) for one in found], "facts": asdict(facts)})
        return
    for one in found:
        click.echo(f"{one.state:7}  {one.area}: {one_line(one.found)}")
        if one.advice:
            click.echo(f"{'':9}-> {one_line(one.advice)}")
    counts = {state: sum(one.state == state for one in found) for state in ("ok", "lacking", "unknown")}
    click.echo("\n" + ", ".join(f"{count} {state}" for state, count in counts.items()))
