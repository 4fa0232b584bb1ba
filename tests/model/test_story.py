"""The story forgets the oldest plans first, and an empty plan is false."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.plan import Plan, Start
from dask_hpc.model.story import Explanation, Happening, Story, Word


def test_bounded():
    story = Story(length=3)
    for number in range(5):
        story.add(Plan(number, float(number)))
    assert [plan.id for plan in story] == [2, 3, 4]
    assert len(story) == 3


def test_a_plan_with_nothing_to_do_is_false():
    assert not Plan(1, 0.0)
    assert Plan(1, 0.0, (Start("a", 2, "first in the queue"),))


def test_explanations_are_forgotten_with_their_plans():
    story = Story(length=2)
    why = Explanation("queue: q", {"idle": 1}, ())
    for number in range(4):
        story.add(Plan(number, 0.0, (Start("a", 1, ""),)), {"a": why})
    kept = [story.explanation(Happening(number, 0.0, "start", "a")) for number in range(4)]
    assert kept == [None, None, why, why]
    assert story.explanation(Happening(3, 0.0, "start", "b")) is None


def test_plans_of_which_nothing_is_told_any_more_are_forgotten():
    story = Story(length=4)
    why = Explanation("queue: q", {"idle": 1}, ())
    for number in range(8):
        plan = Plan(number, float(number), (Start("a", 1, ""),))
        story.add(plan, {"a": why})
        for decision in ("start", "end"):
            story.tell(Happening(number, float(number), decision, "a"))
    assert [one.id for one in story.happenings] == [6, 6, 7, 7]
    assert [plan.id for plan in story] == [5, 6, 7], "before the last was told the oldest was of 5"
    assert all(story.explanation(one) is why for one in story.happenings if one.decision == "start")


@given(st.integers(1, 5), st.lists(st.integers(0, 4)), st.integers(0, 30))
def test_a_reader_misses_only_what_is_forgotten(length, batches, wanted):
    story, told, seen, following = Story(length), 0, [], 0
    for batch in batches:
        for _ in range(batch):
            story.tell(Happening(told, 0.0, "odd" if told % 2 else "even"))
            told += 1
        first, rows = story.since(following)
        assert first - following == max(0, batch - length)
        seen += [row.id for row in rows]
        following = first + len(rows)
        assert following == told
    assert len(seen) == len(set(seen)) and sorted(seen) == seen
    assert story.counts.total() == told and story.counts["odd"] == told // 2
    first, rows = story.since(wanted)
    assert [row.id for row in rows] == list(range(first, told)) and first <= told


def test_an_event_that_finds_a_plans_revision_is_not_explained():
    story = Story()
    story.add(Plan(3, 0.0, (Start("a", 1, ""),)), {"a": Explanation("queue: q", {"idle": 1}, ())})
    assert story.explanation(Happening(3, 0.0, "submit", "a")) is None


def _texts(node):
    """What an argument may be, where the code says it."""
    if isinstance(node, ast.IfExp):
        return _texts(node.body) | _texts(node.orelse)
    if isinstance(node, ast.Tuple):
        return set().union(*map(_texts, node.elts[:1]))
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


@pytest.mark.slow
def test_whatever_is_told_is_a_word():
    """Readers draw rows by their words: what is no word would have no sign and no effect."""
    tell = re.compile(r"(\w+\.)*(_?tell(_of)?|_say|_resized|_end|release_all|Happening|news\.append)$")
    package = Path(__file__).parents[2] / "dask_hpc"
    told = {}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and tell.match(ast.unparse(node.func)):
                for text in set().union(*map(_texts, node.args)):
                    if re.fullmatch("[a-z]+(-[a-z]+)*", text):
                        told.setdefault(text, f"{path.relative_to(package)}:{node.lineno}")
    assert len(told) > 50
    assert {text: where for text, where in told.items() if Word.read(text) is None} == {}
