"""``dask-hpc power`` as a person and as a program use it, on made-up trees and on this machine."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from made_up_tree import MadeUpTree

from dask_hpc.cli import cli

COMMAND = [sys.executable, "-m", "dask_hpc", "power"]


def told(*args, **more):
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=60, **more)


@pytest.fixture
def tree(tmp_path):
    tree = MadeUpTree(tmp_path)
    tree.zone("intel-rapl:0", "package-0", limits=[(200, 200)])
    tree.sensor("hwmon0", "power_meter", power1_average=210_500_000)
    tree.sensor("hwmon1", "ina2xx", power1_input=5_000_000)
    return tree


def test_what_this_machine_can_measure():
    done = told()
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("the processors are", "model", "What cannot be used now", "cap: "):
        assert part in done.stdout


def test_a_machine_with_sensors(tree):
    done = told("--root", tree.root)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1] == "210 W +- 10.5 W, measured by hwmon power_meter power1"
    rows = {line.split("  ")[0]: line for line in lines}
    assert rows["hwmon power_meter power1"].endswith("measured  yes")
    assert rows["hwmon ina2xx power1"].endswith("no, who knows of what")
    assert rows["model"].endswith("modelled  no")
    assert "cap: the packages can be set to use 60.0 W to 200 W" in lines
    assert "  rapl package-0: it has not changed for " in done.stdout
    (limit,) = (tree.powercap / "intel-rapl:0").glob("*power_limit_uw")
    assert limit.read_text() == "200000000\n"  # nothing was changed


def test_for_programs(tree):
    found = json.loads(told("--root", tree.root, "--json").stdout)
    assert (found["watts"], found["source"], found["meters"]) == (
        210.5, "measured", ["hwmon power_meter power1"],
    )  # fmt: skip
    assert {row["meter"] for row in found["sensors"]} == {"rapl", "hwmon", "ipmi", "nvml"}
    assert found["cap"] == {"least": 60.0, "most": 200.0, "problem": ""}


@pytest.mark.slow
def test_the_model_is_calibrated_by_the_configuration(tmp_path):
    env = os.environ | {"DASK_HPC__POWER_MODEL": "{'idle': '90 W', 'busy': '350 W'}"}
    found = json.loads(told("--json", "--root", str(tmp_path), env=env).stdout)
    assert (found["model"]["idle"], found["model"]["busy"], found["source"]) == (90, 350, "modelled")


@pytest.mark.slow
def test_watching_without_a_terminal(tree):
    done = told("--root", tree.root, "--watch", "--seconds", "0.5s", "--interval", "0.1s")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and 1 <= len(lines) <= 6
    assert all("210.5 W  +- 10.5 W  measured  busy" in line for line in lines)
    done = told("--root", tree.root, "--watch", "--seconds", "0.3s", "--interval", "0.1s", "--json")
    assert [json.loads(line)["watts"] for line in done.stdout.splitlines()].count(210.5) >= 1


def test_ctrl_c_ends_watching(tree):
    command = [*COMMAND, "--root", tree.root, "--watch", "--interval", "0.1s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.slow
def test_a_chart_on_a_terminal(tree):
    """80 columns: nothing is wider, and Ctrl-C leaves the terminal as it was."""
    tree.remove("intel-rapl:0")
    tree.zone("intel-rapl:1", "package-0")
    terminal, theirs = pty.openpty()
    command = [*COMMAND, "--root", tree.root, "--watch", "--interval", "0.1s"]
    env = os.environ | {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen, is_sent, deadline = "", False, time.monotonic() + 60
    while time.monotonic() < deadline and select.select([terminal], [], [], 60)[0]:
        try:
            seen += os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # it has ended
            break
        if not is_sent and seen.count("Ctrl-C ends") > 4:
            process.send_signal(signal.SIGINT)
            is_sent = True
    os.close(terminal)
    assert process.wait(30) == 0 and is_sent
    assert "── node" in seen and "210.5 W ± 10.5 W, measured" in seen
    assert any(0x2800 < ord(sign) < 0x2900 for sign in seen)
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")  # the cursor is back


@pytest.mark.parametrize(
    "args, words",
    [
        (["--root", "/nowhere"], "--root: found '/nowhere'; allowed: a directory"),
        (["--watch", "--seconds", "soon"], "--seconds"),
        (["--interval", "-1s"], "--interval"),
        (["--interval", "2h"], "up to 60 s"),
    ],
)
def test_bad_input_is_one_line(args, words):
    done = CliRunner().invoke(cli, ("power", *args))
    (line,) = done.stderr.splitlines()
    assert (done.exit_code, done.stdout) == (2, "") and words in line
