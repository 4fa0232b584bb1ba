"""The power of a simulated machine: whatever changes hands, the sum over its nodes is right."""

from dataclasses import replace
from math import exp, inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_properties import POLICIES, Checked, arrivals, platforms, rows

from dask_hpc import Policy, simulate
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.simulator import Arrival, Machine, Metering, NodeType, Platform, Record
from dask_hpc.simulator.platform import MACHINES, platform_of
from dask_hpc.simulator.power import PowerRecord

TWO_TYPES = (NodeType(2, 71.0, 250.0), NodeType(4, 100.0, 400.0))


class Weighed(Checked):
    """Adds up the power of every node anew, after every plan."""

    def check_books(self):
        super().check_books()
        indices = self.indices
        indices.look()
        least = most = 0.0
        for name in indices.idle:
            least += indices.nodes[name].idle_power
            most += indices.nodes[name].idle_power
        for running in indices.running.values():
            for name in running.nodes:
                active = indices.nodes[name].active_power
                per_node = running.job.power or PowerRange(active, active)
                least, most = least + per_node.least, most + per_node.most
        view = indices.power
        assert view.forecast == pytest.approx((least, most))
        if not self.platform.metering.ramp:
            assert indices.watts == pytest.approx((least + most) / 2)
        for job in [*indices.waiting, *(running.job for running in indices.running.values())]:
            if job.power is not None:
                assert view.per_node(job.id) == job.power


@st.composite
def powered(draw):
    return [
        replace(arrival, job=replace(arrival.job, power=draw(st.sampled_from([None, (90, 110), 170]))))
        for arrival in draw(arrivals())
    ]


@pytest.mark.parametrize("policy", ["easy-backfill", "fpsma-pwma", "node-stealing", "elastic"])
@given(
    jobs=powered(),
    platform=platforms,
    types=st.sampled_from([(), TWO_TYPES]),
    ramp=st.sampled_from([0.0, 20.0]),
)
@settings(max_examples=40, deadline=None)
def test_the_sum_over_all_nodes_is_right_at_any_time(policy, jobs, platform, types, ramp):
    platform = replace(
        platform, idle_power=71.0, active_power=250.0, metering=Metering(ramp=ramp, types=types)
    )
    machine = Weighed(platform, Policy.load(policy), Record())
    machine.run(jobs, until=10_000.0)
    machine.check_books()


@pytest.mark.parametrize("policy", ["conservative-backfill", "elastic", "malleable-easy", "node-stealing"])
@given(jobs=powered(), platform=platforms)
@settings(max_examples=20, deadline=None)
def test_following_power_changes_nothing(policy, jobs, platform):
    """Not a time, not a reason, unless somebody decides by it."""
    policy = replace(Policy.load(policy), power=None)
    found = []
    for metering, record in ((None, Record()), (Metering(ramp=5.0, noise=0.1), Record())):
        machine = Checked(replace(platform, metering=metering), policy, record)
        machine.run(jobs, until=10_000.0)
        found.append((repr(rows(record)), list(machine.story)))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [name for name in POLICIES if name.startswith("power-")])
@given(
    jobs=powered(),
    platform=platforms,
    metering=st.builds(
        Metering,
        ramp=st.sampled_from([0.0, 20.0]),
        noise=st.sampled_from([0.0, 0.05]),
        types=st.sampled_from([(), (), TWO_TYPES]),
        corridor=st.sampled_from(
            [
                Corridor.constant(500, 800),
                Corridor(((0.0, 600.0, 1000.0), (35.0, 0.0, 700.0), (60.0, 900.0, inf))),
                Corridor(((0.0, 0.0, 500.0), (35.0, 2000.0, 3000.0))),
            ]
        ),
    ),
)
@settings(max_examples=10, deadline=None)
def test_runs_in_a_corridor_are_sound_and_the_same_whether_recorded_or_not(policy, jobs, platform, metering):
    platform = replace(platform, idle_power=71.0, active_power=250.0, metering=metering)
    stories = []
    for record in (Record(), None):
        machine = Weighed(platform, Policy.load(policy), record)
        machine.run(jobs, until=10_000.0)
        machine.check_books()
        stories.append(list(machine.story))
    assert stories[0] == stories[1]


def two_jobs():
    return [
        Arrival(Job(id="a", nodes=2, power=("150 W", "190 W")), 100.0),
        Arrival(Job(id="b", nodes=2, submitted=10.0), 50.0),
    ]


def machine_of(metering, **powers):
    return Platform(4, **{"idle_power": 71.0, "active_power": 250.0, **powers}, metering=metering)


def test_by_hand():
    corridor = Corridor.constant(400, 800)
    result = simulate(two_jobs(), policy="fcfs", platform=machine_of(Metering(corridor=corridor)))
    power = result.power
    assert list(power.time) == [0, 10, 60, 100]
    assert list(power.watts) == [482, 840, 482, 482]
    assert power.violations == ((10, 60),)
    assert result.metrics["violations"] == 1
    assert result.metrics["time_outside"] == 50
    assert result.metrics["energy_outside"] == 50 * 40
    assert result.metrics["energy"] == power.energy == 10 * 482 + 50 * 840 + 40 * 482
    trace = result.trace
    assert list(trace["power"].values) == list(power.watts)
    assert set(trace["upper"].values) == {800} and trace["power"].attrs["units"] == "W"


def test_a_ramp_lags_behind():
    machine = Machine(machine_of(Metering(ramp=20.0)), Policy.load("fcfs"), Record())
    machine.run(two_jobs(), until=10.0)
    at_10 = 482 + (284 - 482) * exp(-0.5)
    assert machine.indices.watts == pytest.approx(at_10)
    assert machine.indices.power.watts == pytest.approx(at_10)
    assert machine.indices.power.forecast == (150 * 2 + 500, 190 * 2 + 500), "where the ramp leads"


def test_a_policy_reads_with_noise_but_the_truth_is_recorded():
    def played(noise, seed=0):
        machine = Machine(
            machine_of(Metering(noise=noise, seed=seed)), Policy.load("fcfs"), record := Record()
        )
        machine.run(two_jobs(), until=20.0)
        return machine.indices.power, list(record.find(PowerRecord).watts)

    exact, noisy, again, other = played(0.0), played(0.05), played(0.05), played(0.05, seed=1)
    assert exact[0].watts == 840 and exact[0].uncertainty == 0
    assert noisy[0].watts != 840 and abs(noisy[0].watts - 840) < 5 * 0.05 * 840
    assert noisy[0].uncertainty == pytest.approx(1.96 * 0.05 * 840)
    assert noisy == again and noisy[0].watts != other[0].watts
    assert exact[1] == noisy[1]


def test_node_types():
    platform = Platform(6, metering=Metering(types=TWO_TYPES))
    machine = Machine(platform, Policy.load("fcfs"), record := Record())
    machine.run(
        [Arrival(Job(id="a", nodes=3), 10.0), Arrival(Job(id="b", nodes=1, power=90), 30.0)], until=20
    )
    view = machine.indices.power
    assert list(record.find(PowerRecord).level) == [500 + 400 + 90 + 200, 142 + 300 + 90]
    assert view.active == (250, 400)
    assert view.idle == pytest.approx((2 * 71 + 3 * 100) / 5), "of the idle nodes on average"
    assert dict(view.jobs) == {"b": (90, 90)}


def test_jobs_that_wait_are_known_and_those_that_left_are_not():
    jobs = [Arrival(Job(id=str(n), nodes=4, power=100 + n, submitted=float(n)), 10.0) for n in range(3)]
    machine = Machine(machine_of(Metering()), Policy.load("fcfs"))
    machine.run(jobs, until=11.0)
    assert dict(machine.indices.power.jobs) == {"1": (101, 101), "2": (102, 102)}


def test_a_view_that_was_shown_does_not_change():
    machine = Machine(machine_of(Metering()), Policy.load("fcfs"))
    machine.run(two_jobs(), until=10.0)
    frozen = machine.snapshot.freeze()
    before = repr(frozen.power)
    machine.run([], until=200.0)
    assert repr(frozen.power) == before and not machine.indices.power.jobs


def test_without_metering_nothing_is_known():
    result = simulate(two_jobs(), policy="fcfs", platform=machine_of(None))
    assert "power" not in result.trace and result.metrics["violations"] != result.metrics["violations"]
    assert result.metrics["energy"] == 10 * 482 + 50 * 840 + 40 * 482
    with pytest.raises(InputError, match="was not followed"):
        _ = result.power


def test_machines_by_name():
    assert platform_of("supermuc-ng-partition") == Platform(16, idle_power=71, active_power=250)
    assert platform_of("frontier", 100).nodes == 100
    for known in MACHINES.values():
        assert 0 < known.idle_power < known.active_power < inf
    with pytest.raises(InputError, match="nearest: frontier"):
        platform_of("frontiers")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Metering(ramp=-1.0),
        lambda: Metering(ramp=inf),
        lambda: Metering(noise=float("nan")),
        lambda: Metering(noise=2.0),
        lambda: NodeType(0, 1.0, 2.0),
        lambda: NodeType(1, 3.0, 2.0),
        lambda: NodeType(1, 3.0, inf),
        lambda: Platform(5, metering=Metering(types=TWO_TYPES)),
    ],
)
def test_nonsense_is_rejected(wrong):
    with pytest.raises(InputError):
        wrong()
