"""Which corridor holds when, and that its steps are events."""

from dataclasses import dataclass, replace
from math import inf
from types import SimpleNamespace

import pytest

from dask_hpc import Policy, simulate
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.power import Corridor, PowerRange, PowerView
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.simulator import Arrival, Machine, Metering, Platform, Record
from dask_hpc.simulator.power import PowerRecord
from dask_hpc.strategies.strategy import Powered

STEPS = Corridor(((0.0, 100.0, 600.0), (30.0, 200.0, 700.0), (70.0, 0.0, 400.0)))


@dataclass(frozen=True)
class Watching:
    """A power strategy that lets everything pass and remembers what it saw when."""

    corridor: Corridor
    follow: str = ""
    concern = "power"
    name = "watching"

    def decide(self, snapshot, starts, resizes, memory):
        seen = (snapshot.now, *snapshot.corridor.at(snapshot.now), snapshot.power.watts)
        return Powered(starts, resizes), ((memory or ()) + (seen,))


def played(corridor=None, follow="", site=None, **platform):
    power = Watching(corridor or Corridor.constant(), follow)
    policy = replace(Policy.load("fcfs"), power=power)
    metering = None if site is None else Metering(corridor=site)
    record = Record()
    machine = Machine(
        Platform(4, idle_power=71.0, active_power=250.0, metering=metering, **platform), policy, record
    )
    machine.run([Arrival(Job(id="a", nodes=2), 100.0)])
    return machine, record


def times(machine):
    return sorted({seen[0] for seen in machine._memory.power})


def test_a_step_of_the_corridor_is_an_event():
    machine, record = played(STEPS)
    assert times(machine) == [0, 30, 70, 100]
    assert {seen[0]: seen[1:3] for seen in machine._memory.power} == {
        0: (100, 600), 30: (200, 700), 70: (0, 400), 100: (0, 400),
    }  # fmt: skip
    assert record.find(PowerRecord).bounds == list(STEPS.steps)


def test_also_where_only_ticks_decide():
    machine, _ = played(STEPS, tick=40.0, only_ticks=True)
    assert times(machine) == [30, 40, 70, 80, 120]


def test_a_start_is_seen_at_once():
    machine, _ = played(STEPS)
    assert [seen[3] for seen in machine._memory.power if seen[0] == 0] == [284, 642]


def test_who_says_the_corridor(tmp_path):
    site = Corridor.constant(1, 2)
    assert played(site=site)[0].snapshot.corridor == site, "the strategy says nothing"
    assert played(STEPS, site=site)[0].snapshot.corridor == STEPS
    path = tmp_path / "corridor.yaml"
    path.write_text("[{at: 0, lower: 1 kW}, {at: 1 min, upper: 3 kW}]")
    followed = Corridor(((0, 1000, inf), (60, 0, 3000)))
    assert played(STEPS, str(path), site=site)[0].snapshot.corridor == followed


def test_a_file_that_cannot_be_followed(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.yaml: cannot be read"):
        played(follow=str(tmp_path / "nowhere.yaml"))
    path = tmp_path / "corridor.yaml"
    path.write_text("[{at: 0, lower: 3 kW, upper: 2 kW}]")
    with pytest.raises(InputError, match=r"corridor.yaml: .*lower <= upper"):
        played(follow=str(path))


class Points(list):
    """Entry points of one group, as ``importlib.metadata`` would find them."""

    def __call__(self, group):
        assert group == "dask_hpc.corridors"
        return self


@pytest.fixture
def tariff(monkeypatch):
    point = SimpleNamespace(name="tariff", load=lambda: lambda seconds: (100, 500 + seconds // 60))
    monkeypatch.setattr("dask_hpc.model.power.entry_points", Points([point]))


def test_a_signal_is_asked_at_every_tick(tariff):
    machine, record = played(follow="signal:tariff", tick=50.0)
    assert times(machine) == [0, 50, 100]
    assert record.find(PowerRecord).bounds == [(0, 100, 500), (100, 100, 501)]
    machine, _ = played(follow="signal:tariff")
    assert times(machine) == [0, 60, 100], "there must be ticks: one a minute"


def test_a_signal_that_says_nonsense(tariff, monkeypatch):
    with pytest.raises(InputError, match=r"signal price: no entry point .*; allowed: tariff"):
        played(follow="signal:price")
    point = SimpleNamespace(name="price", load=lambda: lambda seconds: (3, 2))
    monkeypatch.setattr("dask_hpc.model.power.entry_points", Points([point]))
    with pytest.raises(InputError, match=r"signal price: said \(3, 2\)"):
        played(follow="signal:price")


def test_what_waits_for_a_better_corridor_is_not_given_up():
    """Nothing but a step of the corridor would ever let it start."""

    class Patient(Watching):
        def decide(self, snapshot, starts, resizes, memory):
            return Powered(starts if snapshot.corridor.at(snapshot.now)[1] > 650 else (), resizes), None

    policy = replace(Policy.load("fcfs"), power=Patient(STEPS))
    record = Record()
    Machine(Platform(4, idle_power=71.0, active_power=250.0), policy, record).run(
        [Arrival(Job(id="a", nodes=2), 5.0)]
    )
    assert list(record.start) == [30]


def test_ticks_do_not_go_on_for_ever_where_nothing_can_start():
    class Never(Watching):
        def decide(self, snapshot, starts, resizes, memory):
            return Powered((), ()), None

    policy = replace(Policy.load("fcfs"), power=Never(Corridor.constant()))
    machine = Machine(Platform(4, tick=10.0), policy, record := Record())
    machine.run([Arrival(Job(id="a", nodes=2), 5.0)])
    assert record.state[0] == 0


def test_what_if_goes_on_with_the_power_that_is_known():
    machine = Machine(
        Platform(4, idle_power=71.0, active_power=250.0, metering=Metering(corridor=STEPS)),
        Policy.load("fcfs"),
        Record(),
    )
    machine.run([Arrival(Job(id="a", nodes=2, power=100, walltime=50.0), 40.0)], until=0.0)
    result = simulate(snapshot=machine.snapshot.freeze(), policy="fcfs")
    assert list(result.power.watts) == [2 * 100 + 2 * 71] * 3
    assert result.power.violations == ()
    assert [tuple(step) for step in result.record.find(PowerRecord).bounds] == [(0, 100, 600), (30, 200, 700)]


def test_what_if_from_nodes_that_say_nothing():
    """A live cluster's nodes: the view knows what they draw."""
    indices = Indices([Node("x"), Node("y"), Node("z")])
    indices.waiting.add(Job(id="a", nodes=1, walltime=10.0))
    indices.waiting.add(Job(id="b", nodes=1, walltime=20.0))
    for job in ("a", "b"):
        indices.start(job, 1)
    view = PowerView(500.0, "measured", idle=50, active=PowerRange(150, 250), jobs={"b": PowerRange(90, 110)})
    indices.power = view
    result = simulate(snapshot=Snapshot(indices, Corridor.constant(0, 300)), policy="fcfs")
    assert list(zip(result.power.time, result.power.watts, strict=True))[:2] == [(0, 350), (10, 200)]
    assert result.power.violations == ((0, 10),)
