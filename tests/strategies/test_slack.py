"""The slack queue: who can wait least goes first, and who cannot make it is given up if that is wished."""

from math import inf

from small_machine import decided, machine

from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.strategies.queue.slack import Slack


def queue(*jobs, nodes=4, now=0.0):
    indices = Indices(machine(nodes).nodes.values(), Slack(), now)
    for name, size, walltime, deadline in jobs:
        indices.waiting.add(Job(id=name, nodes=size, walltime=walltime, deadline=deadline))
    return indices


def test_least_slack_first_and_whoever_fits():
    indices = queue(("a", 3, 10, 100.0), ("b", 2, 50, 120.0), ("c", 1, 10, None), ("d", 2, inf, 71.0))
    # latest starts: 90, 70, never, 71
    assert decided(indices, Slack())[0] == ["b", "d"]
    indices = queue(("a", 3, 10, 100.0), ("b", 2, 50, 120.0), ("c", 1, 10, None))
    assert decided(indices, Slack())[0] == ["b", "c"]  # a does not fit, and nobody waits for it


def test_reasons():
    starts, _ = Slack().decide(Snapshot(queue(("a", 1, 10, 100.0), ("c", 1, 10, None), now=30.0)), None)
    assert [start.reason for start in starts] == ["has 60 s to spare", "fits"]


def test_who_cannot_make_it_is_given_up_only_if_that_is_wished():
    indices = queue(("a", 1, 10, 100.0), ("b", 1, 50, 120.0), ("c", 1, 10, None), now=90.0)
    assert not Slack().gives_up and Slack(drop=True).gives_up
    drops = Slack(drop=True).drops(Snapshot(indices))
    assert [(drop.job, drop.reason) for drop in drops] == [("b", "would miss its deadline by 20 s at least")]
    policy = Policy.load("slack")
    plan, _ = policy.decide(Snapshot(indices), None)
    assert [start.job for start in plan.starts] == ["b", "a", "c"] and plan.drops == ()
    strict = policy.with_(**{"queue.drop": True})
    plans = strict.preview(Snapshot(indices), None)
    assert [plan.jobs for plan in plans] == [["b"], ["a", "c"]]
    assert "b" in indices.waiting
