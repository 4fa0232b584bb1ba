"""What a reader of the feed remembers is what the story said, however it came in pieces."""

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
