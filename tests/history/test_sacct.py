"""Reading what ``sacct`` prints: good lines, odd lines, and complaints that say where."""

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.history.sacct import COMMAND, ask_sacct, read_sacct
from dask_hpc.model.errors import InputError

HEADS = COMMAND.split(" -o ")[1].replace(",", "|")


def written(tmp_path, *lines, heads=HEADS):
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((heads, *lines)) + "\n")
    return path


def line(name="cfd", elapsed="3600", limit="120", state="COMPLETED", start="2026-03-01T12:00:00", nodes="4",
         rss="", user="", submit="2026-03-01T10:00:00", eligible="2026-03-01T11:00:00"):  # fmt: skip
    return "|".join((name, user, elapsed, limit, state, submit, eligible, start, nodes, rss))


def test_what_became_of_jobs(tmp_path):
    states = {
        "COMPLETED": "done", "TIMEOUT": "walltime", "CANCELLED by 1000": "killed", "FAILED": "killed",
        "NODE_FAIL": "killed", "OUT_OF_MEMORY": "killed",
    }  # fmt: skip
    found = read_sacct(written(tmp_path, *(line(state, state=state) for state in states)))
    assert {name: runs[0].ended for name, runs in found.runs.items()} == states and found.left_out == 0


def test_a_line(tmp_path):
    found = read_sacct(written(tmp_path, line(rss="1.5G"), "", line("other", limit="UNLIMITED", rss="0")))
    (run,) = found.runs["cfd"]
    assert (run.nodes, run.seconds, run.peak_bytes) == (4, 3600, 1.5 * 2**30)
    assert run.when == datetime(2026, 3, 1, 13).timestamp()
    assert found.runs["other"][0].peak_bytes is None and found.runs["other"][0].requested is None
    assert (run.requested, run.waited) == (7200, 3600)


def test_who_ran_it_and_how_long_it_waited(tmp_path):
    lines = [
        line(user="alice", eligible="Unknown"),
        line(user="alice", eligible="None", submit="Unknown"),
        line(user="alice", eligible="2026-03-01T12:00:01"),  # the clock was put back
        line(limit="Partition_Limit"),
    ]
    found = read_sacct(written(tmp_path, *lines)).runs
    assert [run.waited for run in found["alice/cfd"]] == [7200, None, None]
    assert [run.requested for run in found["cfd"]] == [None]


def sacct_program(tmp_path, monkeypatch, text):
    program = tmp_path / "sacct"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_slurm_is_asked(tmp_path, monkeypatch):
    (tmp_path / "said").write_text("\n".join((HEADS, line(), line(state="RUNNING"))) + "\n")
    sacct_program(tmp_path, monkeypatch, f'echo "$*" > {tmp_path}/asked; cat {tmp_path}/said')
    assert ask_sacct(90 * 86400) == read_sacct(tmp_path / "said")
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:4] == ["-XP", "-o", COMMAND.split(" -o ")[1], "-u"]
    since = datetime.fromisoformat(asked[asked.index("-S") + 1])
    assert abs(datetime.now().timestamp() - since.timestamp() - 90 * 86400) < 3700  # or an hour of summer


def test_slurm_cannot_be_asked(tmp_path, monkeypatch):
    sacct_program(tmp_path, monkeypatch, "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    with pytest.raises(InputError, match="sacct: it says 'Slurm accounting storage is disabled'"):
        ask_sacct(60)
    sacct_program(tmp_path, monkeypatch, "echo JobName")
    with pytest.raises(InputError, match="sacct: line 1: found 'JobName'"):
        ask_sacct(60)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(InputError, match="no such command"):
        ask_sacct(60)


def test_jobs_that_are_not_over_or_never_began_are_left_out(tmp_path):
    lines = [
        line(state="RUNNING"),
        line(state="PENDING", elapsed="0", start="Unknown"),
        line(state="CANCELLED by 5", elapsed="0", start="None", nodes="0"),
        line(state="CANCELLED by 5", elapsed="10", start="Unknown"),
        line(state="COMPLETED", elapsed="0"),
    ]
    assert read_sacct(written(tmp_path, *lines)) == ({}, 5)


def test_columns_in_another_order_more_of_them_and_names_with_bars(tmp_path):
    path = written(
        tmp_path, "4|a|b|COMPLETED", heads="AllocNodes|JobName|State"
    )  # the name is not first: nobody knows which bar is whose
    with pytest.raises(InputError):
        read_sacct(path)
    heads = "JobName|User|State|Start|ElapsedRaw|AllocNodes"
    path = written(tmp_path, "a|b|alice|COMPLETED|2026-03-01T12:00:00|60|2", heads=heads)
    (key, (run,)) = next(iter(read_sacct(path).runs.items()))
    assert key == "alice/a|b" and run.nodes == 2 and run.seconds == 60


@pytest.mark.parametrize(
    "bad, where",
    [
        (line(elapsed="-5"), "line 3: ElapsedRaw"),
        (line(elapsed="1e3"), "line 3: ElapsedRaw"),
        (line(nodes="many"), "line 3: AllocNodes"),
        (line(nodes="999999999"), "line 3: AllocNodes"),
        (line(state="WELL"), "line 3: State"),
        (line(start="yesterday"), "line 3: Start"),
        (line(rss="12X"), "line 3: MaxRSS"),
        (line(rss="-1K"), "line 3: MaxRSS"),
        (line(rss="K"), "line 3: MaxRSS"),
        (line(name=" "), "line 3: JobName"),
        ("cfd|3600", "line 3: 2 columns"),
    ],
)
def test_complaints_name_line_and_column(tmp_path, bad, where):
    with pytest.raises(InputError) as caught:
        read_sacct(written(tmp_path, line(), bad, line()))
    assert f"sacct.txt: {where}" in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_no_heads_no_file(tmp_path):
    for path in (written(tmp_path, heads="1|2"), written(tmp_path, heads=""), tmp_path / "none", tmp_path):
        with pytest.raises(InputError):
            read_sacct(path)


words = st.sampled_from(
    [
        "cfd",
        "1",
        "0",
        "",
        " ",
        "x",
        "2026-03-01T12:00:00",
        "COMPLETED",
        "TIMEOUT",
        "1.5G",
        "99999999",
        "9" * 12,
    ]
)


@settings(max_examples=50)
@given(st.lists(st.lists(words, max_size=12) | st.text(max_size=20).map(lambda text: [text]), max_size=4))
def test_any_lines_are_read_or_refused_in_one_line(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "any_sacct.txt"
    path.write_text("\n".join([HEADS, *("|".join(line) for line in lines)]), encoding="utf-8")
    try:
        found = read_sacct(path)
    except InputError as error:
        assert len(str(error).splitlines()) == 1 and "any_sacct.txt" in str(error)
    else:
        assert all(run.seconds > 0 and run.nodes > 0 for runs in found.runs.values() for run in runs)
