"""Jobs of a workload that commit: what that costs, what it saves, and what is identical without."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import scripted
from test_properties import arrivals, platforms, play, rows

from dask_hpc import InputError
from dask_hpc.model.job import Job
from dask_hpc.planning.interval import daly, efficiency, young
from dask_hpc.simulator import Arrival, Failures, Platform, Record, load_workload, simulate
from dask_hpc.simulator.application import Application, Phase, Task
from dask_hpc.simulator.built_in import built_in
from dask_hpc.simulator.in_situ import Pipeline
from dask_hpc.simulator.job_commits import CommitsOfJobs, pattern_for
from dask_hpc.simulator.workload import DeclaredCheckpoint

#: 10 s of writing 100 B at 10 B/s, after each 30 s of work
WAITS = DeclaredCheckpoint(100.0, 30.0, asynchronous=False)
GOES_ON = replace(WAITS, asynchronous=True)
STORE = Platform(4, file_system=10.0, link=100.0)


def job(checkpoint, runtime=100.0, nodes=2, name="a", **more):
    return Arrival(Job(id=name, nodes=nodes, **more), runtime, checkpoint=checkpoint)


def failing(*trace, platform=STORE, repair=1000.0):
    return replace(platform, failures=Failures(trace=trace, repair=repair))


def run(*arrivals, platform=STORE, policy="fcfs"):
    result = simulate(list(arrivals), policy=policy, platform=platform)
    return dict(zip(result.jobs["id"], result.jobs["end"], strict=True)), result.metrics


def test_a_commit_takes_the_time_of_who_waits_for_it_and_only_bandwidth_otherwise():
    ends, metrics = run(job(WAITS))
    assert ends == {"a": 130.0}
    assert (metrics["commits"], metrics["commit_time"], metrics["commit_bytes"]) == (3, 30.0, 300.0)
    ends, metrics = run(job(GOES_ON))
    assert ends == {"a": 100.0}
    assert (metrics["commits"], metrics["commit_time"], metrics["commit_bytes"]) == (3, 0.0, 300.0)


def test_jobs_share_the_file_system():
    ends, _ = run(job(WAITS, name="a"), job(WAITS, name="b"))
    assert ends == {"a": 160.0, "b": 160.0}, "each commit takes 20 s for both"
    ends, _ = run(job(WAITS, name="a"), job(GOES_ON, name="b"))
    assert ends["b"] == 100.0 and ends["a"] > 130.0


def test_a_failed_job_goes_on_from_its_last_commit_once_that_is_read_back():
    # commits from 30 to 40 and from 70 to 80; at 90 a node fails: 60 s of work are kept, 10 s are lost
    ends, metrics = run(job(WAITS), platform=failing((90.0, 0)))
    assert ends == {"a": 90 + 10 + 30 + 10 + 10}  # reading, work, one more commit, work
    assert metrics["lost_node_hours"] == pytest.approx(2 * 10 / 3600)
    assert metrics["commit_time"] == 10 + 10 + 10 + 10
    # what was not complete when it failed counts for nothing
    ends, _ = run(job(WAITS), platform=failing((75.0, 0)))
    assert ends == {"a": 75 + 10 + 30 + 10 + 30 + 10 + 10}
    ends, _ = run(job(GOES_ON), platform=failing((65.0, 0)))
    assert ends == {"a": 65 + 10 + 70}
    # without any commit it starts from nothing
    ends, _ = run(job(WAITS), platform=failing((20.0, 0)))
    assert ends == {"a": 150.0}


def test_partners_are_quicker_and_survive_all_but_their_neighbour():
    partner = DeclaredCheckpoint(100.0, 30.0, ("partner",), asynchronous=False)  # 50 B of each at 100 B/s
    ends, _ = run(job(partner))
    assert ends["a"] == pytest.approx(101.5)
    ends, _ = run(job(partner), platform=failing((40.0, 0)))
    assert ends["a"] == pytest.approx(40 + 0.5 + 70 + 2 * 0.5)
    apart = failing((40.0, 0), (40.0, 2), platform=replace(STORE, nodes=6))
    ends, metrics = run(job(partner, nodes=3), platform=apart)
    assert metrics["lost_node_hours"] == pytest.approx(3 * 10 / 3600, rel=0.1)
    both = failing((40.0, 0), (40.0, 1), platform=replace(STORE, nodes=6))
    _, metrics = run(job(partner, nodes=3), platform=both)
    assert metrics["lost_node_hours"] == pytest.approx(3 * 40 / 3600, rel=0.1)
    levels = DeclaredCheckpoint(100.0, 30.0, ("partner", "store"), asynchronous=False)
    _, metrics = run(job(levels, nodes=3, runtime=200.0), platform=replace(both, failures=replace(
        both.failures, trace=((70.0, 0), (70.0, 1)))))  # fmt: skip
    assert metrics["lost_node_hours"] < 3 * 31 / 3600, "the store has it"


def test_commits_of_phases_come_between_tasks():
    phases = (Phase((Task("compute", lambda nodes: 20.0),), iterations=5, scheduling_point=False),)
    arrival = replace(job(WAITS), application=Application(phases))
    ends, metrics = run(arrival)
    # due at 30, taken at 40; due at 80, taken at 90
    assert ends == {"a": 120.0} and metrics["commits"] == 2
    ends, _ = run(arrival, platform=failing((105.0, 0)))
    assert ends == {"a": 105 + 10 + 20}, "four of five iterations are kept"


def test_a_resize_in_the_middle_of_a_commit_begins_it_again():
    arrival = job(WAITS, kind="malleable", min_nodes=1, max_nodes=4)
    ticking = replace(STORE, tick=5.0)
    ends, metrics = run(arrival, policy=scripted({35.0: [("a", 4)]}), platform=ticking)
    # 30 s of work, 5 s of a commit for nothing, 10 s; 70 s of work on twice the nodes with one commit
    assert ends == {"a": 30 + 5 + 10 + 30 + 10 + 5}
    assert metrics["commit_time"] == 25.0


def test_the_interval_is_planned():
    failures = Failures(mtbf=40_000.0)
    platform = replace(STORE, failures=failures)
    rate = 2 / 40_000.0
    for rule, planned in (("young", young(10.0, rate)), ("daly", daly(10.0, rate))):
        assert pattern_for(DeclaredCheckpoint(100.0, rule), platform, 2).work == planned
    best = pattern_for(DeclaredCheckpoint(100.0), platform, 2)
    assert best.work == pytest.approx(daly(10.0, rate), rel=0.02)
    two = pattern_for(DeclaredCheckpoint(100.0, levels=("partner", "store")), platform, 2)
    assert two.work < best.work and two.counts[0] > 1
    assert pattern_for(DeclaredCheckpoint(100.0), STORE, 2) is None
    assert run(job(DeclaredCheckpoint(100.0, asynchronous=False)))[1]["commits"] == 0, "nothing ever fails"


def test_the_planned_interval_is_as_good_as_was_foretold():
    """Many failures: the share of time that is work is what the exact model says, and nobody does better."""
    from dask_hpc.planning.interval import Level

    def share(every):
        found = []
        for seed in range(6):
            failures = Failures(mtbf=2000.0, seed=seed)
            platform = Platform(2, file_system=10.0, failures=failures)
            arrival = job(DeclaredCheckpoint(100.0, every, asynchronous=False), runtime=100_000.0)
            found.append(100_000.0 / run(arrival, platform=platform)[0]["a"])
        return sum(found) / len(found)

    level = Level("store", 10.0, 10.0, 2 / 2000.0)
    pattern = pattern_for(
        DeclaredCheckpoint(100.0), Platform(2, file_system=10.0, failures=Failures(mtbf=2000.0)), 2
    )
    planned = share("auto")
    assert planned == pytest.approx(efficiency([level], pattern), rel=0.02)
    assert planned > share(pattern.work / 4) and planned > share(pattern.work * 4)


checkpoints = st.builds(
    DeclaredCheckpoint,
    st.sampled_from([0.0, 10.0, 500.0]),
    st.sampled_from([7.0, 40.0, "auto", "young", "daly"]),
    st.sampled_from([("partner",), ("store",), ("partner", "store")]),
    st.booleans(),
)


@pytest.mark.parametrize("policy", ["easy-backfill", "elastic", "node-stealing"])
@given(jobs=arrivals(), platform=platforms, checkpoint=checkpoints)
@settings(max_examples=40, deadline=None)
def test_every_run_with_commits_is_sound_and_the_same_each_time(policy, jobs, platform, checkpoint):
    platform = replace(platform, file_system=20.0, link=50.0)
    jobs = [
        replace(one, checkpoint=checkpoint) if at % 3 and not isinstance(one.application, Pipeline) else one
        for at, one in enumerate(jobs)
    ]
    machine = play(policy, jobs, platform, Record())
    again = play(policy, jobs, platform, None)
    assert machine.indices.now == again.indices.now
    for detail in machine.record.details.values():
        assert detail.lost >= -1e-9
    for commits in machine.record.find(CommitsOfJobs).values():
        assert commits.seconds >= -1e-9
        assert commits.nbytes >= commits.commits * checkpoint.nbytes - 1e-6
    for row, job_id in enumerate(machine.record.id):
        if machine.record.state[row] == 2:  # completed: no commit of it is on its way any more
            assert job_id not in machine.lives
    assert not machine.file_system.transfers or machine.lives


@given(jobs=arrivals(), platform=platforms)
@settings(max_examples=40, deadline=None)
def test_commits_that_cost_nothing_and_save_nothing_change_nothing(jobs, platform):
    """Asynchronous commits of no bytes on a machine where nothing fails."""
    platform = replace(platform, failures=None)
    # a malleable job of no length ends amid the decision that starts it; one that commits ends after it
    jobs = [replace(one, runtime=one.runtime + 1.0) for one in jobs]
    silent = [replace(one, checkpoint=DeclaredCheckpoint(0.0, 9.0)) for one in jobs]
    one, two = (play("easy-backfill", some, platform, Record()) for some in (jobs, silent))
    assert [end for end in one.record.end if end == end] == pytest.approx(
        [end for end in two.record.end if end == end]
    )
    assert [row[3] for row in rows(one.record)] == [row[3] for row in rows(two.record)]


def test_in_a_workload_file(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        "platform: {nodes: 4, link: 1 GB/s, file_system: 1 GB/s, failures: {mtbf: 1 h, repair: 0, seed: 1}}\n"
        "jobs:\n- {id: a, nodes: 2, runtime: 10 h,\n"
        "   checkpoint: {bytes: 4 GB, every: daly, asynchronous: false}}\n"
        "- {id: b, nodes: 2, runtime: 10 h,\n"
        "   checkpoint: {bytes: 1e9, every: 10 min, levels: [partner, store]}}\n"
    )
    workload = load_workload(path)
    assert [one.checkpoint for one in workload] == [
        DeclaredCheckpoint(4e9, "daly", asynchronous=False),
        DeclaredCheckpoint(1e9, 600.0, ("partner", "store")),
    ]
    with_commits = simulate(workload, policy="fcfs").metrics
    bare = [replace(one, checkpoint=None) for one in workload]
    without = simulate(bare, policy="fcfs", platform=workload.platform, horizon=with_commits["makespan"] * 3)
    assert with_commits["completed"] == 2 and with_commits["restarts"] > 5
    assert without.metrics["completed"] < 2, "20 failures in each run: it never gets through from nothing"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "checkpoint: bytes: is missing"),
        ("{bytes: 4 GB, evry: auto}", "checkpoint.* evry: unknown key .nearest: every"),
        ("{bytes: -1}", "checkpoint: bytes: found -1.0; allowed: 0 B or more"),
        ("{bytes: 1, every: often}", "checkpoint: every: found 'often'; allowed: a time more than 0 s, auto"),
        ("{bytes: 1, every: 0}", "checkpoint: every: found 0.0; allowed: a time more than 0 s"),
        (
            "{bytes: 1, levels: [store, partner]}",
            "checkpoint: levels: found .*allowed: partner, store, or both",
        ),
        ("{bytes: 1, levels: disk}", "checkpoint: levels: found 'disk'"),
        ("{bytes: 1, asynchronous: 1}", "checkpoint: asynchronous: found 1; allowed: true, false"),
        ("4 GB", "checkpoint: found '4 GB'; allowed: a mapping with bytes, every"),
    ],
)
def test_complaints_about_checkpoints(tmp_path, text, complaint):
    path = tmp_path / "w.yaml"
    path.write_text(f"nodes: 4\njobs:\n- {{nodes: 2, runtime: 1, checkpoint: {text}}}\n")
    with pytest.raises(InputError, match=complaint):
        load_workload(path)


def test_the_builtin_workload_shows_what_a_planned_interval_saves():
    lost, makespan = {}, {}
    for every, levels in (("none", "store"), ("3 h", "store"), ("auto", "store"), ("auto", "partner+store")):
        study = simulate(f"builtin:commits?every={every}&levels={levels}", policy=["easy-backfill"], seeds=3)
        lost[every, levels] = study.summary["lost_node_hours"].iloc[0]
        makespan[every, levels] = study.summary["makespan"].iloc[0]
    assert list(lost.values()) == sorted(lost.values(), reverse=True)
    assert lost["auto", "partner+store"] < lost["none", "store"] / 20
    assert makespan["auto", "partner+store"] < makespan["none", "store"]
    assert built_in("commits") == built_in("commits") != built_in("commits", seed=1)
    for bad in ({"levels": "disk"}, {"levels": ""}, {"every": "often"}, {"mtbf": 0.0}):
        with pytest.raises(InputError, match="builtin:commits"):
            built_in("commits", **bad)


def test_interval_without_end():
    assert run(job(DeclaredCheckpoint(1.0, inf)))[0] == {"a": 100.0}
