"""Conservative backfilling on cases worked out by hand."""

from small_machine import decided, machine, wait

from dask_hpc.strategies.queue.conservative_backfill import ConservativeBackfill

STRATEGY = ConservativeBackfill()


def test_every_job_has_a_reservation():
    indices = machine(4, (2, 100.0), now=0.0)
    wait(indices, ("a", 4, 50), ("b", 2, 200), ("c", 1, 100))
    names, memory = decided(indices, STRATEGY)
    assert names == ["c"]  # until 100 beside the running job, delaying neither a nor b
    assert memory.times == {"a": 100.0, "b": 150.0}


def test_second_reservation_is_kept_where_easy_would_break_it():
    indices = machine(4, (3, 100.0), now=0.0)
    wait(indices, ("a", 2, 100), ("b", 2, 100), ("c", 1, 300))
    names, memory = decided(indices, STRATEGY)
    # c would leave a its two nodes at 100, but b would then have to wait until 200: EASY starts c
    assert names == []
    assert memory.times == {"a": 100.0, "b": 100.0, "c": 200.0}


def test_early_end_moves_reservations_forward_only():
    indices = machine(4, (4, 100.0), now=0.0)
    wait(indices, ("a", 3, 50), ("b", 4, 50), ("c", 1, 100))
    _, memory = decided(indices, STRATEGY)
    assert memory.times == {"a": 100.0, "b": 150.0, "c": 200.0}
    indices.now = 40.0
    indices.end("r0")
    names, memory = decided(indices, STRATEGY, memory)
    assert names == ["a"]
    assert memory.times == {"b": 90.0, "c": 140.0}


def test_overdue_job_makes_promises_anew_instead_of_breaking():
    indices = machine(2, (2, 100.0), now=0.0)
    wait(indices, ("a", 2, 50))
    _, memory = decided(indices, STRATEGY)
    indices.now = 100.0
    indices.expect_end("r0", 160.0)
    names, memory = decided(indices, STRATEGY, memory)
    assert names == [] and memory.times == {"a": 160.0}


def test_overdue_job_that_is_not_known_to_be_late_holds_its_nodes():
    indices = machine(2, (2, 100.0), now=101.0)
    wait(indices, ("a", 2, 50))
    assert decided(indices, STRATEGY)[0] == []


def test_job_that_does_not_fit_the_shrunken_machine_waits_for_ever():
    indices = machine(2, now=0.0)
    wait(indices, ("a", 3, 50), ("b", 1, 50))
    names, memory = decided(indices, STRATEGY)
    assert names == ["b"]
    assert memory.times == {"a": float("inf")}


def test_withdrawn_job_gives_its_reservation_back():
    indices = machine(2, (2, 100.0), now=0.0)
    wait(indices, ("a", 2, 50), ("b", 2, 50))
    _, memory = decided(indices, STRATEGY)
    indices.withdraw("a")
    _, memory = decided(indices, STRATEGY, memory)
    assert memory.times == {"b": 100.0}


def test_who_runs_when_its_time_is_up_keeps_its_nodes():
    indices = machine(4, (4, 100.0), now=0.0)
    wait(indices, ("a", 4, 50))
    _, memory = decided(indices, STRATEGY)
    assert memory.times == {"a": 100.0}
    indices.now = 100.0
    assert decided(indices, STRATEGY, memory)[0] == []
