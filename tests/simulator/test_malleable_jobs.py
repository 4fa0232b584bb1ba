"""The simulated machine with jobs that change their size, costs, failures and a shared file system."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Script, scripted

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import Amdahl, PowerLaw
from dask_hpc.simulator import Arrival, Failures, Machine, Platform, Record
from dask_hpc.simulator.application import Application, Phase, Task
from dask_hpc.simulator.platform import ResizeCost
from dask_hpc.strategies.queue.fcfs import Fcfs


def malleable(name, submit=0.0, nodes=2, runtime=100.0, low=1, high=8, walltime=1e6, **more):
    job = Job(id=name, nodes=nodes, kind="malleable", min_nodes=low, max_nodes=high, walltime=walltime,
              submitted=submit)  # fmt: skip
    return Arrival(job, runtime, **more)


def rigid(name, submit=0.0, nodes=1, runtime=100.0, walltime=1e6):
    return Arrival(Job(id=name, nodes=nodes, walltime=walltime, submitted=submit), runtime)


def ends(result):
    return dict(zip(result.jobs["id"], result.jobs["end"], strict=True))


def run(arrivals, resizes, platform=8, **more):
    platform = platform if isinstance(platform, Platform) else Platform(platform)
    return simulate(arrivals, policy=scripted(resizes), platform=platform, **more)


def test_growing_halves_what_is_left():
    assert ends(run([malleable("a")], {0: [("a", 4)]})) == {"a": 50.0}


def test_resize_in_the_middle_of_the_work():
    # b's arrival at 40 is the event at which the script acts: 60 s left on 2 nodes are 120 s on 1
    result = run([malleable("a"), rigid("b", 40.0, 1, 1.0)], {40: [("a", 1)]})
    assert ends(result)["a"] == 160.0
    assert result.metrics["resizes"] == 1
    assert result.metrics["utilisation"] == pytest.approx((2 * 40 + 120 + 1) / (8 * 160))


def test_speedup_models_decide_how_much_faster():
    result = run([malleable("a", nodes=1, speedup=PowerLaw(0.5))], {0: [("a", 4)]})
    assert ends(result) == {"a": 50.0}
    result = run([malleable("a", nodes=1, speedup=Amdahl(0.5))], {0: [("a", 4)]})
    assert ends(result)["a"] == pytest.approx(100 * (0.5 + 0.5 / 4))


def test_resize_cost_stops_the_job_and_keeps_leaving_nodes_busy():
    platform = Platform(4, resize=ResizeCost(fixed=5.0, per_process=1.0, bandwidth=10.0))
    jobs = [malleable("a", nodes=4, data=40.0), rigid("b", 20.0, 2, 10.0)]
    # at 20 a shrinks to 2: 5 + 2 x 1 + (40 x 2/4)/10 = 9 s; b starts at 29; 80 s x 2 left for a
    result = run(jobs, {20: [("a", 2)]}, platform)
    assert dict(zip(result.jobs["id"], result.jobs["start"], strict=True)) == {"a": 0.0, "b": 29.0}
    assert ends(result) == {"a": 29.0 + 160.0, "b": 39.0}
    assert result.metrics["moved_bytes"] == 20.0


def test_nodes_freed_by_a_shrink_start_the_next_job_in_the_same_instant():
    result = run([malleable("a", nodes=8), rigid("b", 10.0, 6, 10.0)], {10: [("a", 2)]})
    assert dict(zip(result.jobs["id"], result.jobs["start"], strict=True)) == {"a": 0.0, "b": 10.0}


@pytest.mark.parametrize("nodes", [3, 16])
def test_a_policy_may_not_plan_a_size_that_a_job_cannot_use(nodes):
    job = Job(id="a", nodes=2, kind="malleable", min_nodes=1, max_nodes=8, constraint="pof2")
    with pytest.raises(RuntimeError, match=f"planned {nodes} nodes for job 'a', which cannot use them"):
        run([Arrival(job, 100.0)], {0: [("a", nodes)]}, platform=32)


def test_walltime_is_meant_for_the_start_size():
    result = run([malleable("a", walltime=110.0)], {0: [("a", 1)]})
    assert list(result.jobs["state"]) == ["completed"] and ends(result) == {"a": 200.0}
    result = run([malleable("a", walltime=90.0)], {0: [("a", 1)]})
    assert list(result.jobs["state"]) == ["killed"] and ends(result) == {"a": 180.0}


def test_launch_and_cleanup_hold_nodes_without_work():
    platform = Platform(2, launch=3.0, cleanup=4.0)
    result = simulate([rigid("a", 0.0, 2, 10.0), rigid("b", 0.0, 2, 10.0)], policy="fcfs", platform=platform)
    assert ends(result) == {"a": 13.0, "b": 30.0}  # b starts at 17


def test_the_machine_says_what_starting_and_ending_cost():
    platform = Platform(2, launch=3.0, cleanup=4.0, tick=60.0, only_ticks=True)
    machine = Machine(platform, Policy.load("fcfs"))
    assert machine.snapshot.overhead == machine.snapshot.freeze().overhead == 3.0 + 4.0 + 30.0
    assert Machine(2, Policy.load("fcfs")).snapshot.overhead == 0.0


def test_decisions_only_at_ticks():
    platform = Platform(2, tick=60.0, only_ticks=True)
    result = simulate([rigid("a", 5.0, 2, 10.0), rigid("b", 5.0, 2, 10.0)], policy="fcfs", platform=platform)
    assert list(result.jobs["start"]) == [60.0, 120.0]


def test_cancelled_while_waiting_and_while_running():
    jobs = [
        Arrival(Job(id="a", nodes=2), 100.0, cancelled=30.0),
        Arrival(Job(id="b", nodes=2), 100.0, cancelled=20.0),
        rigid("c", 0.0, 2, 10.0),
    ]
    result = simulate(jobs, nodes=2, policy="fcfs")
    assert list(result.jobs["state"]) == ["cancelled", "cancelled", "completed"]
    assert list(result.jobs["end"]) == [30.0, 20.0, 40.0]


def test_energy_of_idle_and_busy_nodes():
    platform = Platform(4, idle_power=100.0, active_power=300.0)
    result = simulate([rigid("a", 0.0, 3, 10.0)], policy="fcfs", platform=platform)
    assert result.metrics["energy"] == (4 * 100 + 3 * 200) * 10


# failures


def test_failed_job_starts_again_from_scratch_ahead_of_the_queue():
    platform = Platform(2, failures=Failures(trace=((50.0, 0),), repair=10.0))
    jobs = [rigid("a", 0.0, 2, 100.0), rigid("b", 1.0, 2, 5.0)]
    result = simulate(jobs, policy="fcfs", platform=platform)
    assert ends(result) == {"a": 160.0, "b": 165.0}
    assert result.metrics["restarts"] == 1
    assert result.metrics["lost_node_hours"] == pytest.approx(2 * 50 / 3600)


def test_checkpoints_save_most_of_the_work():
    platform = Platform(2, failures=Failures(trace=((50.0, 0),), repair=10.0, checkpoint=20.0))
    result = simulate([rigid("a", 0.0, 2, 100.0)], policy="fcfs", platform=platform)
    assert ends(result) == {"a": 60.0 + 60.0}
    assert result.metrics["lost_node_hours"] == pytest.approx(2 * 10 / 3600)


def test_failure_of_an_idle_node_and_of_a_node_that_is_down():
    platform = Platform(3, failures=Failures(trace=((5.0, 2), (6.0, 2)), repair=10.0))
    machine = Machine(platform, Policy.load("fcfs"), Record())
    machine.run([rigid("a", 0.0, 2, 50.0)])
    assert list(machine.record.end) == [50.0]
    assert len(machine.indices.idle) == 3


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0])
def test_failures_come_as_often_as_they_should(shape):
    failures = Failures(mtbf=1000.0, shape=shape, seed=1)
    times = []
    for time, node in failures.times(50):
        assert 0 <= node < 50
        times.append(time)
        if time > 40_000:
            break
    assert times == sorted(times)
    assert 0.85 < len(times) / (50 * 40_000 / 1000) < 1.15 + 0.5 * (shape < 1)


# applications


def task(kind, amount, **more):
    return Task(kind, lambda n: amount / n if kind == "compute" else amount, **more)


def phased(name, phases, nodes=2, kind="malleable", submit=0.0, **more):
    low, high = (nodes, nodes) if kind == "rigid" else (1, 8)
    job = Job(id=name, nodes=nodes, kind=kind, min_nodes=low, max_nodes=high, submitted=submit)
    return Arrival(job, 0.0, application=Application(phases, **more))


def test_tasks_in_sequence_and_amounts_by_size():
    app = (Phase((task("compute", 40.0), task("communicate", 10.0), task("idle", 3.0)), iterations=2),)
    platform = Platform(2, speed=2.0, link=5.0)
    result = simulate([phased("a", app)], policy="fcfs", platform=platform)
    assert ends(result) == {"a": 2 * (10.0 + 2.0 + 3.0)}


def test_size_changes_only_at_scheduling_points():
    app = (Phase((task("compute", 40.0),), iterations=3),)
    jobs = [phased("a", app), rigid("b", 5.0, 1, 1.0)]
    # decided at 5, done at 20 (the first point), then two iterations of 10 s on four nodes
    result = run(jobs, {5: [("a", 4)]}, allotments=True)
    assert ends(result)["a"] == 40.0
    held = [(one.start, one.end, len(one.nodes)) for one in result.held if one.job == "a"]
    assert (0.0, 5.0, 2) in held  # the nodes are held from the decision on


def test_work_on_reconfiguration_and_expansion():
    app = (Phase((task("compute", 40.0),), iterations=2),)
    times = {"on_start": 1.0, "on_resize": 2.0, "on_expansion": 4.0}
    extra = {when: (task("idle", seconds),) for when, seconds in times.items()}
    result = run([phased("a", app, **extra)], {0: [("a", 4)]})
    assert ends(result) == {"a": 1.0 + 20.0 + 2.0 + 4.0 + 10.0}


def test_new_nodes_alone_run_what_is_for_expansion():
    """Two nodes become six: four of them read 40 B each at 10 B/s, and two wait."""
    app = (Phase((task("compute", 12.0),), iterations=2),)
    extra = {"on_resize": (task("compute", 24.0),), "on_expansion": (Task("read", lambda n: 160.0 / n),)}
    platform = Platform(8, link=10.0)
    result = run([phased("a", app, **extra)], {0: [("a", 6)]}, platform)
    assert ends(result) == {"a": 6.0 + 4.0 + 4.0 + 2.0}


@pytest.mark.parametrize(
    ("hold", "held"), [(True, [(0.0, 5.0, 2), (5.0, 30.0, 8)]), (False, [(0.0, 20.0, 2), (20.0, 30.0, 8)])]
)
def test_growth_at_once_or_at_the_next_scheduling_point(hold, held):
    """Six nodes are idle from 5 on; the job can use them from 20 on, its first point."""
    app = (Phase((task("compute", 40.0),), iterations=3),)
    policy = Policy.load("fcfs-malleable").with_(**{"malleability.hold": hold})
    jobs = [rigid("b", 0.0, 6, 5.0), phased("a", app), rigid("c", 7.0, 6, 1.0)]
    result = simulate(jobs, nodes=8, policy=policy, allotments=True)
    found = [(one.start, one.end, len(one.nodes)) for one in result.held if one.job == "a"]
    assert found == held and ends(result)["a"] == 30.0
    assert ends(result)["c"] == (31.0 if hold else 8.0)


def test_who_is_in_a_phase():
    """From one scheduling point to the next, and nobody else."""
    seen = []

    class Look(Script):
        def decide(self, snapshot, outlook, memory):
            seen.append((snapshot.now, set(snapshot.freeze().in_phase)))
            return super().decide(snapshot, outlook, memory)

    app = (Phase((task("compute", 40.0),), iterations=2),)
    jobs = [
        phased("a", app),
        malleable("m", runtime=30.0, nodes=1),
        phased("r", app, 2, "rigid"),
        rigid("b", 5.0),
    ]
    result = simulate(jobs, nodes=8, policy=Policy("look", Fcfs(), Look({20: [("a", 3)]})))
    assert result.metrics["resizes"] == 1
    assert {now: jobs for now, jobs in seen if now in (5.0, 30.0)} == {5.0: {"a"}, 30.0: {"a"}}
    assert (20.0, set()) in seen and seen[-1][1] == set()


def test_file_system_is_shared_equally_by_nodes():
    write = (Phase((Task("write", lambda n: 100.0),), scheduling_point=False),)
    platform = Platform(8, link=10.0, file_system=20.0)
    one = simulate([phased("a", write, 2, "rigid")], policy="fcfs", platform=platform)
    assert ends(one) == {"a": 10.0}  # two nodes at 10
    jobs = [phased("a", write, 2, "rigid"), phased("b", write, 2, "rigid", submit=5.0)]
    both = simulate(jobs, policy="fcfs", platform=platform)
    # a has 50 left at 5, both at 5 per node: a ends at 15; b has 50 left, alone at 10: 20
    assert ends(both) == {"a": 15.0, "b": 20.0}


def test_what_moves_nothing_is_no_transfer():
    tasks = [Task("write", lambda n, size=size: size) for size in (0.0, 100.0, 0.0)]
    app = (Phase(tuple(tasks), scheduling_point=False),)
    result = simulate([phased("a", app, 2, "rigid")], policy="fcfs", platform=Platform(2, link=10.0))
    assert ends(result) == {"a": 10.0} and result.metrics["mean_transfer"] == 10.0


def test_only_the_root_writes():
    write = (Phase((Task("write", lambda n: 100.0, root_only=True),)),)
    platform = Platform(8, link=10.0, file_system=10.0)
    jobs = [phased("a", write, 4, "rigid"), phased("b", write, 4, "rigid")]
    assert ends(simulate(jobs, policy="fcfs", platform=platform)) == {"a": 20.0, "b": 20.0}


def test_evolving_job_gets_what_is_idle_and_gives_back():
    job = Job(id="e", nodes=2, kind="evolving", min_nodes=1, max_nodes=8)
    arrival = Arrival(job, 100.0, requests=((0.5, 4), (0.75, 1)))
    result = simulate([arrival], nodes=8, policy="fcfs", allotments=True)
    # 50 s on 2, a quarter of the work (50 node-s) on 4 in 12.5 s, the last on 1 in 50 s
    assert ends(result) == {"e": 112.5}
    assert [len(one.nodes) for one in result.held] == [2, 4, 1]


# properties


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    jobs=st.lists(
        st.tuples(
            st.integers(0, 30), st.integers(1, 4), st.integers(1, 30), st.booleans(), st.integers(5, 60)
        ),
        min_size=1,
        max_size=12,
    ),
    resizes=st.dictionaries(
        st.integers(0, 60),
        st.lists(st.tuples(st.integers(0, 11), st.integers(1, 4)), max_size=2),
        max_size=6,
    ),
    cost=st.sampled_from([0.0, 2.5]),
    mtbf=st.sampled_from([float("inf"), 60.0]),
)
@settings(max_examples=200, deadline=None)
def test_any_run_ends_in_a_consistent_state(seed, jobs, resizes, cost, mtbf):
    arrivals = [
        malleable(str(i), float(s), n, float(r), 1, 4, float(w))
        if flexible
        else rigid(str(i), float(s), n, float(r), float(w))
        for i, (s, n, r, flexible, w) in enumerate(sorted(jobs))
    ]
    failures = Failures(mtbf=mtbf, repair=3.0, checkpoint=5.0, seed=seed) if mtbf < float("inf") else None
    platform = Platform(5, resize=ResizeCost(cost), failures=failures)
    script = {time: [(str(job), nodes) for job, nodes in ones] for time, ones in resizes.items()}

    def play(record):
        machine = Machine(platform, scripted_within(script), record)
        machine.run(arrivals, until=5000.0)
        return machine

    recorded, silent = play(Record(allotments=True)), play(None)
    assert list(recorded.story) == list(silent.story)
    if recorded.indices.now < 5000 and not recorded.indices.running:
        up = len(recorded.indices.nodes)
        assert len(recorded.indices.idle) == up
        states = set(recorded.record.state)
        assert states <= {2, 3}
    held = {}
    for _, row, nodes in sorted(recorded.record.allotments, key=lambda one: one[0]):
        held[row] = nodes
    assert all(detail.node_seconds >= 0 for detail in recorded.record.details.values())


def scripted_within(resizes):
    """A script that asks only for what is idle."""
    policy = scripted(resizes)
    ask = policy.malleability.decide

    def decide(snapshot, outlook, memory):
        plan, memory = ask(snapshot, outlook, memory)
        idle, kept = outlook.idle, []
        for resize in plan:
            more = resize.nodes - len(snapshot.running[resize.job].nodes)
            if more and more <= idle:
                idle -= max(0, more)
                kept.append(resize)
        return kept, memory

    policy.malleability.decide = decide
    return policy
