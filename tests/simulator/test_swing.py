"""Power that varies while jobs run: what is drawn, what is seen of it, and what is foretold."""

from dataclasses import replace
from itertools import pairwise
from math import inf, pi, sin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_metered import Weighed
from test_properties import arrivals, platforms

from dask_hpc import Policy, simulate
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.speedup import PhasedSpeedup, PowerLaw
from dask_hpc.planning.forecast_models import BASELINES, MODELS
from dask_hpc.simulator import Arrival, Failures, Metering, Platform, Record, load_workload
from dask_hpc.simulator.built_in import built_in
from dask_hpc.simulator.comparison import mean_and_half_width
from dask_hpc.simulator.power import PowerRecord
from dask_hpc.simulator.readers.yaml_workload import read_platform
from dask_hpc.simulator.swing import Swing

RANGE = PowerRange(100.0, 300.0)
SWING = Swing(season=80.0, reach=0.5)
REACTIVE, PROACTIVE = "power-corridor-reactive", "power-corridor-proactive"


def test_a_season_by_hand():
    """Steps of 10 s, eight of them a season; half of the way to either edge."""
    assert [round(SWING.watts(RANGE, n), 2) for n in range(9)] == [
        200, 235.36, 250, 235.36, 200, 164.64, 150, 164.64, 200,
    ]  # fmt: skip
    assert replace(SWING, offset=0.25).watts(RANGE, 0) == pytest.approx(250)
    assert Swing().watts(RANGE, 7) == 200


def test_noise():
    drawn = [Swing(noise=0.2, seed=1).watts(RANGE, n) for n in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(200, abs=2)
    assert (sum((one - 200) ** 2 for one in drawn) / 2000) ** 0.5 == pytest.approx(20, rel=0.1)
    wild = [Swing(noise=1.0, seed=1).watts(RANGE, n) for n in range(200)]
    assert min(wild) == 100 and max(wild) == 300, "never beyond what its user says"
    assert drawn[:9] != [Swing(noise=0.2, seed=2).watts(RANGE, n) for n in range(9)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"season": -1}, "season"),
        ({"reach": 1.5}, "reach"),
        ({"offset": None}, "offset"),
        ({"noise": inf}, "noise"),
        ({"step": 0}, "step"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_swings_that_are_none(fields, message):
    with pytest.raises(InputError, match=message):
        Swing(**fields)


def heavy(nodes=2, **more):
    return Job(id="a", nodes=nodes, power=RANGE, **more)


def machine_of(nodes=4, *, tick=0.0, failures=None, **metering):
    return Platform(
        nodes, idle_power=50, active_power=200, tick=tick, failures=failures, metering=Metering(**metering)
    )


def test_the_machine_follows_each_step():
    result = simulate([Arrival(heavy(), 100.0, swing=SWING)], policy="fcfs", platform=machine_of())
    expected = [100 + 2 * SWING.watts(RANGE, n) for n in range(10)]
    assert [float(at) for at in result.power.time[:10]] == [10.0 * n for n in range(10)]
    assert list(result.power.watts[:10]) == pytest.approx(expected)
    assert result.metrics["energy"] == pytest.approx(10 * sum(expected))
    plain = simulate([Arrival(heavy(), 100.0)], policy="fcfs", platform=machine_of())
    assert plain.metrics["energy"] == 100 * 500


def test_a_resize_and_a_failure_in_the_middle_of_it():
    """It shrinks from 4 nodes to 1 at 25 s, whose power is that of the step at hand; after a failure its
    swing begins anew, on the machine that is left."""
    swing = replace(SWING, offset=0.25)
    jobs = [
        Arrival(heavy(4, kind="malleable", min_nodes=1), 100.0, swing=swing),
        Arrival(Job(id="b", nodes=3, power=(200, 200), submitted=25.0), 1000.0),
    ]
    watts = [swing.watts(RANGE, n) for n in range(8)]
    power = simulate(jobs, policy="fpsma-pwma", platform=machine_of(), horizon=45.0).power
    seen = dict(zip(power.time.tolist(), power.watts.tolist(), strict=True))
    assert seen[20.0] == pytest.approx(4 * watts[2])
    assert seen[25.0] == pytest.approx(watts[2] + 600)
    assert seen[30.0] == pytest.approx(watts[3] + 600)
    failures = Failures(trace=((25.0, 0),), repair=1000.0)
    platform = machine_of(2, failures=failures)
    jobs = [Arrival(heavy(1), 100.0, swing=swing)]
    power = simulate(jobs, policy="fcfs", platform=platform, horizon=60.0).power
    seen = dict(zip(power.time.tolist(), power.watts.tolist(), strict=True))
    assert seen[20.0] == pytest.approx(watts[2] + 50)
    assert seen[25.0] == pytest.approx(watts[0]), "one node left, and the job from scratch on it"
    assert seen[35.0] == pytest.approx(watts[1])


def test_power_follows_phases():
    """On 4 nodes the first half of the work has an efficiency of 1, the other one of 1 / 2: it draws the
    most, then halfway between."""
    law = PhasedSpeedup(((0.5, PowerLaw(1.0)), (0.5, PowerLaw(0.5))))
    job = heavy(4, kind="malleable", min_nodes=4)
    arrival = Arrival(job, 100.0, law, swing=Swing(phases=True))
    power = simulate([arrival], policy="fcfs", platform=machine_of()).power
    assert list(power.watts[:2]) == pytest.approx([1200, 800])
    assert power.time[1] == 40, "at the first step after the turn at 33 s"


class Watched(Weighed):
    """Keeps what the policy sees at each decision."""

    def check_books(self):
        """Power is another sum here."""

    def _decide(self):
        super()._decide()
        self.views = [*getattr(self, "views", []), (self.indices.now, self.indices.power)]


def watched(policy, platform, jobs, until=inf):
    machine = Watched(platform, Policy.load(policy).with_(**{"power.upper": "1 MW"}), Record())
    machine.run(jobs, until=until)
    return machine.views


def test_what_a_policy_sees_is_what_was_measured():
    """At first what the user says; then what the last half minute was, and never what is to come."""
    views = watched(REACTIVE, machine_of(tick=10.0), [Arrival(heavy(), 100.0, swing=SWING)])
    seen = {now: view.per_node("a") for now, view in views}
    assert seen[0.0] == seen[10.0] == RANGE
    for at in range(3, 9):
        lately = [SWING.watts(RANGE, n) for n in range(at - 3, at + 1)]
        assert seen[10.0 * at] == pytest.approx((min(lately), max(lately)))


def test_the_oracle_knows_the_horizon():
    """Its own job swings; the one beside it may draw anything that it says."""
    jobs = [
        Arrival(heavy(), 100.0, swing=SWING),
        Arrival(Job(id="b", nodes=1, power=("60 W", "80 W")), 100.0),
    ]
    views = watched(PROACTIVE, machine_of(tick=10.0, horizon=30.0), jobs)
    for now, view in views[:-1]:
        coming = [2 * SWING.watts(RANGE, round(now / 10) + n) for n in range(4)]
        assert view.forecast == pytest.approx((min(coming) + 50 + 60, max(coming) + 50 + 80))
    for forecast in ("none", "online"):  # online has too few readings
        views = watched(PROACTIVE, machine_of(tick=10.0, forecast=forecast), jobs)
        assert [view.forecast for _, view in views] == [None] * len(views)


def test_online_knows_readings_only():
    """What it foretells at a tick does not depend on what comes after, and comes from readings until then."""
    season = replace(SWING, season=200.0, reach=1.0)
    platform = machine_of(tick=10.0, forecast="online", horizon=30.0, models=BASELINES)
    found = []
    for swing in (season, replace(season, phases=True)):  # without any measurement no phases show
        jobs = [Arrival(heavy(), 2000.0, swing=season), Arrival(heavy(1, submitted=1500.0), 10.0)]
        jobs[1] = replace(jobs[1], job=replace(jobs[1].job, id="late"), swing=swing)
        found.append({now: view.forecast for now, view in watched(PROACTIVE, platform, jobs)})
    early = [{now: one for now, one in views.items() if now < 1500} for views in found]
    assert early[0] == early[1]
    late = [one for now, one in found[0].items() if now >= 1000 and one is not None]
    assert len(late) > 50
    for now, one in found[0].items():
        if 1100 <= now < 1470 and one is not None:  # fitted anew at 1060 s: it knows the season
            coming = [100 + 2 * (200 + 100 * sin(2 * pi * (now + 10 * n) / 200)) for n in (1, 2, 3)]
            assert one == pytest.approx((min(coming), max(coming)), abs=1.0)


@given(
    jobs=arrivals(),
    platform=platforms,
    ramp=st.sampled_from([0.0, 20.0]),
    policy=st.sampled_from(["easy-backfill", "fpsma-pwma", "elastic", "node-stealing"]),
    seeds=st.lists(st.none() | st.integers(0, 9), min_size=9, max_size=9),
)
@settings(max_examples=25, deadline=None)
def test_the_sum_over_all_nodes_is_right_whatever_changes_hands(jobs, platform, ramp, policy, seeds):
    platform = replace(platform, idle_power=71.0, active_power=250.0, metering=Metering(ramp=ramp))
    jobs = [
        one
        if seed is None
        else replace(
            one, job=replace(one.job, power=RANGE), swing=Swing(season=90.0, noise=0.3, step=7.0, seed=seed)
        )
        for one, seed in zip(jobs, seeds, strict=False)
    ]
    machine = Swayed(platform, Policy.load(policy), record := Record())
    machine.run(jobs, until=10_000.0)
    machine.check_books()
    drawn = record.find(PowerRecord)
    assert all(before < after for before, after in pairwise(drawn.time))


class Swayed(Weighed):
    """Adds up what every node draws at this step, after every plan."""

    def check_books(self):
        indices, total = self.indices, 0.0
        indices.look()
        for name in indices.idle:
            total += indices.nodes[name].idle_power
        for running in indices.running.values():
            arrival = self.lives[running.job.id].arrival
            for name in running.nodes:
                if arrival.swing is None:
                    total += indices.nodes[name].active_power
                else:
                    began = indices._swings[running.job.id].began
                    step = int((indices.now - began) / arrival.swing.step + 1e-9)
                    total += arrival.swing.watts(RANGE, step)
        assert indices._level == pytest.approx(total)


def violations(policy, seeds, **more):
    found = []
    for seed in range(seeds):
        workload = built_in("power-swing", seed=seed, cheap=True, **more)
        found.append(simulate(workload, policy=policy).metrics["violations"])
    return found


def test_who_foresees_is_outside_less_often():
    (reactive,) = violations(REACTIVE, 1, hours=1.0, forecast="none")
    (online,) = violations(PROACTIVE, 1, hours=1.0, forecast="online")
    (oracle,) = violations(PROACTIVE, 1, hours=1.0, forecast="oracle")
    assert oracle <= online < reactive


@pytest.mark.slow
def test_proactive_with_the_online_forecaster_against_reactive():
    """The 95 % interval of the difference over 20 seeds is below 0, and the oracle is no worse."""
    reactive = violations(REACTIVE, 20, hours=0.5, forecast="none")
    online = violations(PROACTIVE, 20, hours=0.5, forecast="online")
    oracle = violations(PROACTIVE, 20, hours=0.5, forecast="oracle")
    mean, half_width = mean_and_half_width(np.array(online) - np.array(reactive))
    assert mean + half_width < 0
    assert sum(oracle) <= sum(online)


def test_as_people_write_it(tmp_path):
    path = tmp_path / "w.yaml"

    def read(more):
        path.write_text(f"nodes: 2\njobs: [{{nodes: 2, runtime: 9, {more}}}]")
        (arrival,) = load_workload(path)
        return arrival.swing

    swing = "{season: 10 min, reach: 80 %, offset: 0.25, noise: 5 %, step: 5 s, seed: 3, phases: true}"
    assert read(f"power: [150 W, 350 W], swing: {swing}") == Swing(600, 0.8, 0.25, 0.05, 5, 3, True)
    for wrong, message in (
        ("swing: {}", "swing: the job does not say its power"),
        ("power: 3 W, swing: {reach: 2}", "swing: reach: found 2"),
        ("power: 3 W, swing: {sesaon: 2}", "sesaon: unknown key"),
    ):
        with pytest.raises(InputError, match=message):
            read(wrong)
    power = {"forecast": "online", "horizon": "1 min", "models": ["arima"]}
    assert read_platform({"nodes": 2, "power": power}).metering == Metering(
        forecast="online", horizon=60, models=("arima",)
    )
    assert Metering().forecast == "oracle" and Metering().models == MODELS
    for wrong in ({"forecast": "onlin"}, {"horizon": 0}, {"models": ["arma"]}):
        with pytest.raises(InputError, match=f"power.{next(iter(wrong))}"):
            read_platform({"nodes": 2, "power": wrong})


def test_corridor_and_ticks_of_the_workload():
    """What the source gives; a machine that is read has ticks."""
    workload = built_in("power-swing", seed=1)
    heat, pi_code = workload
    assert (heat.job.nodes, heat.job.power, pi_code.job.power) == (4, (150, 350), (170, 170))
    assert workload.platform.metering.corridor == Corridor.constant(1700, 2500)
    assert 300 <= heat.swing.season <= 900
    assert heat.swing != built_in("power-swing", seed=2).arrivals[0].swing
    read = replace(workload.platform, tick=0.0, metering=Metering(forecast="online"))
    assert simulate(workload, platform=read, policy=PROACTIVE, horizon=10.0).platform.tick == 60
