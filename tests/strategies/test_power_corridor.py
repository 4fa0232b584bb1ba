"""Power corridor: what is let through, what is made smaller, what is changed, and what is told."""

import math

import pytest

from dask_hpc import InputError, Policy
from dask_hpc.model.corridor import Corridor
from dask_hpc.model.indices import Indices
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.power_corridor import PowerCorridor

WATTS = PowerRange(100.0, 100.0)


def machine(nodes=8, *, running=(), waiting=(), now=100.0, **power):
    """Nodes of 10 W when idle and 100 W when they work, unless said otherwise; jobs run since 0."""
    indices = Indices(Node(str(i)) for i in range(nodes))
    for job in running:
        indices.waiting.add(job, ahead=9)
        indices.start(job.id, job.nodes)
    for job in waiting:
        indices.waiting.add(job)
    indices.now = now
    figures = {"idle": 10.0, "active": WATTS} | power
    work = sum(
        figures["active"].most if job.power is None else job.power.most
        for job in running
        for _ in range(job.nodes)
    )
    figures.setdefault("watts", work + len(indices.idle) * figures["idle"])
    figures.setdefault("jobs", {job.id: job.power for job in (*running, *waiting) if job.power})
    indices.power = PowerView(**figures)
    return indices


def job(name, nodes=2, least=1, most=8, kind="malleable", **more):
    return Job(id=name, nodes=nodes, min_nodes=least, max_nodes=most, kind=kind, **more)


def rigid(name, nodes=2, **more):
    return Job(id=name, nodes=nodes, **more)


def decided(indices, strategy, starts=(), resizes=(), memory=None):
    snapshot = Snapshot(indices, strategy.corridor)
    return strategy.decide(snapshot, list(starts), list(resizes), memory)


def sizes(decisions):
    return {one.job: one.nodes for one in decisions}


# -- parameters ----------------------------------------------------------------------------------


def test_bounds_as_people_say_them():
    policy = Policy.load("power-corridor").with_(**{"power.upper": "2 kW", "power.lower": 500})
    assert policy.power.corridor == Corridor.constant(500, 2000)
    assert Policy.parse(policy.to_yaml()).power == policy.power
    assert policy.with_(**{"power.upper": "none"}).power.upper == math.inf
    steps = [{"at": 0, "upper": "1 kW"}, {"at": "5 min", "lower": 100, "upper": "2 kW"}]
    changed = Policy.load("power-corridor").with_(**{"power.schedule": steps})
    assert changed.power.corridor.at(400) == (100, 2000)
    assert Policy.parse(changed.to_yaml()).power == changed.power
    assert changed.with_(**{"power.schedule": "none"}).power == PowerCorridor()


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        ({"power.lower": "2 kW", "power.upper": "1 kW"}, "power.lower", "at most upper=1 kW"),
        ({"power.lower": "inf"}, "power.lower", "found 'inf'"),
        ({"power.upper": -1}, "power.upper", "found -1"),
        ({"power.schedule": [{"at": 1, "lower": 5, "upper": 4}]}, "power.schedule", "lower <= upper"),
        ({"power.schedule": [{"at": "now", "upper": 4}]}, "power.schedule", "step 1: at: found 'now'"),
        ({"power.schedule": [{"at": 1, "upper": 4}], "power.upper": 5}, "power.schedule", "one of the two"),
    ],
)
def test_bounds_that_cannot_be(change, where, words):
    with pytest.raises(InputError) as caught:
        Policy.load("power-corridor").with_(**change)
    assert where in str(caught.value) and words in str(caught.value)


# -- what passes ---------------------------------------------------------------------------------


def test_without_bounds_everything_passes():
    indices = machine(waiting=[rigid("a")], running=[job("m")])
    starts, resizes = [Start("a", 2, "why")], [Resize("m", 4, "why")]
    powered, _ = decided(indices, PowerCorridor(), starts, resizes)
    assert powered == (starts, resizes, None, None, None, None)


def test_starts_pass_in_order_while_they_fit():
    waiting = [rigid("a", 2), rigid("b", 3), rigid("c", 1)]
    starts = [Start(one.id, one.nodes, "why") for one in waiting]
    indices = machine(waiting=waiting)  # 80 W idle, 90 W more for each node
    powered, _ = decided(indices, PowerCorridor(upper=80 + 4 * 90), starts)
    assert sizes(powered.starts) == {"a": 2, "c": 1}
    powered, _ = decided(indices, PowerCorridor(upper=80 + 6 * 90), starts)
    assert powered.starts == starts


@pytest.mark.parametrize(("constraint", "size"), [("any", 5), ("pof2", 4)])
def test_starts_and_growths_are_made_smaller(constraint, size):
    new = Job(id="a", nodes=8, min_nodes=1, max_nodes=8, kind="moldable", constraint=constraint)
    powered, _ = decided(machine(waiting=[new]), PowerCorridor(upper=80 + 5 * 90), [Start("a", 8, "why")])
    assert sizes(powered.starts) == {"a": size}
    assert powered.starts[0].reason.startswith("why; ")
    old = job("m", 1, 1, 8, constraint=constraint)
    powered, _ = decided(
        machine(running=[old]), PowerCorridor(upper=80 + 5 * 90), (), [Resize("m", 8, "why")]
    )
    assert sizes(powered.resizes) == {"m": size}


def test_starts_are_untouched_where_only_running_jobs_matter():
    strategy = PowerCorridor(upper=100, scope="running")
    powered, _ = decided(machine(waiting=[rigid("a")]), strategy, [Start("a", 2, "why")])
    assert sizes(powered.starts) == {"a": 2}


def test_a_plan_names_the_jobs_that_it_changed_for_power():
    policy = Policy.load("power-corridor-queue-aware").with_(**{"power.upper": 80 + 4 * 90})
    waiting = [rigid("a", 2), Job(id="b", nodes=4, min_nodes=1, max_nodes=4, kind="moldable")]
    plan, _ = policy.decide(Snapshot(machine(waiting=waiting), policy.power.corridor), None)
    assert sizes(plan.starts) == {"a": 2, "b": 2} and plan.for_power == {"b"}
