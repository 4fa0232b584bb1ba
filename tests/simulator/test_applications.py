"""Jobs that scale each in its own way, and one after the other in the same job: exact, measured, drawn."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import scripted
from test_properties import arrivals, platforms, play, rows

from dask_hpc import Policy, simulate
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import Linear, PhasedSpeedup, PowerLaw
from dask_hpc.reproduce.applications import LARGEST_FIRST
from dask_hpc.simulator import Arrival, Failures, Machine, Platform, Record, load_workload
from dask_hpc.simulator.built_in import built_in
from dask_hpc.simulator.built_in.applications import CLASSES, law_of
from dask_hpc.simulator.execution import steady

#: on 4 nodes the first half of the work takes a third of the time
HALVES = PhasedSpeedup(((0.5, Linear()), (0.5, PowerLaw(0.5))))


def job(name="a", nodes=4, **more):
    return Job(id=name, **{"nodes": nodes, "kind": "malleable", "min_nodes": 1, "max_nodes": nodes, **more})


class Measured(Machine):
    """Remembers what is known of a job whenever the policy is asked."""

    def _decide(self):
        if not hasattr(self, "seen"):
            self.seen = []
        self.seen.append((self.indices.now, dict(self.indices.mtct)))
        super()._decide()


def test_a_phase_is_measured_from_when_it_begins():
    """One work on one node is 100 s times 8 / 3; half of it on four nodes is 33.3 s, the other 66.7 s."""
    machine = Measured(4, Policy.load("performance-aware"), record := Record())
    machine.run([Arrival(job(), 100.0, HALVES)])
    assert list(record.end) == [pytest.approx(100)]
    assert machine.seen[1] == (pytest.approx(100 / 3), {"a": pytest.approx(1)}), "somebody is asked, too"
    assert machine.seen[0] == (0, {})
    found = []
    for time in (10.0, 50.0):
        other = job("b", 1, submitted=time)
        machine = Measured(5, Policy.load("fcfs-malleable"), None)
        machine.run([Arrival(job(), 100.0, HALVES), Arrival(other, 1.0)])
        found += [mtct["a"] for now, mtct in machine.seen if now == time]
    assert found == [pytest.approx(0), pytest.approx(1)]
    again = steady(Arrival(job(), 100.0, HALVES), 0.5)
    again.begin(0.0, 4)
    assert again.mtct() == pytest.approx(1), "who begins again where the second phase does is in it"


def test_a_phase_ends_when_it_ends_whatever_the_size():
    """Of the first half 40 s are done on four nodes, what is left of it on eight."""
    machine = Measured(9, scripted({10.0: [("a", 8)]}), None)
    other = Job(id="b", nodes=1, submitted=10.0)
    machine.run([Arrival(job(max_nodes=8), 100.0, HALVES), Arrival(other, 0.0)])
    turn = 10 + (400 / 3 - 40) / 8
    end = turn + 400 / 3 / 8**0.5
    assert [now for now, _ in machine.seen if now > 10] == [pytest.approx(turn), pytest.approx(end)]


def test_a_resize_in_the_middle_of_a_phase():
    """After 25 s on 4 nodes 3 / 8 of the work are done; on one node it goes on with a quarter of the speed in
    the first phase, and with half of it in the second."""
    first = Arrival(job(), 100.0, HALVES)
    second = Arrival(job("b", 3, kind="rigid", min_nodes=3, submitted=25.0), 1000.0)
    result = simulate([first, second], 4, "fpsma-pwma")
    alone = 100 * 8 / 3
    assert result.jobs["start"][1] == 25
    assert result.jobs["end"][0] == pytest.approx(25 + alone / 8 + alone / 2)


def test_what_an_evolving_job_asks_for_comes_in_its_phase():
    """At a quarter it asks for four nodes, in the middle of its first phase, then again where it ends."""
    evolving = job(kind="evolving", nodes=1, max_nodes=4)
    requests = ((0.25, 4), (0.5, 1))
    result = simulate([Arrival(evolving, 100.0, HALVES, requests=requests)], 4, "easy-backfill")
    times = [(plan.time, plan.resizes[0].nodes) for plan in result.story if plan.resizes]
    assert times == [(pytest.approx(25), 4), (pytest.approx(31.25), 1)]
    assert result.metrics["makespan"] == pytest.approx(31.25 + 50)


def test_a_failure_goes_back_to_the_phase_of_the_last_commit():
    """50 s on 4 nodes are 5 / 8 of the work, half of it is kept: the second phase is what begins anew."""
    failures = Failures(trace=((50.0, 0),), checkpoint=50.0)
    platform = Platform(4, failures=failures)
    result = simulate([Arrival(job(), 100.0, HALVES)], platform=platform, policy="fcfs")
    assert result.metrics["makespan"] == pytest.approx(50 + 200 / 3)
    assert result.metrics["lost_node_hours"] * 3600 == pytest.approx(400 / 8)
    rigid = Arrival(replace(job(), kind="rigid", min_nodes=4), 100.0, HALVES)
    assert simulate([rigid], platform=platform, policy="fcfs").metrics["makespan"] == pytest.approx(
        50 + 200 / 3
    ), "one that nobody follows until then, too"


@given(
    jobs=arrivals(),
    platform=platforms,
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    policy=st.sampled_from(["fpsma-pwma", "elastic", "performance-aware", "easy-backfill"]),
)
@settings(max_examples=40, deadline=None)
def test_phases_of_one_law_are_no_phases(jobs, platform, cuts, policy):
    """But for the decisions that a turn is a reason for: a policy that decides at ticks only sees none."""
    platform = replace(platform, tick=30.0, only_ticks=True)
    law = PhasedSpeedup(tuple((cut / sum(cuts), PowerLaw(0.7)) for cut in cuts))
    plain, cut = (
        rows(play(policy, [replace(one, speedup=how) for one in jobs], platform, Record()).record)
        for how in (PowerLaw(0.7), law)
    )
    assert [row[0::3] for row in plain] == [row[0::3] for row in cut]
    assert np.allclose([row[1:3] for row in plain], [row[1:3] for row in cut], rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("first", [0.6, 0.95])
def test_of_two_equal_jobs_the_one_that_communicates_more_shrinks(first):
    """Whoever began: FPSMA takes the one that began last, and who goes by sizes knows no difference."""
    exponents = {"early": first, "late": 1.55 - first}
    jobs = [
        Arrival(job(name, 8, submitted=at), 1000.0, PowerLaw(exponent))
        for at, (name, exponent) in enumerate(exponents.items())
    ]
    jobs.append(Arrival(Job(id="new", nodes=4, submitted=10.0), 100.0))
    shrinks = {}
    for policy in (Policy.load("performance-aware"), Policy.load("fpsma-pwma"), LARGEST_FIRST):
        plans = simulate(jobs, 16, policy).story
        shrinks[policy.name] = next(plan.resizes for plan in plans if plan.resizes)
    worse = min(exponents, key=exponents.__getitem__)
    (resize,) = shrinks["performance-aware"]
    assert (resize.job, resize.nodes) == (worse, 4)
    assert [resize.job for resize in shrinks["fpsma-pwma"]] == ["late"]
    assert [resize.job for resize in shrinks["largest-first"]] == ["late"]


def test_the_workload():
    plain, drawn = built_in("esp", malleable=1.0, seed=3), built_in("applications", seed=3)
    assert [replace(a.job, speedup=None) for a in plain] == [a.job for a in drawn]
    assert [a.runtime for a in plain] == [a.runtime for a in drawn]
    assert {a.speedup for a in drawn} == {law_of(name) for name in CLASSES}
    assert all(a.job.speedup is None for a in drawn), "a policy is not told"
    half = built_in("applications", seed=3, malleable=0.5)
    assert [a.speedup for a in half if a.job.resizable] == [
        b.speedup for a, b in zip(half, drawn, strict=True) if a.job.resizable
    ], "shares are nested, classes included"
    assert [a.speedup for a in drawn] != [a.speedup for a in built_in("applications", seed=4)]


@pytest.mark.slow
def test_ranking_by_size_is_another_policy_where_applications_differ():
    """In at least 18 of 20 seeds; where all follow one law it is the same to the bit."""
    policies = [Policy.load("performance-aware"), LARGEST_FIRST]

    def makespans(workload, seeds):
        runs = simulate(workload, policy=policies, seeds=seeds).runs
        return [group["makespan"].to_numpy() for _, group in runs.groupby("policy")]

    measured, counted = makespans("builtin:applications", 20)
    assert (measured != counted).sum() >= 18
    measured, counted = makespans("builtin:esp?malleable=1&speedup=0.9", 3)
    assert (measured == counted).all()


def test_as_people_write_it(tmp_path):
    path = tmp_path / "w.yaml"

    def read(more):
        path.write_text(f"nodes: 4\njobs: [{{nodes: 4, kind: malleable, min_nodes: 1, runtime: 9, {more}}}]")
        (arrival,) = load_workload(path)
        return arrival.job.speedup, arrival.speedup

    laws = "[{share: 50 %, linear: }, {share: 0.5, power_law: 0.5}]"
    assert read(f"scaling: {laws}") == (None, HALVES)
    assert read(f"speedup: {laws}") == (HALVES, HALVES)
    assert read("speedup: {power_law: 0.9}, scaling: {power_law: 0.6}") == (PowerLaw(0.9), PowerLaw(0.6))
    for wrong, message in (
        ("[{share: 50 %, power_law: 1}]", "scaling: phases: found 'shares that add up to 0.5'"),
        ("[{power_law: 1}]", r"scaling: \[0\]: found .*; allowed: a share and a speed-up"),
        ("[{share: 1, power: 1}]", r"scaling: \[0\]: 'power': unknown speed-up"),
        ("[]", "scaling: found"),
        ("linear, phases: [{compute: 1}]", "scaling: the job has phases"),
    ):
        with pytest.raises(InputError, match=message):
            read(f"scaling: {wrong}")
