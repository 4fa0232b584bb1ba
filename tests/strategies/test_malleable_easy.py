"""MEBF on the seed's vectors and on cases worked out by hand."""

from hypothesis import given
from hypothesis import strategies as st
from small_machine import decided, machine, resizes, sizes, started, wait

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import PowerLaw
from dask_hpc.strategies.malleability.malleable_easy import MalleableEasy, MalleableEasyQueue, remaining
from dask_hpc.strategies.strategy import outlook_after


def test_feasibility():
    """Seed 002, vectors 5 and 6."""
    assert MalleableEasy(realloc_cost=4).can_shrink(100, 10, 2)
    assert not MalleableEasy(realloc_cost=5).can_shrink(100, 10, 2)
    assert not MalleableEasy(exact=True).can_shrink(100, 10, 2)  # a factor of 1.25
    assert not MalleableEasy().can_grow(100, 400)
    assert MalleableEasy().can_grow(101, 400)


def full():
    indices = machine(10, now=10.0)
    started(indices, "early", 5, submitted=0.0)
    started(indices, "late", 5, submitted=9.0)
    indices.waiting.add(Job(id="head", nodes=1, walltime=100, submitted=5.0))
    return indices


def test_lower_priority_gives_a_fifth():
    assert sizes(full(), MalleableEasy()) == {"late": 4} == sizes(full(), MalleableEasy(victims="all"))
    indices = full()
    indices.waiting.remove("head")
    indices.waiting.add(Job(id="head", nodes=2, walltime=100, submitted=5.0))
    assert sizes(indices, MalleableEasy()) == {}  # "late" gives only one
    assert sizes(indices, MalleableEasy(victims="all")) == {"late": 4, "early": 4}


def test_longest_grows():
    indices = machine(10, now=0.0)
    started(indices, "short", 2, walltime=500.0)
    started(indices, "long", 4, walltime=1000.0, most=6)
    assert sizes(indices, MalleableEasy()) == {"long": 6, "short": 4}
    indices.now = 760.0  # less than a quarter is left of either
    assert sizes(indices, MalleableEasy()) == {}


def queued():
    indices = machine(8, (4, 100.0), now=0.0)
    wait(indices, ("rigid", 6, 100))
    indices.waiting.add(Job(id="m", nodes=8, min_nodes=2, max_nodes=8, kind="malleable", walltime=300.0))
    return indices


def test_whoever_fits_in_any_size_starts():
    indices = queued()
    assert decided(indices, MalleableEasyQueue())[0] == ["m"]
    assert len(indices.running["m"].nodes) == 4


def test_unless_the_head_is_reserved_for():
    indices = queued()
    assert decided(indices, MalleableEasyQueue(reserve_head=True))[0] == ["m"]
    # at 100 s eight nodes come free and two are spare: on these it does no harm
    assert len(indices.running["m"].nodes) == 2


def test_priority_comes_first():
    indices = machine(4, now=0.0)
    indices.waiting.rerank(MalleableEasyQueue())
    indices.waiting.add(Job(id="low", nodes=4, walltime=10))
    indices.waiting.add(Job(id="high", nodes=4, walltime=10, priority=5))
    assert decided(indices, MalleableEasyQueue())[0] == ["high"]


def test_who_came_after_the_head_does_not_grow_past_it():
    indices = machine(12, now=10.0)
    started(indices, "early", 4, most=5, submitted=0.0)
    started(indices, "late", 4, most=6, submitted=9.0, walltime=2000.0)
    indices.waiting.add(Job(id="head", nodes=8, walltime=100, submitted=5.0))
    assert sizes(indices, MalleableEasy()) == {"early": 5}
    indices.waiting.remove("head")
    assert sizes(indices, MalleableEasy()) == {"late": 6, "early": 5}
    indices.waiting.add(Job(id="same time", nodes=8, walltime=100, submitted=9.0))
    assert sizes(indices, MalleableEasy()) == {"late": 6, "early": 5}


def test_nodes_on_their_way_count_for_the_head():
    indices = full()
    started_late = indices.running["late"]
    indices.waiting.remove("head")
    indices.waiting.add(Job(id="head", nodes=2, walltime=100, submitted=5.0))
    assert sizes(indices, MalleableEasy(victims="all")) == {"late": 4, "early": 4}
    indices.begin_resize("late", 4)
    assert len(indices.running["late"].nodes) == 5 == len(started_late.nodes)
    assert sizes(indices, MalleableEasy(victims="all")) == {"early": 4}
    indices.begin_resize("early", 4)
    assert sizes(indices, MalleableEasy(victims="all")) == {}


def test_nobody_goes_below_its_minimum_and_nobody_gives_in_vain():
    indices = machine(10, now=10.0)
    started(indices, "small", 5, least=5, submitted=9.0)
    started(indices, "odd", 5, submitted=8.0, constraint="odd")
    indices.waiting.add(Job(id="head", nodes=1, walltime=100, submitted=5.0))
    assert sizes(indices, MalleableEasy(sharing_factor=0.4)) == {}  # two of five take too long: 1.4 times
    assert sizes(indices, MalleableEasy(sharing_factor=0.4, gamma=1.4)) == {"odd": 3}


def test_a_growth_has_to_gain_more_than_it_costs():
    indices = machine(3, now=0.0)
    started(indices, "job", 2, most=3, walltime=300.0)
    assert sizes(indices, MalleableEasy(realloc_cost=99)) == {"job": 3}  # 300 s become 200 s
    assert sizes(indices, MalleableEasy(realloc_cost=101)) == {}


def test_the_second_that_grows_gets_what_the_first_left():
    indices = machine(7, now=0.0)
    started(indices, "long", 2, most=4, walltime=2000.0)
    started(indices, "short", 2, most=4)
    assert sizes(indices, MalleableEasy()) == {"long": 4, "short": 3}


def test_who_is_overdue_or_has_no_end_gives_nothing():
    assert not MalleableEasy().can_shrink(0, 10, 2)
    assert not MalleableEasy().can_shrink(float("inf"), 10, 2)
    assert MalleableEasy(gamma=1.25, exact=True).can_shrink(100, 10, 2)


def test_each_waiting_job_is_made_room_for_in_turn():
    indices = machine(30, now=10.0)
    for number in range(3):
        started(indices, f"r{number}", 10, submitted=7.0 + number)
    for name, nodes, submitted in (("too large", 30, 1.0), ("a", 2, 2.0), ("b", 3, 3.0), ("late", 2, 8.5)):
        indices.waiting.add(Job(id=name, nodes=nodes, walltime=100, submitted=submitted))
    assert sizes(indices, MalleableEasy(pending="first")) == {}  # six nodes are not enough for thirty
    # "a" is served by r2, "b" by r1 and r0; of those later than "late" nobody is left
    plan = {r.job: r.reason for r in resizes(indices, MalleableEasy())}
    assert sizes(indices, MalleableEasy()) == {"r0": 8, "r1": 8, "r2": 8}
    assert [plan[f"r{number}"][-15:] for number in range(3)] == ["job b can start"] * 2 + ["job a can start"]


def test_what_is_left_over_and_what_is_on_its_way_is_for_the_next():
    indices = machine(20, now=10.0)
    started(indices, "r0", 10, submitted=7.0)
    started(indices, "r1", 10, submitted=8.0)
    for name in ("a", "b", "c"):
        assert sizes(indices, MalleableEasy()) == ({} if name == "a" else {"r1": 8})  # enough for two
        indices.waiting.add(Job(id=name, nodes=1, walltime=100, submitted=1.0))
    assert sizes(indices, MalleableEasy()) == {"r1": 8, "r0": 8}
    indices.begin_resize("r1", 8)
    assert sizes(indices, MalleableEasy()) == {"r0": 8}
    assert sizes(indices, MalleableEasy(pending="first")) == {}


def test_nobody_gives_twice_and_who_does_not_give_is_skipped():
    indices = machine(20, now=10.0)
    started(indices, "r0", 10, submitted=7.0)
    started(indices, "overdue", 10, submitted=8.0, walltime=5.0)
    indices.now = 20.0
    for name in ("a", "b"):
        indices.waiting.add(Job(id=name, nodes=2, walltime=100, submitted=1.0))
    assert sizes(indices, MalleableEasy()) == {"r0": 8}


def test_who_has_a_higher_priority_than_some_that_wait_may_grow():
    indices = machine(12, now=10.0)
    started(indices, "early", 4, most=5, submitted=0.0)
    started(indices, "late", 4, most=6, submitted=9.0, walltime=2000.0)
    indices.waiting.add(Job(id="head", nodes=8, walltime=100, submitted=5.0))
    indices.waiting.add(Job(id="tail", nodes=8, walltime=100, submitted=9.5))
    assert sizes(indices, MalleableEasy()) == {"late": 6, "early": 5}
    assert sizes(indices, MalleableEasy(pending="first")) == {"early": 5}


def test_those_who_start_in_this_decision_are_not_made_room_for():
    indices = machine(12, now=10.0)
    started(indices, "r0", 10, submitted=7.0)
    indices.waiting.add(Job(id="starts", nodes=2, walltime=100, submitted=1.0))
    indices.waiting.add(Job(id="too large", nodes=12, walltime=100, submitted=2.0))
    snapshot = Snapshot(indices)
    starts, _ = MalleableEasyQueue().decide(snapshot, None)
    assert [start.job for start in starts] == ["starts"]
    assert not MalleableEasy().decide(snapshot, outlook_after(snapshot, starts), None)[0]


def test_what_is_left_follows_from_what_was_recorded():
    indices = machine(10, now=0.0)
    job = {"walltime": 1000.0, "most": 8}
    started(indices, "known", 4, recorded=400.0, **job)
    started(indices, "unknown", 4, **job)
    indices.now = 100.0
    known, unknown = indices.running["known"], indices.running["unknown"]
    assert (remaining(known, 100.0), remaining(unknown, 100.0)) == (300.0, 900.0)
    assert remaining(known, 500.0) == 0.0
    # half of it was done on four nodes; the other half takes half as long on eight
    indices.end("unknown")
    indices.now = 200.0
    indices.begin_resize("known", 8)
    indices.finish_resize("known")
    assert remaining(indices.running["known"], 200.0) == 100.0
    assert remaining(indices.running["known"], 250.0) == 50.0


def test_without_a_walltime_it_is_progress_that_counts_or_else_the_time_so_far():
    indices = machine(4, now=0.0)
    started(indices, "a", 4, recorded=400.0, walltime=float("inf"))
    assert remaining(indices.running["a"], 100.0) == 300.0
    indices.expect_end("a", 150.0)
    assert remaining(indices.running["a"], 100.0) == 50.0


def test_recorded_times_decide_who_gives_and_who_grows():
    indices = machine(10, now=10.0)
    started(indices, "r", 10, submitted=9.0, walltime=1000.0, recorded=11.0)
    indices.waiting.add(Job(id="head", nodes=1, walltime=100, submitted=5.0))
    assert sizes(indices, MalleableEasy(realloc_cost=0.4)) == {"r": 8}  # 11 s are left: 1.2 + 0.4 / 11
    assert sizes(indices, MalleableEasy(realloc_cost=0.5)) == {}
    indices = machine(10, now=0.0)
    started(indices, "long by its walltime", 2, walltime=900.0, recorded=100.0, most=10)
    started(indices, "long", 2, walltime=500.0, recorded=400.0, most=4)
    assert [one.job for one in resizes(indices, MalleableEasy())] == ["long", "long by its walltime"]
    indices.now = 76.0  # less than a quarter is left of the first
    assert sizes(indices, MalleableEasy()) == {"long": 4}


@given(st.lists(st.tuples(st.integers(1, 16), st.floats(1, 20)), max_size=5))
def test_whatever_sizes_it_had_what_is_left_is_the_rest_of_the_work(steps):
    indices = machine(16, now=0.0)
    started(indices, "r", 4, walltime=1000.0, recorded=400.0, speedup=PowerLaw(0.8))
    size, done = 4, 0.0
    for target, seconds in steps:
        indices.now += seconds
        done += seconds / indices.running["r"].job.recorded_on(size)
        if target != size:
            indices.begin_resize("r", target)
            indices.finish_resize("r")
        size = target
    rest = max(0.0, 1 - done) * indices.running["r"].job.recorded_on(size)
    assert abs(remaining(indices.running["r"], indices.now) - rest) < 1e-6


def test_the_quarter_is_one_of_the_time_on_the_start_nodes():
    indices = machine(4, now=0.0)
    indices.waiting.add(Job(id="r", nodes=4, min_nodes=1, max_nodes=4, kind="malleable", recorded=100.0))
    indices.start("r", 1)
    indices.now = 374.0  # of 400 s on one node
    assert sizes(indices, MalleableEasy()) == {"r": 4}
    indices.now = 376.0
    assert sizes(indices, MalleableEasy()) == {}
