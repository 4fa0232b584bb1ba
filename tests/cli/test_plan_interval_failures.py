"""``dask-hpc plan interval --failures``: what it prints, and what it says of bad files."""

import json
import random

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli


@pytest.fixture
def log(tmp_path):
    draw, now, lines = random.Random(5), 0.0, ["time,node"]
    for number in range(100):
        now += draw.weibullvariate(36000, 0.6)
        lines.append(f"{now:.1f},n{number}")
    path = tmp_path / "failures.csv"
    path.write_text("\n".join(lines))
    return str(path)


def run(*args, code=0):
    result = CliRunner().invoke(cli, ("plan", "interval", *args))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_laws_alone(log):
    out = run("--failures", log)
    assert "exponential" in out and "Weibull" in out and "99 gaps between failures: " in out
    assert "interval of" not in out
    found = json.loads(run("--failures", log, "--json"))["failures"]
    assert found["gaps"] == 99 and found["better"] == "Weibull" and found["intervals"] == []


def test_a_level_with_the_mean_of_the_file(log):
    out = run("--failures", log, "--level", "store", "150s", "file", "--restart", "store", "1min")
    assert "these failures" in out and "store alone, Young's interval" in out
    found = json.loads(run("--failures", log, "--level", "store", "150s", "file", "--json"))
    planned = found["failures"]["intervals"][1]
    assert found["work"] == pytest.approx(planned["work"], rel=1e-6)
    assert found["efficiency"] == pytest.approx(planned["expected"])
    assert found["others"][1]["work"] == pytest.approx(found["failures"]["intervals"][3]["work"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "--level: no level is there"),
        (("--level", "a", "1s", "file"), "no file; allowed: --failures FILE"),
        (("--failures", "no/such"), "no/such: cannot be read: No such file"),
        (("--failures", "/"), "cannot be read: Is a directory"),
    ],
)
def test_what_is_missing(args, words):
    said = run(*args, code=2)
    assert words in said and said.count("\n") == 1


def test_a_level_that_does_not_ask_for_the_file(log):
    said = run("--failures", log, "--level", "a", "1s", "1h", code=2)
    assert "--failures: 0 levels" in said
    said = run("--failures", log, "--level", "a", "1s", "file", "--level", "b", "2s", "file", code=2)
    assert "--failures: 2 levels" in said


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1\n2\nx\n", "line 3: found 'x'"),
        (b"\xff\xfe1\n", "is no text"),
        (b"", "no failure is there"),
        (b"1\n2\n", "2 failures at different times"),
    ],
)
def test_bad_files_are_named(tmp_path, data, words):
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    said = run("--failures", str(path), code=2)
    assert f"{path}: " in said and words in said and said.count("\n") == 1
