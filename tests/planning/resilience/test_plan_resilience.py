"""Protections side by side, in human units: what is best, what decides, what cannot be asked."""

from math import inf

import pytest

import dask_hpc
from dask_hpc.model.errors import InputError
from dask_hpc.planning.resilience import choose as choosing
from dask_hpc.planning.resilience.choose import choose, choose_alike
from dask_hpc.planning.resilience.hardware import Calculation, Case

GIVEN = {"nodes": 6000, "run": "24h", "memory": "32 GB", "mtbf": "2.5y"}


def plan(**more):
    return dask_hpc.plan_resilience(**GIVEN | more)


def test_published_choices():
    """003, 4.6: redundancy for little communication and up to half the machine; multilevel for small
    calculations that communicate, recovery for large ones; restart and partial redundancy never."""
    found = {}
    for nodes in (1200, 12_000, 60_000, 96_000):
        for messages in (0.0, 0.75):
            one = plan(nodes=nodes, messages=messages, machine=120_000, redundancy=(1.5, 2))
            found[nodes, messages] = one.best.protocol
            for way in one.ways.values():
                assert one.best.time <= way.time
    assert found == {
        (1200, 0.0): "redundancy 2",
        (1200, 0.75): "multilevel",
        (12_000, 0.0): "redundancy 2",
        (12_000, 0.75): "multilevel",
        (60_000, 0.0): "redundancy 2",
        (60_000, 0.75): "multilevel",
        (96_000, 0.0): "recovery",
        (96_000, 0.75): "recovery",
    }


def test_a_plan_says_what_decides():
    one = plan()
    assert one.best.protocol == "recovery" and "multilevel would take" in one.reason
    assert "a failure every 3.7 h" in one.reason and "for recomputation (" in one.reason
    assert one.reason in str(one) and "restart: 93.6%" in str(one)
    best = one.best
    assert best.time == pytest.approx(86400 / best.efficiency) == pytest.approx(sum(best.parts))
    assert best.every["partner"] == best.pattern.work < best.every["store"] < inf
    plain = one.as_plain()
    assert plain["ways"]["recovery"]["parts"]["computing"] == 86400 and plain["best"] == "recovery"
    # the energy of what is computed and of nothing else is the least there can be
    assert best.energy > 6000 * 750 * 86400


def test_energy_may_decide_otherwise():
    """Commits to the store are more frequent for energy, and rarer if they take more power than work."""
    for protocol in ("restart", "multilevel", "recovery"):
        quick, thrifty = plan(nodes=60_000), plan(nodes=60_000, objective="energy")
        assert thrifty.ways[protocol].every["store"] < quick.ways[protocol].every["store"]
        assert thrifty.ways[protocol].energy < quick.ways[protocol].energy
    dear = plan(objective="energy", power={"computing": "100W", "committing": "900W"}).ways["restart"]
    assert dear.pattern.work > plan().ways["restart"].pattern.work


def test_what_is_quickest_may_take_most_energy():
    """003, 3.5: replicas cost power all the time."""
    asked = {"nodes": 60_000, "redundancy": 2}
    assert plan(**asked).best.protocol == "redundancy 2"
    thrifty = plan(**asked, objective="energy")
    assert thrifty.best.protocol == "recovery" and thrifty.ranking[-1].protocol == "redundancy 2"
    assert "more energy, most of it for recomputation (361 GJ, not 250 GJ)" in thrifty.reason


def test_a_steady_plan_is_steadier():
    quick, steady = plan(nodes=120_000), plan(nodes=120_000, objective="steady")
    for name, way in steady.ways.items():
        assert way.deviation <= quick.ways[name].deviation and way.time >= quick.ways[name].time


def test_costs_that_are_said():
    by_speed = plan()
    costs = by_speed.case.costs
    said = plan(commit=costs.commit, restart=[f"{seconds} s" for seconds in costs.restart])
    assert said.best.time == by_speed.best.time
    slow = plan(commit="1s,4s,10min", restart="0,0,0")
    assert slow.case.costs.restart == (0, 0, 0) and slow.ways["restart"].time > said.ways["restart"].time


def test_more_nodes_than_the_machine_has():
    one = plan(machine=10_000, redundancy=2)
    twice = one.ways["redundancy 2"]
    assert twice.efficiency == 0 and twice.time == inf and one.ranking[-1] is twice
    assert one.notes == ["redundancy 2: would need 12000 nodes, of which the machine has 10000"]


def test_what_is_hopeless_is_said_with_the_limit():
    one = plan(nodes=120_000, memory="64 GB")
    (note,) = one.notes
    assert note.startswith("restart: hopeless: a restart from the store takes 17.8 min, longer than the 11.0")
    limit = int(note.split("up to ")[1].split()[0])
    for nodes, is_longer in ((limit, False), (limit + 1, True)):
        case = plan(nodes=nodes, memory="64 GB").case
        assert (case.costs.restart[-1] > 1 / case.failures) == is_longer
    assert plan(nodes=120_000, mtbf="30d").reason.startswith("hopeless: a restart from the store")
    # of commits that are said, the store's does not grow with the nodes
    said = plan(mtbf="10d", commit="1s,4s,10min")
    assert f"up to {10 * 86400 // 600} nodes it would be shorter" in str(said)
    # what takes for ever is no error
    assert plan(nodes=120_000, mtbf="1h").best.efficiency == 0


def test_a_sweep_is_the_plan_at_each_point():
    one = plan(machine=120_000, redundancy=1.5)
    for axis, values in (("nodes", (600, 6000.2)), ("mtbf", (1e7, 2.5 * 31557600)), ("memory", (1e9, 32e9))):
        points = one.sweep(axis, values)
        assert [value for value, _ in points] == list(values)
        first, last = (ways for _, ways in points)
        assert last == pytest.approx({name: way.efficiency for name, way in one.ways.items()})
        better = first if axis != "mtbf" else last
        assert better["restart"] == max(first["restart"], last["restart"])


def test_alike_cases_are_chosen_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(choosing, "choose", lambda *case: asked.append(case) or choose(*case))
    for nodes in range(5900, 6001, 10):
        case = Case(Calculation(nodes=nodes, work=86400.0, memory=33e9))
        way = choose_alike(case)
        assert way.efficiency == pytest.approx(choose(case).best.efficiency, abs=2e-3)
    assert 1 <= len(asked) <= 2
    assert choose_alike(Case(Calculation(nodes=120_000, work=1.0, memory=1.0))).nodes <= 120_000


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"severity": (0.1, 0.2, 0.3)}, "whose sum is 0.6"),
        ({"severity": "0.5,0.5"}, "three shares"),
        ({"severity": "a,b,c"}, "three shares"),
        ({"severity": (-0.1, 0.6, 0.5)}, "three shares from 0 to 1"),
        ({"mtbf": 0}, "mtbf: found 0.0"),
        ({"mtbf": "-3d"}, "mtbf"),
        ({"mtbf": "3 W"}, "mtbf"),
        ({"nodes": 0}, "nodes: found 0"),
        ({"nodes": 2.5}, "a whole number"),
        ({"machine": 5000}, "up to 5000, which the machine has"),
        ({"machine": "big"}, "machine: found 'big'"),
        ({"memory": "0 GB"}, "memory: found 0.0"),
        ({"run": 0}, "run: found"),
        ({"run": "inf"}, "finite"),
        ({"redundancy": 0.9}, "a degree from 1 to 2"),
        ({"redundancy": (1.5, 3)}, "redundancy: found 3"),
        ({"redundancy": "two"}, "redundancy"),
        ({"messages": 1.1}, "messages: found 1.1"),
        ({"objective": "money"}, "time, energy, steady"),
        ({"store": 0}, "store: found 0.0"),
        ({"ports": 0}, "ports: found 0"),
        ({"speedup": 0.5}, "speedup: found 0.5"),
        ({"power": {"computing": 0}}, "power: computing"),
        ({"power": {"idling": "3 W"}}, "nearest: idle"),
        ({"power": 750}, "power: found 750"),
        ({"commit": "1s,2s"}, "three times"),
        ({"commit": (1, -2, 3)}, "commit: partner"),
        ({"restart": (1, 2, 3)}, "without commit"),
    ],
)
def test_what_cannot_be_asked(wrong, words):
    with pytest.raises(InputError) as told:
        plan(**wrong)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_a_misprint_is_scaled():
    shares = plan(severity=(0.139, 0.792, 0.079)).case.hardware.severity
    assert sum(shares) == pytest.approx(1) and shares[0] == pytest.approx(0.139 / 1.01)
