"""Editing a policy: what is refused says why, what differs is shown, applied and undone."""

import pytest
from dask_hpc_widgets import PolicyPanel
from dask_hpc_widgets import view as view_module
from heard import hear, until

from dask_hpc import InputError, Policy

KINDS = ("choice", "switch", "number", "whole number", "quantity", "text", "schedule")


def test_every_ready_made_policy_can_be_edited():
    panel = PolicyPanel(policy="fcfs")
    for name in panel.names:
        panel.choose(name)
        assert panel.policy == Policy.load(name) and panel.yaml == Policy.load(name).to_yaml()
        for field in panel.fields:
            assert field["kind"] in (
                "choice",
                "switch",
                "number",
                "whole number",
                "quantity",
                "text",
                "schedule",
            )
            panel.policy.with_(**{field["path"]: field["value"]})  # what is shown can be said
    assert set(panel.strategies) >= {"queue", "malleability", "power"}


def test_without_a_cluster_it_edits():
    panel = PolicyPanel(policy="easy-backfill")
    panel.edit(**{"queue.depth": 5})
    assert panel.difference == [["queue.depth", "1000000", "5"]]
    assert [f["is_changed"] for f in panel.fields if f["path"] == "queue.depth"] == [True]
    assert panel.policy.queue.depth == 5
    with pytest.raises(InputError, match="depth"):
        panel.edit(**{"queue.depth": -1})
    assert panel.policy.queue.depth == 5
    assert "depth: 5" in repr(panel)


def test_the_python_it_gives_does_what_the_panel_does(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.name == "easy-backfill")
    for changes in ({"queue.depth": 5}, {"malleability.strategy": "egs", "queue.strategy": "sjf"}):
        panel.edit(**changes)
        exec(panel.python, {"manager": busy})
        assert Policy.parse(busy.set()["policy"]).to_dict() == panel.policy.to_dict()
        busy.undo()
    panel.choose("power-corridor")
    panel.edit(**{"power.upper": "2 kW"})
    exec(panel.python, {"manager": busy})
    assert Policy.parse(busy.set()["policy"]).to_dict() == panel.policy.to_dict()
    panel.close()


def test_refused_applied_undone(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.name == "easy-backfill" and busy.watch.course.head)
    assert "allowed: 0 to" in hear(panel, do="edit", path="queue.depth", value=-3)["problem"]
    assert panel.refused["queue.depth"]["value"] == -3
    assert "queue.depht" in hear(panel, do="edit", path="queue.depht", value=3)["problem"]
    assert hear(panel, do="edit", path="queue.depth", value=7)["problem"] == ""
    assert "queue.depth" not in panel.refused
    assert "depth: 7" not in busy.set()["policy"]
    hear(panel, do="apply")
    assert "depth: 7" in busy.set()["policy"]
    until(lambda: panel.difference == [])
    hear(panel, do="undo")
    assert "depth: 7" not in busy.set()["policy"]
    until(lambda: panel.policy.queue.depth != 7)
    hear(panel, do="choose", name="fcfs")
    assert panel.name == "fcfs" and panel.difference
    hear(panel, do="reset")
    assert panel.name == "easy-backfill" and not panel.difference
    panel.close()


def test_apply_sends_what_was_edited_and_nothing_else(busy, monkeypatch):
    monkeypatch.setattr(view_module, "_UNHEARD", 0.0)  # nobody looks, as for 30 s
    busy.set("power-corridor", **{"power.upper": "1 kW"})
    panel = PolicyPanel(busy)
    until(lambda: panel.policy.power is not None)
    busy.set(**{"power.upper": "2 kW"})
    assert hear(panel, do="edit", path="queue.bias", value=0.75)["problem"] == ""
    until(lambda: "upper: 2 kW" in panel.yaml)  # it follows, edited or not
    assert [path for path, _, _ in panel.difference] == ["queue.bias"]
    panel._end()  # what it does not hear of is not taken back either
    busy.set(**{"power.upper": "3 kW"})
    hear(panel, do="apply")
    in_force = busy.set()["policy"]
    assert "upper: 3 kW" in in_force and "bias: 0.75" in in_force
    panel.close()


def test_an_edit_survives_what_others_change(busy):
    panel = PolicyPanel(busy)
    until(lambda: busy.watch.course.head)
    hear(panel, do="edit", path="queue.depth", value=7)
    busy.set("fcfs")
    until(lambda: any(path == "queue.strategy" for path, _, _ in panel.difference))
    assert panel.policy.queue.depth == 7
    panel.close()


def test_saving(busy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel = PolicyPanel(busy)
    assert hear(panel, do="save", path="mine.yaml")["problem"] == ""
    assert Policy.load(tmp_path / "mine.yaml").to_dict() == panel.policy.to_dict()
    assert "exists" in hear(panel, do="save", path="mine.yaml")["problem"]
    assert hear(panel, do="save", path="mine.yaml", replace=True)["problem"] == ""
    for wrong in ("/etc/x.yaml", "../x.yaml", "x.txt", "no/such/x.yaml"):
        assert hear(panel, do="save", path=wrong)["problem"]
    panel.close()
