"""Units that their batch system puts back into its queue, or does not take, or that somebody holds."""

import asyncio
import os
import random
from dataclasses import replace
from itertools import pairwise
from math import inf
from weakref import WeakValueDictionary

import pytest
from simulated_slurm import SimulatedSlurm

from dask_hpc.batch import command
from dask_hpc.cluster.client import batch_jobs
from dask_hpc.cluster.client.batch_jobs import BatchDesk, BatchJobs
from dask_hpc.model.cluster_view import ClusterView, Unit
from dask_hpc.planning.polling import Manners
from dask_hpc.strategies.size.demand import Demand


def view(now, *units, wanted=1, **more):
    return ClusterView(now, 1.0, tuple(units), wanted, wanted, **more)


def up(name="a", **more):
    return Unit(name, connected=1, state="running", submission="accepted", **more)


def back(name="a", state="queued", **more):
    return Unit(name, state=state, submission="accepted", why="pending: BeginTime", **more)


def plans_of(looks, strategy=None, memory=None):
    plans = []
    for look in looks:
        plan, memory = (strategy or Demand()).decide(look, memory)
        plans.append(plan)
    return plans


def deeds(plan):
    return {
        "submit": plan.submit,
        **{kind: [one.unit for one in getattr(plan, kind)] for kind in ("cancel", "leave", "dead")},
    }


NOTHING = {"submit": 0, "cancel": [], "leave": [], "dead": []}
SLOW = Demand(expected_wait=300.0)


# --- back in the queue


def test_a_unit_that_is_back_in_the_queue_is_waited_for():
    looks = [view(0.0, up()), *(view(float(t), back(age=t)) for t in range(1, 300))]
    assert all(deeds(plan) == NOTHING for plan in plans_of(looks, SLOW))


def test_as_long_as_a_new_one_would_wait():
    looks = [view(0.0, up()), *(view(float(t), back(age=t)) for t in range(1, 310))]
    plans = plans_of(looks, SLOW)
    gone = next(number for number, plan in enumerate(plans) if plan.dead)
    assert gone == pytest.approx(302, abs=1)
    words = "it is back in the queue (pending: BeginTime) for 5.0 min, longer than a new one would wait"
    assert plans[gone].dead[0].reason == words
    assert not plans[gone].news


def test_the_wait_of_a_new_one_is_that_of_the_slowest_of_the_newest():
    looks = [
        view(0.0, Unit("a", state="queued", submission="accepted")),
        *(view(float(t), back(age=t, restarts=0)) for t in range(1, 200)),
        view(200.0, up(age=200.0)),
        *(view(float(t), back(age=t)) for t in range(201, 400)),
    ]
    assert not any(plan.dead for plan in plans_of(looks))  # though 60 s are expected at least
    assert plans_of([*looks, view(404.0, back(age=404.0))])[-1].dead


@pytest.mark.parametrize(("starts_in", "is_dead"), [(59.0, False), (61.0, True)])
def test_what_its_system_predicts_decides_at_once(starts_in, is_dead):
    looks = [view(0.0, up()), view(1.0, back(asked_ago=2.0)), view(2.0, back(starts_in=starts_in))]
    plan = plans_of(looks)[-1]
    assert bool(plan.dead) == is_dead
    if is_dead:
        assert "would start in 61 s, a new one in 60 s" in plan.dead[0].reason


def test_a_predicted_start_that_is_near_keeps_it_however_long_it_has_waited():
    looks = [view(0.0, up()), *(view(float(t), back(starts_in=30.0)) for t in range(1, 300))]
    assert not any(plan.dead for plan in plans_of(looks))


def test_it_comes_back_under_its_name():
    looks = [
        view(0.0, up()),
        *(view(float(t), back()) for t in range(1, 40)),
        view(40.0, back(state="running", running_for=1.0)),
        view(45.0, up()),
        view(46.0, up()),
    ]
    assert all(deeds(plan) == NOTHING for plan in plans_of(looks))


def test_who_has_started_anew_between_two_questions_has_time_to_connect():
    vanished = [
        view(float(t), Unit("a", state="running", running_for=50.0 + t, asked_ago=t)) for t in range(1, 9)
    ]
    anew = [
        view(float(t), Unit("a", state="running", running_for=t - 6.0, submission="accepted"))
        for t in range(9, 200)
    ]
    assert all(deeds(plan) == NOTHING for plan in plans_of([view(0.0, up()), *vanished, *anew]))
    late = [view(float(t), Unit("a", state="running", running_for=t - 6.0)) for t in range(200, 310)]
    assert plans_of([view(0.0, up()), *vanished, *anew, *late])[-1].dead


def test_nobody_is_given_up_before_its_system_was_asked():
    """An answer that is older than the loss says nothing of it."""

    def look(t, **more):
        unit = Unit("a", state="running", running_for=1000.0 + t, submission="accepted", **more)
        return view(float(t), unit)

    old = [view(0.0, up()), *(look(t, asked_ago=t + 1.0) for t in range(1, 60))]
    assert not any(plan.dead for plan in plans_of(old))
    assert plans_of([*old, look(60, asked_ago=1.0)])[-1].dead
    unheard = [view(0.0, up()), *(view(float(t), Unit("a", asked_ago=inf)) for t in range(1, 18))]
    assert plans_of(unheard)[-2].dead, "who cannot be asked is waited for as ever"


def test_an_old_answer_puts_nobody_back_into_the_queue():
    """It was asked for when the unit had not started."""
    looks = [view(0.0, up()), view(1.0, back(asked_ago=20.0)), view(17.0, back(asked_ago=36.0))]
    plan = plans_of([*looks, view(18.0, Unit("a", state="running", running_for=40.0))])[-1]
    assert [one.reason for one in plan.dead] == ["its workers have been gone for 17 s"]


def test_who_was_put_back_before_it_ever_connected_is_judged_alike():
    looks = [view(float(t), back(age=t + 500.0, restarts=0)) for t in range(200)]
    assert not any(plan.dead for plan in plans_of(looks))
    again = [view(float(t), back(age=t + 500.0, restarts=1)) for t in range(200, 262)]
    assert not any(plan.dead for plan in plans_of([*looks, *again[:-1]]))
    assert plans_of([*looks, *again])[-1].dead


def test_units_of_which_two_are_too_many_go_at_once_the_one_that_came_back_first():
    """Another one was asked for in its place, as its walltime ended, but then it was put back."""
    other = Unit("b", state="queued", age=30.0, submission="accepted")
    looks = [view(0.0, up(left=20.0, running_for=600.0, is_busy=True))]
    assert plans_of(looks)[0].submit == 1
    looks += [view(1.0, Unit("a", state="running", left=19.0, asked_ago=9.0), other)]
    looks += [view(2.0, back(), other), view(3.0, back(is_leaving=True), other)]
    plans = plans_of([replace(look, maximum=9) for look in looks])
    assert [deeds(plan)["cancel"] for plan in plans] == [[], [], ["a"], []]


def busy(t, left, **more):
    more = {"running_for": 1000.0 + t, "is_busy": True, "is_preempted": left < 100.0} | more
    return up(left=left, **more)


def test_nobody_is_asked_for_in_the_place_of_one_that_is_preempted_before_it_has_left():
    """It hands over; then another one is asked for."""
    looks = [view(0.0, busy(0, 5000.0), up("b"), wanted=2), view(1.0, busy(1, 60.0), up("b"), wanted=2)]
    assert [deeds(plan) for plan in plans_of(looks)] == [NOTHING, NOTHING]
    looks += [view(float(t), busy(t, 61.0 - t), up("b"), wanted=2) for t in range(2, 33)]
    plans = plans_of(looks)
    first = next(plan for plan in plans if plan.leave)
    assert first.leave[0].reason == "it is preempted in 30 s; it hands over" and not first.submit
    leaving = [view(33.0, busy(33, 28.0, is_leaving=True), up("b"), wanted=2)]
    leaving += [view(t, busy(t, 61.0 - t, is_leaving=True), up("b"), wanted=2) for t in (34.0, 35.0, 36.0)]
    leaving += [view(40.0, busy(40, 21.0, is_leaving=True), up("b"), wanted=2)]  # it has cooled down
    leaving += [view(41.0, back(state="running", is_leaving=True), up("b"), wanted=2)]
    plans = plans_of([*looks, *leaving, view(42.0, up("b"), wanted=2)])
    assert [plan.submit for plan in plans[-4:]] == [0, 0, 0, 1]


def test_one_that_is_preempted_and_cannot_leave_comes_back():
    looks = [view(0.0, busy(0, inf)), view(1.0, busy(1, 10.0)), view(2.0, busy(2, 9.0))]
    looks += [view(float(t), back()) for t in range(12, 40)]
    assert all(deeds(plan) == NOTHING for plan in plans_of(looks))


def test_a_replacement_is_asked_for_when_the_old_one_is_gone_from_the_queue():
    looks = [view(0.0, up()), view(1.0, back()), view(2.0, back(starts_in=500.0))]
    plans = plans_of([*looks, view(3.0, back(is_leaving=True)), view(4.0)])
    assert [deeds(plan)["dead"] for plan in plans] == [[], [], ["a"], [], []]
    assert [plan.submit for plan in plans] == [0, 0, 0, 0, 1]


def test_a_process_has_no_queue_that_could_still_have_it():
    gone = replace(up(), connected=0, submission="", running_for=900.0)
    plan = plans_of([view(0.0, up()), *(view(float(t), gone) for t in range(1, 17))])[-1]
    assert deeds(plan) == {**NOTHING, "dead": ["a"], "submit": 1}


# --- held


def test_a_unit_that_is_held_is_waited_for_and_told_once():
    looks = [view(0.0, up()), *(view(float(t), back(state="held", asked_ago=0.0)) for t in range(1, 900))]
    plans = plans_of(looks)
    assert all(deeds(plan) == NOTHING for plan in plans)
    told = [word for plan in plans for word in plan.news]
    assert told == ["a is held (pending: BeginTime): it is waited for until somebody releases it"]


def test_a_return_is_no_queue_wait_of_a_new_one():
    """Who comes back has an age that says nothing of the queue."""
    looks = [view(0.0, up()), *(view(float(t), back()) for t in range(1, 40)), view(40.0, up(age=5000.0))]
    looks += [view(float(t), back()) for t in range(41, 104)]
    plans = plans_of(looks)
    assert not any(plan.dead for plan in plans[:100]) and any(plan.dead for plan in plans[100:])


def test_its_wait_begins_when_it_is_released():
    looks = [
        view(0.0, up()),
        *(view(float(t), back(state="held")) for t in range(1, 900)),
        *(view(float(t), back()) for t in range(900, 958)),
    ]
    assert not any(plan.dead for plan in plans_of(looks))
    assert plans_of([*looks, *(view(float(t), back()) for t in range(958, 962))])[-1].dead


def test_who_is_held_before_it_starts_is_not_replaced():
    looks = [view(float(t), back(state="held", age=float(t))) for t in range(900)]
    plans = plans_of(looks)
    assert all(deeds(plan) == NOTHING for plan in plans) and plans[0].news and not plans[1].news


# --- refused


def refused(name="a", **more):
    return Unit(name, state="gone", submission="refused", why="could not be started: no", **more)


class RefusingQueue:
    """Every submission is refused, or accepted from some time on."""

    def __init__(self, strategy, chance=0.5, accepts_from=inf):
        self.strategy, self.chance, self.accepts_from = strategy, chance, accepts_from
        self.memory, self.units, self.submissions, self.news = None, {}, [], []

    def run(self, seconds, wanted=5):
        for t in range(seconds):
            now = float(t)
            units = []
            for name, at in self.units.items():
                is_accepted = at >= self.accepts_from
                one = Unit(name, state="queued", submission="accepted") if is_accepted else refused(name)
                units.append(replace(one, age=now - at))
            look = view(now, *units, wanted=wanted, chance=self.chance)
            plan, self.memory = self.strategy.decide(look, self.memory)
            for one in plan.dead:
                del self.units[one.unit]
            for _ in range(plan.submit):
                self.units[f"u{len(self.submissions)}"] = now
                self.submissions.append(now)
            self.news += [(now, word) for word in plan.news]


def test_refused_submissions_are_tried_one_by_one_ever_later_then_comes_a_pause():
    queue = RefusingQueue(Demand(refusal_pause=5000.0))
    queue.run(20_000)
    times = sorted(set(queue.submissions))
    assert queue.submissions.count(times[0]) == 5, "the first time nobody knew"
    assert len(queue.submissions) == len(times) + 4, "then one at a time"
    waits = [later - before for before, later in pairwise(times)]
    for number, wait in enumerate(waits[:9]):
        plain = 10 * 2.0**number
        assert 0.75 * plain <= wait <= 1.25 * plain + 2
    assert len({round(wait / 2.0**number, 3) for number, wait in enumerate(waits[:9])}) > 5, "with jitter"
    assert all(3750 <= wait <= 6252 for wait in waits[9:])
    at, words = queue.news[0]
    assert at == times[9] + 1
    assert words.startswith(
        "10 submissions in a row were refused, the last one: could not be started: no; none is"
    )
    assert len(queue.news) == len(times) - 9


def test_clusters_do_not_try_again_in_step():
    times = []
    for chance in (0.0, 0.3, 0.6, 0.9):
        queue = RefusingQueue(Demand(refusal_pause=5000.0), chance)
        queue.run(3000)
        times.append(tuple(sorted(set(queue.submissions))[5:8]))
    assert len(set(times)) == 4


def test_one_that_is_accepted_ends_it():
    queue = RefusingQueue(Demand(), accepts_from=100.0)
    queue.run(200)
    assert len(queue.units) == 5 and queue.memory.refusals.count == 0
    last = sorted(queue.submissions)[-5:]
    assert 100 <= last[0] < last[1] == last[4] <= last[0] + 2


def test_one_that_was_accepted_before_ends_nothing():
    """Some of those that were asked for together were accepted, the others were not."""
    old = Unit("old", state="queued", submission="accepted", age=50.0)
    looks = [view(50.0, old, refused(age=1.0), wanted=5)]
    looks += [view(51.0 + t, replace(old, age=51.0 + t), wanted=5) for t in range(6)]
    plans = plans_of(looks)
    assert [plan.submit for plan in plans] == [0] * 7
    assert sum(plan.submit for plan in plans_of([*looks, view(65.0, old, wanted=5)])) == 0, "was away"
    later = [view(57.0 + t, replace(old, age=57.0 + t), wanted=5) for t in range(10)]
    assert [plan.submit for plan in plans_of([*looks, *later])].count(1) >= 1


def test_while_one_is_tried_no_other_is():
    looks = [view(0.0, refused(), wanted=5), *(view(float(t), wanted=5) for t in range(1, 14))]
    tried = [view(14.0 + t, Unit("t", state="queued", age=float(t)), wanted=5) for t in range(9)]
    plans = plans_of([*looks, *tried])
    assert sum(plan.submit for plan in plans[:14]) >= 1 and not any(plan.submit for plan in plans[14:])


def test_refusals_are_no_deaths():
    queue = RefusingQueue(Demand(retries=0, refusal_pause=60.0))
    queue.run(2000)
    assert queue.memory.failures == 0 and len(queue.submissions) > 20


def test_no_more_are_submitted_than_is_polite():
    plan = plans_of([view(0.0, wanted=9, may_submit=4.0)])[0]
    assert plan.submit == 4 and "per-minute" in plan.rejected[0]
    assert plans_of([view(0.0, wanted=9, may_submit=0.0)])[0].submit == 0


# --- many, at random moments


class Site:
    """A batch system, and one cluster on it that is asked for and given as ``HPCAdaptive`` would."""

    WANTED = 4
    EVERY = 2.0  # seconds between looks

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now = 10_000.0
        self.slurm = SimulatedSlurm(
            lambda: self.now, lambda: self.random.choice([1.0, 5.0, 20.0, 60.0, 200.0])
        )
        self.jobs = BatchJobs(Manners())
        self.strategy, self.memory = Demand(), None
        self.units, self.asked, self.leaving = {}, {}, {}
        self.most, self.gone = 0, []

    class Unit:
        submit_command = "sbatch"

        def __init__(self, job_id):
            self.job_id = job_id

    async def look(self):
        for name in [name for name, until in self.leaving.items() if self.now >= until]:
            self.slurm.cancel(self.units.pop(name).job_id)
            del self.leaving[name]
        here = {name for name, unit in self.units.items() if self.slurm.connects(unit.job_id)}
        ages = {name: self.now - self.asked[name] for name in self.units}
        known = await self.jobs.look(self.units, ages, here)
        units = [
            Unit(
                name,
                connected=int(name in here),
                state=one.job.state,
                why=one.job.why,
                age=ages[name],
                running_for=one.job.running_for,
                left=one.job.left,
                starts_in=one.job.starts_in,
                is_preempted=one.job.is_preempted,
                restarts=one.job.restarts or 0,
                asked_ago=one.ago,
                submission="accepted",
                is_busy=name in here,
                is_leaving=name in self.leaving,
            )
            for name, one in known.items()
        ]
        look = ClusterView(
            self.now, self.EVERY, tuple(units), self.WANTED, self.WANTED, may_submit=self.jobs.left()
        )
        plan, self.memory = self.strategy.decide(look, self.memory)
        for one in (*plan.cancel, *plan.leave, *plan.dead):
            # To be cancelled takes a moment, to hand over some.
            hands_over = one in plan.leave
            self.leaving[one.unit] = self.now + self.random.choice([1.0, 5.0] if hands_over else [0.0, 1.0])
        self.gone += [(one.unit, one.reason) for one in plan.dead]
        for _ in range(self.jobs.allow(plan.submit)):
            job = self.slurm.submit()
            name = f"u{job}"
            self.units[name], self.asked[name] = self.Unit(job), self.now

    def count(self):
        """Jobs that run or wait."""
        return sum(job.state(self.now) in ("PENDING", "RUNNING") for job in self.slurm.there())

    async def step(self):
        self.slurm.tick()
        self.most = max(self.most, self.count())
        await self.look()
        self.most = max(self.most, self.count())
        self.now += self.EVERY


@pytest.mark.parametrize("seed", range(int(os.environ.get("DASK_HPC_PREEMPTED_SEEDS", "3"))))
def test_a_hundred_preemptions_and_fifty_requeues_never_make_more_units_than_asked_for(seed, monkeypatch):
    site = Site(seed)
    monkeypatch.setattr(BatchDesk, "_all", WeakValueDictionary())  # whose clock is another one
    monkeypatch.setattr(batch_jobs, "random", site.random.random)
    monkeypatch.setattr(batch_jobs, "monotonic", lambda: site.now)
    monkeypatch.setattr(batch_jobs, "time", lambda: site.now)
    monkeypatch.setattr(command, "hear", site.slurm.hear)
    dice = site.random

    async def run():
        events = ["preempt"] * 100 + ["requeue"] * 50
        dice.shuffle(events)
        held = []
        while events or held:
            for _ in range(dice.randrange(1, 40)):
                await site.step()
            if held and dice.random() < 0.5:
                job = held.pop()
                if not site.slurm.jobs[job].is_over:
                    site.slurm.release(job)
            running = [job.id for job in site.slurm.running() if job.end == inf]
            if not running or not events:
                continue
            job, again = dice.choice(running), dice.choice([3.0, 30.0, 121.0, 600.0])
            if events.pop() == "preempt":
                site.slurm.preempt(job, dice.choice([0.0, 10.0, 60.0, 300.0]), again)
            else:
                is_held = dice.random() < 0.2
                site.slurm.requeue(job, again, is_held)
                held += [job] * is_held
        for _ in range(600):
            await site.step()

    asyncio.run(run())
    assert site.most == site.WANTED
    assert len(site.slurm.running()) == site.WANTED == len(site.slurm.there())
    came_back = sum(job.restarts for job in site.slurm.jobs.values())
    print(f"seed {seed}: {len(site.slurm.jobs)} jobs, {came_back} put back, {len(site.gone)} given up")
    assert came_back >= 30
    gaps = [after - before for before, after in pairwise(site.slurm.questions)]
    assert min(gaps) >= 10
