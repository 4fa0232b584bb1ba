"""Which words are ours and which are the script's, and what bad ones say."""

import click
import dask
import pytest
from click.testing import CliRunner
from distributed import Client

from dask_hpc import InputError
from dask_hpc.cli import cli
from dask_hpc.cli.run import RunCommand, read_nodes


@click.command(cls=RunCommand)
@click.option("--policy")
@click.option("--cluster", default="local")
@click.option("--nodes")
@click.option("-m", "is_module", is_flag=True)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(**given):
    click.echo(given, nl=False)


def parsed(text):
    result = CliRunner().invoke(command, text.split())
    if result.exit_code:
        return result.exit_code
    given = eval(result.stdout)
    ours = [f"{key}={given[key]}" for key in ("policy", "nodes", "is_module") if given[key]]
    if given["cluster"] != "local":
        ours.append(given["cluster"])
    return " ".join([*ours, "|", given["script"], *given["arguments"]])


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a.py", "| a.py"),
        ("a.py 1 -x --long=3 -mfast -m in", "| a.py 1 -x --long=3 -mfast -m in"),
        ("--policy p a.py --x", "policy=p | a.py --x"),
        ("a.py --x --policy p y --cluster=slurm", "policy=p slurm | a.py --x y"),
        ("a.py -- --policy p", "| a.py --policy p"),
        ("a.py --nodes 1:4 -- --nodes 3 -- x", "nodes=1:4 | a.py --nodes 3 -- x"),
        ("-m pack.age --help", "is_module=True | pack.age --help"),
        ("--nodes=2 -m pack.age -m", "nodes=2 is_module=True | pack.age -m"),
        ("-- a.py --policy p", "| a.py --policy p"),
        ("-- -odd.py x", "| -odd.py x"),
        ("--polcy p a.py", 2),
        ("a.py --policy", 2),
        ("--policy p", 2),
        ("", 2),
    ],
)
def test_words(text, expected):
    assert parsed(text) == expected


@pytest.mark.parametrize(
    "text, expected", [("4", (4, 4)), ("1:4", (1, 4)), ("2:2", (2, 2)), ("1:10000000", (1, 10_000_000))]
)
def test_nodes(text, expected):
    assert read_nodes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "4:1", "0:3", "1:", ":4", "-1:2", "a:b", "1:2:3", "1.5", "1:10000001"]
)
def test_bad_nodes(text):
    with pytest.raises(InputError, match="MIN:MAX"):
        read_nodes(text)


def test_the_real_command_takes_them_the_same_way(tmp_path):
    script = tmp_path / "a.py"
    script.write_text("")
    for args, said in (
        ([str(script), "--nodes", "3:1"], "--nodes: found '3:1'"),
        ([str(script), "--policy", "fcsf"], "nearest: fcfs"),
        (["no/such.py", "--x"], "no/such.py: no such file"),
        (["--x", str(script)], "No such option"),
        ([str(script), "--cluster", "nonsense"], "--cluster: found 'nonsense'"),
    ):
        result = CliRunner().invoke(cli, ["run", *args])
        assert result.exit_code == 2 and said in result.stderr and len(result.stderr.splitlines()) == 1
    with pytest.raises(ValueError, match="No clients"):  # a failed one would catch whatever runs next
        Client.current()
    assert dask.config.get("scheduler", None) is None
