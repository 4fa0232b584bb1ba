"""First come, first served on cases worked out by hand."""

from small_machine import decided, machine, wait

from dask_hpc.strategies.queue.fcfs import Fcfs


def test_stops_at_the_first_that_does_not_fit():
    indices = machine(6, (2, 100.0))
    wait(indices, ("a", 2, 10), ("b", 3, 10), ("c", 1, 10))
    assert decided(indices, Fcfs())[0] == ["a"]


def test_starts_several_at_once_in_order():
    indices = machine(6)
    wait(indices, ("a", 1, 10), ("b", 2, 10), ("c", 3, 10))
    assert decided(indices, Fcfs())[0] == ["a", "b", "c"]


def test_nothing_to_do():
    assert decided(machine(2), Fcfs())[0] == []
    busy = machine(2, (2, 100.0))
    wait(busy, ("a", 1, 10))
    assert decided(busy, Fcfs())[0] == []
