"""The built-in workload of large jobs with deadlines and values on a machine that fails."""

from statistics import mean

import pytest

from dask_hpc import InputError, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival
from dask_hpc.simulator.built_in import built_in, large_jobs, parse_built_in
from dask_hpc.simulator.readers import load_workload

HOUR = 3600.0


def jobs(**more):
    return [one.job for one in built_in("exascale", protocol="none", **more)]


def test_the_machine_is_full_at_first_and_then_jobs_come():
    for seed in range(20):
        found = jobs(seed=seed, jobs=30)
        fill = [job for job in found if job.submitted == 0]
        assert sum(job.nodes for job in fill) == 120_000 and len(found) == len(fill) + 30
        assert all(job.nodes % 1200 == 0 for job in found)
    later = [job.submitted for job in jobs(jobs=4000) if job.submitted]
    assert later[-1] / 4000 == pytest.approx(6 * HOUR, rel=0.05)


def test_lengths_deadlines_and_values():
    found = [job for job in jobs(jobs=3000) if job.submitted]
    for job in found:
        assert job.walltime / HOUR in (3, 6, 12, 24)
        assert job.value == pytest.approx(job.nodes / 1200 * job.walltime / (6 * HOUR))
        assert job.soft_deadline - job.submitted == pytest.approx(1.5 * job.walltime)
        assert 1.5 <= (job.deadline - job.submitted) / job.walltime <= 2.5 + 1e-9
    assert {job.nodes // 1200 for job in found} == {1, *range(10, 101, 10)}
    assert mean((job.deadline - job.submitted) / job.walltime for job in found) == pytest.approx(2, rel=0.02)
    about = {(job.user, job.memory, job.messages) for job in found}
    assert about == {("L32", 32e9, 0), ("L64", 64e9, 0), ("H32", 32e9, 0.75), ("H64", 64e9, 0.75)}
    load = sum(job.nodes * job.walltime for job in found) / (120_000 * found[-1].submitted)
    assert load == pytest.approx(0.94, rel=0.1)


def test_patterns_are_of_one_kind():
    assert {job.user for job in jobs(pattern="high-memory")} == {"L64", "H64"}
    assert {job.user for job in jobs(pattern="high-communication")} == {"H32", "H64"}
    assert {job.nodes for job in jobs(pattern="large") if job.submitted} == {
        1200 * s for s in range(50, 101, 10)
    }


def test_with_fewer_nodes_each_stands_for_several():
    whole, parts = jobs(jobs=50), jobs(jobs=50, nodes=200)
    assert [job.nodes * 600 for job in parts] == [job.nodes for job in whole]
    assert [(job.value, job.walltime) for job in parts] == [(job.value, job.walltime) for job in whole]
    with pytest.raises(InputError, match=r"nodes.*found 300; allowed: a multiple of 200"):
        built_in("exascale", nodes=300)
    for query, allowed in (
        ("protocol=best&jobs=-1", "0"),
        ("pattern=odd", "unbiased"),
        ("protocol=x", "best"),
    ):
        with pytest.raises(InputError, match=allowed):
            parse_built_in(f"builtin:exascale?{query}")


def test_protections_change_nothing_but_run_times_and_replicas(monkeypatch):
    monkeypatch.setattr(large_jobs, "SIZES", (1, 60))
    monkeypatch.setattr(large_jobs, "HOURS", (3,))
    monkeypatch.setattr(large_jobs, "TYPES", {"L32": (0.0, 32e9)})
    plain = built_in("exascale", jobs=8, protocol="none")
    for protocol in ("best", "restart", "multilevel", "recovery", "redundancy-1.5", "redundancy-2"):
        found = built_in("exascale", jobs=8, protocol=protocol)
        copies = {"redundancy-1.5": 1.5, "redundancy-2": 2.0}.get(protocol, 1.0)
        for one, bare in zip(found, plain, strict=True):
            assert one.job.nodes == copies * bare.job.nodes
            assert (one.job.submitted, one.job.value) == (bare.job.submitted, bare.job.value)
            assert one.runtime >= bare.runtime == bare.job.walltime and one.overstays
            assert one.job.recorded == one.runtime


def test_the_best_protection_is_chosen_for_each():
    """Who sends messages all the time is better off without a log of them (digest 6.3)."""
    for kind, size, best in (("H32", 1, "multilevel"), ("L32", 1, "recovery"), ("H64", 90, "recovery")):
        job = large_jobs._LargeJob(kind, size, 24)
        assert large_jobs._times(job, "best") == large_jobs._times(job, best)
        assert large_jobs._times(job, "best") != large_jobs._times(job, "restart")


def test_a_large_job_takes_about_as_long_as_foretold():
    """The whole machine for a day, with 32 GB per node: 0.5621 of its time is work (exact)."""
    kind = large_jobs._LargeJob("L32", 100, 24)
    times = large_jobs._times(kind, "recovery")
    assert len(times) == 40
    assert 24 * HOUR / mean(times) == pytest.approx(0.5621, rel=0.02)
    assert len(set(times)) == 40
    assert min(large_jobs._times(large_jobs._LargeJob("L64", 100, 24), "restart")) >= 3 * 24 * HOUR, (
        "given up: it is of no use any more"
    )


def test_who_overstays_is_not_killed(tmp_path):
    row = Job(id="a", nodes=1, walltime=10.0)
    for overstays, state, end in ((False, "killed", 10.0), (True, "completed", 25.0)):
        for more in ({}, {"kind": "malleable", "max_nodes": 2}):
            job = Job(id="a", nodes=1, walltime=10.0, **more) if more else row
            frame = simulate([Arrival(job, 25.0, overstays=overstays)], nodes=1, policy="fcfs").jobs
            assert (frame["state"][0], frame["end"][0]) == (state, end)
    path = tmp_path / "w.yaml"
    path.write_text(
        "nodes: 2\njobs:\n"
        "- {nodes: 1, runtime: 3 h, walltime: 2 h, overstays: true, memory: 32 GB, messages: 0.2}\n"
    )
    (arrival,) = load_workload(str(path))
    assert arrival.overstays and (arrival.job.memory, arrival.job.messages) == (32e9, 0.2)
