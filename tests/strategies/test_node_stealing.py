"""Node stealing on the seed's toy example and vectors."""

from dataclasses import replace

from small_machine import machine, started

from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.model.plan import Interrupt, Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.failure.node_stealing import NodeStealing
from dask_hpc.strategies.failure.replace import replacements
from dask_hpc.strategies.strategy import Powered, outlook_after


def toy():
    """Seed 002, section 3.1: eight nodes, at 1 s one of J3's six fails."""
    indices = machine(8, now=0.0)
    for name, nodes, length in (("J1", 1, 8), ("J2", 1, 5), ("J3", 6, 10)):
        indices.waiting.add(Job(id=name, nodes=nodes, walltime=length))
        indices.start(name, nodes)
    indices.now = 1.0
    indices.requeue("J3", 2, ahead=2)
    indices.remove_node("2")
    indices.failed = ("J3",)
    return indices


def victims(indices, memory=None, **how):
    snapshot = Snapshot(indices)
    interrupts, memory = NodeStealing(**how).decide(snapshot, outlook_after(snapshot, ()), memory)
    return [interrupt.job for interrupt in interrupts], memory


def test_the_later_of_two_small_jobs_is_stopped():
    assert victims(toy())[0] == ["J2"]


def test_only_one_per_failed_job():
    indices = toy()
    _, memory = victims(indices)
    assert victims(indices, memory)[0] == []


def test_tie_by_submission_or_by_run():
    indices = machine(4, now=0.0)
    for name, submitted, start in (("a", 1.0, 5.0), ("b", 3.0, 4.0)):
        indices.now = start
        indices.waiting.add(Job(id=name, nodes=1, walltime=100, submitted=submitted))
        indices.start(name, 1)
    indices.waiting.add(Job(id="failed", nodes=3, walltime=10))
    indices.failed = ("failed",)
    assert victims(indices)[0] == ["b"]
    assert victims(indices, tie="shortest-run")[0] == ["a"]


def test_small_jobs_and_lucky_ones_never_steal():
    indices = toy()
    indices.waiting.remove("J3")
    indices.waiting.add(Job(id="J3", nodes=1, walltime=10))
    assert victims(indices)[0] == []  # no job has fewer nodes, and five are idle
    indices = toy()
    indices.failed = ()
    assert victims(indices)[0] == []


def test_a_victim_must_be_large_enough():
    indices = toy()
    indices.remove_node("3")  # now J3 lacks two, and no single small job has as many
    assert victims(indices)[0] == []


# jobs that go on


def going_on(*rigid, nodes, soft=()):
    """Rigid jobs by size, then malleable ones by size and least size; the first loses node 0."""
    indices = machine(nodes, *[(size, 1000.0) for size in rigid])
    for number, (size, least) in enumerate(soft):
        started(indices, f"m{number}", size, least)
    indices.now += 1.0
    indices.remove_node("0")
    return indices


def deeds(indices, **how):
    snapshot = Snapshot(indices)
    return list(NodeStealing(**how).decide(snapshot, outlook_after(snapshot, ()), None)[0])


def test_one_that_goes_on_takes_a_node_from_a_smaller_job():
    indices = going_on(3, 2, 1, nodes=6)
    assert indices.lacking == {"r0": 1}
    reason = "job r0 lost a node and lacks 1; this is the smallest job that can help"
    assert deeds(indices) == [Interrupt("r2", reason, "now", "r0")]
    assert deeds(indices, when="next-commit") == [Interrupt("r2", reason, "next-commit", "r0")]
    assert deeds(going_on(1, 1, nodes=2)) == []  # it has ended: its only node is gone
    assert deeds(going_on(2, 2, nodes=4)) == []  # nobody is smaller


def test_who_can_give_a_node_gives_it_whatever_its_size():
    indices = going_on(2, 1, nodes=10, soft=[(4, 4), (3, 1)])
    assert [(one.job, one.nodes) for one in deeds(indices)] == [("m1", 2)]
    assert [one.job for one in deeds(indices, spare=False)] == ["r1"]
    indices.begin_resize("m1", 2)  # the node that it gives is on its way
    assert deeds(indices) == []


def test_a_malleable_victim_must_be_able_to_give_enough():
    indices = going_on(3, nodes=6, soft=[(3, 2)])
    indices.remove_node("1")
    assert indices.lacking == {"r0": 2} and deeds(indices, spare=True) == []
    indices = going_on(4, nodes=7, soft=[(3, 2)])
    indices.remove_node("1")
    assert [type(one) for one in deeds(indices)] == [Interrupt]  # it can only give all


def test_what_is_about_to_stop_counts():
    indices = going_on(3, 3, 1, 1, nodes=8)
    indices.remove_node("3")
    assert indices.lacking == {"r0": 1, "r1": 1}
    assert [one.job for one in deeds(indices)] == ["r3"]
    indices.stops("r3", "r0")
    assert [(one.job, one.whom) for one in deeds(indices)] == [("r2", "r1")]
    indices.stops("r2", "r1")
    assert deeds(indices) == []
    assert indices.is_worth_stopping("r3") and indices.stopping == {"r2": "r1"}
    indices.end("r1")
    assert not indices.is_worth_stopping("r2") and not indices.is_worth_stopping("r2")


def test_idle_nodes_take_the_place_of_failed_ones_in_order_of_start():
    indices = going_on(3, 3, nodes=7)
    indices.remove_node("3")
    assert [(one.job, one.nodes) for one in replacements(Snapshot(indices))] == [("r0", 3)]
    assert replacements(Snapshot(indices))[0].reason == "takes 1 idle node for as many that failed"
    indices.begin_resize("r0", 3)
    assert indices.lacking == {"r1": 1} and replacements(Snapshot(indices)) == []
    indices.finish_resize("r0")
    assert indices.resizable == {}  # a rigid job stays one
    indices.end("r1")
    assert indices.lacking == {}


def test_a_malleable_job_lacks_what_it_needs_at_least():
    indices = going_on(nodes=4, soft=[(4, 3)])
    assert indices.lacking == {}
    indices.remove_node("1")
    assert indices.lacking == {"m0": 1}
    odd = machine(6)
    started(odd, "m", 4, 3, most=4, constraint="even")
    odd.remove_node("0")
    odd.remove_node("1")
    assert odd.lacking == {"m": 2}  # 3 would be enough, and is not even


def test_replacements_go_before_who_waits_and_failures_before_both():
    indices = going_on(3, 1, nodes=5)
    indices.waiting.add(Job(id="next", nodes=1))
    plan, memory = Policy.load("node-stealing").decide(Snapshot(indices), None)
    assert plan.resizes == (Resize("r0", 3, "takes 1 idle node for as many that failed"),)
    assert plan.starts == plan.interrupts == () and plan.for_failed
    indices.remove_node("4")
    plan, _ = Policy.load("node-stealing").decide(Snapshot(indices), memory)
    assert [one.job for one in plan.interrupts] == ["r1"] and plan.for_failed
    plans = Policy.load("node-stealing").preview(Snapshot(indices), None)
    assert [plan.jobs for plan in plans] == [["r1"], ["r0"]]
    late = Policy.load("node-stealing").with_(**{"failure.when": "next-commit"})
    assert [plan.jobs for plan in late.preview(Snapshot(indices), None)] == [["r1"]]


def test_nobody_is_resized_twice_in_one_instant():
    indices = going_on(3, nodes=5)
    indices.remove_node("1")
    indices.begin_resize("r0", 2)
    indices.finish_resize("r0")
    assert indices.lacking == {"r0": 1} and replacements(Snapshot(indices)) == []
    indices.now += 1.0
    assert [one.nodes for one in replacements(Snapshot(indices))] == [3]


def test_who_waits_is_thought_of_once_replacements_are_there():
    indices = going_on(3, nodes=5)
    indices.waiting.add(Job(id="next", nodes=1))
    plans = Policy.load("fcfs").preview(Snapshot(indices), None)
    assert [plan.jobs for plan in plans] == [["r0"], ["next"]]


def test_replacements_are_asked_of_power_as_all_growth_is():
    indices = going_on(3, nodes=4)
    indices.power = object()
    for allowed in (True, False):
        policy = replace(Policy.load("fcfs"), power=Veto(allowed))
        plan, _ = policy.decide(Snapshot(indices), None)
        assert (plan is not None) is allowed


class Veto:
    concern, name = "power", "veto"

    def __init__(self, allowed):
        self.allowed = allowed

    def decide(self, snapshot, starts, resizes, memory):
        return Powered(starts, resizes if self.allowed else ()), None
