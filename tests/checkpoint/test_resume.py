"""Whoever is killed in the midst of a run: the same program, run again, gives the same result to the bit."""

import numpy as np
import pytest
from killed_runs import N, Run, done, expected, kill, until

from dask_hpc.checkpoint.faults import VARIABLE


@pytest.fixture
def run(tmp_path):
    with Run(tmp_path) as run:
        yield run


def finishes(run, process):
    assert process.wait(90) == 0, run.output()
    np.testing.assert_array_equal(np.load(run.result), expected())


@pytest.mark.slow
def test_a_new_scheduler_with_other_workers_goes_on_from_the_last_commit(run):
    file, scheduler, workers = run.cluster(2)
    first, log = run.program(file, workers=2)
    until(lambda: run.stored() >= 6, "a version in the store")
    kill(scheduler)
    stored = run.stored()
    assert first.wait(60) != 0
    kill(*workers)
    assert len(done(log)) < N, "it was over before it was killed"
    file, _, _ = run.cluster(3)
    second, again = run.program(file, workers=3)
    finishes(run, second)
    assert done(again) == list(range(stored, N))


@pytest.mark.slow
def test_another_client_goes_on_from_memory(run):
    file, _, _ = run.cluster(3)
    first, log = run.program(file, store=False, workers=3)
    until(lambda: len(done(log)) >= 8, "eight iterations")
    kill(first)
    did = len(done(log))
    second, again = run.program(file, store=False, workers=3)
    finishes(run, second)
    assert done(again)[0] > did - 8, "it did not go on from memory"
    assert done(again) == list(range(done(again)[0], N))


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["claimed", "manifest-begun", "manifest-written:2", "manifest-named", "prune-hidden"]
)
def test_a_scheduler_killed_in_a_commit_leaves_a_version(run, point):
    file, scheduler, workers = run.cluster(2, **{VARIABLE: point})
    first, _ = run.program(file)
    assert scheduler.wait(60) != 0
    stored = run.stored()
    kill(first, *workers)
    file, _, _ = run.cluster(1)
    second, again = run.program(file)
    finishes(run, second)
    assert done(again) == list(range(stored, N))


@pytest.mark.slow
@pytest.mark.parametrize("point", ["block-begun", "block-written", "block-named", "give", "take-kept"])
def test_a_worker_killed_in_a_commit_stops_nothing(run, point):
    file, _, _ = run.cluster(1)  # both have a part in each commit, and the one that is left has no partner
    victim = run.worker(file, **{VARIABLE: point})
    first, log = run.program(file, workers=2)
    finishes(run, first)
    assert victim.poll() not in (None, 0), "nobody was killed"
    assert done(log) == list(range(N))
    assert run.stored() == N
