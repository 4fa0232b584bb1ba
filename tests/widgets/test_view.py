"""Views follow the cluster, carry out what they are asked for, and leave nothing behind."""

import json
from importlib.util import find_spec
from time import monotonic

import dask_hpc_widgets as widgets
import pytest
from dask_hpc_widgets import view as view_module
from distributed.utils_test import slowinc
from fsspec.asyn import get_loop
from heard import hear, until

import dask_hpc
from dask_hpc.model.units import show_duration

get_loop()  # its thread lasts, and is no leak of a test

VIEWS = [
    "AllotmentMap", "CheckpointView", "CorridorChart", "JobsTable", "NeighboursView",
    "ScratchFilesView", "StoryView",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_given_what_was_and_told_what_is_new(busy, name):
    view = getattr(widgets, name)(busy)
    view._hear(None, {"do": "looks"}, [])
    sent = []
    view.send = lambda content, buffers=None: sent.append(content)
    until(lambda: len(sent) > 2)
    assert view.get_state("course")["course"] == {}  # each front end asks for it: see below
    counts = [one["news"]["head"]["count"] for one in sent if "news" in one]
    assert counts == list(range(counts[0], counts[0] + len(counts)))
    view._hear(None, {"do": "whole"}, [])
    whole = until(lambda: next((one["whole"] for one in sent if "whole" in one), None))
    assert whole["head"]["count"] >= counts[0] and whole["head"]["policy"] == "easy-backfill"
    assert set(whole) <= {"head", "order", "jobs", *view.draws}
    view.close()
    until(lambda: not busy.watch.is_awake)


def test_who_is_not_heard_yet_is_told_everything_all_the_same(busy, monkeypatch):
    first, watch, sent = widgets.JobsTable(busy), busy.watch, []
    until(lambda: watch.course.head.get("count", 0) > 26)
    monkeypatch.setattr(view_module, "_UNREAD", 25)  # what came before a view, it need not have read
    monkeypatch.setattr(
        widgets.AllotmentMap, "send", lambda view, content, buffers=None: sent.append(content)
    )
    began, view = monotonic(), widgets.AllotmentMap(busy)
    whole = until(lambda: next((one["whole"] for one in sent if "whole" in one), None))
    assert whole["nodes"]["names"]
    assert monotonic() - began >= 1  # nearly always it asks before
    view._hear(None, {"do": "looks", "count": 10**9}, [])
    sent.clear()
    until(lambda: len(sent) > 12)  # more than a second
    assert not any("whole" in one for one in sent)
    first.close()
    view.close()


def test_after_a_problem_everything_is_told_anew(busy):
    view, watch = widgets.AllotmentMap(busy), busy.watch
    until(lambda: watch.course.holders)
    view._hear(None, {"do": "looks"}, [])
    sent = []
    view.send = lambda content, buffers=None: sent.append(content)
    busy.client.loop.add_callback(watch._say, "no answer")
    # nobody asked for it; as news it would be drawn a second time
    whole = until(lambda: next((one["whole"] for one in sent if "whole" in one), None))
    assert whole["changes"] and view.contact == ""
    view.close()


def test_views_are_readable_without_a_front_end(busy):
    said = {"JobsTable": "waits: waiting, 3 of 3", "AllotmentMap": "runs holds 1", "StoryView": "start"}
    said |= {"CorridorChart": "power is not watched", "CheckpointView": "nothing is protected"}
    said |= {
        "ScratchFilesView": "no file system in memory",
        "NeighboursView": "kinds of tasks are not watched",
    }
    for name, words in said.items():
        view = getattr(widgets, name)(busy)
        until(lambda view=view, words=words: words.split()[0] in repr(view))
        assert words.partition(", ")[0] in repr(view)
        view.close()


def test_what_is_told_of_checkpoints_is_json(busy):
    client = busy.client
    kept = client.scatter(b"x" * 1000)
    dask_hpc.protect([kept], name="kept", client=client)
    view = widgets.CheckpointView(busy)
    until(lambda: (view.seen().get("checkpoint") or {}).get("protected"))
    json.dumps(view.seen(), allow_nan=False)
    until(lambda: "kept: " in repr(view))
    view.close()
    dask_hpc.unprotect("kept", client=client)


def test_what_is_told_of_scratch_files_is_json(busy):
    with dask_hpc.MemoryFiles("scratch", nodes=2, client=busy.client) as files:
        files.fs.pipe(files.url("a"), b"x" * 1000)
        view = widgets.ScratchFilesView(busy)
        until(lambda: view.seen().get("files"))
        json.dumps(view.seen(), allow_nan=False)
        until(lambda: repr(view) == "scratch: ready, 1 file of 1 kB on 2 nodes")
    until(lambda: not view.seen().get("files"))
    view.close()


def test_what_is_told_of_kinds_is_json(busy):
    busy.set(**{"together.strategy": "good-neighbours", "memory.strategy": "memory-lanes"})
    view = widgets.NeighboursView(busy)
    until(lambda: repr(view) == "no task has ended yet")
    client = busy.client
    client.gather(client.map(slowinc, range(8), delay=0.05, key=[f"step-{i}" for i in range(8)]))
    until(lambda: _step_of(view))
    json.dumps(view.seen(), allow_nan=False)
    alone = show_duration(_step_of(view)["seconds"])
    until(lambda: f"step: {alone} alone" in repr(view))
    busy.set("easy-backfill")
    until(lambda: repr(view) == "kinds of tasks are not watched")
    view.close()


def _step_of(view):
    known = (view.seen().get("together") or {"neighbours": {"kinds": ()}})["neighbours"]["kinds"]
    return next((one for one in known if one["kind"] == "step"), None)


def test_kinds_in_words():
    need = {"kind": "load", "peak": 3e8, "remembered": True, "at_once": 2}
    together = {
        "kept": [{"kind": "load", "waiting": 5, "in_flight": 1}],
        "memory": {"kinds": [need, {**need, "kind": "odd", "at_once": None}]},
        "neighbours": {
            "kinds": [{"kind": "load", "seconds": 2.0}],
            "slowdowns": {"load": {"sum": {"ratio": 1.256, "stderr": None, "tasks": 3}}},
            "limits": [
                {"job": "", "kind": "load", "beside": 1, "alone": None, "reason": "saves 10% of the time"},
                {"job": "7", "kind": "sum", "beside": 0, "alone": 2, "reason": "tries it"},
            ],
        },
    }
    assert list(widgets.NeighboursView.lines(None, {"together": together})) == [
        "load: 2 s alone, 1.26 times as long beside sum, needs 300 MB, at most 2 at once on a worker, "
        "1 run, 5 wait",
        "odd: needs 300 MB",
        "load: 1 at once beside others, any number alone; saves 10% of the time",
        "sum: job 7: 0 at once beside others, 2 alone; tries it",
    ]
    for missing, words in ("memory", "2 s alone"), ("neighbours", "needs 300 MB"):
        first, *_ = widgets.NeighboursView.lines(None, {"together": {**together, missing: None}})
        assert first.startswith(f"load: {words}")


@pytest.mark.parametrize("how", ["nobody is heard", "nothing is read"])
def test_who_falls_behind_is_told_no_more_until_he_comes_back(busy, how, monkeypatch):
    view = widgets.AllotmentMap(busy)
    until(lambda: busy.watch.course.holders)
    view._hear(None, {"do": "whole"}, [])
    sent = []
    view.send = lambda content, buffers=None: sent.append(content)
    until(lambda: sent)
    if how == "nobody is heard":
        monkeypatch.setattr(view_module, "_UNHEARD", 0.0)
    else:
        monkeypatch.setattr(view_module, "_UNREAD", 2)
    until(lambda: view._is_behind)
    told = len(sent)
    count = busy.watch.course.head["count"]
    until(lambda: busy.watch.course.head["count"] > count + 3)
    assert len(sent) == told
    monkeypatch.undo()
    view._hear(None, {"do": "looks", "count": count}, [])
    # the watch and who hears the page are two threads, and each sends its own
    said = until(lambda: _said(sent[told:]) if len(_said(sent[told:])) > 2 else None)
    assert said["heard"] and "changes" in said["whole"] and "news" in said
    view.close()


def _said(sent):
    """The first of each kind; what is said of age goes with that it hears."""
    said = {}
    for message in sent:
        said = {kind: what for kind, what in message.items() if kind != "age"} | said
    return said


def test_bad_messages_do_no_harm(busy):
    view = widgets.JobsTable(busy)
    for message in (None, [], {}, {"do": 3}, {"do": "__class__"}, {"do": "nothing"}, {"do": "looks"}):
        view._hear(None, message, [])
    assert "job" in hear(view, do="cancel", job="no-such")["problem"]
    (runs, *_) = [job["id"] for job in busy.status()["jobs"] if job["name"] == "runs"]
    assert "nodes" in hear(view, do="resize", job=runs, nodes="many")["problem"]
    view.close()


def test_jobs_are_held_resized_and_cancelled(busy):
    table = widgets.JobsTable(busy)
    ids = {job["name"]: job["id"] for job in busy.status()["jobs"]}
    assert hear(table, do="hold", job=ids["waits"])["done"] == "waits is held"
    jobs = {job["name"]: job for job in busy.status()["jobs"]}
    assert jobs["waits"]["waiting_because"].startswith("held: ")
    assert "may start" in hear(table, do="release", job=ids["waits"])["done"]
    assert "asks for 2 nodes" in hear(table, do="resize", job=ids["runs"], nodes=1)["done"]
    until(lambda: len({j["name"]: j for j in busy.status()["jobs"]}["runs"]["nodes"]) == 2)
    assert "1 results" in hear(table, do="protect", job=ids["runs"])["done"]
    assert "cancelled" in hear(table, do="cancel", job=ids["waits"])["done"]
    until(lambda: len(busy.watch.course.holders) == 2)
    hear(table, do="cancel", job=ids["runs"])
    until(lambda: not busy.watch.course.holders)  # the map shows its nodes as nobody's
    until(lambda: busy.watch.course.jobs[ids["runs"]]["cancelled"])
    table.close()


def test_the_control_room_closes_without_a_trace(busy):
    room = widgets.ControlRoom(busy)
    until(lambda: busy.watch.course.head)
    assert "policy easy-backfill" in repr(room) and "runs: running, 1 of 1 nodes" in repr(room)
    found = room._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in found and "waits: waiting" in found["text/html"]
    room.close()
    until(lambda: not busy.watch.is_awake)
    assert busy.status()["state"] == "on"  # the cluster goes on as it was
    assert room.comm is None


@pytest.mark.skipif(find_spec("bokeh") is None, reason="needs bokeh")
def test_the_headline_says_where_else_things_can_be_done(busy):
    room = widgets.ControlRoom(busy)
    sent = []
    room.send = lambda content, buffers=None: sent.append(content)
    page = busy.control_page()
    until(lambda: {"page": page} in sent)  # before a front end is heard: a cell may compute by then
    room._hear(None, {"do": "looks"}, [])
    assert any(one.get("heard") and one.get("page") == page for one in sent)
    assert page not in json.dumps(room.get_state(), default=str)  # which is saved with a notebook
    room.close()


def test_pause_resume_undo(busy):
    room = widgets.ControlRoom(busy)
    hear(room, do="pause")
    assert busy.status()["state"] == "paused"
    hear(room, do="resume")
    assert busy.status()["state"] == "on"
    busy.set("fcfs")
    assert "easy-backfill" in hear(room, do="undo")["done"]
    assert "nothing to undo" in hear(room, do="undo")["problem"]
    room.close()


def test_who_only_looks_changes_nothing(busy):
    room = widgets.ControlRoom(busy, read_only=True)
    assert room.readonly and room.panel.readonly and room.what_if.readonly
    sent = []
    room.send = lambda content, buffers=None: sent.append(content)
    (runs, *_) = [job["id"] for job in busy.status()["jobs"] if job["name"] == "runs"]
    for asked in (
        {"do": "pause"},
        {"do": "cancel", "job": runs},
        {"do": "undo"},
        {"do": "protect", "job": runs},
    ):
        room._hear(None, asked, [])
    room._hear(None, {"do": "why", "number": 0}, [])  # carried out after those, if they were
    until(lambda: any("why" in one for one in sent))
    assert busy.status()["state"] == "on" and len(busy.watch.course.holders) == 1
    room.close()


def test_what_a_front_end_asks_is_answered_with_the_age_of_the_news(busy, monkeypatch):
    view = widgets.JobsTable(busy)
    until(lambda: busy.watch.course.head)
    sent = []
    view.send = lambda content, buffers=None: sent.append(content)
    view._news_at -= 7
    view._hear(None, {"do": "looks"}, [])
    assert any(7 <= one["age"] < 8 for one in sent if one.get("heard"))
    until(lambda: view.answer_to_looks()["age"] < 1)
    busy.client.loop.add_callback(busy.watch._say, "no answer")
    until(lambda: view.contact == "no answer. It is tried again")
    until(lambda: view.contact == "")  # of itself
    view.close()


def test_the_report_is_a_page_of_what_is_shown(busy, tmp_path):
    room = widgets.ControlRoom(busy)
    until(lambda: busy.watch.course.holders)
    page = room.report(tmp_path / "page.html")
    assert page == (tmp_path / "page.html").read_text() and "daskHpc.show(" in page and '"runs"' in page
    room.close()


def test_a_bound_is_moved_and_undone(busy):
    chart = widgets.CorridorChart(busy)
    assert "no power strategy" in hear(chart, do="bound", which="upper", watts=900)["problem"]
    busy.set("power-corridor")
    assert hear(chart, do="bound", which="upper", watts=900)["problem"] == ""
    assert "upper: 900 W" in busy.set()["policy"]
    assert "lower" in hear(chart, do="bound", which="lower", watts=1000)["problem"]
    assert "watts" in hear(chart, do="bound", which="upper", watts="much")["problem"]
    until(lambda: chart.seen().get("corridor") == [[0.0, 0.0, 900.0]])
    hear(chart, do="later", at="5000", lower="", upper="700 W")
    until(lambda: len(chart.seen()["corridor"]) == 2)
    assert chart.seen()["corridor"] == [[0.0, 0.0, 900.0], [5000.0, 0.0, 700.0]]
    hear(chart, do="bound", which="upper", watts=800)
    until(lambda: chart.seen()["corridor"][0][2] == 800.0)
    assert "later than" in hear(chart, do="later", at=0, upper="1 kW")["problem"]
    hear(chart, do="undo")
    until(lambda: chart.seen()["corridor"][0][2] == 900.0)
    chart.close()


def test_changes_for_later_are_said_as_people_do_and_taken_back_one_by_one(busy):
    busy.set("power-corridor", **{"power.upper": "900 W"})
    chart = widgets.CorridorChart(busy)
    now = until(lambda: chart.seen().get("head", {}).get("time"))
    assert "in 10 min" in hear(chart, do="later", at="soon", upper="1 kW")["problem"]
    hear(chart, do="later", at="in 10 min", upper="700 W")
    hear(chart, do="later", at="+1 h", lower="200 W", upper="800 W")
    until(lambda: len(chart.seen()["corridor"]) == 3)
    (_, first, second) = chart.seen()["corridor"]
    assert now + 599 < first[0] < now + 630 and first[1:] == [0.0, 700.0]
    assert now + 3599 < second[0] < now + 3630 and second[1:] == [200.0, 800.0]
    assert hear(chart, do="unschedule", at=first[0])["problem"] == ""
    until(lambda: chart.seen()["corridor"] == [[0.0, 0.0, 900.0], second])
    assert "no change at" in hear(chart, do="unschedule", at=first[0])["problem"]
    assert "allowed: seconds" in hear(chart, do="unschedule", at="soon")["problem"]
    assert hear(chart, do="unschedule", at=second[0])["problem"] == ""
    until(lambda: chart.seen()["corridor"] == [[0.0, 0.0, 900.0]])
    assert "schedule: none" in busy.set()["policy"]
    assert hear(chart, do="bound", which="lower", watts=100)["problem"] == ""
    chart.close()


def test_why_a_row_is_there(busy):
    view = widgets.StoryView(busy)
    sent = []
    view.send = lambda content, buffers=None: sent.append(content)
    rows = busy.story()
    number = next(i for i, row in enumerate(rows) if row["decision"] == "start")
    view._hear(None, {"do": "why", "number": number}, [])
    row = until(lambda: next((one["row"] for one in sent if "why" in one), None))
    assert row["rule"] == "queue: easy-backfill"
    view.close()
