"""Spans of a node never overlap, and what is held is what the last rows said."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.story import Word
from dask_hpc.view.course import moved, spans

JOBS = st.sampled_from("abc")
SOME_NODES = st.lists(st.sampled_from("1234"), unique=True, max_size=4)
ROWS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["start", "grow", "shrink"]), JOBS, SOME_NODES),
        st.tuples(st.just("lend"), st.just("service"), SOME_NODES),
        st.tuples(st.just("returned"), st.just("service"), SOME_NODES),
        st.tuples(st.sampled_from(["end", "fail", "requeue", "withdraw", "cancel"]), JOBS, st.just([])),
        st.tuples(st.sampled_from(["node-left", "node-joined"]), st.just(""), SOME_NODES),
        st.tuples(st.sampled_from(["off", "submit", "policy", "unheard-of"]), JOBS, SOME_NODES),
    )
)


def rows_of(rows):
    return [
        {"time": float(time), "decision": decision, "job": job, "nodes": nodes, "reason": decision}
        for time, (decision, job, nodes) in enumerate(rows)
    ]


@given(ROWS)
def test_spans(rows):
    holder = {}
    for decision, job, nodes in rows:
        if decision in ("start", "grow", "shrink"):
            holder = {n: j for n, j in holder.items() if j != job} | dict.fromkeys(nodes, job)
        elif decision == "lend":  # beside those that it has
            holder |= dict.fromkeys(nodes, job)
        elif decision in ("end", "fail", "requeue", "withdraw", "cancel"):
            holder = {n: j for n, j in holder.items() if j != job}
        elif decision in ("node-left", "returned"):
            holder = {n: j for n, j in holder.items() if n not in nodes}
        elif decision == "off":
            holder = {}
    found = list(spans(rows_of(rows)))
    assert {span.node: span.job for span in found if span.end is None} == holder
    for node in "1234":
        held = [span for span in found if span.node == node]
        for one, following in pairwise(held):
            assert one.start <= one.end <= following.start
        assert all(span.end is None for span in held[-1:]) == (node in holder or not held)


def test_a_running_job_that_is_cancelled_gives_its_nodes_back():
    assert moved({"a": "x", "b": "y"}, "cancel", "x", ()) == {"a": None}


def test_words_say_what_they_do_to_nodes():
    effects = {effect: {str(word) for word in Word if word.effect == effect} for effect in ("has", "leaves")}
    assert effects == {
        "has": {"start", "grow", "shrink"},
        "leaves": {"end", "fail", "requeue", "withdraw", "cancel", "drop"},
    }
    assert Word.read("unheard-of") is None and Word.read("start") is Word.START
