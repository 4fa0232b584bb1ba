"""The pipeline as an application model: its times are those of the model, and the same strategy steers it."""

import pickle
from dataclasses import replace
from math import exp, inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError, Policy
from dask_hpc.model.job import Job
from dask_hpc.planning.in_situ.back_pressure import WHEN_SLOW, Slow
from dask_hpc.planning.in_situ.partition import Analysis, Phases, Simulation
from dask_hpc.planning.in_situ.plan import ALL_ORDERS, partition
from dask_hpc.simulator import Failures, Platform, Workload, load_workload, simulate
from dask_hpc.simulator.in_situ import Drift, Pace, PartTimes, Pipeline
from dask_hpc.simulator.report import report_page
from dask_hpc.simulator.workload import Arrival

GB = 1e9
FIRST_ONLY = Policy.load("in-situ-async").with_(**{"placement.warm_up": 1000})
PARTS = {"spectrum": (2.0, 2 * GB), "front": (6.0, 4 * GB), "pdf": (1.0, 6 * GB)}


def pipeline(**more):
    given_ = {
        "iterations": 60,
        "simulation": Simulation(time=40.0, memory=8 * GB),
        "analyses": tuple(
            Analysis(name=name, time=time, memory=memory) for name, (time, memory) in PARTS.items()
        ),
        "cores": 8,
        "memory": 4 * GB,
        "bandwidth": 4 * GB,
    }
    return Pipeline(**(given_ | more))


def run(one=None, policy="in-situ-async", nodes=6, platform=None, job=None, requests=()):
    job = job or Job(id="heat", nodes=nodes, walltime=1e6)
    arrival = Arrival(job, 0.0, application=one or pipeline(), requests=requests)
    platform = platform or Platform(nodes)
    result = simulate(Workload("one", [arrival], platform=platform), policy=policy, allotments=True)
    (found,) = result.pipelines
    return found, result


# --- times


@given(st.tuples(*[st.floats(0, 10)] * 3), st.integers(1, 30), st.sampled_from(["async", "sync"]))
def test_a_steady_pipeline_takes_what_the_formula_says(times, iterations, mode):
    phases, pace, now, first = Phases(*times), Pace("ab"), 0.0, None
    found = PartTimes(phases.simulation, {"a": phases.in_situ}, {"b": phases.in_transit})
    for number in range(iterations):
        begins = pace.begins(number, now)
        assert not pace.left_out(number, begins)
        now = pace.stepped(number, begins + phases.simulation, found, mode)
        first = now if first is None else first
    before = phases.simulation if mode == "async" else phases.simulation + phases.in_situ
    after = max(phases.in_situ, phases.in_transit) if mode == "async" else 0.0
    total = max(now, pace.end)
    if mode == "async":  # seed 004, 2.1
        assert total == pytest.approx(before + (iterations - 1) * phases.iteration(mode) + after)
    else:
        least, most = before + (iterations - 1) * phases.iteration(mode), phases.in_transit
        assert least - 1e-9 <= total <= least + most + 1e-9


def test_without_jitter_iterations_take_what_was_planned():
    for policy in ("in-situ-async", "in-situ-sync", "in-situ-greedy"):
        found, result = run(policy=policy)
        assert len(found.changes) == 1 and len(found.iterations) == 60
        planned = found.changes[0].partition
        assert found.seconds[1:-1] == pytest.approx([planned.iteration] * 58)
        assert found.last_iteration == pytest.approx(planned.iteration)
        assert found.total == pytest.approx(sum(found.seconds)) == result.metrics["makespan"]
        assert found.iterations[7].phases == pytest.approx(planned.phases)


def test_it_is_divided_by_the_policy():
    for name in ("in-situ-async", "in-situ-sync", "in-situ-greedy"):
        found, _ = run(policy=name)
        placement = Policy.load(name).placement
        problem = replace(pipeline().declared(6, Platform(6)), mode=placement.mode)
        assert found.changes[0].partition == partition(problem, placement.order)
    assert run(policy="fcfs")[0].changes == run()[0].changes, "a policy that does not say: as in-situ-async"


@pytest.mark.parametrize("order", ALL_ORDERS)
def test_every_order_can_be_said(order):
    policy = Policy.load("in-situ-greedy").with_(**{"placement.order": order})
    found, _ = run(pipeline(memory=2.5 * GB), policy)
    assert found.changes[0].partition == partition(found.pipeline.declared(6, Platform(6)), order)


def test_other_placements_take_what_they_take():
    found, _ = run(pipeline(memory=inf, jitter=0.2))
    assert found.total <= 1.05 * min(found.all_in_situ, found.all_in_transit, found.never_again)
    assert isnan(run(pipeline(memory=2.5 * GB))[0].all_in_situ), "they do not fit"
    whole = run(pipeline(memory=inf), "in-situ-sync")[0]
    assert whole.changes[0].partition.in_transit == () and whole.total == pytest.approx(whole.all_in_situ)


def test_no_faster_than_the_links():
    tight = pipeline(memory=2.5 * GB)  # something has to go to the staging nodes
    slow, fast = (run(tight, platform=Platform(6, link=link))[0] for link in (0.1 * GB, 100 * GB))
    assert slow.total > fast.total
    assert fast.total == run(tight)[0].total, "the pipeline's own bandwidth is less"


# --- what departs from what was declared


def test_jitter_is_seeded_has_the_declared_mean_and_does_not_depend_on_the_placement():
    one = pipeline(jitter=0.3, seed=4, iterations=4000)
    times = np.array([one.real(at, 6, Platform(6)).simulation.time for at in range(4000)])
    assert times.mean() == pytest.approx(40.0, rel=0.02) and np.log(times).std() == pytest.approx(
        0.3, rel=0.05
    )
    assert np.median(times) == pytest.approx(40 * exp(-(0.3**2) / 2), rel=0.02)
    assert one.real(7, 6, Platform(6)).analyses == one.real(7, 2, Platform(6)).analyses
    assert one.real(7, 6, Platform(6)) != replace(one, seed=5).real(7, 6, Platform(6))
    again = [run(replace(one, iterations=40))[0] for _ in range(2)]
    assert again[0] == again[1]


def test_drift_steps_and_ramps():
    step, ramp = Drift("spectrum", 10, 4.0), Drift("front", 10, 3.0, over=4)
    assert [step.factor(at) for at in (0, 9, 10, 99)] == [1, 1, 4, 4]
    assert [ramp.factor(at) for at in (9, 10, 11, 12, 13, 50)] == [1, 1.5, 2, 2.5, 3, 3]
    one = pipeline(drifts=(step, ramp, Drift("simulation", 0, 0.5)))
    problem = one.real(12, 6, Platform(6))
    assert problem.simulation.time == 20 and [a.time for a in problem.analyses] == [8, 15, 1]


def test_an_analysis_that_gets_slower_is_placed_anew_and_that_pays():
    slower = pipeline(drifts=(Drift("spectrum", 20, 20.0),), iterations=200, jitter=0.05, change_cost=1.0)
    found, result = run(slower)
    _, later = found.changes
    assert 22 < later.iteration < 30, "measured in a median, believed after two"
    assert "analysis spectrum takes" in later.reason and " instead of " in later.reason
    assert found.total < 0.8 * found.never_again
    told = [one for one in result.story.happenings if one.decision == "placement"]
    assert [(one.job, one.reason) for one in told] == [("heat", change.reason) for change in found.changes]
    assert result.metrics["placements"] == 2


@given(st.integers(0, 10**6), st.floats(0, 0.08))
@settings(max_examples=25, deadline=None)
def test_jitter_alone_is_no_reason(seed, jitter):
    found, _ = run(pipeline(seed=seed, jitter=jitter))
    assert len(found.changes) <= 2, "as declared, and perhaps once as measured"


# --- analyses that do not keep up


def under(when_slow):
    """As declared first, whatever happens, with an analysis that becomes fifty times slower."""
    policy = Policy.load("in-situ-async").with_(
        **{"placement.when_slow": when_slow, "placement.stall": "0 s", "placement.warm_up": 1000}
    )
    return run(pipeline(drifts=(Drift("pdf", 20, 50.0),)), policy)


def test_a_pipeline_waits_for_slow_analyses_unless_the_policy_says_otherwise():
    (waits, waited), (skips, skipped), (thins, _), (spills, _) = map(
        under, ("wait", "skip", "subsample", "spill")
    )
    assert waits.left_out == spills.left_out == {} and waited.metrics["left_out"] == 0
    assert waits.total == run(pipeline(drifts=(Drift("pdf", 20, 50.0),)), FIRST_ONLY)[0].total
    for found in (skips, thins):
        assert 10 < found.left_out["pdf"] < 40 and found.total < 0.5 * waits.total
        done = [one for one in found.iterations if "pdf" not in one.left_out]
        assert len(done) + found.left_out["pdf"] == 60
        assert all(one.left_out == () for one in found.iterations[:20])
    assert skipped.metrics["left_out"] == sum(skips.left_out.values())
    assert skips.told()["left_out"] == skips.left_out
    assert sum(skipped_row != "" for skipped_row in skipped.iterations["left_out"]) >= skips.left_out["pdf"]
    assert spills.iterations[-1].time < waits.iterations[-1].time, "steps go on while files wait"
    assert spills.total == pytest.approx(waits.total), "but all is analysed in the end"


@given(
    st.lists(st.floats(0.1, 5), min_size=5, max_size=40),
    st.sampled_from(WHEN_SLOW),
    st.floats(0, 3),
    st.sampled_from(["async", "sync"]),
)
def test_no_analysis_falls_behind_by_more_than_the_rule_allows(times, when_slow, stall, mode):
    pace, now = Pace("ab", Slow(when_slow, stall, limit=2)), 0.0
    ends = {"a": [], "b": []}
    for number, time in enumerate(times):
        begins = pace.begins(number, now)
        assert begins >= now and (when_slow in ("wait", "spill") or begins <= now + stall + 1e-9)
        left_out = {one.analysis for one in pace.left_out(number, begins)}
        assert not left_out or when_slow in ("skip", "subsample")
        now = begins + 1.0
        for name in ends:
            behind = sum(end > begins for one, end in ends[name] if one < number - 1)
            # the one that is late, and the one that had begun when it was not yet
            assert behind <= (0 if when_slow == "wait" else 2)
        found = PartTimes(1.0, {"a": time}, {"b": 6 - time})
        stepped, now = now, pace.stepped(number, now, found, mode, left_out)
        for name, side in (("a", found.in_situ), ("b", found.in_transit)):
            if name not in left_out:
                last = max((end for _, end in ends[name]), default=0.0)
                ends[name].append((number, max(stepped, last) + side[name]))
    assert pace.end == pytest.approx(max([stepped, *(end for runs in ends.values() for _, end in runs)]))


# --- nodes


def test_the_partition_follows_the_nodes():
    job = Job(id="heat", nodes=4, kind="evolving", min_nodes=2, max_nodes=8, walltime=1e6)
    found, result = run(job=job, requests=((0.25, 8), (0.75, 3)), nodes=8)
    assert [(change.iteration, change.reason.split(":")[0]) for change in found.changes] == [
        (0, "first partition, as declared"),
        (15, "nodes 4 -> 8"),
        (45, "nodes 8 -> 3"),
    ]
    for one in found.iterations:
        assert one.partition == partition(pipeline().declared(one.nodes, Platform(8)))
    assert result.metrics["resizes"] == 2
    assert found.total < inf and found.all_in_transit > 0


def test_a_malleable_pipeline_grows_with_the_policy():
    heat = Job(id="heat", nodes=3, kind="malleable", min_nodes=2, max_nodes=6, walltime=1e6)
    arrivals = [
        Arrival(Job(id="other", nodes=3, walltime=50.0), 20.0),
        Arrival(heat, 100.0, application=pipeline()),
    ]
    (found,) = simulate(Workload("two", arrivals, platform=Platform(6)), policy="elastic").pipelines
    assert found.iterations[0].nodes == 3 and found.iterations[-1].nodes == 6
    assert [change.reason.split(":")[0] for change in found.changes[1:]] == ["nodes 3 -> 6"]


def test_after_a_failure_it_goes_on_where_its_checkpoint_was():
    failures = Failures(trace=((20.0, 0),), repair=1.0, checkpoint=1.0)
    found, result = run(platform=Platform(6, failures=failures))
    assert result.metrics["restarts"] == 1 and result.metrics["completed"] == 1
    assert [one.number for one in found.iterations] == list(range(60))


def test_killed_half_way_it_says_what_it_did():
    found, result = run(job=Job(id="heat", nodes=6, walltime=20.0))
    assert result.metrics["killed"] == 1
    assert 0 < len(found.iterations) < 60 and isnan(found.total) and isnan(found.seconds[-1])
    assert found.told()["total"] is None and result.metrics["iteration"] > 0
    assert "in situ pipelines" in report_page([result]).lower()


# --- what is shown


def test_rows_and_pages():
    found, result = run(pipeline(drifts=(Drift("spectrum", 20, 20.0),)))
    rows = result.iterations
    assert len(rows) == 60 and rows["seconds"].sum() == pytest.approx(found.total)
    assert set(rows["helper_cores"]) == {int(change.partition.helper_cores) for change in found.changes}
    page = report_page([result])
    assert "In situ pipelines" in page and found.changes[1].reason.replace("->", "-&gt;") in page
    assert '<svg class="phases"' in page
    assert pickle.loads(pickle.dumps(result)).pipelines == result.pipelines
    quiet = simulate("builtin:five-jobs")
    assert quiet.pipelines == [] and "In situ" not in report_page(
        [simulate("builtin:five-jobs", allotments=True)]
    )
    assert quiet.iterations.empty


def test_the_built_in_pipelines_are_placed_anew():
    found = {one.name: one for one in simulate("builtin:in-situ", policy="in-situ-async").pipelines}
    assert set(found) == {"steps", "creeps", "grows"}
    assert "analysis spectrum takes" in found["steps"].changes[1].reason
    assert len(found["creeps"].changes) > 2, "again and again"
    assert found["grows"].changes[1].reason.startswith("nodes 6 -> 10")
    for one in found.values():
        assert one.total < one.all_in_transit
        assert isnan(one.all_in_situ) or one.total < one.all_in_situ
        assert one.total <= one.never_again


# --- bad input


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"iterations": 0}, "iterations"),
        ({"cores": 0}, "cores"),
        ({"memory": 0.0}, "memory"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": nan}, "jitter"),
        ({"seed": -1}, "seed"),
        ({"simulation": Simulation(time=0.0)}, "simulation.time"),
        ({"analyses": (Analysis(name="a", time=0.0),)}, "a.time"),
        ({"analyses": (Analysis(name="simulation", time=1.0),)}, "analyses"),
        ({"drifts": (Drift("nobody", 1, 2.0),)}, "drift.part"),
    ],
)
def test_what_cannot_be(more, what):
    with pytest.raises(InputError, match=f"^{what}: "):
        pipeline(**more)


@pytest.mark.parametrize("bad", [{"start": -1}, {"over": 1.5}, {"times": 0.0}, {"times": inf}])
def test_drifts_that_cannot_be(bad):
    with pytest.raises(InputError, match=r"^drift\."):
        Drift(**({"part": "a", "start": 1, "times": 2.0} | bad))


TEXT = """
platform: {nodes: 6, link: 1 GB/s}
jobs:
- id: heat
  nodes: 6
  walltime: 1 h
  pipeline:
    iterations: 30
    cores: 8
    memory: 4 GB
    bandwidth: 2 GB/s
    simulation: {time: 40 s, memory: 8 GB, serial: 0.01}
    analyses:
    - {name: spectrum, time: 2 s, memory: 2 GB, moved: 500 MB}
    - {name: front, time: 6 s, serial: 0.1}
    drift:
    - {part: spectrum, start: 10, times: 10}
    - {part: simulation, start: 0, times: 1.5, over: 20}
    jitter: 0.1
    seed: 1
    change_cost: 2 s
"""


def test_from_a_file(tmp_path):
    path = tmp_path / "heat.yaml"
    path.write_text(TEXT)
    workload = load_workload(path)
    (arrival,) = workload.arrivals
    assert arrival.application == Pipeline(
        iterations=30,
        simulation=Simulation(time=40.0, memory=8 * GB, serial=0.01),
        analyses=(
            Analysis(name="spectrum", time=2.0, memory=2 * GB, moved=GB / 2),
            Analysis(name="front", time=6.0, serial=0.1),
        ),
        cores=8,
        memory=4 * GB,
        bandwidth=2 * GB,
        drifts=(Drift("spectrum", 10, 10.0), Drift("simulation", 0, 1.5, 20)),
        jitter=0.1,
        seed=1,
        change_cost=2.0,
    )
    declared = partition(arrival.application.declared(6, workload.platform))
    assert arrival.runtime == 30 * declared.iteration
    assert simulate(workload, policy="in-situ-async").metrics["completed"] == 1


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("iterations: 30", "iterations: many", "pipeline: iterations: found"),
        ("    cores: 8\n", "", "pipeline: cores: is missing"),
        ("time: 40 s, ", "", "pipeline: simulation.time: is missing"),
        ("time: 2 s", "time: 2 parsec", "pipeline: analysis 'spectrum': time: found the unit"),
        ("time: 2 s", "time: -2", "pipeline: analysis spectrum.time: found -2"),
        ("moved: 500 MB", "move: 1", r"pipeline: analysis 1.move: unknown key \(nearest: moved\)"),
        ("serial: 0.01", "serial: 1.01", "pipeline: simulation.serial: found 1.01"),
        ("    analyses:\n", "    analyses: all\n    list:\n", "pipeline: list: unknown key"),
        ("part: spectrum", "part: spectra", "pipeline: drift.part: found 'spectra'"),
        ("times: 10}", "times: ten}", r"pipeline: drift\[0\].times: found 'ten'"),
        ("jitter: 0.1", "jitter: 7", "pipeline: jitter: found 7"),
        ("  walltime: 1 h", "  runtime: 1 h", "runtime: the job has a pipeline"),
        ("  walltime: 1 h", "  phases: []", "phases: the job has a pipeline"),
    ],
)
def test_bad_files(tmp_path, old, new, complaint):
    assert old in TEXT
    path = tmp_path / "heat.yaml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InputError, match=complaint) as caught:
        load_workload(path)
    assert len(str(caught.value).splitlines()) == 1 and "heat.yaml: jobs[0]: " in str(caught.value)
