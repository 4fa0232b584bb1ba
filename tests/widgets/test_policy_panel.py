"""Editing a policy: what is refused says why, what differs is shown, applied and undone."""

import asyncio

import pytest
from dask_hpc_widgets import PolicyPanel
from dask_hpc_widgets import view as view_module
from dask_hpc_widgets.policy_panel import policy_files
from heard import hear, until

from dask_hpc import InputError, Policy

KINDS = ("choice", "switch", "number", "whole number", "quantity", "text", "schedule")


def do(panel, what, **asked):
    """Without a cluster, where no loop is to be waited for."""
    return asyncio.run(getattr(panel, f"do_{what}")(asked))


def control(panel, path):
    return next(one for one in panel.fields if one["path"] == path)


def test_every_ready_made_policy_can_be_edited():
    panel = PolicyPanel(policy="fcfs")
    for name in panel.names:
        panel.choose(name)
        assert panel.policy == Policy.load(name) and panel.yaml == Policy.load(name).to_yaml()
        assert panel.summary == panel.summaries[name] != ""
        concerns = {one["path"].partition(".")[0] for one in panel.fields if one["is_essential"]}
        assert concerns == {one["path"].partition(".")[0] for one in panel.fields}
        for field in panel.fields:
            assert field["kind"] in KINDS
            panel.policy.with_(**{field["path"]: field["value"]})  # what is shown can be said
    assert set(panel.strategies) >= {"queue", "malleability", "power"}
    assert all(line for found in panel.strategies.values() for line in found.values())


def test_what_two_concerns_share_is_one_control_as_long_as_it_is_the_same():
    panel = PolicyPanel(policy="elastic")
    both = ["queue.bias", "malleability.bias"]
    assert control(panel, "queue.bias")["paths"] == both
    assert do(panel, "edit", path="queue.bias", value=0.5) == "queue.bias is 0.5"
    assert [row[0] for row in panel.difference] == both
    panel.edit(**{"malleability.bias": 0.7})
    assert control(panel, "queue.bias")["paths"] == both[:1]
    assert control(panel, "malleability.bias")["value"] == 0.7


def test_without_a_cluster_it_edits():
    panel = PolicyPanel(policy="easy-backfill")
    panel.edit(**{"queue.depth": 5})
    assert panel.difference == [["queue.depth", "1000000", "5"]]
    assert control(panel, "queue.depth")["is_changed"] and not panel.is_live
    assert panel.policy.queue.depth == 5
    with pytest.raises(InputError, match="depth"):
        panel.edit(**{"queue.depth": -1})
    assert panel.policy.queue.depth == 5
    assert "depth: 5" in repr(panel)
    for deed in ("apply", "undo"):
        with pytest.raises(InputError, match="no cluster"):
            do(panel, deed)
    do(panel, "reset")
    assert panel.policy == Policy.load("easy-backfill") and not panel.difference


def test_another_strategy_begins_with_its_own_parameters():
    panel = PolicyPanel(policy="easy-backfill")
    panel.edit(**{"queue.depth": 5})
    panel.edit(**{"queue.strategy": "slack"})
    assert panel.difference == [["queue.strategy", "easy-backfill", "slack"]]
    panel.edit(**{"queue.strategy": "easy-backfill"})
    assert panel.difference == []


def test_without_a_cluster_policy_files_are_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel = PolicyPanel(policy="easy-backfill")
    panel.edit(**{"queue.depth": 5})
    assert do(panel, "save", path="mine.yaml") == "saved as mine.yaml"
    assert panel.files == [["mine.yaml", panel.summary]]
    panel.edit(**{"queue.depth": 6})
    with pytest.raises(InputError, match="exists"):
        do(panel, "save", path="mine.yaml")
    assert panel.exists == "mine.yaml" and "depth: 5" in (tmp_path / "mine.yaml").read_text()
    do(panel, "choose", file="mine.yaml")
    assert panel.policy.queue.depth == 5 and not panel.difference and panel.name == "mine"
    panel.edit(**{"queue.depth": 8})
    do(panel, "save", path="mine.yaml", replace=True)
    assert panel.exists == "" and "depth: 8" in (tmp_path / "mine.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_nothing_outside_of_the_folder_is_read_written_or_listed(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    (folder / "sub" / "a" / "b").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    text = Policy.load("fcfs").to_yaml()
    good = ("one.yaml", "sub/two.yml", "sub/a/three.yaml")
    for name in (*good, ".hidden/x.yaml", ".x.yaml", "sub/a/b/deep.yaml", "x.txt", "../outside.yaml"):
        (folder / name).write_text(text)
    (folder / "secrets.yaml").write_text("queue: {strategy: fcfs}\npassword: abc")
    (folder / "broken.yaml").write_text("queue: [")
    (folder / "linked.yaml").symlink_to(tmp_path / "outside.yaml")
    (folder / "away").symlink_to(tmp_path)
    assert [path for path, _ in policy_files(folder)] == list(good)
    monkeypatch.chdir(folder)
    panel = PolicyPanel(policy="fcfs")
    wrong = ("/etc/x.yaml", "../outside.yaml", "x.txt", "linked.yaml", "away/outside.yaml", "a\nb.yaml")
    for path in wrong:
        for deed, asked in (("save", {"path": path, "replace": True}), ("choose", {"file": path})):
            with pytest.raises(InputError, match="below this folder"):
                do(panel, deed, **asked)
    with pytest.raises(InputError, match="no policy is named"):
        do(panel, "choose", name="../outside.yaml")
    with pytest.raises(InputError):
        do(panel, "save", path="no/such/x.yaml")


def test_the_python_it_gives_does_what_the_panel_does(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.name == "easy-backfill")
    for changes in ({"queue.depth": 5}, {"malleability.strategy": "egs", "queue.strategy": "sjf"}):
        panel.edit(**changes)
        exec(panel.python, {"manager": busy})
        assert Policy.parse(busy.set()["policy"]).to_dict() == panel.policy.to_dict()
        busy.undo()
        asyncio.run(panel.do_reset({}))
    panel.choose("power-corridor")
    panel.edit(**{"power.upper": "2 kW"})
    exec(panel.python, {"manager": busy})
    assert Policy.parse(busy.set()["policy"]).to_dict() == panel.policy.to_dict()
    panel.close()


def test_refused_applied_undone(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.version is not None and busy.watch.course.head)
    assert panel.undo_steps == 0
    assert hear(panel, do="undo")["problem"] == "undo: there is nothing to undo"
    assert "allowed: 0 to" in hear(panel, do="edit", path="queue.depth", value=-3)["problem"]
    assert panel.refused["queue.depth"]["value"] == -3
    assert "queue.depht" in hear(panel, do="edit", path="queue.depht", value=3)["problem"]
    assert hear(panel, do="edit", path="queue.depth", value=7)["problem"] == ""
    assert "queue.depth" not in panel.refused
    assert "depth: 7" not in busy.set()["policy"]
    assert hear(panel, do="apply")["done"] == "easy-backfill is in force"
    assert "depth: 7" in busy.set()["policy"] and panel.policy.queue.depth == 7
    assert panel.difference == [] and panel.undo_steps == 1
    hear(panel, do="edit", path="queue.depth", value=8)
    hear(panel, do="undo")
    assert "depth: 7" not in busy.set()["policy"]
    assert panel.difference == [["queue.depth", "1000000", "8"]] and panel.meanwhile == []
    hear(panel, do="choose", name="fcfs")
    assert panel.name == "fcfs" and panel.difference
    hear(panel, do="reset")
    assert panel.name == "easy-backfill" and not panel.difference
    panel.close()


def test_what_others_change_is_never_taken_back_unasked(busy, monkeypatch):
    monkeypatch.setattr(view_module, "_UNHEARD", 0.0)  # nobody looks, as for 30 s
    busy.set("power-corridor", **{"power.upper": "1 kW"})
    panel = PolicyPanel(busy)
    until(lambda: panel.policy.power is not None)
    busy.set(**{"power.upper": "2 kW"})
    until(lambda: "upper: 2 kW" in panel.yaml and panel.meanwhile == [])  # nothing is edited: it follows
    hear(panel, do="edit", path="power.margin", value="10 W")
    hear(panel, do="edit", path="power.dwell", value="9 s")
    busy.set(**{"power.upper": "3 kW", "power.dwell": "8 s"})
    until(lambda: panel.meanwhile)
    rows = [["power.upper", "2 kW", "3 kW", None], ["power.dwell", "30 s", "8 s", "9 s"]]
    assert panel.meanwhile == rows and not panel.asks
    assert panel.difference == [["power.margin", "0 W", "10 W"], ["power.dwell", "8 s", "9 s"]]

    assert "has changed" in hear(panel, do="apply")["problem"] and panel.asks
    seen = panel.version
    panel._end()  # what it does not hear of is not taken back either
    busy.set(**{"settings.fair-shares": True})
    assert "has changed" in hear(panel, do="apply", version=seen)["problem"]
    assert panel.meanwhile == [*rows, ["settings.fair-shares", "false", "true", None]]

    assert hear(panel, do="apply", version=panel.version)["problem"] == ""
    in_force = busy.set()
    power = Policy.parse(in_force["policy"]).power
    assert (power.upper, power.margin, power.dwell) == (3000, 10, 9) and in_force["settings"]["fair-shares"]
    assert panel.difference == panel.meanwhile == [] and not panel.asks
    panel.close()


def test_what_was_on_its_way_while_something_was_applied_is_old(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.version is not None)
    before, head = busy.set(), dict(busy.watch.course.head)
    hear(panel, do="edit", path="queue.depth", value=7)
    hear(panel, do="apply")
    panel.take({"head": head, "in_force": before})
    assert panel.policy.queue.depth == 7 and panel.version == before["version"] + 1
    assert panel.undo_steps == 1
    panel.take({"problem": "the scheduler does not answer"})
    panel.take({"head": head, "in_force": before})
    assert panel.policy.queue.depth == 7
    # of a cluster that is managed anew, which counts anew
    panel.take({"head": head | {"began": head["began"] + 1}, "in_force": before})
    assert panel.policy.queue.depth == 1_000_000 and panel.version == before["version"]
    panel.close()


def test_theirs_can_be_taken(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.version is not None)
    hear(panel, do="edit", path="queue.depth", value=7)
    hear(panel, do="edit", path="size.idle_grace", value="9 s")
    busy.set(**{"queue.depth": 8})
    until(lambda: panel.meanwhile)
    hear(panel, do="theirs")
    assert panel.difference == [["size.idle_grace", "15 s", "9 s"]] and panel.meanwhile == []
    hear(panel, do="apply")
    found = Policy.parse(busy.set()["policy"])
    assert (found.queue.depth, found.size.idle_grace) == (8, 9)
    hear(panel, do="choose", name="elastic")
    busy.set(**{"queue.depth": 9})
    until(lambda: panel.meanwhile)
    assert "has changed" in hear(panel, do="apply")["problem"]
    hear(panel, do="theirs")
    assert panel.policy.queue.depth == 9 and panel.name == "easy-backfill" and not panel.asks
    panel.close()


def test_a_change_that_was_undone_again_is_not_asked_about(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.version is not None)
    hear(panel, do="edit", path="queue.depth", value=7)
    panel._end()
    busy.set("fcfs")
    busy.undo()
    assert hear(panel, do="apply")["problem"] == ""
    assert "depth: 7" in busy.set()["policy"]
    panel.close()


def test_an_edit_survives_what_others_change(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.version is not None)
    hear(panel, do="edit", path="queue.depth", value=7)
    hear(panel, do="edit", path="size.idle_grace", value="9 s")
    busy.set("fcfs")
    until(lambda: panel.meanwhile)
    assert panel.meanwhile[:2] == [
        ["policy", "easy-backfill", "fcfs", None],
        ["queue.strategy", "easy-backfill", "fcfs", None],
    ]
    assert panel.policy.queue.depth == 7
    assert panel.difference == [["queue.depth", "none", "7"], ["size.idle_grace", "15 s", "9 s"]]
    assert "queue.depth" in hear(panel, do="apply", version=panel.version)["problem"]
    assert Policy.parse(busy.set()["policy"], "fcfs").to_dict() == Policy.load("fcfs").to_dict()
    hear(panel, do="theirs")
    assert panel.difference == [["size.idle_grace", "15 s", "9 s"]]
    panel.close()


def test_an_edit_that_is_taken_back_is_none(busy):
    panel = PolicyPanel(busy)
    until(lambda: panel.version is not None)
    for value in (7, 1_000_000):
        hear(panel, do="edit", path="queue.depth", value=value)
    busy.set(**{"queue.depth": 9})
    until(lambda: panel.policy.queue.depth == 9)
    assert panel.meanwhile == panel.difference == []
    panel.close()


def test_saving(busy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel = PolicyPanel(busy)
    assert hear(panel, do="save", path="mine.yaml")["problem"] == ""
    assert Policy.load(tmp_path / "mine.yaml").to_dict() == panel.policy.to_dict()
    assert "exists" in hear(panel, do="save", path="mine.yaml")["problem"]
    assert hear(panel, do="save", path="mine.yaml", replace=True)["problem"] == ""
    panel.close()
