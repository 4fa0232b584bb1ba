"""Predictions from the live cluster, and one of them applied."""

from dask_hpc_widgets import PolicyPanel, WhatIf
from dask_hpc_widgets.what_if import _each_once, _names_apart
from heard import hear, until

from dask_hpc import Policy


def test_no_policy_twice_and_a_name_for_each():
    easy, fcfs = Policy.load("easy-backfill"), Policy.load("fcfs")
    shallow, deep = easy.with_(**{"queue.depth": 1}), easy.with_(**{"queue.depth": 7})
    chosen, twice = _each_once([shallow, easy, fcfs, deep, shallow, fcfs])
    assert chosen == [shallow, easy, fcfs, deep]
    assert twice == ["easy-backfill is in force", "fcfs is as fcfs"]
    # the ready-made one keeps its name, whatever comes first
    assert _names_apart(chosen) == [
        "easy-backfill, edited",
        "easy-backfill",
        "fcfs",
        "easy-backfill, edited 2",
    ]


def test_predictions_beside_the_policy_in_force(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.name == "easy-backfill")
    view = WhatIf(busy, panel, seeds=5)
    view.tried = ["fcfs", "elastic", "easy-backfill"]
    panel.edit(**{"queue.depth": 1})
    assert hear(view, do="predict")["problem"] == ""
    assert [row["policy"] for row in view.rows] == [
        "easy-backfill", "fcfs", "elastic", "easy-backfill, edited",
    ]  # fmt: skip
    assert [row["is_base"] for row in view.rows] == [True, False, False, False]
    for row in view.rows:
        figure = row["figures"]["mean_response"]
        assert figure["mean"] > 0 and figure["half"] > 0
        assert (figure["more"] is None) == row["is_base"]
    elastic = view.rows[2]["figures"]["makespan"]
    assert elastic["more"] < 0 and elastic["verdict"] in ("better", "undecided")
    assert [name for name, *_ in view.shown_metrics][:2] == ["mean_wait", "max_wait"]
    assert "1 running and 1 waiting jobs on 3 nodes; 5 draws" in view.about
    assert "easy-backfill is in force" in view.about
    assert view.progress == [0, 0]
    assert busy.set()["name"] == "easy-backfill"  # nothing is applied yet
    assert view.present == {"name": "easy-backfill", "version": 0, "row": 0, "is_changed": False}
    # somebody else changes the policy: to one of the columns, then to none of them
    busy.set("fcfs")
    until(lambda: view.present["row"] == 1)
    assert view.present["is_changed"]
    seen = view.present["version"]
    busy.set(**{"settings.fair-shares": True})
    assert hear(view, do="apply", row=2, version=seen)["problem"]
    assert busy.set()["name"] == "fcfs"
    until(lambda: view.present["version"] > seen)
    assert hear(view, do="apply", row=3, version=view.present["version"])["problem"] == ""
    found = busy.set()
    assert found["name"] == "easy-backfill" and Policy.parse(found["policy"]).queue.depth == 1
    assert view.present["row"] == 3
    assert "predict again" in repr(view)
    assert "row" in hear(view, do="apply", row=9)["problem"]
    view.close()
    panel.close()


def test_a_prediction_can_be_stopped(busy):
    view = WhatIf(busy, seeds=200)
    view.tried = ["fcfs", "elastic"]
    stops = []

    def stop(change):
        if change["new"][1] and not stops:
            stops.append(change["new"][1])
            view._hear(None, {"do": "stop"}, [])

    view.observe(stop, "progress")
    assert hear(view, do="stop")["done"] == "nothing is being predicted"
    view._hear(None, {"do": "predict"}, [])
    until(lambda: view.done == "stopped")
    assert stops == [600] and view.rows == [] and view.progress == [0, 0]
    view.seeds = 2
    assert hear(view, do="predict")["done"] == "predicted for 3 policies"
    view.close()


def test_nothing_to_predict(managed):
    view = WhatIf(managed)
    assert "no job runs or waits" in hear(view, do="predict")["problem"]
    view.seeds = 1000
    assert "1 to 200" in hear(view, do="predict")["problem"]
    view.seeds = 2
    view.tried = Policy.names()
    assert "at most 8 at once" in hear(view, do="predict")["problem"]
    view.close()
