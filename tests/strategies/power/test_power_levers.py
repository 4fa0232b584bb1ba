"""What is done about power beside starts and sizes: holding, threads, caps, releasing, and undoing it."""

import pytest

from dask_hpc.model.plan import Hold, Start
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.strategies.power.corridor import PowerCorridor
from tests.strategies.power.power_machine import decided, held, job, machine, policy, rigid, settled, verdicts

HOLD = frozenset({"hold"})
BUSY = PowerRange(100.0, 100.0)


def outside(nodes=8, working=0, wanted=0, *, levers=HOLD, **more):
    """A machine where tasks outside of jobs work on some nodes and could on others."""
    return machine(
        nodes, outside=BUSY, outside_nodes=working, outside_wanted=wanted, levers=levers,
        watts=10.0 * nodes + 90.0 * working, **more,
    )  # fmt: skip


def test_nodes_are_held_before_work_comes():
    """What runs cannot be interrupted: room is kept for a burst that may come at any moment."""
    plans, _ = settled(outside(), policy(upper="500 W"))
    assert [plan.hold.nodes for plan in plans if plan.hold] == [4]
    plans, _ = settled(outside(), policy(upper="900 W"))
    assert not any(plan.hold for plan in plans), "all of them may work"
    plans, _ = settled(outside(levers=frozenset()), policy(upper="500 W"))
    assert not any(plan.hold for plan in plans), "nothing that could be done"


def test_one_node_stays_for_work_outside():
    indices = outside(working=8, wanted=8)
    chosen = policy(upper="100 W")
    plans, memory = settled(indices, chosen)
    assert indices.power.held == 7
    (verdict,) = verdicts(plans)
    assert not verdict.is_kept and verdict.lowest == 170
    indices.now += 100
    assert settled(indices, chosen, memory)[0] == []


def test_what_was_held_is_let_go_when_somebody_wants_it_and_there_is_room():
    indices = outside(working=4, wanted=8, held=4)
    wide = Corridor.constant(0, 700)
    powered, memory = decided(indices, PowerCorridor(upper=500))
    assert powered.hold is None
    powered, memory = PowerCorridor(upper=500).decide(snapshot_of(indices, wide), (), (), memory)
    assert powered.hold == Hold(2, "power: there is room for 6 nodes outside of jobs")
    wary = PowerCorridor(upper=500, hysteresis=90)
    powered, _ = wary.decide(snapshot_of(indices, wide), (), (), None)
    assert powered.hold == Hold(3, "power: there is room for 5 nodes outside of jobs")
    indices = outside(working=3, wanted=3, held=4)
    powered, _ = PowerCorridor().decide(snapshot_of(indices, wide), (), (), None)
    assert powered.hold is None, "nobody wants them"
    powered, _ = PowerCorridor().decide(snapshot_of(indices, Corridor.constant()), (), (), None)
    assert powered.hold.nodes == 0, "no bounds, nothing held"


def snapshot_of(indices, corridor):
    from dask_hpc.model.snapshot import Snapshot

    return Snapshot(indices, corridor)


def test_jobs_go_before_work_outside():
    """A start that does not fit waits until tasks that run have made room for it."""
    indices = outside(working=4, wanted=8, waiting=[rigid("w", 2)])
    strategy = PowerCorridor(upper=80 + 4 * 90)
    powered, memory = decided(indices, strategy, [Start("w", 2, "")])
    assert not powered.starts and powered.hold.nodes == 6
    indices.pull_levers(plan_of(powered))
    powered, memory = decided(indices, strategy, [Start("w", 2, "")], memory=memory)
    assert not powered.starts and powered.hold is None, "and is not given back meanwhile"
    indices.power = outside(working=2, wanted=8, held=6, waiting=[]).power
    powered, memory = decided(indices, strategy, [Start("w", 2, "")], memory=memory)
    assert powered.starts


def plan_of(powered):
    from dask_hpc.model.plan import Plan

    return Plan(0, 0.0, hold=powered.hold, cap=powered.cap, release=powered.release)


def test_threads_where_no_sizes_are_inside():
    indices = machine(8, running=[rigid("r", 8)], levers=frozenset({"threads"}))
    chosen = policy(upper="600 W")
    plans, memory = settled(indices, chosen)
    (cap,) = [plan.cap for plan in plans if plan.cap]
    assert cap.threads == 11 / 16 and cap.watts is None  # 80 W idle, 495 W of 720 W
    assert verdicts(plans)[-1].is_kept
    indices.power = draws_at(indices, 10 + 90 * 11 / 16)
    for _ in range(4):
        indices.now += 40
        assert not [p.cap for p in settled(indices, chosen, memory)[0] if p.cap]
    plans, memory = settled(indices, chosen, memory, Corridor.constant(0, 700))
    assert [p.cap.threads for p in plans if p.cap] == [13 / 16]
    indices.now += 100
    plans, memory = settled(indices, chosen, memory, Corridor.constant())
    assert [p.cap.threads for p in plans if p.cap] == [1.0]


def draws_at(indices, watts):
    from dataclasses import replace

    return replace(indices.power, active=PowerRange(watts, watts))


def test_a_band_narrower_than_a_node():
    """No number of nodes draws 300 to 330 W; one more than enough with fewer threads does."""
    indices = machine(8, running=[job("m", 4)], levers=frozenset({"threads"}), idle=0.0)
    plans, _ = settled(indices, policy(lower="310 W", upper="390 W"))
    assert [p.cap.threads for p in plans if p.cap] == [15 / 16]
    assert held(indices) == {"m": 4} and verdicts(plans)[-1].is_kept
    indices = machine(8, running=[job("m", 4)], idle=0.0)
    plans, _ = settled(indices, policy(lower="310 W", upper="390 W"))
    assert not verdicts(plans)[-1].is_kept


def test_a_cap_of_each_node():
    indices = machine(8, running=[rigid("r", 8)], levers=frozenset({"cap"}))
    chosen = policy(upper="600 W")
    plans, memory = settled(indices, chosen)
    assert [p.cap.watts for p in plans if p.cap] == [75.0]
    indices.power = draws_at(indices, 75.0)
    indices.now += 100
    plans, memory = settled(indices, chosen, memory, Corridor.constant(0, 900))
    assert [p.cap.watts for p in plans if p.cap] == [112.0], "what they would draw without is not known"
    plans, memory = settled(indices, chosen, memory, Corridor.constant())
    assert [p.cap.watts for p in plans if p.cap] == [None]


def test_idle_nodes_are_given_back_when_even_they_are_too_much():
    indices = machine(8, running=[rigid("r", 4)], levers=frozenset({"release"}), releasable=4)
    plans, memory = settled(indices, policy(upper="425 W"))
    assert [p.release.nodes for p in plans if p.release] == [2]
    assert verdicts(plans)[-1].is_kept
    for name in ("6", "7"):
        indices.remove_node(name)
    indices.now += 100
    chosen = policy(upper="425 W")
    plans, memory = settled(indices, chosen, memory)
    assert not any(p.release for p in plans)
    plans, memory = settled(indices, chosen, memory, Corridor.constant(0, 435))
    assert [p.release.nodes for p in plans if p.release] == [1]


@pytest.mark.parametrize("doubt", ["", "the sensor of node 3 says 0 W"])
def test_in_doubt_only_what_is_safe(doubt):
    """Figures may be as wrong as the readings: who starts counts as a node that works usually does."""
    waiting = [rigid("w", 3, power=(20, 20))]
    indices = machine(8, waiting=waiting, doubt=doubt, watts=0.0)
    strategy = PowerCorridor(upper=340)
    powered, memory = decided(indices, strategy, [Start("w", 3, "")])
    assert bool(powered.starts) == (not doubt)
    assert not doubt or doubt in powered.verdict.reason
    indices.now += 1
    powered, memory = decided(indices, strategy, memory=memory)
    powered, memory = decided(indices, strategy, memory=memory)
    assert powered.verdict is None, "said once"


@pytest.mark.parametrize(
    ("lever", "pulled", "given_back"), [("threads", 11 / 16, 12 / 16), ("watts", 75.0, 106.0)]
)
def test_room_is_left_before_something_is_given_back_but_not_when_it_is_pulled(lever, pulled, given_back):
    """Without it, 13 of 16 threads and 112 W would be."""
    levers = frozenset({"cap" if lever == "watts" else lever})
    indices = machine(8, running=[rigid("r", 8)], levers=levers)
    chosen, found = policy(upper="600 W", hysteresis=45), []
    wide = Corridor.constant(0, 900 if lever == "watts" else 700)
    plans, memory = settled(indices, chosen)
    found += [getattr(plan.cap, lever) for plan in plans if plan.cap]
    indices.power = draws_at(indices, 75.0 if lever == "watts" else 10 + 90 * 11 / 16)
    indices.now += 100
    plans, _ = settled(indices, chosen, memory, wide)
    found += [getattr(plan.cap, lever) for plan in plans if plan.cap]
    assert found == [pulled, given_back]
