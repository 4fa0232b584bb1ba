"""Predictions from the live cluster, and one of them applied."""

from dask_hpc_widgets import PolicyPanel, WhatIf
from heard import hear, until

from dask_hpc import Policy


def test_predictions_beside_the_present_course(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.name == "easy-backfill")
    view = WhatIf(busy, panel, seeds=5)
    view.tried = ["fcfs", "elastic"]
    panel.edit(**{"queue.depth": 1})
    assert hear(view, do="predict")["problem"] == ""
    assert [row["policy"] for row in view.rows] == [
        "easy-backfill", "fcfs", "elastic", "easy-backfill, edited",
    ]  # fmt: skip
    assert [row["is_present"] for row in view.rows] == [True, False, False, False]
    for row in view.rows:
        mean, half = row["metrics"]["mean_response"]
        assert mean > 0 and half > 0
    assert view.progress == [20, 20]
    assert "1 running and 1 waiting jobs on 3 nodes; 5 draws" in view.about
    assert busy.set()["name"] == "easy-backfill"  # nothing is applied yet
    view.tried = Policy.names()
    assert "at most 8 at once" in hear(view, do="predict")["problem"]
    assert "row" in hear(view, do="apply", row=9)["problem"]
    hear(view, do="apply", row=2)
    assert busy.set()["name"] == "elastic"
    view.close()
    panel.close()


def test_nothing_to_predict(managed):
    view = WhatIf(managed)
    assert "no job runs or waits" in hear(view, do="predict")["problem"]
    view.seeds = 1000
    assert "1 to 200" in hear(view, do="predict")["problem"]
    view.close()
