"""The table for a folder of traces: every cell is the study that it says, ratios are those of its rows."""

import gzip
from math import inf

import pandas as pd
import pytest

from dask_hpc import InputError, Policy
from dask_hpc.simulator import Overlay, simulate
from dask_hpc.simulator.overlay import squeezed
from dask_hpc.simulator.readers import load_workload
from dask_hpc.simulator.traces import FIGURES, TraceStudy, TraceTable


def swf(jobs=40, nodes=16, header=True):
    lines = [f"; MaxProcs: {nodes}\n"] if header else []
    for n in range(jobs):
        size, run = (1, 2, 4, 8, 16)[n % 5], 200 + 37 * n % 500
        lines.append(
            f"{n + 1} {60 * n} -1 {run} {size} -1 -1 {size} {2 * run} -1 1 {n % 3} 1 -1 1 -1 -1 -1\n"
        )
    return "".join(lines)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.swf").write_text(swf())
    (tmp_path / "a.swf.gz").write_bytes(gzip.compress(swf(30, 32).encode()))
    (tmp_path / "README.txt").write_text("not a trace")
    return tmp_path


def asked(folder, *policies, **values):
    return TraceStudy(folder=folder, policies=[Policy.load(name) for name in policies], **values)


def test_every_cell_is_the_simulation_that_it_says(folder):
    told = []
    study = asked(
        folder, "easy-backfill", "elastic", shares=(0.0, 1.0), rules=("half-double", "wide"), load=1.1
    )
    rows = study.run(progress=told.append).rows
    assert told == list(range(1, 13)) and study.trials == 12 == len(rows)
    cells = [("as asked", 0.0), ("half-double", 1.0), ("wide", 1.0)]
    found = list(rows[["trace", "sizes", "malleable", "policy"]].itertuples(index=False, name=None))
    assert found == [
        (trace, rule, share, policy)
        for trace in ("a.swf.gz", "b.swf")
        for rule, share in cells
        for policy in ("easy-backfill", "elastic")
    ]
    for row in rows.itertuples():
        rule = "half-double" if row.sizes == "as asked" else row.sizes
        law = "linear" if row.malleable else "unchanged"
        overlay = Overlay(malleable=row.malleable, rule=rule, law=law, load=1.1)
        ours = simulate(overlay.over(load_workload(folder / row.trace)), policy=row.policy).metrics
        for name in FIGURES:
            assert getattr(row, name) == pytest.approx(ours[name]), (row, name)


def test_seeds_choose_jobs_only_where_there_is_a_choice(folder):
    study = asked(folder, "easy-backfill", shares=(0.0, 0.5, 1.0), rules=("wide",), seeds=3)
    assert [(rule, share, seeds) for rule, share, _, seeds in study.cells] == [
        ("as asked", 0.0, 1),
        ("wide", 0.5, 3),
        ("wide", 1.0, 1),
    ]
    assert study.trials == 10
    rows = study.run().rows.set_index(["trace", "malleable"])
    assert rows.loc[("b.swf", 0.5), "mean_response_ci"] >= 0


def test_finished_simulations_are_kept(folder, tmp_path, monkeypatch):
    store = tmp_path / "done.jsonl"
    first = asked(folder, "fcfs", "egs-pwma", shares=(0.0, 0.5)).run(store=store).rows
    lines = store.read_text().splitlines()
    assert len(lines) == 12
    again = asked(folder, "fcfs", "egs-pwma", shares=(0.0, 0.5)).run(store=store).rows
    assert store.read_text().splitlines() == lines
    pd.testing.assert_frame_equal(first, again)


def test_traces_are_described_as_they_are_played(folder):
    one, other = asked(folder, "fcfs", load=0.6, first=20).described
    assert (one["trace"], one["jobs"], one["nodes"]) == ("a.swf.gz", 20, 32)
    assert other["load"] == pytest.approx(0.6)
    plain = squeezed(load_workload(folder / "b.swf"), 0.6)
    assert plain.arrivals[-1].job.submitted > 0


def table(*rows):
    names = ("trace", "sizes", "malleable", "policy", *FIGURES)
    return TraceTable(pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows]))


def test_against_the_best_of_the_others():
    found = table(
        ("t", "wide", 1.0, "easy", 100.0, 2.0, 4.0, 50.0, 0.0),
        ("t", "wide", 1.0, "elastic", 90.0, 3.0, 3.0, 50.0, 0.0),
        ("t", "wide", 1.0, "egs", 120.0, 1.5, 5.0, 40.0, 5.0),
        ("s", "as asked", 0.0, "elastic", 10.0, 1.0, 1.0, 5.0, 1.0),
        ("s", "as asked", 0.0, "easy", 20.0, 1.0, 2.0, 4.0, 0.0),
    )
    for alone in (found, table(("t", "wide", 1.0, "elastic", 1.0, 1.0, 1.0, 1.0, 1.0))):
        with pytest.raises(InputError, match="policy: found 'fcfs'"):
            alone.against_best("fcfs")
    with pytest.raises(InputError, match="others beside it"):
        alone.against_best("elastic")
    found = found.against_best("elastic")
    assert found.loc[("t", "wide", 1.0)].tolist() == pytest.approx([-10.0, 100.0, -25.0, 25.0, 0.0])
    assert found.loc[("s", "as asked", 0.0)].tolist() == pytest.approx([-50.0, 0.0, -50.0, 25.0, inf])


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"shares": ()}, "shares: found"),
        ({"shares": (0.5, 2.0)}, "shares: found .*; allowed: 0 to 1"),
        ({"shares": (0.5, 0.5)}, "shares: found .*; allowed: each once"),
        ({"rules": ()}, "rules: found"),
        ({"rules": ("wise",)}, "rule: found 'wise'"),
        ({"law": "cubic"}, "law: found 'cubic'"),
        ({"load": -1.0}, "load: found -1.0"),
    ],
)
def test_bad_studies(folder, values, complaint):
    with pytest.raises(InputError, match=complaint):
        asked(folder, "fcfs", **values)


def test_folders_without_traces(tmp_path):
    with pytest.raises(InputError, match=r"has no traces; allowed: \.swf or \.swf\.gz"):
        _ = asked(tmp_path, "fcfs").described
    with pytest.raises(InputError, match="cannot be read: No such file"):
        _ = asked(tmp_path / "nowhere", "fcfs").described


def test_a_trace_that_does_not_say_its_nodes(tmp_path):
    (tmp_path / "c.swf").write_text(swf(header=False))
    with pytest.raises(InputError, match=r"c\.swf: does not say how many nodes"):
        _ = asked(tmp_path, "fcfs").described
    (described,) = asked(tmp_path, "fcfs", nodes=16).described
    assert described["nodes"] == 16
