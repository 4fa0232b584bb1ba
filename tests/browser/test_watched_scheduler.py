"""Somebody who watches 1,000 nodes and 200 jobs costs the scheduler little."""

from math import sqrt
from statistics import median

import pytest
from rig import measured

pytestmark = [pytest.mark.slow, pytest.mark.timed]


def test_to_watch_costs_the_scheduler_little(slowness):
    more, answers = [], []
    for _ in range(8):  # jobs are resized at random: until it is clear on which side of the bound it is
        found = measured("watched_scheduler.py", "measure", "1", "10")
        pairs = zip(found["watched"], found["without"], strict=True)
        more += [ours - without for ours, without in pairs]
        answers += found["answers"]
        bound = 0.02 * slowness()
        # Twice the deviation of a fair coin's heads. The deviation of seconds is that of the few seconds in
        # which the process collected its garbage, and says nothing about the median.
        if abs(sum(one < bound for one in more) - len(more) / 2) > sqrt(len(more)):
            break
    assert median(more) < bound
    assert median(answers) > 5
