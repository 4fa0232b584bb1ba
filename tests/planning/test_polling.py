"""When a batch system is asked: on a clock of numbers."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.polling import JobWatch, Manners, due_because, next_question, submissions_left

PLAIN = Manners()  # 120 s and 10 s
QUEUED = JobWatch(0.0, answered=1.0, state="queued")
RUNS = JobWatch(0.0, answered=51.0, state="running", started=40.0, connected=50.0, ends=1000.0)


@pytest.mark.parametrize(
    ("job", "now", "why"),
    [
        (JobWatch(0.0), 9.0, ""),  # it may connect first
        (JobWatch(0.0), 10.0, "it was submitted"),
        (QUEUED, 500.0, ""),  # waiting is no news
        (replace(QUEUED, starts=300.0), 289.0, ""),
        (replace(QUEUED, starts=300.0), 290.0, "it was to start"),
        (replace(QUEUED, starts=300.0), 420.0, "it was to start"),
        (replace(QUEUED, starts=300.0), 421.0, ""),
        (replace(QUEUED, state="running", started=5.0), 125.0, "it has started"),
        (replace(QUEUED, state="running", started=5.0), 126.0, ""),
        (replace(QUEUED, state="running"), 5.0, ""),
        (replace(QUEUED, state="gone"), 5.0, ""),
        (replace(QUEUED, state="unknown", unclear=1.0), 121.0, "it ends, or goes back"),
        (replace(QUEUED, state="unknown", unclear=1.0), 122.0, ""),
        (RUNS, 500.0, ""),
        (replace(RUNS, answered=49.0), 59.0, ""),
        (replace(RUNS, answered=49.0), 60.0, "nobody has said until when"),
        (RUNS, 969.0, ""),
        (RUNS, 970.0, "its walltime ends"),
        (RUNS, 1001.0, ""),
        (replace(RUNS, connected=None, vanished=200.0), 200.0, "its workers have gone"),
        (replace(RUNS, connected=None, vanished=200.0, answered=210.0), 215.0, "its workers have gone"),
        (replace(RUNS, connected=None, vanished=200.0, answered=210.0), 321.0, ""),
        (replace(RUNS, connected=None, vanished=200.0, answered=210.0, state="gone"), 215.0, ""),
        (replace(RUNS, connected=None, vanished=200.0, answered=210.0, state="queued"), 215.0, ""),
        (replace(RUNS, connected=None, vanished=200.0, answered=199.0, state="gone"), 215.0, "have gone"),
    ],
)
def test_what_is_due(job, now, why):
    found = due_because(job, now, PLAIN)
    assert why in found and bool(found) == bool(why)


def test_who_has_just_come_is_asked_about_soon_then_rarely():
    assert next_question([JobWatch(100.0)], -inf, 0, 105.0, PLAIN, 0.0) == 220.0
    assert next_question([JobWatch(100.0)], -inf, 0, 110.0, PLAIN, 0.0) == -inf
    assert next_question([QUEUED], 1.0, 0, 110.0, PLAIN, 0.0) == 121.0
    assert next_question([], 1.0, 0, 110.0, PLAIN, 0.0) == inf
    assert next_question([], 1.0, 0, 110.0, PLAIN, 1.0, is_wanted=True) == 13.5
    assert next_question([JobWatch(100.0)], 1.0, 2, 105.0, PLAIN, 0.0, is_wanted=True) == 41.0
    assert next_question([replace(QUEUED, state="gone")], 1.0, 0, 110.0, PLAIN, 0.0) == inf


def test_who_gets_no_answer_asks_more_and_more_rarely():
    due = replace(QUEUED, starts=300.0)
    waits = [next_question([due], 300.0, failed, 300.0, PLAIN, 0.0) - 300 for failed in range(7)]
    assert waits == [10, 20, 40, 80, 120, 120, 120]


def test_chance_lengthens_and_never_shortens():
    assert next_question([QUEUED], 0.0, 0, 50.0, PLAIN, 1.0) == 150.0
    assert next_question([replace(QUEUED, starts=50.0)], 0.0, 0, 50.0, PLAIN, 1.0) == 12.5


def test_submissions_of_the_last_minute_count():
    past = [0.0] * 20 + [50.0] * 5
    assert [submissions_left(past, now, PLAIN) for now in (50.0, 59.0, 61.0, 120.0)] == [5, 5, 25, 30]
    assert submissions_left(past, 50.0, Manners(per_minute=3)) == 0


times = st.floats(0, 2000)
maybe = st.none() | times
watches = st.builds(
    JobWatch,
    submitted=times,
    answered=times | st.just(-inf),
    state=st.sampled_from(["queued", "held", "running", "gone", "unknown"]),
    started=maybe,
    starts=maybe,
    ends=times | st.just(inf),
    connected=maybe,
    vanished=maybe,
    unclear=maybe,
)


@given(st.lists(watches, max_size=5), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(0, 9))
def test_never_more_often_than_is_polite(jobs, chances, unanswered):
    """Whatever jobs there are, and if every answer leaves them as they were."""
    asked, questions, now = -inf, [], 0.0
    while now < 2500.0:
        chance = chances[len(questions) % len(chances)]
        if now >= next_question(jobs, asked, unanswered, now, PLAIN, chance):
            asked = now
            questions.append((now, any(due_because(job, now, PLAIN) for job in jobs)))
        now += 1.0
    for (before, _), (after, is_due) in pairwise(questions):
        assert after - before >= (10 if is_due else 120)
