"""FPSMA, EGS and performance-aware on the seeds' examples."""

import pytest
from small_machine import machine, sizes, started, wait

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.malleability.egs import Egs
from dask_hpc.strategies.malleability.fcfs_malleable import FcfsMalleable
from dask_hpc.strategies.malleability.fpsma import Fpsma
from dask_hpc.strategies.malleability.grow_shrink import grown, leaving, shrink_for, shrunk
from dask_hpc.strategies.malleability.performance_aware import PerformanceAware
from dask_hpc.strategies.strategy import outlook_after


def range_of(constraint, least, size, most):
    return Job(id="j", nodes=size, kind="malleable", min_nodes=least, max_nodes=most, constraint=constraint)


def test_constraint_examples():
    assert grown(range_of("pof2", 1, 2, 8), 2, 10) == 8  # seed 001, vector 2
    assert shrunk(range_of("pof2", 1, 4, 8), 4, 2) == 2
    assert grown(range_of("even", 2, 2, 32), 2, 8, steps=1) == 4  # seed 000, 2.5
    assert shrunk(range_of("odd", 1, 9, 31), 9, 5, steps=1) == 7
    assert shrunk(range_of("even", 2, 10, 32), 10, 8) == 2  # seed 000, 2.8


def j3_and_j4():
    """Seed 001, section 7.3: J3 on 6 is older than J4 on 10; J5 needs 8."""
    indices = machine(16, now=0.0)
    started(indices, "J3", 6, 4)
    started(indices, "J4", 10, 4)
    wait(indices, ("J5", 8, 400))
    return indices


def test_fpsma_shrinks_the_youngest_first():
    assert sizes(j3_and_j4(), Fpsma()) == {"J4": 4, "J3": 4}


def test_egs_refuses_an_uneven_sacrifice_unless_told():
    assert sizes(j3_and_j4(), Egs()) == {}
    assert sizes(j3_and_j4(), Egs(shares="capped")) == {"J3": 4, "J4": 4}


@pytest.mark.parametrize("strategy", [Fpsma(), Egs(), PerformanceAware()])
def test_all_or_nobody(strategy):
    """Vectors 4 and 5: 16 nodes, at least 4, cannot give 16, but 6."""
    for need, expected in ((16, {}), (6, {"J2": 10})):
        indices = machine(16, now=0.0)
        started(indices, "J2", 16, 4)
        wait(indices, ("next", need, 400))
        assert sizes(indices, strategy) == expected


def two_idle():
    indices = machine(16, now=0.0)
    started(indices, "J3", 6, 4)
    started(indices, "J5", 8, 4)
    return indices


def test_growth():
    assert sizes(two_idle(), Egs()) == {"J3": 7, "J5": 9}  # vector 6
    assert sizes(two_idle(), Egs(shares="capped")) == {"J3": 7, "J5": 9}
    assert sizes(two_idle(), Fpsma()) == {"J3": 8}
    assert sizes(two_idle(), Fpsma(max_steps=1)) == {"J3": 7, "J5": 9}
    assert sizes(two_idle(), FcfsMalleable()) == {"J3": 8}


def test_egs_shrinks_by_what_is_missing_only():
    indices = machine(16, now=0.0)
    started(indices, "J4", 10, 4)
    wait(indices, ("J5", 8, 400))
    assert sizes(indices, Egs()) == {"J4": 8}  # vector 7


def test_egs_deals_the_remainder_one_each():
    """Growing, the oldest get one more; giving, the youngest do."""
    indices = machine(16, now=0.0)
    started(indices, "old", 6, 2)
    started(indices, "young", 7, 2)
    assert sizes(indices, Egs()) == {"old": 8, "young": 8}  # 3 are idle
    wait(indices, ("head", 8, 400))  # lacks 5
    assert sizes(indices, Egs()) == {"old": 4, "young": 4}


def test_egs_rounds_towards_the_present_size():
    indices = machine(12, now=0.0)
    started(indices, "a", 4, 2, 12, constraint="even")
    started(indices, "b", 2, 2, 12, constraint="pof2")
    assert sizes(indices, Egs()) == {"a": 6, "b": 4}  # shares of 3: 7 and 5 are not legal


def test_nobody_is_touched_at_the_guard():
    """Vector 8: strictly more than 60 s must be left."""
    for left, expected in ((60.0, {}), (61.0, {"a": 8})):
        indices = machine(8, now=0.0)
        started(indices, "a", 4, walltime=left)
        assert sizes(indices, Fpsma()) == expected


@pytest.mark.parametrize("strategy", [Fpsma(priority="running"), Egs(priority="running")])
def test_running_jobs_first_never_shrink(strategy):
    indices = machine(16, now=0.0)
    started(indices, "J4", 10, 4)
    wait(indices, ("J5", 8, 400))
    assert sizes(indices, strategy) == {"J4": 16}


def test_nothing_is_decided_while_a_job_changes_size():
    """Vector 12; without the barrier, nodes on their way count and nobody takes what the head needs."""
    indices = machine(16, now=0.0)
    started(indices, "a", 10, 2)
    started(indices, "b", 4, 2)
    wait(indices, ("head", 8, 400))
    indices.begin_resize("a", 4, stall=5.0)
    assert sizes(indices, Fpsma()) == {}
    assert sizes(indices, Fpsma(barrier=False)) == {}  # 2 idle and 6 coming are enough
    assert sizes(indices, Fpsma(barrier=False, priority="running")) == {"b": 6}


def test_growth_is_capped():
    indices = two_idle()
    indices.begin_resize("J3", 7)
    indices.finish_resize("J3")
    indices.now = 10.0
    assert sizes(indices, Fpsma(max_growths=1)) == {"J5": 9}


def measured():
    indices = machine(14, now=0.0)
    for name, mtct in (("good", 0.1), ("new", None), ("bad", 0.9)):
        started(indices, name, 4)
        if mtct is not None:
            indices.mtct[name] = mtct
    return indices


def test_least_efficient_gives_and_most_efficient_takes():
    indices = measured()
    assert sizes(indices, PerformanceAware()) == {"good": 6}
    wait(indices, ("head", 7, 100))
    assert sizes(indices, PerformanceAware()) == {"bad": 1, "new": 2}


def test_thresholds():
    assert sizes(measured(), PerformanceAware(lower=0.05)) == {}
    indices = measured()
    wait(indices, ("head", 6, 100))
    # only "bad" is above 0.5, and it gives 3 of the 4 missing: nobody gives, "good" grows
    assert sizes(indices, PerformanceAware(lower=0.3, upper=0.5)) == {"good": 6}
    indices = measured()
    wait(indices, ("head", 5, 100))
    assert sizes(indices, PerformanceAware(lower=0.3, upper=0.5)) == {"bad": 1}


def test_the_measurement_before_counts_too():
    """Vector 13: 0.5 before, 0.1 now, threshold 0.2."""
    assert sizes(measured(), PerformanceAware(lower=0.2), {"good": (0.3, 0.5)}) == {"good": 6}
    assert sizes(measured(), PerformanceAware(lower=0.06), {"good": (0.3, 0.05)}) == {"good": 6}


def test_evolving_jobs_are_left_to_themselves():
    indices = machine(8, now=0.0)
    started(indices, "e", 4, kind="evolving")
    assert sizes(indices, Fpsma()) == {}


def test_who_cannot_give_is_not_asked():
    indices = machine(16, now=0.0)
    started(indices, "least", 4, 4)
    started(indices, "more", 10, 4)
    found = shrink_for(indices.running.values(), 3, Job(id="next", nodes=5))
    assert [(resize.job, resize.nodes) for resize in found] == [("more", 7)]


def test_what_will_be_given_back():
    """By who is shrinking, and by services that were told to."""
    indices = machine(8, now=0.0)
    assert leaving(Snapshot(indices)) == 0
    started(indices, "a", 4)
    indices.begin_resize("a", 1)
    assert leaving(Snapshot(indices)) == 3
    indices.lend("copies", ["4", "5"], 2)
    indices.want_back("copies", 2)
    assert leaving(Snapshot(indices)) == 5
    indices.finish_resize("a")
    assert leaving(Snapshot(indices)) == 2


def test_what_is_left_when_some_start():
    indices = machine(8, now=0.0)
    wait(indices, ("a", 2, 1.0), ("b", 3, 1.0))
    snapshot = Snapshot(indices)
    for names, head, idle in (("", "a", 8), ("a", "b", 6), ("b", "a", 5), ("ab", None, 3)):
        starts = [Start(name, {"a": 2, "b": 3}[name], "") for name in names]
        found = outlook_after(snapshot, starts)
        assert (found.head and found.head.id, found.idle) == (head, idle)
