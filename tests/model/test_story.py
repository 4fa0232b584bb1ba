"""The story forgets the oldest plans first, and an empty plan is false."""

from dask_hpc.model.plan import Plan, Start
from dask_hpc.model.story import Story


def test_bounded():
    story = Story(length=3)
    for number in range(5):
        story.add(Plan(number, float(number)))
    assert [plan.id for plan in story] == [2, 3, 4]
    assert len(story) == 3


def test_a_plan_with_nothing_to_do_is_false():
    assert not Plan(1, 0.0)
    assert Plan(1, 0.0, (Start("a", 2, "first in the queue"),))
