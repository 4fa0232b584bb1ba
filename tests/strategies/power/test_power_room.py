"""Who gives watts to whom, and which job is kept so that a lower bound stays within reach."""

from dataclasses import replace

from test_power_corridor import decided, job, machine, rigid, sizes

from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.power import Corridor
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import Linear, PowerLaw
from dask_hpc.strategies.power.admission import Admission
from dask_hpc.strategies.power.balance import Balance, Coming, PowerBounds
from dask_hpc.strategies.power.corridor import PowerCorridor
from dask_hpc.strategies.power.repair import Anchor, Repair

ROOT = PowerLaw(0.5)  # the next node of a job brings less and less


def admission(indices, lower, upper, resting=(), idle=0, is_wary=False):
    snapshot, corridor = Snapshot(indices), Corridor.constant(lower, upper)
    balance = Balance.of(snapshot, snapshot.power, is_wary=is_wary)
    coming = Coming(snapshot, balance, corridor, 0.0, 0.0)
    anchor = Anchor(snapshot, balance, corridor, 0.0, 0)
    found = Admission(snapshot, balance, PowerBounds(lower, upper), coming, anchor, resting=resting)
    found.idle = idle
    return found


def test_a_job_that_waits_for_power_gets_the_watts_that_bring_least():
    waiting = job("w", 1, speedup=ROOT)
    indices = machine(running=[job("a", 4, speedup=ROOT), job("b", 2, speedup=ROOT)], waiting=[waiting])
    # 6 x 100 + 2 x 10 W: another node would make 710
    found = admission(indices, 0, 620).make_room(waiting, 1)
    assert sizes(found) == {"a": 3}
    assert found[0].reason == "power: worth more to job w: 1 node"
    assert admission(indices, 0, 710).make_room(waiting, 1) == [], "there is power enough"
    assert sizes(admission(indices, 0, 620, ("a",)).make_room(waiting, 1)) == {"b": 1}, "a rests"


def test_in_doubt_room_is_made_as_for_a_node_that_works():
    """It says that it draws 10 W more than an idle node, and there are 20 W; working nodes draw 90 W more."""
    waiting = job("w", 1, speedup=ROOT, power=(20, 20))
    indices = machine(running=[job("a", 4, speedup=ROOT)], waiting=[waiting])
    assert admission(indices, 0, 460).make_room(waiting, 1) == []
    assert sizes(admission(indices, 0, 460, is_wary=True).make_room(waiting, 1)) == {"a": 3}


def test_nobody_gives_what_is_worth_as_much_where_it_is():
    waiting = job("w", 1, speedup=Linear())
    indices = machine(running=[job("a", 4, speedup=Linear())], waiting=[waiting])
    assert admission(indices, 0, 440).make_room(waiting, 1) == []
    rigid_only = machine(running=[rigid("r", 4)], waiting=[waiting])
    assert admission(rigid_only, 0, 440).make_room(waiting, 1) == []


def test_no_room_is_made_at_the_expense_of_the_lower_bound():
    waiting = job("w", 1, speedup=ROOT, power=(30, 40))
    running = [job("a", 8, speedup=ROOT)]
    assert admission(machine(running=running, waiting=[waiting]), 700, 800).make_room(waiting, 1)
    assert not admission(machine(running=running, waiting=[waiting]), 750, 800).make_room(waiting, 1)


def test_idle_nodes_go_where_a_watt_brings_most():
    cheap = job("cheap", 1, speedup=ROOT, power=50, walltime=500.0)
    dear = job("dear", 1, speedup=ROOT, walltime=500.0)
    indices = machine(running=[cheap, dear])
    # 150 + 60 W; a node more is 40 W or 90 W
    found = sizes(admission(indices, 0, 210 + 2 * 40, idle=6).use_up())
    assert found == {"cheap": 3}
    found = sizes(admission(indices, 0, 10_000, idle=3).use_up())
    assert found == {"cheap": 4}
    assert admission(indices, 0, 211, idle=6).use_up() == []


def test_the_decision_makes_room_only_where_nothing_else_is_to_be_done():
    waiting = job("w", 1, speedup=ROOT)
    indices = machine(running=[job("a", 6, speedup=ROOT)], waiting=[waiting])
    strategy = PowerCorridor(upper=620.0)
    powered, _ = decided(indices, strategy, [Start("w", 1, "asked")])
    assert not powered.starts and sizes(powered.resizes) == {"a": 5}
    powered, _ = decided(indices, replace(strategy, redistribute=True), [Start("w", 1, "asked")])
    assert not powered.starts and not powered.resizes, "the published scheduler does not do that"


def test_as_published_too_little_starts_somebody_and_too_much_nobody():
    """Both would do in either case."""
    old, new = job("old", 2), job("new", 2)
    snapshot = Snapshot(machine(running=[old], waiting=[new]))
    balance = Balance.of(snapshot, snapshot.power)
    repair = Repair(snapshot, balance, PowerBounds(300, 900), [(old, 2)], 1.0)
    assert repair.anew("lower", [new]).sizes["new"] > 0
    assert repair.anew("upper", [new]).sizes.keys() == {"old"}


# -- the job that keeps a lower bound within reach ------------------------------------------------


def anchor_of(indices, corridor, until=1000.0):
    snapshot = Snapshot(indices)
    balance = Balance.of(snapshot, snapshot.power)
    return Anchor(snapshot, balance, corridor, until, 16)


def strong_and_weak(strong=2, weak=2):
    """8 nodes: 80 W idle. Strong jobs alone reach 800 W, weak ones 240 W."""
    return machine(
        running=[
            job("strong", strong, walltime=300.0, speedup=Linear()),
            job("weak", weak, walltime=400.0, speedup=Linear(), power=30),
        ],
        waiting=[job("next", 1, walltime=100.0)],
    )


def test_it_does_not_grow_so_far_that_it_ends_first():
    indices = strong_and_weak()
    anchor = anchor_of(indices, Corridor.constant(250, 900))
    assert anchor.needed == 400  # it would end at 300 as it is: no growth at all
    limited = anchor.limit(indices.running["strong"], Resize("strong", 8, "grows"))
    assert limited.nodes == 2 and "6 nodes less than that" in limited.reason
    weak = Resize("weak", 8, "grows")
    assert anchor.limit(indices.running["weak"], weak) is weak


def test_nobody_is_kept_where_all_or_none_bear_the_bound():
    for lower in (230, 850):
        indices = strong_and_weak()
        anchor = anchor_of(indices, Corridor.constant(lower, 900))
        growth = Resize("strong", 8, "grows")
        assert anchor.limit(indices.running["strong"], growth) is growth
        assert anchor.may_start(indices.waiting["next"], 8)


def test_it_gives_nodes_to_the_weak_job_that_would_be_left():
    indices = strong_and_weak(strong=6, weak=2)
    anchor = anchor_of(indices, Corridor.constant(250, 900))
    shifted = anchor.shift(PowerBounds(250, 900))
    assert sum(shifted.values()) == 8 and shifted["strong"] < 6
    ends = {
        name: 100 + (end - 100) * before / shifted[name]
        for name, end, before in (("strong", 300, 6), ("weak", 400, 2))
    }
    assert ends["strong"] >= ends["weak"]
    assert not anchor.shift(PowerBounds(700, 900)), "not below the lower bound"


def test_it_is_there_when_a_coming_bound_is():
    """Nobody else bears 250 W at 500 s: it starts later, or smaller."""
    indices = machine(
        running=[job("weak", 2, walltime=700.0, power=30)],
        waiting=[job("strong", 2, walltime=300.0, speedup=Linear())],
    )
    corridor = Corridor(((0, 0, 900), (500, 250, 900)))
    strong = indices.waiting["strong"]
    anchor = anchor_of(indices, corridor)
    assert anchor.needed == 700
    assert anchor.may_start(strong, 1) and not anchor.may_start(strong, 2)
    assert anchor_of(indices, corridor, until=400.0).may_start(strong, 2), "that is too far ahead"


# -- bounds that are coming -----------------------------------------------------------------------


def test_a_job_starts_larger_to_be_over_before_a_bound_comes():
    corridor = Corridor(((0, 0, 900), (200, 0, 150)))
    waiting = job("w", 2, walltime=100.0, speedup=Linear())
    indices = machine(running=[rigid("r", 1, walltime=1000.0)], waiting=[waiting])
    strategy = PowerCorridor(lookahead=600.0)

    def started(nodes):
        asked = [Start("w", nodes, "asked")]
        powered, _ = strategy.decide(Snapshot(indices, corridor), asked, [], None)
        return powered.starts

    assert sizes(started(2)) == {"w": 2}
    (larger,) = started(1)
    assert larger.nodes == 2 and "1 node more than that" in larger.reason
    indices.now = 195.0
    assert not started(1), "not even 7 nodes are quick enough"
