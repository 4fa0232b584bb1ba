"""Power corridor: what is let through, what is made smaller, what is changed, and what is told."""

import math
from dataclasses import replace

import pytest

from dask_hpc import InputError, Policy
from dask_hpc.model.job import Job
from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.power.corridor import PowerCorridor
from tests.strategies.power.power_machine import (
    WATTS,
    decided,
    draws,
    held,
    job,
    machine,
    policy,
    rigid,
    settled,
    sizes,
    verdicts,
)

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
    assert changed.with_(**{"power.schedule": "none"}).power == Policy.load("power-corridor").power


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
    policy = Policy.parse("queue: {strategy: fcfs}\npower: {strategy: power-corridor, upper: 440 W}")
    waiting = [rigid("a", 2), Job(id="b", nodes=4, min_nodes=1, max_nodes=4, kind="moldable")]
    plan, _ = policy.decide(Snapshot(machine(waiting=waiting), policy.power.corridor), None)
    assert sizes(plan.starts) == {"a": 2, "b": 2} and plan.for_power == {"b"}


# -- an instant, carried out ---------------------------------------------------------------------


PUBLISHED = ["power-corridor-reactive", "power-corridor-proactive", "power-corridor-queue-aware"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_all_sizes_at_once(name):
    """Shrinks first, growths when their nodes are free: the jobs that draw little get the nodes."""
    jobs = [job("a", 12, most=24, power=(300, 300)), job("b", 2, most=24, power=(110, 110))]
    indices = machine(32, running=jobs, idle=71.0)
    plans, _ = settled(indices, policy(name, lower="3 kW", upper="4 kW"))
    assert 3000 <= draws(indices) <= 4000
    assert held(indices)["b"] == 24 and held(indices)["a"] < 8
    assert sizes(plans[0].resizes).keys() == {"a"} and sizes(plans[1].resizes) == {"b": 24}
    (verdict,) = verdicts(plans)
    assert verdict.is_kept


@pytest.mark.parametrize("name", [*PUBLISHED, "power-corridor"])
def test_a_corridor_that_moves(name):
    """Seed 000, 9.2.3: one job of 110 W per node follows four corridors on 16 nodes."""
    steps = ((0, 100, 600), (240, 700, 1200), (480, 1300, 1900), (720, 100, 600))
    schedule = [{"at": at, "lower": lower, "upper": upper} for at, lower, upper in steps]
    chosen = policy(name, schedule=schedule)
    indices = machine(16, running=[job("p", 1, most=16, power=(110, 110))], idle=20.0)
    memory, resized = None, 0
    for time in range(0, 960, 20):
        indices.now = float(time + 1)
        before = held(indices)
        _, memory = settled(indices, chosen, memory)
        resized += held(indices) != before
        lower, upper = chosen.power.corridor.at(indices.now)
        assert lower <= draws(indices) <= upper
    assert resized == (4 if name == "power-corridor" else 3)  # ours makes the most of the first at once
    assert held(indices) == {"p": 3}


def test_only_as_few_as_needed_shrink():
    indices = machine(16, running=[job("a", 8), job("b", 6)])
    plans, _ = settled(indices, policy(upper="1.1 kW", lower=0))
    assert sum(held(indices).values()) == 10
    assert len([r for plan in plans for r in plan.resizes]) == 1
    assert plans[0].resizes[0].reason == "power: gives 4 nodes to stay below 1.1 kW"
    assert plans[0].for_power


def test_too_little_starts_who_waits():
    """The queue itself would not start it: its head does not fit."""
    indices = machine(8, running=[rigid("r", 2)], waiting=[rigid("large", 7), job("w", 4, 1, 8)])
    indices.waiting.remove("large")
    indices.waiting.add(rigid("large", 7), ahead=3)
    chosen = Policy.parse("queue: {strategy: fcfs}\npower: {strategy: power-corridor, lower: 700 W}")
    plans, _ = settled(indices, chosen)
    assert held(indices) == {"r": 2, "w": 6}
    assert "to stay above 700 W" in plans[0].starts[0].reason
    assert verdicts(plans)[-1].is_kept


def test_there_is_no_work_to_be_had():
    indices = machine(8, running=[job("m", 2, 1, 2)])
    chosen = policy(lower="700 W")
    plans, memory = settled(indices, chosen)
    (verdict,) = verdicts(plans)
    assert not verdict.is_kept and (verdict.lowest, verdict.highest) == (170, 260)
    assert "start a job" in verdict.reason
    for _ in range(5):
        indices.now += 7
        plans, memory = settled(indices, chosen, memory)
        assert not plans, "once is enough"
    indices.waiting.add(job("w", 5))
    plans, memory = settled(indices, chosen, memory)
    assert held(indices) == {"m": 2, "w": 6} and verdicts(plans)[-1].is_kept


def test_too_much_for_any_sizes():
    indices = machine(8, running=[rigid("r", 4)])
    chosen = policy(upper="300 W")
    plans, memory = settled(indices, chosen)
    (verdict,) = verdicts(plans)
    assert not verdict.is_kept and verdict.lowest == 440 and "raise the upper bound" in verdict.reason
    indices.now += 60
    assert settled(indices, chosen, memory)[0] == []
    plans, memory = settled(indices, chosen, memory, Corridor.constant(0, 500))
    assert [verdict.is_kept for verdict in verdicts(plans)] == [True]


def test_the_nearest_that_can_be_reached():
    indices = machine(8, running=[rigid("r", 2), job("m", 4)])
    plans, _ = settled(indices, policy(upper="300 W"))
    assert held(indices) == {"r": 2, "m": 1}
    assert not verdicts(plans)[-1].is_kept
    indices = machine(8, running=[rigid("r", 2), job("m", 4)])
    settled(indices, policy("power-corridor-reactive", upper="300 W"))
    assert held(indices) == {"r": 2, "m": 4}, "as published: what is not feasible is left alone"


def test_what_may_be_drawn_is_not_counted_on_against_too_little():
    """Out of reach are 600 W: eight nodes draw 480 W for sure, two 180 W. That these two may draw 260 W
    more is no reason to leave it at that."""
    indices = machine(8, running=[job("m", 2, power=(60, 270))])
    powered, _ = decided(indices, PowerCorridor(lower=600))
    assert sizes(powered.resizes) == {"m": 8}


@pytest.mark.parametrize("queue", ["elastic", "fcfs", "easy-backfill"])
def test_who_could_not_start_even_alone_is_passed_by(queue):
    """Eight nodes of 10 W, 100 W at work, below 400 W: three may work. Who wants all of them waits for
    another bound, and keeps nobody from the nodes that it cannot have."""
    waiting = [rigid("eight", 8, walltime=10.0), job("three", 3, walltime=1000.0), rigid("two", 2)]
    found = policy(upper="400 W").with_(**{"queue.strategy": queue})
    indices = machine(waiting=waiting)
    plan, _ = found.decide(Snapshot(indices, found.power.corridor), None)
    assert sizes(plan.starts) == {"three": 3}
    assert "eight would exceed the bound of power even alone" in plan.starts[0].reason
    # with a wider bound nobody is passed by
    wide = policy(upper="900 W").with_(**{"queue.strategy": queue})
    plan, _ = wide.decide(Snapshot(machine(waiting=waiting), wide.power.corridor), None)
    assert sizes(plan.starts) == {"eight": 8}


def test_a_bound_out_of_reach_does_not_hold_everybody():
    """As printed, a corridor that no start brings to its lower bound would hold all starts for ever."""
    indices = machine(8, waiting=[job("w", 2, 1, 4)])
    settled(indices, policy("power-corridor-queue-aware", lower="5 kW"))
    assert held(indices) == {"w": 2}, "as it asked: nothing runs yet"
    indices = machine(8, running=[rigid("r", 2)], waiting=[job("w", 2, 1, 4)])
    settled(indices, policy("power-corridor-queue-aware", lower="5 kW"))
    assert held(indices) == {"r": 2, "w": 4}, "its share of the idle nodes"


def test_idle_nodes_are_shared_equally():
    """Seed 000, Algorithm 4: those that fit in the order of the queue, whoever else could use them."""
    queue = {"lower": "5 kW", "candidates": 2}
    waiting = [job(name, 1, 1, 8) for name in ("first", "second", "third")]
    indices = machine(9, running=[rigid("r", 1)], waiting=waiting)
    settled(indices, policy("power-corridor-queue-aware", **queue))
    assert held(indices) == {"r": 1, "first": 4, "second": 4}
    # what one cannot use is for the other
    waiting[0] = job("first", 1, 1, 2)
    indices = machine(9, running=[rigid("r", 1)], waiting=waiting)
    settled(indices, policy("power-corridor-queue-aware", **queue))
    assert held(indices) == {"r": 1, "first": 2, "second": 6}


@pytest.mark.parametrize(
    "options, started",
    [({}, {"rigid", "soft"}), ({"favour_elastic": True}, {"soft"}), ({"candidates": 1}, {"rigid"})],
)
def test_which_waiting_jobs_a_broken_corridor_is_offered(options, started):
    """Too little is drawn; the queue starts nobody, and both together bring it to the bound."""
    waiting = [rigid("rigid", 4), job("soft", 4, 1, 4)]
    indices = machine(10, running=[rigid("r", 1)], waiting=waiting)
    powered, _ = decided(indices, policy(lower="800 W", **options).power)
    assert sizes(powered.starts).keys() == started


def test_a_waiting_job_that_has_no_size_for_the_nodes_left_is_not_offered():
    """One node is idle, and its sizes are even."""
    indices = machine(3, running=[rigid("r", 2)], waiting=[job("w", 2, 1, 4, "moldable", constraint="even")])
    settled(indices, policy("power-corridor-queue-aware", lower="2 kW"))
    assert held(indices) == {"r": 2}


# -- under way -----------------------------------------------------------------------------------


def test_who_shrinks_counts_with_the_larger_size_until_it_is_done():
    indices = machine(8, running=[job("m", 6)], waiting=[rigid("w", 2)])
    indices.begin_resize("m", 2)
    starts = [Start("w", 2, "why")]
    powered, _ = decided(indices, PowerCorridor(upper=700), starts)
    assert not powered.starts and not powered.resizes, "on its way: neither room yet nor another violation"
    indices.finish_resize("m")
    powered, _ = decided(indices, PowerCorridor(upper=700), starts)
    assert powered.starts == starts


def test_one_violation_is_answered_once():
    indices = machine(8, running=[job("a", 4), job("b", 4)])
    strategy = PowerCorridor(upper=600)
    powered, memory = decided(indices, strategy)
    (resize,) = powered.resizes
    indices.begin_resize(resize.job, resize.nodes)
    for _ in range(3):
        indices.now += 1
        powered, memory = decided(indices, strategy, memory=memory)
        assert not powered.resizes


def test_coming_bounds_hold_starts():
    later = Corridor(((0, 0, 1000), (120, 0, 300)))
    indices = machine(
        8, waiting=[rigid("long", 3, walltime=60.0), rigid("short", 3, walltime=15.0), job("m", 3)]
    )
    starts = [Start("long", 3, ""), Start("short", 3, ""), Start("m", 2, "")]
    snapshot = Snapshot(indices, later)
    for strategy, started in (
        (PowerCorridor(lookahead=0.0, lead=0.0), {"long": 3, "short": 3, "m": 2}),
        (PowerCorridor(lookahead=10.0, lead=10.0), {"long": 3, "short": 3, "m": 2}),
        (PowerCorridor(lead=0.0), {"short": 3, "m": 2}),
        (PowerCorridor(lead=30.0), {"m": 2}),  # now already no more than 300 W
    ):
        powered, _ = strategy.decide(snapshot, starts, (), None)
        assert sizes(powered.starts) == started


def test_bounds_that_have_nothing_in_common():
    """Until the step the old ones hold; but who starts must leave the new ones possible."""
    later = Corridor(((0, 600, 1000), (120, 0, 500)))
    jobs = [rigid("long", 5, walltime=60.0), rigid("short", 3, walltime=15.0), job("m", 5, most=6)]
    indices = machine(8, waiting=jobs, now=100.0)
    strategy = PowerCorridor(lookahead=30.0)
    for wanted, allowed in (("long", False), ("short", True), ("m", True)):
        start = Start(wanted, indices.waiting[wanted].nodes, "")
        powered, _ = strategy.decide(Snapshot(indices, later), [start], (), None)
        assert (start in powered.starts) == allowed


# -- resizes that others want --------------------------------------------------------------------


def test_shrinks_that_help_nobody_do_not_pass():
    indices = machine(8, running=[job("m", 6)], waiting=[rigid("w", 4, power=(500, 500))])
    shrink = [Resize("m", 2, "gives 4 nodes so that job w can start")]
    powered, _ = decided(indices, PowerCorridor(upper=1000), (), shrink)
    assert not powered.resizes, "job w may not start anyway"
    powered, _ = decided(indices, PowerCorridor(upper=2500), (), shrink)
    assert powered.resizes == shrink
    indices.waiting.remove("w")
    powered, _ = decided(indices, PowerCorridor(lower=500), (), shrink)
    assert not powered.resizes, "too little would be drawn"
    powered, _ = decided(indices, PowerCorridor(lower=100), (), shrink)
    assert powered.resizes == shrink


def test_what_a_job_gives_back_passes():
    indices = machine(8, running=[job("e", 6, kind="evolving")])
    indices.requests["e"] = 2
    shrink = [Resize("e", 2, "it asked")]
    powered, _ = decided(indices, PowerCorridor(lower=500), (), shrink)
    assert powered.resizes == shrink


def test_who_gave_for_power_takes_nothing_for_a_while():
    strategy = PowerCorridor(upper=500, dwell=30)
    indices = machine(8, running=[job("m", 8)])
    powered, memory = decided(indices, strategy)
    assert sizes(powered.resizes) == {"m": 4}
    indices.begin_resize("m", 4)
    indices.finish_resize("m")
    growth = [Resize("m", 8, "why")]
    indices.power = replace(indices.power, active=PowerRange(50.0, 50.0))  # it draws less: there is room
    for time, allowed in ((110, False), (129, False), (130, True)):
        indices.now = float(time)
        powered, _ = decided(indices, strategy, (), growth, memory)
        assert bool(powered.resizes) == allowed


def test_what_was_given_against_too_much_is_not_taken_back_for_a_while_against_too_little():
    """Else a bound that is crossed by each answer to the other one would be answered for ever."""
    strategy = PowerCorridor(lower=400, upper=500, dwell=30)
    indices, memory = machine(8, running=[job("m", 8)]), None

    def answered(time, watts):
        nonlocal memory
        indices.now, indices.power = float(time), replace(indices.power, active=PowerRange(watts, watts))
        powered, memory = decided(indices, strategy, memory=memory)
        for resize in powered.resizes:
            indices.begin_resize(resize.job, resize.nodes)
            indices.finish_resize(resize.job)
        return sizes(powered.resizes)

    assert answered(100, 100.0) == {"m": 4}
    assert answered(110, 75.0) == answered(129, 75.0) == {}, "340 W are too little"
    assert answered(130, 75.0) == {"m": 6}
    assert answered(131, 60.0) == {"m": 8}, "the same way once more need not wait"
    assert answered(132, 100.0) == {"m": 4}, "too much is worse than too little, and never waits"


def test_nodes_that_cannot_be_held_count_as_work():
    """Of eight nodes three may work for power, and five refuse to be held: that is told, once and for all."""
    power = {"outside": WATTS, "outside_nodes": 8, "outside_wanted": 8, "levers": frozenset({"hold"})}
    strategy = PowerCorridor(upper=350.0)
    answer, memory = decided(machine(watts=800.0, **power), strategy)
    assert answer.hold.nodes == 5 and answer.verdict.is_kept
    truth = machine(watts=530.0, held=3, holdable=3, **power)
    answer, memory = decided(truth, strategy, memory=memory)
    assert answer.hold is None and not answer.verdict.is_kept
    assert answer.verdict.expected.most == 5 * 100 + 3 * 10
    again, _ = decided(truth, strategy, memory=memory)
    assert not any(again)
    answer, _ = decided(machine(watts=530.0, held=3, holdable=5, **power), strategy, memory=memory)
    assert answer.hold.nodes == 5  # two of them do not refuse any more
