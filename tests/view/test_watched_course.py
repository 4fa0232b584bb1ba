"""What a reader of the feed remembers is what the story said, however it came in pieces."""

from hypothesis import given
from hypothesis import strategies as st
from test_allotments import ROWS

from dask_hpc.view import course as course_module
from dask_hpc.view.course import Allotments, Course

HEAD = {"policy": "fcfs", "version": 0, "undo": 0, "state": "on", "errors": 0, "lost": 0}


def answers(rows, sizes):
    """As the feed would give them, so many rows at a time."""
    told = [(float(time), decision, job, nodes, decision) for time, (decision, job, nodes) in enumerate(rows)]
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
    course, allotments, holders = Course(), Allotments(), {}
    for time, (decision, job, nodes) in enumerate(rows):
        allotments.add(float(time), decision, job, nodes, decision)
    for answer in answers(rows, sizes):
        new = course.add(answer)
        holders, _ = replayed(new, holders)
    names = list(course.numbers)
    assert {names[n]: job for n, (_, job) in holders.items()} == dict(course.holders)
    assert dict(course.holders) == {node: span.job for node, span in allotments.held.items()}
    assert set(course.there) == set(allotments.joined)
    again, spans = replayed(course.whole())
    assert again == holders
    expected = sorted((course.numbers[s.node], s.job, s.start, s.end) for s in allotments.over)
    assert sorted(spans) == expected
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
