"""How many units a cluster should have: case by case, and what must always hold."""

from dataclasses import replace
from itertools import pairwise
from math import ceil, inf

import pytest
from batch_queue import BatchQueue
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.cluster_view import ClusterView, JobNeed, Unit
from dask_hpc.policy import Policy
from dask_hpc.strategies.size.demand import Demand, observe


def view(now=0.0, units=(), minimum=0, maximum=inf, interval=1.0, **more):
    return ClusterView(now, interval, tuple(units), minimum, maximum, **more)


def up(name, **more):
    return Unit(name, connected=more.pop("connected", 1), state="running", **more)


def queued(name, age=0.0, **more):
    return Unit(name, state="queued", age=age, **more)


def plans_of(looks, strategy=None):
    """What is decided at each of these looks."""
    plans, memory = [], None
    for look in looks:
        plan, memory = (strategy or Demand()).decide(look, memory)
        plans.append(plan)
    return plans


def decided(*looks, strategy=None):
    """The last of several looks."""
    return plans_of(looks, strategy)[-1]


def names(partings):
    return [parting.unit for parting in partings]


# --- how many


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, 0),
        ({"work": 50.0, "tasks": 100}, 10),
        ({"work": 50.0, "tasks": 3}, 3),  # no more threads than tasks
        ({"work": 0.001, "tasks": 1}, 1),
        ({"work": 50.0, "tasks": 100, "threads": 4}, 3),
        ({"work": 0.0, "tasks": 0, "dormant": 4}, 1),  # somebody has to be there for them
        ({"work": 500.0, "tasks": 1000, "maximum": 7}, 7),
        ({"minimum": 2}, 2),
        ({"minimum": 2, "work": 15.0, "tasks": 30}, 3),
        ({"jobs": (JobNeed(3, 3),)}, 3),
        ({"jobs": (JobNeed(3, 3), JobNeed(2, 2)), "nodes_per_unit": 2.0}, 3),
        ({"jobs": (JobNeed(2, 8, 500.0, 1000),)}, 8),  # malleable: as many as its work needs
        ({"jobs": (JobNeed(2, 8, 20.0, 1000),)}, 4),
        ({"jobs": (JobNeed(2, 8, 100.0, 1000),), "threads": 4}, 5),
        ({"jobs": (JobNeed(2, 8, 500.0, 3),)}, 3),
        ({"jobs": (JobNeed(2, 2, 500.0, 1000),), "work": 10.0, "tasks": 9}, 4),
    ],
)
def test_target(more, wanted):
    plan = decided(view(**more))
    assert (plan.target, plan.submit) == (wanted, wanted)


def test_results_need_memory():
    full = view(units=[up("a", held=7e9)], memory=10e9)
    assert decided(full).submit == 1
    assert decided(replace(full, units=(up("a", held=5e9),))).submit == 0


def test_the_last_results_keep_a_unit():
    looks = [view(now=float(t), units=[up("a", held=8.0)]) for t in range(60)]
    assert not decided(*looks).leave


# --- who goes


def test_an_idle_unit_leaves_after_its_grace_the_one_with_the_least_data_first():
    units = [up("a", held=5.0), up("b", held=2.0), up("c", held=9.0)]
    looks = [view(now=float(t), units=units) for t in range(16)]
    assert not decided(*looks[:-1]).leave
    plan = decided(*looks)
    assert names(plan.leave) == ["b", "a"]
    assert plan.leave[0].reason == "idle for 15 s, and 1 unit are enough".replace("unit are", "unit is")


def test_work_in_between_starts_the_grace_again():
    def look(t):
        return view(now=float(t), units=[up("a", is_busy=t == 10)])

    assert not decided(*map(look, range(24))).leave
    assert decided(*map(look, range(27))).leave


def test_a_busy_unit_stays_unless_above_the_maximum():
    units = [up("a", is_busy=True, held=1.0), up("b", is_busy=True)]
    looks = [view(now=float(t), units=units) for t in range(60)]
    assert not decided(*looks).leave
    assert names(decided(*looks, view(now=60.0, units=units, maximum=1)).leave) == ["b"]


def test_who_must_not_go_or_refused_stays():
    pinned = [up("a", pinned="it holds an actor")]
    assert not decided(*(view(now=float(t), units=pinned) for t in range(60))).leave

    def refused(ago):
        return [view(now=float(t), units=[up("a", refused_ago=ago)]) for t in range(60)]

    assert not decided(*refused(30.0)).leave
    assert decided(*refused(61.0)).leave


def test_forbidding_idling_gives_back_at_once_and_says_so():
    strategy = Demand(forbid_idling=True)
    plan = decided(view(units=[up("a")]), strategy=strategy)
    assert names(plan.leave) == ["a"]
    assert "forbids" in plan.leave[0].reason and "cost" in plan.leave[0].reason


def test_pending_units_go_before_connected_ones_youngest_first():
    units = [up("a"), queued("b", age=50.0), queued("c", age=10.0), Unit("d", state="running", age=5.0)]
    looks = [view(now=float(t), units=units, minimum=2) for t in range(20)]
    plan = decided(*looks)
    assert names(plan.cancel) == ["c", "b"]
    assert not plan.leave


def test_a_target_that_dips_costs_no_place_in_the_queue():
    def look(t):
        some = {"work": 100.0, "tasks": 20} if t % 10 else {}
        return view(now=float(t), units=[queued("a", age=float(t))], maximum=1, **some)

    assert not any(plan.cancel for plan in plans_of(map(look, range(60))))


# --- nothing is undone at once


@pytest.mark.parametrize("other", [up("b"), queued("b")], ids=["connected", "queued"])
def test_after_a_shrink_nobody_is_asked_for_until_it_has_cooled_down(other):
    quick = Demand(idle_grace=0.0, cool_down=5.0)
    small = view(units=[up("a"), other], work=1.0, tasks=1)
    first, *later = plans_of(
        [small, *(view(now=float(t), units=[up("a")], work=100.0, tasks=2) for t in range(1, 7))], quick
    )
    assert len(first.leave) + len(first.cancel) == 1
    assert [plan.submit for plan in later] == [0, 0, 0, 0, 1, 1]


def test_where_nobody_is_left_there_is_nothing_to_cool_down():
    gone, wanted = plans_of(
        [view(units=[up("a")]), view(now=1.0, work=1.0, tasks=1)], Demand(idle_grace=0.0, cool_down=5.0)
    )
    assert names(gone.leave) == ["a"] and wanted.submit == 1


@pytest.mark.parametrize("other", [up("b"), queued("b")], ids=["connected", "queued"])
def test_after_a_growth_nobody_goes_until_it_has_cooled_down(other):
    quick = Demand(idle_grace=0.0, cool_down=5.0)
    large = view(units=[up("a", is_busy=True)], work=100.0, tasks=2)
    units = [up("a", is_busy=True), other]
    first, *later = plans_of(
        [large, *(view(now=float(t), units=units, work=1.0, tasks=1) for t in range(1, 6))], quick
    )
    assert first.submit == 1
    assert [names([*plan.leave, *plan.cancel]) for plan in later] == [[], [], [], [], ["b"]]


# --- what is pending counts


def test_what_was_asked_for_is_not_asked_for_again():
    units = [queued("a"), queued("b")]
    assert decided(view(units=units, work=100.0, tasks=20, maximum=2)).submit == 0
    assert decided(view(units=units, work=15.0, tasks=20)).submit == 1


def test_only_so_many_may_be_pending():
    strategy = Demand(max_pending=3)
    assert decided(view(work=1e6, tasks=10**6), strategy=strategy).submit == 3
    assert decided(view(work=1e6, tasks=10**6, units=[queued("a")]), strategy=strategy).submit == 2
    assert decided(view(work=35.0, tasks=99), strategy=strategy).rejected == (
        "4 more: only 3 units may be pending",
    )


def test_who_asks_for_the_same_again_tells_it_once():
    """``ask="fit"`` may ask for less, or later."""
    looks = [view(now, minimum=3) for now in range(3)]
    looks += [view(3.0, minimum=3, may_submit=0), view(4.0, minimum=3), view(5.0, minimum=4)]
    looks += [view(6.0, [queued("a")], minimum=4), view(7.0, minimum=4), view(8.0, minimum=4, may_submit=0)]
    looks += [view(9.0, [queued("a"), queued("b")], minimum=2), view(10.0, minimum=2)]
    told = [[reason.split()[0] for _, reason in plan.rows()] for plan in plans_of(looks)]
    assert told == [["3"], [], [], [], [], ["4"], ["3"], ["4"], [], [], ["2"]]
    assert [plan.submit for plan in plans_of(looks)] == [3, 3, 3, 0, 3, 4, 3, 4, 0, 0, 2]


# --- the end of a walltime


def test_a_successor_is_asked_for_as_early_as_units_had_to_wait():
    strategy = Demand(expected_wait=300.0, handover=30.0)
    busy = {"work": 1e4, "tasks": 1000, "maximum": 1}

    def look(t):
        return view(now=float(t), units=[up("a", left=1000.0 - t, is_busy=True)], interval=5.0, **busy)

    plans = plans_of(map(look, range(0, 1000, 5)), strategy)
    first = next(number for number, plan in enumerate(plans) if plan.submit)
    assert 5 * first == pytest.approx(1000 - 330, abs=5)


def test_where_walltimes_are_short_half_of_one_is_early_enough():
    def look(t):
        unit = up("a", left=200.0 - t, is_busy=True)
        return view(now=float(t), units=[unit], interval=5.0, work=1e4, tasks=1000, maximum=1)

    plans = plans_of(map(look, range(0, 200, 5)), Demand(expected_wait=300.0))
    assert next(5 * number for number, plan in enumerate(plans) if plan.submit) == 100


def test_it_hands_over_when_the_successor_is_there():
    busy = {"work": 1e4, "tasks": 1000, "maximum": 1}
    old = up("a", left=50.0, is_busy=True)
    looks = [
        view(now=float(t), units=[replace(old, left=500.0 - t)], interval=5.0, **busy)
        for t in range(0, 450, 5)
    ]
    assert not decided(*looks, view(now=450.0, units=[old, queued("b")], **busy)).leave
    plan = decided(*looks, view(now=450.0, units=[old, up("b", left=900.0)], **busy))
    assert names(plan.leave) == ["a"] and "walltime" in plan.leave[0].reason


def test_units_that_end_together_wait_for_somebody_who_can_take_their_data():
    busy = {"work": 1e4, "tasks": 1000, "maximum": 2}
    old = [up(name, left=20.0, running_for=600.0, is_busy=True) for name in "ab"]
    alone = view(units=[*old, queued("c"), queued("d")], **busy)
    received = view(now=1.0, units=[*old, up("c", left=900.0), queued("d")], **busy)
    assert not decided(alone).leave
    assert names(decided(alone, received).leave) == ["a", "b"]


def test_no_successor_if_the_work_ends_before():
    def look(t):
        return view(now=float(t), units=[up("a", left=80.0 - t, is_busy=True)], work=10.0, tasks=5, maximum=1)

    assert decided(*map(look, range(20))).submit == 0


@pytest.mark.parametrize("wait", [0.0, 20.0, 120.0, 400.0])
def test_capacity_never_dips_by_more_than_one(wait):
    queue = BatchQueue([0.0, 0.0, 0.0, wait], walltime=1800.0, maximum=3, work=1e9, interval=5.0)
    strategy = Demand(expected_wait=max(60.0, wait))
    least = []

    def watch(queue):
        if queue.now > 60:
            least.append(queue.count()[0])

    queue.run(strategy, 4 * 3600, watch)
    assert min(least) >= 2
    assert queue.submissions <= 3 * (4 * 3600 / (1800 - 30 - 400 - 10)) + 4  # one for each end, no churn


@pytest.mark.parametrize(("waits", "fewest"), [([1.0, 3.0, 8.0], 3), ([1.0, 15.0, 18.0], 2)])
def test_short_walltimes_that_end_together_wait_for_their_successors(waits, fewest):
    """Half of a minute is no more than a unit usually has for its farewell: the first successor must not send
    away all three, nor when it is high time and the others are late."""
    queue = BatchQueue([0.0] * 3 + waits * 99, walltime=60.0, minimum=3, maximum=3, work=1e9)
    least = []

    def watch(queue):
        if queue.now > 10:
            least.append(queue.count()[0])

    queue.run(Demand(), 600, watch)
    assert min(least) >= fewest and queue.submissions > 30


# --- the dead


def test_a_dead_unit_is_noticed_and_replaced_at_once():
    one = {"work": 100.0, "tasks": 20, "maximum": 1}
    plan = decided(
        view(units=[queued("a")], **one),
        view(now=1.0, units=[Unit("a", state="gone", why="Slurm says CANCELLED")], **one),
    )
    assert names(plan.dead) == ["a"] and plan.dead[0].reason == "Slurm says CANCELLED"
    assert plan.submit == 1


def test_not_knowing_is_no_death():
    one = {"work": 100.0, "tasks": 20, "maximum": 1}
    looks = [view(now=float(t), units=[Unit("a", age=float(t))], **one) for t in range(2000)]
    plan = decided(*looks)
    assert not plan.dead and not plan.submit


def test_who_leaves_does_not_die():
    looks = [view(units=[up("a")]), view(now=1.0, units=[Unit("a", state="gone", is_leaving=True)])]
    assert not decided(*looks).dead


def test_workers_may_be_away_for_a_moment():
    def look(t):
        return view(now=float(t), units=[up("a", connected=int(t < 5))], work=1.0, tasks=1)

    assert not decided(*map(look, range(20))).dead
    assert names(decided(*map(look, range(21))).dead) == ["a"]


@pytest.mark.parametrize(
    ("state", "asked_ago", "given_up"),
    [("unknown", inf, 15), ("unknown", 1.0, 300), ("running", 1.0, 15), ("running", inf, None)],
)
def test_what_ends_or_goes_back_into_the_queue_may_do_so_for_long(state, asked_ago, given_up):
    """Its system answers and does not know yet; or it does not answer, or has not been asked since."""
    away = Unit("a", state=state, asked_ago=asked_ago)
    looks = [view(0, [up("a"), up("b")], minimum=2)]
    looks += [view(float(now), [away, up("b")], minimum=2) for now in range(1, 400)]
    dead = [look.now - 1 for look, plan in zip(looks, plans_of(looks), strict=True) if names(plan.dead)]
    assert dead[:1] == ([] if given_up is None else [given_up])


def test_who_started_and_never_connects_is_dead():
    def look(t):
        return view(now=float(t), units=[Unit("a", state="running", running_for=float(t))], work=1.0, tasks=1)

    assert not decided(*map(look, range(300))).dead
    assert names(decided(*map(look, range(301))).dead) == ["a"]


def test_workers_of_other_names_are_somebodys():
    """Who started long ago and is not known to have connected may be one of them."""

    def look(t):
        silent = Unit("a", state="running", running_for=float(t))
        return view(now=float(t), units=[silent, queued("b")], strangers=1)

    plans = plans_of(map(look, range(400)))
    assert not any(plan.dead for plan in plans)
    assert {name for plan in plans for name in names(plan.cancel)} == {"b"}


def test_a_unit_that_lost_some_workers_for_good_is_replaced():
    def look(t, *more):
        half = up("a", members=2, connected=2 if t < 5 else 1, is_busy=True)
        return view(now=float(t), units=[half, *more], work=100.0, tasks=50, maximum=1)

    assert decided(*map(look, range(305))).submit == 0
    assert decided(*map(look, range(306))).submit == 1
    looks = [look(t) for t in range(307)]
    plan = decided(*looks, look(307, up("b")))
    assert names(plan.leave) == ["a"] and "1 of its 2" in plan.leave[0].reason


def test_the_end_of_a_walltime_is_no_failure():
    strategy = Demand(retries=0)
    one = {"work": 100.0, "tasks": 20, "maximum": 1}
    old = up("a", left=10.0)
    plan = decided(
        view(units=[old], **one),
        view(now=1.0, units=[replace(old, left=9.0, refused_ago=0.0)], **one),
        view(now=8.0, units=[replace(old, left=2.0, refused_ago=7.0)], **one),
        view(now=11.0, units=[Unit("a", state="gone", why="TIMEOUT")], **one),
        strategy=strategy,
    )
    assert names(plan.dead) == ["a"] and not plan.news
    assert plan.submit == 1


def test_replacements_that_die_come_slower_and_slower_and_then_no_more():
    queue = BatchQueue([0.0], work=1e6, maximum=1, boot=1e9)

    def kill(queue):
        for unit in queue.units.values():
            unit.dies = unit.at

    queue.run(Demand(retries=3, retry_delay=10.0), 3600, kill)
    times = [at for at, *_ in queue.done("submit")]
    assert len(times) == 4  # the first, and three replacements
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[0] <= 1 and waits[1] == pytest.approx(11, abs=1) and waits[2] == pytest.approx(21, abs=1)
    ((_, _, _, words),) = queue.done("news")
    assert "4 units in a row have died" in words and "killed" in words


def test_one_that_proves_healthy_clears_the_record():
    queue = BatchQueue([0.0], work=1e6, maximum=1)

    def kill(queue):
        for unit in queue.units.values():
            unit.dies = unit.starts + 100.0

    queue.run(Demand(), 3600, kill)
    assert len(queue.done("submit")) > 25 and not queue.done("news")


# --- looking


def test_who_was_away_looks_once_before_deciding():
    looks = [view(now=float(t), units=[up("a")]) for t in range(3)]
    plan, memory = None, None
    for look in looks:
        plan, memory = Demand().decide(look, memory)
    gone = view(now=500.0, units=[Unit("a", state="running", running_for=502.0), up("b")], steps=5)
    plan, memory = Demand().decide(gone, memory)
    assert not plan
    assert memory.units["b"].idle_since == 500.0


def test_a_few_intervals_are_no_absence():
    wants = {"interval": 10.0, "work": 1.0, "tasks": 1}
    for later, submit in ((35.0, 1), (36.0, 0)):
        assert decided(view(**wants), view(now=later, **wants)).submit == submit


def test_it_is_in_every_policy_and_can_be_tuned():
    assert Policy.load("fcfs").size == Demand()
    policy = Policy.parse("queue: {strategy: fcfs}\nsize: {strategy: demand, idle_grace: 1 min}")
    assert policy.size == Demand(idle_grace=60.0)
    assert Policy.parse(policy.to_yaml()) == replace(policy, name="policy")
    assert policy.with_(**{"size.forbid_idling": True}).size == Demand(idle_grace=60.0, forbid_idling=True)
    with pytest.raises(ValueError, match=r"size.max_pending.*1 or more"):
        policy.with_(**{"size.max_pending": 0})


# --- what always holds

times = st.floats(0, 1e4)
units = st.builds(
    Unit,
    name=st.sampled_from("abcdefgh"),
    members=st.integers(1, 3),
    connected=st.integers(0, 3),
    state=st.sampled_from(["queued", "running", "gone", "unknown"]),
    age=times,
    running_for=st.none() | times,
    left=st.sampled_from([inf, 10.0, 100.0, 1e4]),
    is_busy=st.booleans(),
    held=st.sampled_from([0.0, 1e6, 1e9]),
    pinned=st.sampled_from(["", "", "it holds an actor"]),
    is_leaving=st.booleans(),
    refused_ago=st.sampled_from([inf, inf, 5.0, 100.0]),
)
views = st.builds(
    lambda limits, units, **more: ClusterView(
        interval=1.0,
        units=tuple({u.name: u for u in units}.values()),
        minimum=limits[0],
        maximum=limits[1],
        **more,
    ),
    limits=st.sampled_from([(0, inf), (0, 3), (2, 4), (1, 1), (0, 0)]),
    units=st.lists(units, max_size=8),
    now=st.just(0.0),
    threads=st.integers(1, 8),
    memory=st.sampled_from([inf, 1e9, 1e10]),
    nodes_per_unit=st.sampled_from([1.0, 2.0]),
    work=st.floats(0, 1e5),
    tasks=st.integers(0, 10_000),
    dormant=st.integers(0, 3),
    steps=st.integers(0, 5),
    jobs=st.lists(st.builds(JobNeed, st.integers(1, 5), st.integers(5, 9), times, st.integers(0, 99))).map(
        tuple
    ),
)
strategies = st.builds(
    Demand,
    idle_grace=st.sampled_from([0.0, 3.0, 15.0]),
    cool_down=st.sampled_from([0.0, 5.0]),
    max_pending=st.integers(1, 6),
    forbid_idling=st.booleans(),
    retries=st.integers(0, 3),
)


def test_who_may_come_back_is_no_reason_to_send_away_who_is_there():
    """Nobody is left otherwise, if it does not."""
    quick = Demand(idle_grace=0.0, cool_down=0.0)
    both = view(units=[up("a"), up("b")], dormant=1)
    plan = decided(
        both, replace(both, now=1.0, units=(replace(up("a"), connected=0), up("b"))), strategy=quick
    )
    assert plan.target == 1 and not plan.leave


@pytest.mark.slow
@settings(deadline=None)
@given(
    strategy=strategies,
    seen=st.lists(views, min_size=1, max_size=8),
    gaps=st.lists(st.floats(0.1, 6.0), min_size=8),
)
def test_what_always_holds(strategy, seen, gaps):
    now, memory = 0.0, None
    for look, gap in zip(seen, gaps, strict=False):
        now += gap
        look = replace(look, now=now)
        plan, after = strategy.decide(look, memory)
        assert strategy.decide(look, memory) == (plan, after), "not a pure function"
        memory = after
        by_name = {unit.name: unit for unit in look.units}
        told = [*names(plan.cancel), *names(plan.leave), *names(plan.dead)]
        assert len(told) == len(set(told)) and set(told) <= set(by_name)
        assert not any(by_name[name].is_leaving for name in told), "who leaves is left alone"
        # who was connected and is back in the queue waits there like any other
        known = set(after.units)
        pending = [u for u in look.units if not u.connected and u.name not in known and not u.is_leaving]
        pending = {u.name for u in pending} - set(names(plan.dead))
        assert set(names(plan.cancel)) <= pending, "only what waits is cancelled"
        assert not any(by_name[name].connected for name in names(plan.dead))
        assert plan.submit == 0 or len(pending) + plan.submit <= strategy.max_pending
        stay = len(look.units) - len(told) - sum(u.is_leaving for u in look.units)
        if plan.submit:
            assert not plan.cancel, "asking and taking back at once"
        assert look.minimum <= plan.target <= look.maximum or not plan.inputs
        assert len(pending - set(told)) + plan.submit <= look.maximum or stay > look.maximum
        for parting in plan.leave:
            unit = by_name[parting.unit]
            assert not unit.pinned or "walltime" in parting.reason or "left" in parting.reason
            assert unit.refused_ago >= 60
            if parting.reason.startswith("idle"):
                assert not unit.is_busy
                superfluous = sum(u.connected > 0 for u in look.units if not u.is_leaving) - plan.target
                assert superfluous > 0, "gone although a pending unit could have gone instead"


@given(st.lists(views, max_size=5))
def test_observing_never_forgets_who_is_connected(seen):
    memory = None
    for number, look in enumerate(seen):
        memory, _ = observe(replace(look, now=float(number)), memory)
        assert {unit.name for unit in look.units if unit.connected} <= set(memory.units)
        assert set(memory.units) <= {unit.name for unit in look.units}


@pytest.mark.parametrize("waits", [[0.0], [60.0], [0.0, 60.0, 1800.0], [3e9]])
def test_work_gets_done_without_stacking(waits):
    queue = BatchQueue(list(waits), work=3000.0, maximum=4)
    most = []
    queue.run(Demand(), 3600, lambda queue: most.append(len(queue.units)))
    assert max(most) <= 4
    assert queue.submissions <= 4
    assert ceil(queue.work) == 0 or waits == [3e9]
