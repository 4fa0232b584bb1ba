"""Bad input anywhere: exit code 2, one line on stderr, no traceback; bugs still show themselves."""

import os
import subprocess
import sys
from importlib.metadata import entry_points

import click
import pytest
from click.testing import CliRunner

from dask_hpc import __version__
from dask_hpc.cli import COMMANDS, cli
from dask_hpc.cli.group import one_line_complaints
from dask_hpc.model.errors import InputError


@click.group()
def dask():
    """As Dask's own command line does it."""


dask.add_command(cli, "hpc")

BAD = [
    ["nonsense"],
    ["polices"],
    ["--nonsense"],
    ["-x"],
    ["new\nline\x1b[31m"],
    ["--json"],
    ["policies", "nonsense"],
    ["policies", "--jason"],
    ["policies", "show"],
    ["policies", "show", "nonsense"],
    ["policies", "show", "no/such.yaml"],
    ["policies", "show", "fcfs", "easy-backfill"],
    ["policies", "show", "fcfs", "--json=yes"],
    ["policies", "show", "", "--json"],
    ["policies", "check"],
    ["policies", "check", "no/such.yaml"],
    ["policies", "check", "/"],
    ["policies", "check", "line\nbreak.yaml"],
    ["checkpoint"],
    ["checkpoint", "list"],
    ["checkpoint", "list", "no/such/store"],
    ["checkpoint", "show", "."],
    ["checkpoint", "verify", "foo://bar"],
    ["checkpoint", "prune", ".", "../..", "--keep", "1"],
    ["checkpoint", "prune", ".", "--keep", "0"],
    ["checkpoint", "list", ".", "--key", "nonsense"],
    ["plan", "colocation"],
    ["plan", "colocation", "no/such.csv", "--cores", "4"],
    ["plan", "colocation", "/", "--cores", "4"],
    ["plan", "colocation", "line\nbreak.csv", "--cores", "many"],
    ["simulate"],
    ["simulate", "no/such.swf"],
    ["simulate", "--nodes", "many"],
    ["demo", "--nonsense"],
    ["lab", "folder"],
    ["lab", "--folder", "no/such\nfolder"],
    ["lab", "--port", "65536"],
    ["holes", "--cores", "-1"],
    ["holes", "--cores", "many"],
    ["holes", "--memory", "much"],
    ["holes", "--memory", "8 GiB"],
    ["holes", "nonsense"],
    ["story"],
    ["story", "nonsense"],
    ["story", "foo://127.0.0.1:1"],
    ["story", "tls://127.0.0.1:1"],
    ["files"],
    ["files", "list"],
    ["files", "list", "nonsense"],
    ["files", "status", "foo://127.0.0.1:1"],
    ["files", "resize", "tcp://127.0.0.1:1", "scratch"],
    ["files", "resize", "nonsense", "scratch", "0"],
    ["files", "set", "tcp://127.0.0.1:1", "scratch"],
    ["files", "stage-out", "tls://127.0.0.1:1", "scratch", "out"],
]


def available(command):
    try:
        __import__(f"dask_hpc.cli.{command}")
    except ModuleNotFoundError as error:
        return error.name != f"dask_hpc.cli.{command}"
    return True


def said(result):
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.isprintable()
    assert line.startswith("dask-hpc: ")
    return line


@pytest.mark.parametrize("args", BAD, ids=repr)
def test_one_line(args):
    if args[0] in COMMANDS and not available(args[0]):
        pytest.skip(f"{args[0]} is not there yet")
    line = said(CliRunner().invoke(cli, args, prog_name="dask-hpc"))
    assert (
        said(CliRunner().invoke(dask, ["hpc", *args], prog_name="dask")).replace("dask hpc", "dask-hpc")
        == line
    )


def test_hints():
    def line(*args):
        return said(CliRunner().invoke(cli, args, prog_name="dask-hpc"))

    assert f"there are: {', '.join(COMMANDS)}." in line("nonsense")
    assert "Did you mean --json" in line("policies", "--jsno").replace("'", "")  # click quotes it since 8.3
    assert "Try 'dask-hpc policies show --help'" in line("policies", "show")
    assert "no policy is named 'fcsf' (nearest: fcfs)" in line("policies", "show", "fcsf")


def commands(group, path=()):
    """Every command there is, with its words."""
    yield path, group
    if isinstance(group, click.Group):
        ctx = click.Context(group)
        for name in group.list_commands(ctx):
            if path or available(name):
                yield from commands(group.get_command(ctx, name), (*path, name))


def test_every_help_has_an_example_and_the_table_is_true():
    for path, command in commands(cli):
        result = CliRunner().invoke(cli, [*path, "--help"], prog_name="dask-hpc")
        assert result.exit_code == 0, path
        assert "Example:\n" in result.stdout, path
        assert f"  dask-hpc {' '.join(path)}".rstrip() in result.stdout, path
        assert CliRunner().invoke(cli, [*path, "-h"]).exit_code == 0
        if len(path) == 1:
            assert COMMANDS[path[0]] in CliRunner().invoke(cli, ["--help"], terminal_width=200).stdout
            assert command.name == path[0]


def test_no_command_is_a_call_for_help():
    result = CliRunner().invoke(cli, [])
    assert result.exit_code == 0
    assert "Commands:" in result.stdout


def test_version():
    assert CliRunner().invoke(cli, ["--version"]).stdout == f"dask-hpc, version {__version__}\n"


def test_we_are_where_dask_looks():
    (point,) = entry_points(group="dask_cli", name="hpc")
    assert point.load() is cli
    assert cli.name == "hpc"


# -- what else may happen ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raised, expected, code",
    [
        (InputError("x", "found 5", "6"), "x: found 5; allowed: 6", 2),
        (click.UsageError("two\nlines"), "two lines", 2),
        (click.BadParameter("bad"), "Invalid value: bad", 2),
        (click.FileError("f", "gone"), "gone", 2),
        (click.ClickException("plain"), "plain", 2),
        (KeyboardInterrupt(), "interrupted", 130),
        (click.Abort(), "interrupted", 130),
    ],
)
def test_what_is_the_users_to_mend(raised, expected, code):
    @click.command()
    def command():
        with one_line_complaints():
            raise raised

    result = CliRunner().invoke(command)
    assert result.exit_code == code
    (line,) = result.stderr.splitlines()
    assert line.startswith("dask-hpc: ")
    assert expected in line


@pytest.mark.parametrize(
    "bug", [KeyError("x"), ValueError("x"), BrokenPipeError("a worker's connection"), OSError(5, "x")]
)
def test_bugs_still_raise(bug):
    with pytest.raises(type(bug)), one_line_complaints():
        raise bug


def python(*args, **options):
    # Warnings would be more lines on stderr; the interpreter's own environment has none of ours.
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, **options)


@pytest.mark.slow
def test_processes():
    done = python("-m", "dask_hpc", "policies", "show", "nonsense")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "Traceback" not in done.stderr
    done = python("-m", "dask_hpc", "nonsense", "--x")
    assert done.returncode == 2
    assert "Try 'dask-hpc --help'" in done.stderr
    done = python("-m", "dask", "hpc", "policies", "show")
    assert done.returncode == 2, done.stderr
    assert (
        done.stderr == "dask-hpc: Missing argument 'NAME'. Try 'python -m dask hpc policies show --help'.\n"
    )


def test_help_is_quick_because_it_imports_little():
    program = (
        "import sys; from dask_hpc.cli import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in ('dask', 'pandas', 'rich', 'yaml') if m in sys.modules])"
    )
    assert python("-c", program, "--help").stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_accident():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "dask_hpc", "policies", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_terminal_without_arrows(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("queue: {strategy: fcfs}\nsummary: one → two", encoding="utf-8")
    done = python(
        "-m", "dask_hpc", "policies", "show", str(path), env={**os.environ, "PYTHONIOENCODING": "latin-1"}
    )
    assert done.returncode == 0, done.stderr
    assert "one \\u2192 two" in done.stdout
