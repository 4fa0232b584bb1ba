"""The story forgets the oldest plans first, and an empty plan is false."""

from dask_hpc.model.explanation import Explanation
from dask_hpc.model.plan import Plan, Start
from dask_hpc.model.story import Happening, Story


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
