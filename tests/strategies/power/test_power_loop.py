"""The corridor over time: fixed points, steps, noise, wrong figures; and what is never done."""

from dataclasses import replace
from itertools import pairwise
from math import exp
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import Policy
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.policy import ready_made
from dask_hpc.strategies import strategies
from tests.strategies.power.power_machine import draws, held, job, machine, policy, rigid, settled
from tests.strategies.test_every_strategy import machines, powers

POWER = [name for name in ready_made() if Policy.load(name).power is not None]
OTHERS = sorted({"fcfs", "elastic", "malleable-easy", "performance-aware", "moldable"})


@pytest.mark.parametrize("name", OTHERS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_without_bounds_every_decision_stays_as_it_is(name, data):
    plain = Policy.load(name)
    scope = data.draw(st.sampled_from(["running", "queue"]))
    ours = replace(plain, power=strategies("power")["power-corridor"](scope=scope))
    indices = data.draw(machines(plain.queue))
    data.draw(powers(indices))
    indices.power = replace(indices.power, held=0, released=0, threads=1.0, cap=None)
    assert ours.decide(Snapshot(indices), None)[0] == plain.decide(Snapshot(indices), None)[0]


def sane(indices):
    """Without whatever changes power by itself, and with idle nodes that draw no more than others."""
    view = indices.power
    least = min(view.active.least, *(power.least for power in view.jobs.values()), view.idle)
    return replace(
        view, idle=least, outside_nodes=0, outside_wanted=0, held=0, uncertainty=0.0, forecast=None, doubt="",
        levers=frozenset(), threads=1.0, cap=None, released=0,
    )  # fmt: skip


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_power_is_never_brought_above_the_bound(data):
    """Neither by starts nor by growths, wherever the machine was before."""
    chosen = Policy.load("power-corridor")
    indices = data.draw(machines(chosen.queue))
    corridor = data.draw(powers(indices))
    indices.power = sane(indices)
    _, upper = corridor.at(indices.now)
    before = draws(indices)
    settled(indices, chosen, corridor=corridor)
    assert draws(indices) <= max(upper, before) + 1e-6


@pytest.mark.parametrize("name", POWER)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_with_constant_inputs_decisions_come_to_an_end(name, data):
    """Within an instant, and over instants: then nothing more is done, whatever the corridor."""
    chosen = replace(Policy.load(name), queue=strategies("queue")["fcfs"](), malleability=None)
    indices = data.draw(machines(chosen.queue))
    powers_now = data.draw(powers(indices))
    indices.power = sane(indices)
    corridor = Corridor.constant(*powers_now.at(indices.now))
    for running in list(indices.running.values()):
        if running.target is not None:
            indices.finish_resize(running.job.id)
    indices.requests.clear()
    memory, busy = None, []
    for second in range(12):
        indices.now += 20.0
        before = held(indices)
        _, memory = settled(indices, chosen, memory, corridor)
        if held(indices) != before:
            busy.append(second)
    assert all(second < 5 for second in busy)


class Site:
    """A machine whose meter lags and is noisy, whose jobs draw more than anybody said, and whose shrinks take
    a while."""

    def __init__(self, chosen, indices, *, true=1.0, lag=5.0, noise=0.0, shrink=0, seed=1):
        self.chosen, self.indices, self.true, self.lag, self.noise = chosen, indices, true, lag, noise
        self.shrink, self.random = shrink, Random(seed)
        self.memory, self.shown, self.actions = None, None, []
        self.leaving = []

    def watts(self):
        view = self.indices.power
        idle = len(self.indices.nodes) * view.idle
        return idle + self.true * (draws(self.indices) - idle)

    def second(self, corridor):
        indices = self.indices
        indices.now += 1.0
        for name, when in self.leaving[:]:
            if when <= indices.now:
                indices.finish_resize(name)
                self.leaving.remove((name, when))
        real = self.watts()
        self.shown = real if self.shown is None else real + (self.shown - real) * exp(-1 / self.lag)
        read = self.shown * (1 + self.random.gauss(0, self.noise))
        indices.power = replace(indices.power, watts=read, uncertainty=2 * self.noise * self.shown)
        self.memory = self.chosen.settle(Snapshot(indices, corridor), self.memory, self.carry_out)
        return self.shown

    def carry_out(self, plan):
        indices = self.indices
        for deed in plan.in_order(lambda name: len(indices.running[name].nodes)):
            before = len(indices.running[deed.job].nodes)
            self.actions.append((indices.now, 1 if deed.nodes > before else -1))
            indices.begin_resize(deed.job, deed.nodes)
            if deed.nodes < before and self.shrink:
                self.leaving.append((deed.job, indices.now + self.shrink))
            else:
                indices.finish_resize(deed.job)
        indices.pull_levers(plan)


def turns(actions):
    return sum(a != b for (_, a), (_, b) in pairwise(actions))


@pytest.mark.parametrize("true", [0.8, 1.0, 1.2])
@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("shrink", [0, 20])
def test_a_step_is_followed_without_a_cycle(true, noise, shrink):
    """Jobs draw 20 % more or less than said; the bounds fall, and rise again."""
    jobs = [job(f"m{n}", 8, 1, 16) for n in range(4)]
    indices = machine(32, running=jobs)
    indices.power = replace(indices.power, source="measured")
    site = Site(policy("power-corridor"), indices, true=true, noise=noise, shrink=shrink)
    for corridor in (Corridor.constant(500, 2000), Corridor.constant(1500, 3500)):
        site.actions.clear()
        lower, upper = corridor.at(0)
        inside = 0
        for second in range(600):
            watts = site.second(corridor)
            if second >= 120:
                inside += lower <= watts <= upper
        assert inside >= 0.95 * 480
        assert turns(site.actions) <= 4
        assert len(site.actions) <= 40 and not [when for when, _ in site.actions if when > indices.now - 200]


@pytest.mark.slow
def test_out_of_reach_nothing_thrashes():
    indices = machine(8, running=[rigid("r", 4), job("m", 3, 1, 3)])
    indices.power = replace(indices.power, source="measured")
    site = Site(policy("power-corridor"), indices, noise=0.03)
    for corridor in (Corridor.constant(0, 300), Corridor.constant(2000, 3000)):
        site.actions.clear()
        for _ in range(300):
            site.second(corridor)
        assert len(site.actions) <= 2


def test_a_forecast_is_answered_once():
    indices = machine(16, running=[job("m", 8, 1, 16)])
    indices.power = replace(indices.power, source="measured", forecast=PowerRange(800.0, 1100.0))
    chosen = replace(policy("power-corridor-proactive"), malleability=None)
    site = Site(chosen, indices, lag=1.0)
    for second in range(120):
        site.second(Corridor.constant(0, 1000))
        if second == 60:
            assert held(indices) == {"m": 6}, "two nodes less: 180 W, and 100 W are needed"
            now = draws(indices)
            indices.power = replace(indices.power, forecast=PowerRange(now - 50, now + 100))
    assert held(indices) == {"m": 6} and len(site.actions) == 1


def test_a_forecast_wider_than_the_corridor_says_nothing():
    indices = machine(16, running=[job("m", 8, 1, 16)])
    indices.power = replace(indices.power, source="measured", forecast=PowerRange(0.0, 1300.0))
    site = Site(replace(policy("power-corridor-proactive"), malleability=None), indices, lag=1.0)
    for _ in range(60):
        site.second(Corridor.constant(0, 1000))
    assert held(indices) == {"m": 8} and not site.actions
