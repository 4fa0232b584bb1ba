"""Plans that follow what people move, without a cluster."""

from functools import partial

import pytest
from dask_hpc_widgets import CorridorExplorer, PartitionExplorer, ReservationExplorer, ResilienceExplorer


def test_more_bandwidth_moves_analyses_away():
    explorer = PartitionExplorer(bandwidth=1e7)
    slow = explorer.found
    explorer.bandwidth = 1e12
    assert explorer.found["iteration"] <= slow["iteration"]
    assert len(explorer.found["in_transit"]) >= len(slow["in_transit"])
    explorer.mode = "sync"
    assert explorer.found["phases"]["simulation"] > 0 and not explorer.problem


def test_what_fails_more_often_is_committed_more_often():
    explorer = ResilienceExplorer(reading="commits")
    before = explorer.found["every"]["partner"]
    explorer.levels = [{**explorer.levels[0], "mtbf": 600.0}, explorer.levels[1]]
    assert explorer.found["every"]["partner"] < before
    assert 0 < explorer.found["efficiency"] < 1 and len(explorer.found["curve"]) == 41
    assert "a failure every" in repr(explorer)


def test_the_levels_of_a_machine_can_be_taken():
    explorer = ResilienceExplorer(reading="commits", memory=64e9)
    explorer.levels = explorer.found["levels"]
    assert list(explorer.found["every"]) == ["memory", "partner", "store"] and not explorer.problem
    explorer.reading = "protocols"
    multilevel = next(way for way in explorer.found["ways"] if way["name"] == "multilevel")
    explorer.reading = "commits"
    assert explorer.found["efficiency"] == pytest.approx(multilevel["efficiency"], rel=1e-12)
    assert explorer.found["every"]["partner"] == pytest.approx(multilevel["every"]["partner"])


@pytest.fixture
def coarse(monkeypatch):
    """Curves of few points, to be quick."""
    monkeypatch.setattr("dask_hpc_widgets.resilience_explorer._POINTS", 3)


def test_protections_side_by_side(coarse):
    explorer = ResilienceExplorer(messages=0.3, redundancy=True)
    found = explorer.found
    assert found["best"] == found["ways"][0]["name"] == "recovery" and found["reason"] in repr(explorer)
    times = [way["time"] for way in found["ways"]]
    assert times == sorted(times) and len(times) == 5
    assert all(sum(way["parts"].values()) == pytest.approx(way["time"]) for way in found["ways"])
    # curves begin where the machine is small, and all is well there
    sizes, first = [size for size, _ in found["curve"]], found["curve"][0][1]
    assert sizes[0] == 100 and sizes[-1] == pytest.approx(1e6) and first["restart"] > 0.99
    explorer.redundancy = False
    assert len(explorer.found["ways"]) == len(explorer.found["curve"][0][1]) == 3
    explorer.objective = "energy"
    assert explorer.found["ways"][0]["energy"] < found["ways"][0]["energy"]
    # what is on the axis does not change the curve
    explorer.axis = "memory"
    before = explorer.found
    explorer.memory = 128e9
    assert explorer.found["curve"] == before["curve"] and explorer.found["ways"] != before["ways"]


def test_a_hopeless_machine_is_shown_as_such(coarse):
    explorer = ResilienceExplorer(nodes=1_000_000, memory=256e9, hours=0)
    assert explorer.found["reason"].startswith("hopeless: ")
    assert all(way["time"] is None and way["parts"] == {} for way in explorer.found["ways"])


def test_a_corridor_that_cannot_be_kept_says_what_would_help():
    explorer = CorridorExplorer()
    assert explorer.found["is_feasible"]
    explorer.upper = 100.0
    assert not explorer.found["is_feasible"] and explorer.found["reason"].startswith("impossible: ")


def test_dearer_commits_are_made_less_often_and_never_cost_less():
    explorer = ReservationExplorer(mean=10 * 3600.0, std=5 * 3600.0, checkpoint=60.0, restart=60.0)
    cheap = explorer.found
    explorer.checkpoint = explorer.restart = 8 * 3600.0
    dear = explorer.found
    commits = [sum(row["commit"] > 0 for row in found["requests"]) for found in (cheap, dear)]
    assert commits[0] > commits[1] and cheap["over_omniscient"] < dear["over_omniscient"]
    for found in (cheap, dear):
        assert found["over_omniscient"] <= min(found["others"].values()) * (1 + 1e-9)
        best = [row["best"] for row in found["curve"]]
        assert best == sorted(best) and len(best) == 10
        assert all(row["best"] <= min(row["all"], row["none"]) * (1 + 1e-9) for row in found["curve"])
    assert dear["others"]["never commit"] == cheap["others"]["never commit"]


@pytest.mark.parametrize("family", ReservationExplorer.families.default_args[0])
def test_each_request_is_spent_on_what_its_length_says(family):
    explorer = ReservationExplorer(family=family, mean=7200.0, std=3600.0, checkpoint=300.0, restart=200.0)
    rows = explorer.found["requests"]
    assert not explorer.problem and explorer.found["count"] >= len(rows)
    saved, needed = 0.0, 1.0
    for row in rows:
        parts = [row[part] for part in ("restart", "again", "work", "commit")]
        assert row["length"] == pytest.approx(sum(parts)) and min(parts) >= 0
        assert row["until"] == pytest.approx(saved + row["again"] + row["work"])
        assert 0 < row["needed"] <= needed
        saved, needed = row["until"] if row["commit"] else saved, row["needed"]
    assert "h first" in repr(explorer)


@pytest.mark.parametrize(
    "explorer, wrong",
    [
        (PartitionExplorer, {"nodes": 0}),
        (ResilienceExplorer, {"messages": 2.0}),
        (partial(ResilienceExplorer, reading="commits"), {"levels": [{"name": "x"}]}),
        (CorridorExplorer, {"nodes": 1}),
        (ReservationExplorer, {"alpha": 0.0}),
    ],
)
def test_a_bad_question_keeps_the_last_answer(explorer, wrong):
    one = explorer()
    before = one.found
    for name, value in wrong.items():
        setattr(one, name, value)
    assert one.problem and one.found == before and one.problem in repr(one)
