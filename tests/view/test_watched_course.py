"""What a reader of the feed remembers is what the story said, however it came in pieces."""

import sys
from threading import Event, Thread

from hypothesis import given
from hypothesis import strategies as st
from test_allotments import ROWS, rows_of

from dask_hpc.view import course as course_module
from dask_hpc.view.course import Course, spans

HEAD = {"policy": "fcfs", "version": 0, "undo": 0, "state": "on", "errors": 0, "lost": 0, "resizes": 0}


def answers(rows, sizes):
    """As the feed would give them, so many rows at a time."""
    told = [
        (float(time), decision, job, nodes, decision, False)
        for time, (decision, job, nodes) in enumerate(rows)
    ]
    first = 0
    for size in [*sizes, len(told)]:
        part = told[first : first + size]
        yield HEAD | {
            "time": float(first),
            "story": {"first": first, "rows": part},
            "power": {"first": 0, "samples": []},
            "jobs": None,
        }
        first += len(part)


def replayed(found, holders=None):
    """Who has which node, by number, after all changes; and the spans there were."""
    holders, spans = holders or {}, []
    for time, job, numbers, _ in found.get("changes", ()):
        for first, last in numbers:
            for number in range(first, last + 1):
                if number in holders:
                    since, holder = holders.pop(number)
                    spans.append((number, holder, since, time))
                if job is not None:
                    holders[number] = time, job
    return holders, spans


@given(ROWS, st.lists(st.integers(1, 5), max_size=5))
def test_pieces_make_the_whole(rows, sizes):
    course, holders, held = Course(), {}, list(spans(rows_of(rows)))
    for answer in answers(rows, sizes):
        new = course.add(answer)
        holders, _ = replayed(new, holders)
    names = list(course.numbers)
    assert {names[n]: job for n, (_, job) in holders.items()} == dict(course.holders)
    assert dict(course.holders) == {span.node: span.job for span in held if span.end is None}
    there = set()
    for decision, _, nodes in rows:
        there |= set(nodes) if decision == "node-joined" else set()
        there -= set(nodes) if decision == "node-left" else set()
    assert set(course.there) == there
    again, over = replayed(course.whole())
    assert again == holders
    expected = sorted((course.numbers[s.node], s.job, s.start, s.end) for s in held if s.end is not None)
    assert sorted(over) == expected
    assert [row[0] for row in course.story] == list(range(len(rows)))


@given(ROWS)
def test_what_is_forgotten_still_holds(rows):
    before = course_module._CHANGES
    course_module._CHANGES = 3
    try:
        course = Course()
        for answer in answers(rows, [1] * len(rows)):
            course.add(answer)
        holders, _ = replayed(course.whole())
    finally:
        course_module._CHANGES = before
    names = list(course.numbers)
    assert {names[n]: job for n, (_, job) in holders.items()} == dict(course.holders)


def feed(time, *rows, first=0, **more):
    """An answer of the feed at that time, with rows of the story as time, decision, job, nodes, reason."""
    found = {"first": first, "rows": [(*row, False) for row in rows], "is_whole": True}
    power = {"first": 0, "samples": [], "verdict": more.pop("verdict", None)}
    return HEAD | {"time": time, "epoch": 1e9, "story": found, "power": power, "jobs": None} | more


JOB = dict.fromkeys(course_module._SAID) | {
    "id": "a-1", "name": "a", "state": "running", "nodes": ["n1"], "asks": 1, "started": 0.0,
    "walltime": 1000.0, "expected_end": 1000.0, "node_seconds": 0.0, "energy": None,
}  # fmt: skip


def present(rows):
    """Who is there after such rows, by number."""
    there = set()
    for _, what, runs in rows:
        numbers = {n for first, last in runs for n in range(first, last + 1)}
        assert there.isdisjoint(numbers) if what == "joined" else there >= numbers
        there = there | numbers if what == "joined" else there - numbers
    return there


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40),
    st.integers(1, 8),
    st.lists(st.integers(1, 5), max_size=8),
)
def test_nodes_come_and_go_in_news_and_in_whole(moves, kept, sizes):
    rows, there = [], set()
    for time, (node, is_fast) in enumerate(moves):
        rows.append((time / (10 if is_fast else 1), f"node-{'left' if node in there else 'joined'}", "",
                     [f"n{node}"], ""))  # fmt: skip
        there ^= {node}
    before, course_module._PRESENCE = course_module._PRESENCE, kept
    try:
        course, news, first = Course(), [], 0
        for size in [*sizes, len(rows)]:
            news += course.add(feed(1e3, *rows[first : first + size], first=first)).get("presence", [])
            first += len(rows[first : first + size])
        whole = course.whole()["presence"]
    finally:
        course_module._PRESENCE = before
    names = list(course.numbers)
    assert {names[number] for number in present(whole)} == {f"n{node}" for node in there}
    assert present(news) == present(whole) and course.head["nodes"] == len(there)
    assert len(whole) <= kept + len(moves)


def test_a_thousand_nodes_that_join_are_one_row():
    rows = [(n / 1e6, "node-joined", "", [f"n{n}"], "") for n in range(1000)]
    course = Course()
    assert course.add(feed(1.0, *rows))["presence"] == [[0.0, "joined", [[0, 999]]]]
    assert course.whole()["presence"] == [[0.0, "joined", [[0, 999]]]]


def test_who_comes_late_asks_who_is_there():
    course = Course()
    course.add(feed(5.0, (4.0, "node-joined", "", ["n9"], ""), size=3))
    assert course.head["nodes"] == 3 and course.wants(False, ())["parts"] == ["nodes"]
    new = course.add(feed(6.0, size=3, nodes=["n1", "n2", "n9"], first=1))
    assert new["presence"] == [[6.0, "joined", [[1, 2]]]] and course.wants(False, ())["parts"] == []
    course.add(feed(7.0, size=2, nodes=["n1", "n9"], first=1))
    assert course.whole()["presence"][-1] == [7.0, "left", [[2, 2]]]


def test_marks_are_told_when_they_change():
    course, joined = Course(), (0.0, "node-joined", "", ["n1", "n2", "n3"], "")
    row = [["n1", "n2", "n7"], "hold", "asked for"]
    assert course.wants(True, ())["parts"] == ["marked"]
    assert course.add(feed(1.0, joined, marked=[row]))["marked"] == [[[[0, 1]], "hold", "asked for"]]
    assert "marked" not in course.add(feed(2.0, marked=[row], first=1))
    assert course.whole()["marked"] == [[[[0, 1]], "hold", "asked for"]]
    assert course.add(feed(3.0, marked=[], first=1))["marked"] == [] == course.whole()["marked"]


def test_what_only_grows_is_news_when_it_is_more():
    course = Course()
    job = JOB | {"walltime": None, "node_seconds": 100.0, "energy": 500.0}
    assert course.add(feed(1.0, jobs=[job]))["jobs"]
    assert "jobs" not in course.add(feed(2.0, jobs=[job | {"node_seconds": 100.9, "energy": 504.0}]))
    (row,) = course.add(feed(3.0, jobs=[job | {"node_seconds": 101.1, "energy": 504.9}]))["jobs"]
    assert (row["node_seconds"], row["energy"]) == (101.1, 500.0)
    (row,) = course.add(feed(4.0, jobs=[job | {"state": "done", "node_seconds": 101.2, "energy": 505.0}]))[
        "jobs"
    ]
    assert (row["node_seconds"], row["energy"]) == (101.2, 505.0)


def alerts(new):
    return [(kind, job) for _, _, kind, _, job in new.get("alerts", ())]


def test_a_walltime_that_nears_is_said_once():
    course = Course()
    assert alerts(course.add(feed(890.0, jobs=[JOB]))) == []
    new = course.add(feed(901.0, jobs=[JOB]))
    assert alerts(new) == [("walltime", "a-1")] and "99 s are left of its walltime" in new["alerts"][0][3]
    assert alerts(course.add(feed(950.0, jobs=[JOB]))) == []
    for changes in ({"state": "waiting"}, {"walltime": None}, {"started": None}, {"expected_end": 5000.0}):
        assert alerts(course.add(feed(960.0, jobs=[JOB | {"id": str(changes)} | changes]))) == []
    day = JOB | {"id": "day", "walltime": 86_400.0, "expected_end": 86_400.0}
    assert alerts(course.add(feed(85_000.0, jobs=[day]))) == []
    assert alerts(course.add(feed(85_900.0, jobs=[day]))) == [("walltime", "day")]


def test_a_corridor_that_cannot_be_kept_is_said_once_per_spell():
    course, no = Course(), {"time": 3.0, "is_kept": False, "reason": "needs 2 kW more"}
    assert alerts(course.add(feed(1.0))) == []
    new = course.add(feed(4.0, verdict=no))
    assert new["alerts"] == [[0, 3.0, "corridor", "the corridor cannot be kept: needs 2 kW more", None]]
    assert alerts(course.add(feed(5.0, verdict=no | {"reason": "needs 1 kW more"}))) == []
    assert alerts(course.add(feed(6.0, verdict=no | {"is_kept": True}))) == []
    assert alerts(course.add(feed(7.0, verdict=no | {"time": 6.5}))) == [("corridor", None)]


def test_lost_results_and_failed_jobs_and_no_more_than_a_hundred():
    course = Course()
    rows = [(1.0, "lost", "", [], "3 results"), (2.0, "fail", "a-1", [], "1 task of it failed: E: e")]
    assert alerts(course.add(feed(3.0, *rows))) == [("lost", None), ("job-failed", "a-1")]
    course.add(feed(4.0, *[(3.0, "lost", "", [], "one")] * 150, first=2))
    assert [row[0] for row in course.whole()["alerts"]] == list(range(52, 152))


def test_one_thread_adds_while_another_asks_for_the_whole():
    """A notebook shows a view as text in a thread, while the watch hears of nodes in another."""
    course, done, wrong = Course(), Event(), []

    def look():
        try:
            while not done.is_set():
                whole = course.whole()
                assert present(whole["presence"]) == set(range(len(whole["nodes"]["names"])))
                assert len(whole["order"]) == len(whole["story"]) // 2
        except BaseException as error:
            wrong.append(error)

    reader, every = Thread(target=look), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader.start()
    try:
        for n in range(600):
            joins = (float(n), "node-joined", "", [f"n{n}"], "")
            starts = (float(n), "start", f"job{n}", [f"n{n}"], "")
            course.add(feed(float(n), joins, starts, first=2 * n))
            if wrong:
                break
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(every)
    assert not wrong
