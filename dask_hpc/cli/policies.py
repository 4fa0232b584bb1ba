"""``dask-hpc policies``: list, show and check policies."""

from pathlib import Path
from typing import Any

import click

from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.parameter import Declared
from dask_hpc.policy import Policy, ready_made
from dask_hpc.strategies import CONCERNS


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def policies(ctx: click.Context, as_json: bool) -> None:
    """List, show and check policies. Without a command: list those that are ready made.

    \b
    Example:
      dask-hpc policies
      dask-hpc policies show easy-backfill
      dask-hpc policies check my-policy.yaml
    """
    ctx.obj = as_json
    if ctx.invoked_subcommand is not None:
        return
    found = [Policy.load(name) for name in ready_made()]
    if as_json:
        print_json([{"name": p.name, "summary": p.summary, "source": p.source} for p in found])
    else:
        print_table(("name", "summary", "source"), [(p.name, p.summary, p.source) for p in found])


@policies.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def show(wants_json: bool, name: str, as_json: bool) -> None:
    """Print every parameter of the policy NAME (or of a policy file): value, unit, bounds, meaning.

    \b
    Example:
      dask-hpc policies show easy-backfill
      dask-hpc policies show ./my-policy.yaml --json
    """
    policy = Policy.load(name)
    chosen = {concern: strategy["strategy"] for concern, strategy in _concerns(policy).items()}
    if wants_json or as_json:
        words = {"name": policy.name, "summary": policy.summary, "source": policy.source}
        parameters = [{"path": path, **one.described(value)} for path, one, value in policy.parameters()]
        print_json({**words, "file": policy.origin, "strategies": chosen, "parameters": parameters})
        return
    click.echo(one_line(f"{policy.name}: {policy.summary}" if policy.summary else policy.name))
    for word, value in ({"source": policy.source, "file": policy.origin} | chosen).items():
        if value:
            click.echo(f"  {word}: {one_line(value)}")
    rows = [
        (path, _plain(one, value), one.parameter.unit or "-", one.bounds, one.parameter.help)
        for path, one, value in policy.parameters()
    ]
    click.echo()
    print_table(("parameter", "value", "unit", "allowed", "meaning"), rows)


@policies.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; also if the file is bad.")
@click.pass_obj
def check(wants_json: bool, file: str, as_json: bool) -> None:
    """Check the policy FILE: exit code 0 if it can be used, 2 if not, and then why.

    \b
    Example:
      dask-hpc policies check my-policy.yaml
    """
    as_json = wants_json or as_json
    try:
        # A file wins over the ready-made policy of the same name: a file is what was asked about.
        policy = Policy.load(Path(file) if Path(file).is_file() else file)
    except InputError as error:
        if as_json:
            at = {"file": error.file or one_line(file), "key": error.where}
            print_json({"ok": False, **at, "found": error.found, "allowed": error.allowed})
        raise
    if as_json:
        print_json({"ok": True, "file": file, "name": policy.name})
    else:
        click.echo(f"{one_line(file)}: a valid policy")


def _concerns(policy: Policy) -> dict[str, Any]:
    found = policy.to_dict()
    return {concern: found[concern] for concern in CONCERNS}


def _plain(one: Declared, value: Any) -> str:
    """The value as a policy file would say it."""
    written = one.write(value)
    return str(written).lower() if isinstance(written, bool) else str(written)
