"""MEBF on the seed's vectors and on cases worked out by hand."""

from small_machine import decided, machine, sizes, started, wait

from dask_hpc.model.job import Job
from dask_hpc.strategies.malleability.malleable_easy import MalleableEasy, MalleableEasyQueue


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
    assert sizes(full(), MalleableEasy()) == {"late": 4}
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
