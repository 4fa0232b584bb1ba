"""Plans that follow what people move, without a cluster."""

import pytest
from dask_hpc_widgets import CorridorExplorer, IntervalExplorer, PartitionExplorer


def test_more_bandwidth_moves_analyses_away():
    explorer = PartitionExplorer(bandwidth=1e7)
    slow = explorer.found
    explorer.bandwidth = 1e12
    assert explorer.found["iteration"] <= slow["iteration"]
    assert len(explorer.found["in_transit"]) >= len(slow["in_transit"])
    explorer.mode = "sync"
    assert explorer.found["phases"]["simulation"] > 0 and not explorer.problem


def test_what_fails_more_often_is_committed_more_often():
    explorer = IntervalExplorer()
    before = explorer.found["every"]["partner"]
    explorer.levels = [{**explorer.levels[0], "mtbf": 600.0}, explorer.levels[1]]
    assert explorer.found["every"]["partner"] < before
    assert 0 < explorer.found["efficiency"] < 1 and len(explorer.found["curve"]) == 41
    assert "a failure every" in repr(explorer)


def test_a_corridor_that_cannot_be_kept_says_what_would_help():
    explorer = CorridorExplorer()
    assert explorer.found["is_feasible"]
    explorer.upper = 100.0
    assert not explorer.found["is_feasible"] and explorer.found["reason"].startswith("impossible: ")


@pytest.mark.parametrize(
    "explorer, wrong",
    [
        (PartitionExplorer, {"nodes": 0}),
        (IntervalExplorer, {"levels": [{"name": "x"}]}),
        (CorridorExplorer, {"nodes": 1}),
    ],
)
def test_a_bad_question_keeps_the_last_answer(explorer, wrong):
    one = explorer()
    before = one.found
    for name, value in wrong.items():
        setattr(one, name, value)
    assert one.problem and one.found == before and one.problem in repr(one)
