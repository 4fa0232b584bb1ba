"""Nodes of a simulated machine come and go in units, as the policy's size strategy says."""

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError, Policy, simulate
from dask_hpc.model.cluster_view import Parting, SizePlan
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Machine, Platform, units
from dask_hpc.simulator.machine import machine_from
from dask_hpc.simulator.platform import Failures, Metering, Units
from dask_hpc.simulator.readers.yaml_workload import read_platform
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.units import PaidNodes, UnitDesk

POLICY = Policy.load("easy-backfill")


def jobs(*rows, **more):
    """Name, submitted, nodes, runtime."""
    return [
        Arrival(Job(id=name, submitted=float(at), nodes=nodes, walltime=1e5), float(seconds), **more)
        for name, at, nodes, seconds in rows
    ]


def played(arrivals, nodes=16, policy=POLICY, **more):
    more = {"nodes": 2, "wait": 300.0, "interval": 30.0, **more}
    return simulate(arrivals, platform=Platform(nodes, units=Units(**more)), policy=policy)


def told(result):
    words = {"submit-units", "unit-leaves", "cancel-unit", "unit-dead", "warning"}
    return [(row.time, row.decision, row.reason) for row in result.story.happenings if row.decision in words]


def test_units_are_asked_for_wait_work_and_go():
    result = played(jobs(("a", 0, 4, 1200), ("b", 600, 8, 600), ("c", 3000, 1, 60)))
    assert list(result.jobs["start"]) == [300.0, 930.0, 3330.0]
    assert list(result.jobs["end"]) == [1500.0, 1530.0, 3390.0]
    found = told(result)
    assert found[:2] == [
        (0.0, "submit-units", "2 more: 2 units wanted: 0 tasks with 0 s of work and jobs on 4 nodes"),
        (630.0, "submit-units", "4 more: 6 units wanted: 0 tasks with 0 s of work and jobs on 12 nodes"),
    ]
    assert found[2] == (1530.0, "unit-leaves", "unit-1: idle for 30 s, and 1 unit is enough")
    assert [row[1:] for row in found if row[0] > 1700] == [
        ("submit-units", "1 more: 1 unit wanted: 0 tasks with 0 s of work and jobs on 1 nodes")
    ]
    row = next(row for row in result.story.happenings if row.decision == "submit-units")
    assert row.why.rule == "size: demand" and row.why.inputs["target"] == 2


def test_units_are_paid_for_while_they_are_there():
    result = played(jobs(("a", 0, 4, 1200)), nodes=4)
    # two units of two nodes from 300 s to the end of the last job
    assert result.metrics["paid_node_hours"] == 4 * 1200 / 3600
    assert result.metrics["utilisation"] == 1.0
    late = played(jobs(("a", 0, 4, 1200), ("b", 7200, 1, 60)), nodes=4)
    # b starts at 7530 s, on a unit of its own
    gone = [time for time, word, _ in told(late) if word == "unit-leaves"]
    assert len(gone) == 2 and max(gone) < 1700
    paid = (sum(gone) - 2 * 300 + 60) * 2 / 3600
    assert late.metrics["paid_node_hours"] == pytest.approx(paid)
    assert "paid node hours" in repr(late)


def test_without_units_nothing_is_paid():
    result = simulate(jobs(("a", 0, 4, 1200)), nodes=4, policy=POLICY)
    assert result.metrics["paid_node_hours"] != result.metrics["paid_node_hours"]
    assert result.metrics["utilisation"] == 1.0


def test_who_gives_up_before_they_come_needs_none():
    result = played(jobs(("a", 0, 4, 1200), cancelled=100.0) + jobs(("b", 1000, 1, 60)))
    assert [row[1] for row in told(result)][:3] == ["submit-units", "cancel-unit", "cancel-unit"]
    assert list(result.jobs["state"]) == ["cancelled", "completed"]
    assert result.metrics["paid_node_hours"] == 2 * 60 / 3600


def test_a_job_that_is_larger_than_all_units_is_rejected():
    result = played(jobs(("a", 0, 5, 60), ("b", 0, 4, 60)), maximum=2)
    assert list(result.jobs["state"]) == ["rejected", "completed"]
    assert "the machine has 4" in next(iter(result.story.happenings)).reason


def test_a_job_goes_on_where_successors_are_when_walltimes_end():
    result = played(jobs(("a", 0, 3, 10_800)), walltime=7200.0)
    assert list(result.jobs["end"]) == [300.0 + 10_800], "nothing is lost"
    leaves = [reason for _, word, reason in told(result) if word == "unit-leaves"]
    assert len(leaves) == 2 and all("it hands over" in reason for reason in leaves)
    assert result.metrics["restarts"] == 0


def test_where_they_come_too_late_it_waits_again():
    result = played(jobs(("a", 0, 3, 5000), ("b", 7000, 1, 6500)), wait=6000.0, walltime=7000.0, nodes=4)
    assert result.metrics["restarts"] == 1
    # b runs from 7000 s to the end of its unit at 13,000 s, and again on a successor
    (end,) = result.jobs["end"][1:]
    assert 15_500 <= end - 6500 <= 16_000


def test_or_does_with_the_nodes_of_its_other_units():
    rows = ("x", 0, 2, 3500), ("a", 2000, 4, 1000)
    result = played(jobs(*rows), wait=3000.0, walltime=4000.0, nodes=4)
    # a has both units from 6500 s on; the first ends at 7000 s and takes half of what it did along
    assert list(result.jobs["start"]) == [3000.0, 6500.0]
    assert result.metrics["restarts"] == 0 and result.metrics["lost_node_hours"] == 500 * 2 / 3600
    assert result.jobs["end"][1] > 7500.0


def test_a_job_that_no_unit_lasts_for_is_no_endless_simulation():
    with pytest.raises(InputError, match="job 'a': units have ended 1000 times while it ran"):
        played(jobs(("a", 0, 2, 500)), wait=200.0, walltime=100.0, interval=100.0, nodes=2)


class Counting(UnitDesk):
    """What holds at each look."""

    def _look(self, now):
        super()._look(now)
        indices = self.site.indices
        held = {name for running in indices.running.values() for name in running.nodes}
        there = {name for unit in self._there.values() for name in unit.nodes}
        assert held <= there == set(indices.nodes)
        assert len(there) <= (1 if self._units.walltime == inf else 2) * self.site.platform.nodes
        assert sum(len(unit.nodes) for unit in self._there.values()) == len(there)
        assert sorted([*there, *self._free]) == sorted(self._nodes)
        assert not set(indices.idle) & held
        for unit in self.view(now).units:
            holders = [
                r.job.id for r in indices.running.values() if set(r.nodes) & set(self._there[unit.name].nodes)
            ]
            assert unit.pinned in [f"job {name} holds it" for name in holders] or (unit.pinned, holders) == (
                "",
                [],
            )


rows = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(1, 8), st.integers(1, 4000)), min_size=1, max_size=8
).map(sorted)


@given(
    rows=rows,
    size=st.sampled_from([1, 2, 4]),
    wait=st.sampled_from([0.0, 45.0, 600.0]),
    walltime=st.sampled_from([inf, 5000.0]),
    minimum=st.sampled_from([0, 2]),
)
@settings(max_examples=40, deadline=None)
def test_everybody_gets_what_he_needs_and_no_node_is_there_twice(rows, size, wait, walltime, minimum):
    platform = Platform(8, units=Units(size, wait, walltime, minimum, interval=30.0))
    record = Record()
    machine = Machine(platform, POLICY, record)
    desk = next(one for one in machine._services if isinstance(one, UnitDesk))
    desk.__class__ = Counting
    machine.run(jobs(*((str(i), *row) for i, row in enumerate(rows))))
    assert all(end == end for end in record.end)
    paid = record.find(PaidNodes)
    used = sum(nodes * runtime for _, nodes, runtime in rows)
    assert paid.node_seconds >= used - 1e-6
    assert paid.submitted * size >= max(nodes for _, nodes, _ in rows)


def test_a_strategy_with_another_target_pays_less():
    """Grace costs: units that idle are kept for a while."""
    arrivals = jobs(*((str(i), 1000 * i, 4, 300) for i in range(6)))
    patient, strict = (
        played(arrivals, policy=POLICY.with_(**{"size.idle_grace": grace})) for grace in ("20 min", "0 s")
    )
    assert strict.metrics["paid_node_hours"] < 0.7 * patient.metrics["paid_node_hours"]
    assert strict.metrics["mean_wait"] > patient.metrics["mean_wait"]


@dataclass(frozen=True)
class Scripted:
    """So many units at first, of which one is told to go."""

    submit: int = 0
    leave: str = ""
    at: float = 0.0
    concern: ClassVar[str] = "size"
    name: ClassVar[str] = "scripted"

    def decide(self, view, memory):
        names = {unit.name for unit in view.units if not unit.is_leaving}
        leave = (Parting(self.leave, "why"),) if view.now >= self.at and self.leave in names else ()
        return SizePlan(self.submit, 0 if memory else self.submit, leave=leave), True


def test_a_unit_that_is_to_go_is_given_to_nobody_else():
    policy = replace(POLICY, size=Scripted(2, "unit-2", 60.0))
    result = played(jobs(("a", 0, 3, 500), ("b", 100, 1, 60)), nodes=4, policy=policy, wait=0.0)
    # a has one node of it: it stays until a is over, and b waits, though there is an idle node
    assert list(result.jobs["start"]) == [0.0, 500.0]
    assert result.metrics["paid_node_hours"] == (2 * 560 + 2 * 500) / 3600


def test_at_least_so_many():
    found = told(played(jobs(("a", 0, 1, 60)), minimum=3))
    assert found[0][2] == "3 more: 3 units wanted: at least 3 units"


def test_nobody_looks_for_ever_at_those_who_wait(monkeypatch):
    monkeypatch.setattr(units, "_PATIENCE", 10)
    result = played(jobs(("a", 0, 1, 60)), policy=replace(POLICY, size=Scripted()))
    assert list(result.jobs["state"]) == ["waiting"]
    # but while a unit is to come, and while somebody runs: a's unit goes when a is over
    result = played(jobs(("a", 0, 2, 900), ("b", 0, 2, 3000)), wait=600.0)
    assert result.metrics["paid_node_hours"] == (2 * 930 + 2 * 3000) / 3600


def test_bursts_are_built_in():
    """Between bursts the units go, and the same seed is the same day."""
    one, same, other = (simulate(f"builtin:bursts?bursts=2&seed={seed}", policy=POLICY) for seed in (0, 0, 1))
    assert set(one.jobs["state"]) == {"completed"} and one.notes == ()
    assert one.metrics["utilisation"] > 0.85 and one.metrics["mean_wait"] > 600.0
    assert list(one.jobs["end"]) == list(same.jobs["end"]) != list(other.jobs["end"])


def test_units_in_a_file():
    found = read_platform(
        {"nodes": 8, "units": {"nodes": 2, "wait": "10 min", "maximum": 3, "walltime": "1 d"}}
    )
    assert found == Platform(8, units=Units(2, 600.0, 86400.0, 0, 3))
    assert (found.most_units, found.most_nodes) == (3, 6)
    assert Platform(9, units=Units(2)).most_nodes == 8 and Platform(9).most_nodes == 9
    for wrong, words in (
        ({"nodes": 9}, "units: nodes: found 9; allowed: 1 to 8"),
        ({"maximum": 9}, "units: maximum: found 9; allowed: 0 to 8, on 8 nodes"),
        ({"maximum": 2, "minimum": 3}, "units: maximum: found 2; allowed: 3 to 8"),
        ({"minimum": 9}, "units: minimum: found 9; allowed: 0 to 8"),
        ({"interval": 0}, "units: interval: found 0"),
        ({"walltime": "0 s"}, "units: walltime: found 0"),
        ({"wait": "inf"}, "units: wait: found inf"),
        ({"wiat": 1}, "nearest: wait"),
    ):
        with pytest.raises(InputError, match=words):
            read_platform({"nodes": 8, "units": wrong})
    for other in ({"failures": Failures()}, {"metering": Metering()}):
        with pytest.raises(InputError, match=r"units: found .* as well"):
            Platform(8, units=Units(), **other)
    with pytest.raises(InputError, match="units: found 'power-corridor'"):
        Machine(Platform(8, units=Units()), Policy.load("power-corridor"))


def test_what_is_said_of_them():
    other = POLICY.with_(**{"size.idle_grace": "1 min"})
    assert "size: demand does nothing" in simulate("builtin:ten-jobs", policy=other).notes[0]
    assert played(jobs(("a", 0, 1, 60)), policy=other).notes == ()


def test_a_prediction_has_the_nodes_of_its_snapshot():
    platform = Platform(4, units=Units(wait=600.0))
    snapshot = Machine(replace(platform, units=None), POLICY).snapshot
    machine = machine_from(snapshot, POLICY, platform, Record())
    assert machine.snapshot.size == 4 and machine.platform.units is None
