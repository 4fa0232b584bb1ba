"""What is laid over a workload: malleable jobs, laws, constraints, load; and whatever it leaves alone."""

from collections import Counter
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import Amdahl, IoScaling, Linear, PowerLaw, is_legal
from dask_hpc.simulator import Arrival, Overlay, Workload, offered_load, simulate
from dask_hpc.simulator.overlay import EFFICIENCY, LAWS, READS, squeezed

SIZES = (1, 2, 3, 4, 7, 8, 9, 16, 30, 64)


def trace(count=200, nodes=64, gap=50.0, users=7):
    arrivals = [
        Arrival(
            Job(
                id=str(number),
                nodes=SIZES[number % len(SIZES)],
                walltime=2000.0,
                submitted=100.0 + gap * number,
                user=f"u{number % users}",
            ),
            1000.0,
        )
        for number in range(count)
    ]
    return Workload("trace", arrivals, nodes)


def test_nothing_said_is_nothing_changed():
    assert Overlay().over(trace()) == trace()


def test_half_to_double_of_what_was_asked():
    jobs = [a.job for a in Overlay(malleable=1.0, rule="half-double").over(trace())]
    ranges = {(job.min_nodes, job.nodes, job.max_nodes) for job in jobs}
    assert ranges == {((n + 1) // 2, n, min(2 * n, 64)) for n in SIZES}
    assert {job.constraint for job in jobs} == {"any"}


def test_wide_is_from_one_to_all_under_constraints_that_differ():
    jobs = [a.job for a in Overlay(malleable=1.0, rule="wide").over(trace(2000, users=211))]
    assert all(is_legal(job.constraint, job.nodes) for job in jobs)
    assert {job.constraint for job in jobs if job.nodes == 64} == {"any", "even", "pof2", "square"}
    assert {job.constraint for job in jobs if job.nodes == 7} == {"any"}
    nine = Counter(job.constraint for job in jobs if job.nodes == 9)
    assert set(nine) == {"any", "square"} and min(nine.values()) > 0.35 * nine.total()  # a coin
    most = {job.constraint: job.max_nodes for job in jobs}
    assert most == {"any": 64, "even": 64, "pof2": 64, "square": 64}
    least = {job.constraint: job.min_nodes for job in jobs}
    assert least == {"any": 1, "even": 2, "pof2": 1, "square": 1}


def test_jobs_of_one_user_on_as_many_nodes_are_alike():
    found = {}
    for arrival in Overlay(malleable=1.0, rule="wide", law="mixed").over(trace(700)):
        job = arrival.job
        found.setdefault((job.user, job.nodes), set()).add((job.constraint, job.speedup))
        assert job.speedup == arrival.speedup
    assert len(found) == 70 and {len(one) for one in found.values()} == {1}


@pytest.mark.parametrize(
    ("law", "kind"), [("linear", Linear), ("power", PowerLaw), ("amdahl", Amdahl), ("io", IoScaling)]
)
def test_users_know_what_they_ask_for(law, kind):
    seen = set()
    for arrival in Overlay(malleable=1.0, law=law).over(trace(700)):
        assert type(arrival.speedup) is kind
        nodes = max(arrival.job.nodes, 8)
        efficiency = arrival.speedup.efficiency(nodes)
        if law == "linear":
            assert efficiency == 1.0
        elif law == "io":
            # as fast as it gets on what it asks for: twice the nodes halve the computing alone
            reads = arrival.speedup.demand.intensity(nodes)
            assert READS[0] <= reads <= READS[1]
            twice = arrival.speedup.factor(2 * nodes) / arrival.speedup.factor(nodes)
            assert twice == pytest.approx(1 / (reads + (1 - reads) / 2))
        else:
            assert EFFICIENCY[0] <= efficiency <= EFFICIENCY[1]
            step = (efficiency - EFFICIENCY[0]) / (EFFICIENCY[1] - EFFICIENCY[0]) * 32 - 0.5
            assert step == pytest.approx(round(step), abs=1e-6)
        seen.add(round(efficiency, 6))
    assert law in ("linear", "io") or len(seen) > 10


def test_mixed_laws_are_a_quarter_of_each():
    found = Overlay(malleable=1.0, law="mixed").over(
        Workload(
            "many",
            [Arrival(Job(id=str(i), nodes=16, user=f"u{i}", walltime=9.0), 5.0) for i in range(2000)],
            64,
        )
    )
    kinds = Counter(type(a.speedup).__name__ for a in found)
    assert set(kinds) == {"Linear", "PowerLaw", "Amdahl", "IoScaling"} and min(kinds.values()) > 400


def test_laws_that_are_not_declared_are_true_all_the_same():
    said, hidden = (
        Overlay(malleable=0.5, law="power", declared=declared).over(trace(), seed=3)
        for declared in (True, False)
    )
    for one, other in zip(said, hidden, strict=True):
        assert one.speedup == other.speedup and one.job.nodes == other.job.nodes
        if one.job.resizable:
            assert one.job.speedup is not None and other.job.speedup is None
            assert other.limit == inf and other.job.walltime == one.job.walltime
        else:
            assert one == other


def test_the_choice_depends_on_the_seed_alone():
    def chosen(share, seed, **values):
        found = Overlay(malleable=share, **values).over(trace(), seed=seed)
        return {a.job.id for a in found if a.job.resizable}

    assert chosen(0.2, 1) < chosen(0.5, 1, rule="wide", law="mixed", load=0.3)
    assert chosen(0.2, 1) != chosen(0.2, 2) and len(chosen(0.2, 1)) == 40


def test_load_by_hand():
    workload = trace(11, 100, 100.0)  # 1000 s from the first to the last
    work = 1000.0 * sum(SIZES[n % 10] for n in range(11))
    assert offered_load(workload) == pytest.approx(work / (100 * 1000.0))
    assert offered_load(workload, 50) == pytest.approx(1000.0 * (sum(SIZES) + 1 - 64) / (50 * 1000.0))
    assert offered_load(Workload("none", [], 4)) == 0.0
    at_once = Workload("at once", [Arrival(Job(id=str(i), nodes=1, walltime=5.0), 5.0) for i in range(3)], 4)
    assert offered_load(at_once) == inf
    with pytest.raises(InputError, match="load: at once has none that could be changed"):
        squeezed(at_once, 1.0)


def test_what_is_killed_at_its_limit_makes_no_more_load():
    arrivals = [Arrival(Job(id=str(i), nodes=2, walltime=50.0, submitted=100.0 * i), 80.0) for i in range(2)]
    assert offered_load(Workload("killed", arrivals, 4)) == pytest.approx(0.5)


@given(st.floats(0.01, 20), st.integers(2, 60))
@settings(deadline=None)
def test_squeezed_to_a_load(load, count):
    before = trace(count)
    after = squeezed(before, load)
    assert offered_load(after) == pytest.approx(load)
    assert after.arrivals[0].job.submitted == 100.0
    gaps = [
        b.job.submitted - a.job.submitted for a, b in zip(after.arrivals, after.arrivals[1:], strict=False)
    ]
    assert max(gaps) == pytest.approx(min(gaps))
    for one, other in zip(before, after, strict=True):
        assert (one.job.id, one.job.nodes, one.runtime) == (other.job.id, other.job.nodes, other.runtime)


def test_deadlines_and_those_who_give_up_move_along():
    jobs = [
        Job(id="a", nodes=1, walltime=10.0, submitted=0.0),
        Job(id="b", nodes=1, walltime=10.0, submitted=100.0, soft_deadline=120.0, deadline=130.0),
    ]
    workload = Workload("dated", [Arrival(jobs[0], 10.0), Arrival(jobs[1], 10.0, cancelled=150.0)], 1)
    later = squeezed(workload, 0.1).arrivals[1]  # 20 s of work in 200 s
    assert later.job.submitted == pytest.approx(200.0)
    assert (later.job.soft_deadline, later.job.deadline) == pytest.approx((220.0, 230.0))
    assert later.cancelled == pytest.approx(250.0)


def test_the_first_ones_make_the_load():
    found = Overlay(first=20, load=0.7).over(trace())
    assert len(found) == 20 and offered_load(found) == pytest.approx(0.7)


def test_more_load_is_more_waiting():
    waits = [
        simulate(Overlay(load=load).over(trace()), policy="easy-backfill").metrics["mean_wait"]
        for load in (0.4, 0.8, 1.2)
    ]
    assert waits[0] < waits[1] < waits[2]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"malleable": 1.5}, "malleable: found 1.5; allowed: 0 to 1"),
        ({"law": "cubic"}, f"law: found 'cubic'; allowed: {', '.join(LAWS)}"),
        ({"load": 0.0}, "load: found 0.0; allowed: more than 0"),
        ({"load": float("nan")}, "load: found nan"),
        ({"first": 0}, "first: found 0; allowed: 1 or more"),
    ],
)
def test_bad_values(values, complaint):
    with pytest.raises(InputError, match=complaint):
        Overlay(**values)


def test_a_bad_rule_is_complained_of():
    with pytest.raises(InputError, match="rule: found 'wise'"):
        Overlay(malleable=0.5, rule="wise").over(trace())
