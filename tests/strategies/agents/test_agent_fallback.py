"""When to come back to agents after they could not be reached."""

from functools import partial
from math import inf

from dask_hpc.strategies.checkpoint.agent_rule import FIRST_WAIT, LONGEST_WAIT, AgentRule, failed
from dask_hpc.strategies.checkpoint.agents import Direct


def test_waits_grow_up_to_a_limit():
    known = failed(None, 10.0)
    assert (known.tries, known.again_at) == (0, 10.0 + FIRST_WAIT)
    waits = []
    for _ in range(20):
        now = known.again_at
        known = failed(known, now)
        waits.append(known.again_at - now)
    assert known.tries == 20
    assert waits == sorted(waits) and waits[0] == 2 * FIRST_WAIT and waits[-1] == LONGEST_WAIT


def test_agents_are_tried_again_only_if_enough_commits_are_left():
    """000, 6.5.2 and 9.4.1.4: a change of 2.5 s, commits of 1.0 s past agents and 0.5 s to them."""
    rule, known = AgentRule(change=2.5), Direct(0, 10.0)
    pays = partial(rule.tries_again, known, past_agents=1.0, to_agents=0.5)
    assert not pays(now=9.9, commits_left=50), "it is too early"
    assert [left for left in (3, 5, 6, 50, inf) if pays(now=10.0, commits_left=left)] == [6, 50, inf]
    slower = partial(rule.tries_again, known, past_agents=0.5, to_agents=0.5, commits_left=3)
    assert not slower(now=10.0 + LONGEST_WAIT - 0.1) and slower(now=10.0 + LONGEST_WAIT)
