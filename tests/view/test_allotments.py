"""Spans of a node never overlap, and what is held is what the last rows said."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.view.course import Allotments

JOBS = st.sampled_from("abc")
SOME_NODES = st.lists(st.sampled_from("1234"), unique=True, max_size=4)
ROWS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["start", "grow", "shrink"]), JOBS, SOME_NODES),
        st.tuples(st.sampled_from(["end", "requeue", "withdraw"]), JOBS, st.just([])),
        st.tuples(st.sampled_from(["node-left", "node-joined"]), st.just(""), SOME_NODES),
        st.tuples(st.sampled_from(["off", "submit", "policy", "unheard-of"]), JOBS, SOME_NODES),
    )
)


@given(ROWS)
def test_spans(rows):
    allotments, holder, there = Allotments(), {}, {}
    for time, (decision, job, nodes) in enumerate(rows):
        allotments.add(float(time), decision, job, nodes, decision)
        if decision in ("start", "grow", "shrink"):
            holder = {n: j for n, j in holder.items() if j != job} | dict.fromkeys(nodes, job)
        elif decision in ("end", "requeue", "withdraw"):
            holder = {n: j for n, j in holder.items() if j != job}
        elif decision == "node-left":
            holder = {n: j for n, j in holder.items() if n not in nodes}
            there = {n: t for n, t in there.items() if n not in nodes}
        elif decision == "node-joined":
            there |= dict.fromkeys(nodes, float(time))
        elif decision == "off":
            holder = {}
        assert {node: span.job for node, span in allotments.held.items()} == holder
    assert allotments.joined == there
    for node in "1234":
        spans = [span for span in allotments.spans() if span.node == node]
        for one, following in pairwise(spans):
            assert one.start <= one.end <= following.start
        assert all(span.end is None for span in spans[-1:]) == (node in holder or not spans)


def test_the_oldest_spans_are_forgotten():
    allotments = Allotments(length=3)
    for number in range(10):
        allotments.add(number, "start", str(number), ["n"], "")
    assert [span.job for span in allotments.spans()] == ["6", "7", "8", "9"]
