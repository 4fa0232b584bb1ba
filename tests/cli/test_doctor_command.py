"""``dask-hpc doctor`` as a person and as a program use it."""

import json
import os
import subprocess
import sys

from click.testing import CliRunner

from dask_hpc.cli import cli

COMMAND = [sys.executable, "-m", "dask_hpc", "doctor"]


def told(*args, **more):
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=60, **more)


def test_for_a_person_then_for_programs(tmp_path):
    (tmp_path / "sinfo").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "sinfo").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    env.pop("SLURM_JOB_ID", None)
    done = told("--patience", "1s", "--lacking", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "unknown  batch system: Slurm: sinfo did not answer in 1 s" in lines
    assert all(line.startswith(("unknown  ", "lacking  ", " " * 9 + "-> ")) for line in lines[:-2])
    assert lines[-1].startswith("0 ok, ")
    found = json.loads(told("--patience", "1s", "--json", env=env).stdout)
    assert {one["state"] for one in found["findings"]} <= {"ok", "lacking", "unknown"}
    assert found["facts"]["packages"]["dask"]


def test_bad_input():
    done = CliRunner().invoke(cli, ["doctor", "--patience", "never"])
    assert done.exit_code == 2 and "--patience: found 'never'" in done.stderr
