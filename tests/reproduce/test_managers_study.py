"""What the studies of managers under failures measure."""

import pytest

from dask_hpc.reproduce import resilience_managers as study
from dask_hpc.simulator.built_in import built_in


@pytest.mark.slow
def test_a_machine_of_parts_is_foretold_like_the_whole(monkeypatch):
    """200 nodes, each of which stands for 600, against all 120,000: the same is given up and earned."""
    monkeypatch.setattr(study, "_JOBS", 12)
    found = study.played("Slack", "best", "resilient", "unbiased", 0)
    monkeypatch.setattr(study, "_NODES", 120_000)
    assert found == study.played("Slack", "best", "resilient", "unbiased", 0)
    assert found != study.played("Slack", "best", "walltime", "unbiased", 0)


def test_jobs_without_room_for_their_replicas_are_dropped(monkeypatch):
    monkeypatch.setattr(study, "_JOBS", 12)
    workload = list(
        built_in("exascale", jobs=12, seed=0, pattern="large", protocol="redundancy-2", nodes=200)
    )
    tall = [arrival.job for arrival in workload if arrival.job.nodes > 200]
    assert tall
    earned, dropped = study.played("FCFS", "redundancy-2", "walltime", "large", 0)
    assert dropped >= 100 * len(tall) / len(workload)
    total = sum(arrival.job.value for arrival in workload)
    assert 0 < earned <= 100 * (1 - sum(job.value for job in tall) / total)


@pytest.mark.parametrize("manager", study.MANAGERS)
def test_all_is_earned_where_nothing_fails_and_nobody_waits(manager, monkeypatch):
    """The jobs that fill the machine are all there are."""
    monkeypatch.setattr(study, "_JOBS", 0)
    for expected in ("walltime", "history"):
        assert study.played(manager, "none", expected, "unbiased", 3) == (pytest.approx(100), 0)
