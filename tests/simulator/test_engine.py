"""The event loop: what happens at one instant, kills, rejections, memory."""

import inspect
import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError, Policy
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.simulator import (
    Arrival,
    Machine,
    Record,
    engine,
    execution,
    record,
    resizes,
    service,
    simulate,
    stops,
    synthetic_day,
)
from dask_hpc.simulator.result import Result


def arrival(name, submit, nodes, runtime, walltime=1000.0):
    return Arrival(Job(id=name, nodes=nodes, walltime=walltime, submitted=submit), runtime)


def rows(arrivals, nodes, policy="fcfs"):
    frame = simulate(arrivals, nodes=nodes, policy=policy).jobs
    return {row.id: (row.start, row.end, row.state) for row in frame.itertuples()}


def test_ends_come_before_submissions_and_starts():
    """A job submitted at the instant another ends starts at that instant, on its nodes."""
    assert rows([arrival("a", 0.0, 2, 10.0), arrival("b", 10.0, 2, 5.0)], 2) == {
        "a": (0.0, 10.0, "completed"),
        "b": (10.0, 15.0, "completed"),
    }


def test_reaching_the_walltime_exactly_is_an_end_not_a_kill():
    jobs = [arrival("a", 0.0, 1, 10.0, walltime=10.0), arrival("b", 0.0, 1, 11.0, walltime=10.0)]
    assert rows(jobs, 2) == {"a": (0.0, 10.0, "completed"), "b": (0.0, 10.0, "killed")}


def test_jobs_of_no_length_end_in_the_instant_they_start():
    jobs = [arrival(name, 5.0, 1, 0.0) for name in "abc"]
    assert rows(jobs, 1) == dict.fromkeys("abc", (5.0, 5.0, "completed"))


def test_too_large_is_rejected_and_the_rest_runs():
    outcome = rows([arrival("big", 0.0, 3, 1.0), arrival("ok", 0.0, 2, 1.0)], 2)
    assert outcome["big"][2] == "rejected" and outcome["ok"] == (0.0, 1.0, "completed")


def test_the_story_says_why_a_job_was_rejected():
    result = simulate([arrival("big", 3.0, 3, 1.0)], nodes=2)
    (told,) = result.story.happenings
    assert (told.time, told.decision, told.job) == (3.0, "reject", "big")
    assert told.reason == "asks for 3 nodes, the machine has 2"


def test_every_job_rejected_is_an_answer_too():
    result = simulate([arrival("big", 0.0, 3, 1.0)], nodes=2)
    assert result.metrics["rejected"] == 1
    assert result.metrics["makespan"] != result.metrics["makespan"]  # nan
    assert "rejected: 1" in repr(result)


def test_no_jobs_at_all():
    result = simulate([], nodes=2)
    assert len(result.jobs) == 0 and result.trace.sizes == {"job": 0, "time": 0}


def test_arrivals_out_of_order_are_refused():
    with pytest.raises(InputError, match="out of order"):
        simulate([arrival("a", 5.0, 1, 1.0), arrival("b", 1.0, 1, 1.0)], nodes=1)


def test_the_same_job_twice_is_refused():
    with pytest.raises(InputError, match="'a': is submitted again"):
        simulate([arrival("a", 0.0, 1, 5.0), arrival("a", 1.0, 1, 1.0)], nodes=1)


@pytest.mark.parametrize("nodes", [0, -1, 2.5, True, 10**9, "4"])
def test_machine_sizes_that_make_no_sense(nodes):
    with pytest.raises(InputError, match=r"nodes: found .*; allowed: 1 to 10,000,000"):
        simulate([], nodes=nodes)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 5), st.integers(0, 9), st.integers(1, 9)), max_size=30
    ),
    st.sampled_from(["fcfs", "easy-backfill", "conservative-backfill"]),
)
@settings(max_examples=150, deadline=None)
def test_no_node_is_held_twice_and_the_record_changes_nothing(jobs, policy):
    arrivals = [
        arrival(str(i), float(s), n, float(r), float(w)) for i, (s, n, r, w) in enumerate(sorted(jobs))
    ]
    machine, silent = (Machine(4, Policy.load(policy), record) for record in (Record(), None))
    machine.run(arrivals)
    silent.run(arrivals)
    assert list(machine.story) == list(silent.story)
    assert len(machine.indices.idle) == 4 and not machine.indices.running and not machine.indices.waiting
    jobs = Result("w", 4, Policy.load(policy), machine.story, machine.record).jobs
    times = sorted({*jobs["start"].dropna(), *jobs["end"].dropna()})
    for time in times:
        held = jobs[(jobs["start"] <= time) & (jobs["end"] > time)]["nodes"].sum()
        assert held <= 4


@pytest.mark.slow
def test_memory_grows_with_live_jobs_not_with_finished_ones():
    def peaks(*after):
        """The most memory until so many jobs have come."""
        found = {}

        def told():
            for number, arrival in enumerate(synthetic_day(after[-1], 100, load=0.5, seed=1)):
                if number in after:
                    found[number] = tracemalloc.get_traced_memory()[1]
                yield arrival

        machine = Machine(100, Policy.load("easy-backfill"))
        tracemalloc.start()
        machine.run(told())
        found[after[-1]] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return [found[number] for number in after]

    peaks(100)  # imports and caches
    # The story is bounded (10,000 plans); beyond it nothing may grow.
    few, story, many = peaks(3_000, 15_000, 30_000)
    assert many < 1.25 * story
    assert few < many


def test_progress_is_told():
    seen = []
    simulate(
        itertools.islice(synthetic_day(20_000, 64), 20_000), nodes=64, policy="fcfs", progress=seen.append
    )
    assert seen == sorted(seen) and 0 < seen[0] < 20_000


def test_same_seed_same_days():
    assert list(synthetic_day(50, 64, seed=3)) == list(synthetic_day(50, 64, seed=3))
    assert list(synthetic_day(50, 64, seed=3)) != list(synthetic_day(50, 64, seed=4))


def test_synthetic_load_is_what_was_asked_for():
    jobs = list(synthetic_day(20_000, 256, load=0.7, seed=2))
    work = sum(a.job.nodes * a.runtime for a in jobs)
    assert 0.6 < work / (256 * jobs[-1].job.submitted) < 0.8


@pytest.mark.parametrize(
    ("policy", "workload", "note"),
    [
        ("io-lanes", "builtin:ten-jobs", "io: io-lanes has nothing to go by: no job has phases that read"),
        ("io-lanes", "builtin:readers?iterations=1", "io: io-lanes only limits reads here"),
        ("checkpoint-agents", "builtin:ten-jobs", "checkpoint: agents does nothing: no job commits"),
        ("node-stealing", "builtin:ten-jobs", "no node of this machine fails"),
        ("io-aware", "builtin:ten-jobs", "no job says its io_intensity"),
        ("node-stealing", "builtin:node-stealing", ""),
        ("checkpoint-agents", "builtin:commits", ""),
        ("io-aware", "builtin:io-intensity?jobs=5", ""),
        ("elastic", "builtin:ten-jobs", ""),
    ],
)
def test_what_a_policy_cannot_do_here_is_said(policy, workload, note):
    result = simulate(workload, policy=policy)
    assert len(result.notes) == bool(note)
    assert all(note in one and note in repr(result) for one in result.notes)


def test_a_size_of_the_cluster_is_no_matter_of_a_simulated_machine():
    policy = Policy.load("fcfs").with_(**{"size.target_duration": "1 min"})
    assert "size: demand does nothing" in simulate("builtin:ten-jobs", policy=policy).notes[0]


def test_who_was_changing_its_size_when_it_is_taken_over_goes_on_with_the_new_one():
    then = Indices(Node(str(i)) for i in range(4))
    then.waiting.add(Job(id="m", nodes=4, kind="malleable", min_nodes=1, max_nodes=4, walltime=100.0))
    then.start("m", 4)
    then.begin_resize("m", 2)
    then.waiting.add(Job(id="next", nodes=2, walltime=50.0))
    jobs = simulate(snapshot=Snapshot(then), policy="fcfs").jobs
    assert list(jobs["start"]) == [0.0, 0.0] and list(jobs["end"]) == [200.0, 50.0]


@pytest.mark.parametrize("module", [engine, execution, record, resizes, service, stops])
def test_the_engine_knows_no_service(module):
    """Each service's half can be taken away: the engine alone plays what needs none."""
    imports = [
        line for line in inspect.getsource(module).splitlines() if line.startswith("from dask_hpc.sim")
    ]
    rooms = {line.split()[1].removeprefix("dask_hpc.simulator.") for line in imports}
    core = {
        "application", "engine", "execution", "node_desk", "platform", "record", "resizes", "service",
        "stops", "workload",
    }  # fmt: skip
    assert rooms <= core
    machine = engine.Engine(4, Policy.load("easy-backfill"), Record())
    assert machine.run([arrival("a", 0, 3, 10), arrival("b", 1, 2, 5)]) == 2
    assert list(machine.record.end) == [10, 15]
