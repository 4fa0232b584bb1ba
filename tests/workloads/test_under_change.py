"""Workloads whose cluster changes all the time, on a busy machine: nothing lost, twice, wrong or hung.

Workers live for ten to thirty seconds: where one takes as long to start, nobody is left to take what another
has.
"""

import json
import subprocess
import sys

import pytest
import under_change
from ledger import causes, twice

#: seconds after which a run hangs. Alone one takes ten to thirty, on a slow machine sixty.
PATIENCE = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where results of undisturbed runs are, and what explains those that fail."""
    return tmp_path_factory.mktemp("under-change")


def run(name, seed, folder, how="--managed"):
    """A run of the harness, and what it has to say of one that failed. Other tests keep the machine busy."""
    command = [sys.executable, under_change.__file__, name, str(seed), how]
    command += ["--busy", "0", "--patience", str(PATIENCE), "--out", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE + under_change.AROUND)
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert rows, ran.stderr[-4000:]
    return rows[-1]


def assert_nothing_happened(row, folder):
    """To the work: to the cluster much should have."""
    counts = {count: row[count] for count in (*under_change.COUNTS, "our_errors")}
    if any(counts.values()):
        under_change.explain(folder / row["evidence"])
    assert not any(counts.values()), row
    assert row["changes"] > 1


@pytest.mark.slow
@pytest.mark.timed
def test_shared_map_loses_nothing_when_workers_come_and_go(folder):
    """Tasks that are no root tasks, all of them handed out at once, beside resizes and SIGTERM."""
    assert_nothing_happened(run("shared-map", 3, folder), folder)


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize(("name", "seed"), [("thin-sum", 4), ("shuffle", 1)])
def test_nothing_is_lost_twice_wrong_or_hung(name, seed, folder):
    assert_nothing_happened(run(name, seed, folder), folder)


def start(when, key, where="a"):
    return when, "start", where, key


def test_what_counts_as_twice():
    again = twice([start(1, "x"), start(2, "x", "b"), start(3, "y"), start(4, "x", "c")], [])
    assert again == {"x": [[(1, "a"), (2, "b")], [(2, "b"), (4, "c")]]}
    assert causes(again, [{"worker": "a", "computed": [], "scattered": []}]) == {"cut off": 1, "else": 1}
    assert causes(again, [{"worker": "a", "computed": ["x"], "scattered": []}]) == {"lost": 2}


def test_what_does_not_count_as_twice():
    assert twice([start(1, "x"), start(3, "x")], [(2, "anew", "", "x")]) == {}, (
        "nobody wanted the first result"
    )
    assert twice([start(1, "x"), (2, "fail", "a", "x"), start(3, "x")], []) == {}, "it is tried again"
