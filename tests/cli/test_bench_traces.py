"""``dask-hpc bench traces``: a folder of traces in, a table out; complaints in one line."""

import json
import re

import pandas as pd
import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.cli.bench_traces import print_trace_table
from dask_hpc.simulator.traces import FIGURES, TraceTable

LINE = "{n} {submit} -1 {run} {size} -1 -1 {size} {limit} -1 1 {user} 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "archive"
    found.mkdir()
    for name, gap in (("busy.swf", 40), ("quiet.swf", 200)):
        lines = ["; MaxProcs: 16\n"]
        for n in range(30):
            size, run = (1, 2, 4, 8, 16)[n % 5], 200 + 37 * n % 500
            lines.append(LINE.format(n=n + 1, submit=gap * n, run=run, size=size, limit=2 * run, user=n % 3))
        (found / name).write_text("".join(lines))
    return found


def bench(*args, code=0):
    result = CliRunner().invoke(cli, ("bench", "traces", *map(str, args)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_the_table(folder):
    lines = bench(
        folder, "--shares", "0,0.5", "--first", 25, "--policy", "easy-backfill", "--policy", "elastic"
    )
    lines = lines.splitlines()
    assert lines[0].startswith("busy.swf: 25 jobs on 16 nodes, load ")
    head = next(at for at, line in enumerate(lines) if line.startswith("trace "))
    rows = [line.split() for line in lines[head + 1 : head + 13]]
    assert [row[0] for row in rows] == ["busy.swf"] * 6 + ["quiet.swf"] * 6
    assert [row for row in rows if "easy-backfill" in row] == rows[::2]
    for cell in range(6):
        assert any("*" in row for row in rows[2 * cell : 2 * cell + 2])
    assert "elastic against the best of the others in each cell:" in lines
    assert lines[-1].startswith("waiting, longest") and " of 6 " in lines[-1]


def test_seven_strategies_two_rules_four_shares(folder):
    (folder / "busy.swf").unlink()
    found = json.loads(bench(folder, "--first", 12, "--json"))
    assert len(found["rows"]) == 7 * (1 + 2 * 3)
    assert {row["policy"] for row in found["rows"]} == {
        "easy-backfill",
        "easy-sjbf",
        "conservative-backfill",
        "fpsma-pwma",
        "egs-pwma",
        "malleable-easy",
        "elastic",
    }
    assert found["traces"][0]["jobs"] == 12


def test_csv_and_resume(folder, tmp_path):
    options = (
        "--shares",
        "1",
        "--sizes",
        "wide",
        "--policy",
        "egs-pwma",
        "--resume",
        tmp_path / "done.jsonl",
    )
    bench(folder, *options, "--csv", tmp_path / "table.csv")
    found = pd.read_csv(tmp_path / "table.csv")
    assert list(found["trace"]) == ["busy.swf", "quiet.swf"] and set(found["sizes"]) == {"wide"}
    assert {"mean_response", "max_wait", "resizes", "completed"} <= set(found.columns)
    assert len((tmp_path / "done.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--shares", "all"), "--shares: found 'all'"),
        (("--shares", "0,3"), "shares: found [0.0, 3.0]; allowed: 0 to 1"),
        (("--sizes", "wise"), "--sizes: found 'wise' (nearest: wide)"),
        (("--policy", "elastik"), "elastik"),
        (("--policy", "fcfs", "--policy", "fcfs"), "--policy: found fcfs, fcfs; allowed: each policy once"),
        (("--load", "0"), "load: found 0.0"),
    ],
)
def test_complaints(folder, tmp_path, options, complaint):
    told = bench(folder, *options, "--csv", tmp_path / "table.csv", code=2)
    assert complaint in told and len(told.splitlines()) == 1
    assert not (tmp_path / "table.csv").exists()


def test_no_traces(tmp_path):
    told = bench(tmp_path, code=2)
    assert "has no traces" in told and len(told.splitlines()) == 1


def test_a_bad_line_names_its_file(folder):
    (folder / "broken.swf").write_text("1 2 3\n")
    told = bench(folder, code=2)
    assert "broken.swf, line 1: 3 fields" in told and len(told.splitlines()) == 1


def test_the_best_of_each_figure_has_a_star(capsys):
    figures = [(10.0, 2.0, 2.0, 60.0, 0.0), (30.0, 1.5, 2.0, 50.0, 5.0)]
    rows = [
        {
            "trace": "t",
            "sizes": "wide",
            "malleable": 0.5,
            "policy": policy,
            **dict(zip(FIGURES, row, strict=True)),
        }
        for policy, row in zip(("easy", "elastic"), figures, strict=True)
    ]
    print_trace_table(TraceTable(pd.DataFrame(rows)))
    lines = capsys.readouterr().out.splitlines()
    stars = [
        ["*" in cell for cell in line.split("  ")[-5:]]
        for line in (re.sub(r" {2,}", "  ", one) for one in lines[2:])
    ]
    assert stars == [[True, False, True, False, True], [False, True, True, True, False]]
