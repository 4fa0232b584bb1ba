"""The chain of batch jobs: what follows from what, in any order."""

from dataclasses import replace

import pytest
from chain_model import World, new_chain
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dask_hpc.checkpoint.client.reserved import Progress
from dask_hpc.reservations.chain import (
    ChainCancelled,
    DropJobs,
    JobBegan,
    JobChain,
    LeaveJob,
    Link,
    minutes,
)
from dask_hpc.reservations.chain_rules import can_commit, follow, margin_of, shortened


def world(need=1500.0, **more):
    uses = more.pop("uses_checkpoints", True)
    found = World(new_chain(**more), need, uses)
    found.begin()
    return found


def started(**more):
    """With its first job running, and the second asked for."""
    found = world(**more)
    assert found.start(found.may_start()[0])
    found.look_ahead()
    return found


def said(world):
    return " | ".join(words for _, words in world.chain.story)


def test_a_program_that_is_done_at_once():
    w = started(need=500.0)
    assert w.work_for(1e9) == 500.0
    w.end(0)
    assert (w.chain.state, w.may_start(), w.jobs["101"].state) == ("done", [], "CANCELLED")
    (run,) = w.notes
    assert (run.seconds, run.ended, run.requested) == (500.0, "done", w.jobs["100"].limit)
    assert "done after 8.3 min of work, in 1 step" in said(w)


def test_the_next_job_waits_for_the_first_to_fail_and_is_long_enough_for_all():
    w = started()
    first, second = w.jobs["100"], w.jobs["101"]
    assert second.after == "100" and not first.may_requeue
    request = w.chain.plan.requests[0]
    fits = w.chain.plan.after(request.work_until).requests[0].length
    does_not = w.chain.plan.after(0.0, request.work_until).requests[0].length
    assert second.limit == 60 * minutes(max(fits, does_not)) and fits != does_not


def test_it_is_told_of_its_end_if_it_commits_in_any_case():
    w = started(law="empirical 300s*5 600s*2 2400s", checkpoint=100.0)
    assert w.jobs["100"].margin is not None and w.jobs["101"].margin is None  # only if the commit did not fit
    w = started()
    assert w.jobs["101"].margin == 1.5 * 30 + 5


def test_less_time_than_the_plan_has_is_ended_by_a_commit():
    chain = new_chain("empirical 600s 1200s", 400.0)
    assert not chain.plan.requests[0].commit
    chain = replace(chain, links=(Link(number=1, length=600.0), Link(number=2, length=60.0)))
    for number, commits in ((1, False), (2, True)):
        _, (program,) = follow(chain, JobBegan(now=1e9, number=number, job="1"))
        assert program.commits is commits


def test_a_job_that_is_cut_before_it_comes_to_its_checkpoint_changes_nothing():
    w = started()
    w.work_for(500)
    w.commit(is_final=True)
    w.end(143)
    w.start("101")
    w.progress = Progress(1)
    w.now += 5000
    w.end(143, is_told=True)
    assert w.chain.is_resumable and w.chain.tried == 530 and w.chain.fruitless == 1


def test_it_goes_on_from_what_is_saved_with_a_lower_limit():
    w = started(need=1500.0)
    w.work_for(w.jobs["100"].limit - 60)
    w.commit(is_final=True)
    w.end(143, is_told=True)
    asked = w.jobs["101"].limit
    assert w.chain.links[0].fate == "cut" and w.chain.saved == w.stored > 0
    assert w.start("101") and w.jobs["101"].limit < asked
    assert w.jobs["101"].limit == 60 * minutes(w.chain.plan.requests[0].length)
    assert w.chain.care == 1.5
    w.look_ahead()
    w.work_for(1e9)
    w.end(0)
    assert [run.seconds for run in w.notes] == [pytest.approx(1500.0)]


def test_a_commit_that_did_not_fit_gets_twice_the_time():
    w = started()
    w.work_for(w.jobs["100"].limit - 60)
    margin = w.jobs["100"].margin
    w.commit(is_final=True, fits=False)
    w.end(143)
    assert w.chain.care == 3.0 and w.chain.saved == 0 and "did not fit" in said(w)
    first = w.chain.links[0]
    assert w.start("101") and w.chain.running.limit > first.limit
    assert w.jobs["101"].program.care == 3.0
    w.look_ahead()
    w.work_for(w.jobs["101"].limit - 60)
    w.commit(is_final=True)
    w.end(143)
    assert w.chain.care == 3.0
    assert margin_of(w.chain, 600) > margin


def test_a_node_that_dies_costs_what_was_not_saved():
    w = started()
    w.work_for(300)
    w.commit()
    w.work_for(100)
    w.die()
    assert w.may_start() == ["101"] and w.start("101")
    assert w.chain.links[0].fate == "lost" and w.chain.saved == 300.0
    assert w.chain.running.number == 2 and "NODE_FAIL" in said(w)


def test_a_node_that_dies_before_the_next_job_is_asked_for():
    w = world()
    w.start("100")
    w.die()  # Slurm puts it back
    assert w.may_start() == ["100"] and w.start("100")
    assert w.chain.links[0].restarts == 1 and "was put back into the queue" in said(w)
    w.look_ahead()
    assert w.jobs["101"].after == "100"
    w.work_for(1e9)
    w.end(0)
    assert w.notes[0].seconds == pytest.approx(1500.0)


def test_a_program_that_fails_stops_the_chain():
    w = started()
    w.work_for(100)
    w.end(3)
    assert (w.chain.state, w.notes, w.may_start(), w.jobs["101"].state) == ("failed", [], [], "CANCELLED")
    assert "exit code 3" in said(w)


def test_a_program_that_fails_because_it_is_told_to_end_does_not():
    w = started()
    w.work_for(100)
    w.end(1, is_told=True)
    assert w.chain.state == "waiting" and w.may_start() == ["101"]


def test_a_program_without_checkpoints_is_noticed():
    w = started(uses_checkpoints=False)
    assert w.jobs["100"].program.commits
    w.now += w.jobs["100"].limit
    w.end(143, is_told=True)
    assert w.chain.is_resumable is False and "opened no checkpoint with a store" in said(w)
    assert w.start("101") and not w.jobs["101"].program.commits
    assert w.chain.running.limit > w.chain.links[0].limit  # it begins anew
    w.look_ahead()
    w.now += 700
    w.end(0)
    assert w.notes[0].seconds == 700


def test_a_plan_that_needs_checkpoints_is_made_another_way_without():
    w = started(uses_checkpoints=False, method="all-checkpoint")
    w.now += w.jobs["100"].limit
    w.end(143, is_told=True)
    assert w.chain.state == "waiting" and w.chain.plan.method == "best" and w.start("101")


def test_a_program_that_does_use_them_after_all():
    w = started(uses_checkpoints=False)
    w.now += 30
    w.end(143, is_told=True)  # it was cut before it came to them
    w.uses_checkpoints = True
    w.start("101")
    w.look_ahead()
    w.work_for(200)
    w.commit()
    w.end(143, is_told=True)
    assert w.chain.is_resumable and can_commit(w.chain) and "does use checkpoints" in said(w)
    assert w.chain.saved == 200


def test_a_program_that_was_said_to_make_none_may_make_some():
    w = started(checkpoint=None)
    assert not w.jobs["100"].program.commits and w.jobs["100"].margin is None
    w.work_for(200)
    w.commit()
    w.end(143, is_told=True)
    assert can_commit(w.chain) and w.chain.plan.checkpoint == 30.0 and w.chain.plan.saved == 200


def test_somebody_cancels_a_job_by_hand():
    w = started()
    w.work_for(100)
    w.end(143, is_told=True)
    w.jobs["100"].state = "CANCELLED"
    assert not w.start("101")
    assert w.chain.state == "cancelled" and w.jobs["101"].state == "COMPLETED" and w.may_start() == []


def test_too_little_memory():
    w = started()
    w.die("OUT_OF_MEMORY")
    assert not w.start("101") and w.chain.state == "failed" and "too little memory" in said(w)


def test_cancel():
    w = started()
    _, instructions = follow(w.chain, ChainCancelled(now=w.now))
    assert instructions == (DropJobs(("101", "100")),)  # else the second would begin when the first fails
    w.cancel()
    assert {job.state for job in w.jobs.values()} == {"CANCELLED"} and w.chain.state == "cancelled"
    w.cancel()
    assert said(w).count("cancelled") == 1


def test_a_job_that_was_asked_for_twice():
    w = world()
    w.lost_answers = True
    w.start("100")
    w.look_ahead()
    assert w.chain.waiting.job == "" and w.jobs["101"].after == "100"
    w.lost_answers = False
    w.look_ahead()
    assert w.chain.waiting.job == "102"
    w.die("NODE_FAIL")
    w.jobs["100"].state = "NODE_FAIL"
    assert w.start("101")
    assert w.jobs["102"].state == "CANCELLED" and w.chain.running.job == "101"
    chain, instructions = follow(w.chain, JobBegan(now=w.now, number=2, job="102"))
    assert instructions == (LeaveJob(0),) and chain.running.job == "101"


def test_a_job_of_nobody():
    w = started()
    for number in (0, 7):
        assert follow(w.chain, JobBegan(now=0.0, number=number, job="9"))[1] == (LeaveJob(0),)


def test_the_next_job_cannot_be_asked_for_until_the_program_ends():
    w = world()
    w.start("100")
    w.refuses = True
    w.look_ahead()
    w.look_ahead()
    assert said(w).count("no answer") == 1  # told once
    assert w.jobs["100"].may_requeue
    w.refuses = False
    w.work_for(300)
    w.end(143, is_told=True)
    assert w.jobs["101"].after == "100" and w.chain.waiting.job == "101"


def test_work_that_nobody_has_measured_teaches_nothing():
    w = started(need=500.0)
    w.work_for(1e9)
    w.progress = Progress(1, is_partial=True, has_store=True)
    w.end(0)
    assert w.notes == [] and w.chain.state == "done" and "nothing is learnt" in said(w)


def test_jobs_that_bring_nothing_end_the_chain():
    w = started()
    for _ in range(20):
        if w.chain.over:
            break
        w.end(143, is_told=True)
        for name in w.may_start():
            if w.start(name):
                w.look_ahead()
    assert w.chain.state == "stuck" and len(w.chain.links) == 6 and "have brought nothing" in said(w)
    assert w.may_start() == []


def test_a_job_that_is_put_back_for_ever():
    w = world()
    w.start("100")
    for _ in range(20):
        if w.chain.over:
            break
        w.die()
        w.start("100")
    assert w.chain.state == "stuck"


def test_a_limit_that_no_program_without_checkpoints_could_keep():
    chain = new_chain(checkpoint=None)
    w = World(chain, 1e6, uses_checkpoints=False)
    w.begin()
    w.start("100")
    w.look_ahead()
    w.now += w.jobs["100"].limit
    w.end(143, is_told=True)
    assert w.chain.state == "waiting" and w.chain.tried == w.jobs["100"].limit


def test_the_longest_that_a_job_may_ask_for():
    w = started(checkpoint=None, longest=1200.0)
    assert [job.limit for job in w.jobs.values()] == [1200.0, 1200.0]
    assert w.chain.links[1].why.endswith("; no job may ask for more")
    w.uses_checkpoints = False
    w.now += 1190
    w.end(143, is_told=True)
    assert w.chain.state == "stuck" and "needs more than 20.0 min at once" in said(w) and not w.may_start()


def test_no_limit_keeps_a_program_with_checkpoints_from_its_end():
    w = World(new_chain(longest=700.0, max_walltime=700.0), 2000.0)
    w.begin()
    for _ in range(30):
        if w.chain.over:
            break
        (name,) = w.may_start()
        w.start(name)
        w.look_ahead()
        assert w.jobs[name].limit <= 660.0
        job = w.jobs[name]
        if w.work_for(job.limit - (40 if job.program.commits else 10)) >= 2000.0:
            w.end(0)
        else:
            w.commit(is_final=True)
            w.end(143, is_told=True)
    assert w.chain.state == "done", said(w)


def test_the_file_has_the_first_requests_of_a_plan():
    chain = new_chain()
    (one, *_) = chain.plan.requests
    many = replace(chain.plan, requests=tuple(replace(one, work_until=float(n)) for n in range(1, 500)))
    assert shortened(many).requests == many.requests[:50] and shortened(chain.plan) == chain.plan


def test_the_file_reads_back_and_no_other_does():
    w = started()
    w.work_for(100)
    w.end(143, is_told=True)
    plain = w.chain.as_plain()
    assert JobChain.of(plain).as_plain() == plain
    for change in (
        {"format": "x"}, {"over": "gone"}, {"links": [{"number": 2, "length": 1}]}, {"plan": {}},
        {"story": [1]}, {"links": [{"number": 1, "length": 1, "fate": "x"}]},
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError, KeyError)):
            JobChain.of(plain | change)


def test_whole_minutes():
    assert [minutes(one) for one in (0, 1, 60, 60.0000000001, 61, 3600)] == [1, 1, 1, 1, 2, 60]


class AnyOrder(RuleBasedStateMachine):
    """Slurm, nodes and program do what they like."""

    @initialize(
        need=st.floats(1.0, 5000.0), uses=st.booleans(), checkpoint=st.sampled_from([None, 5.0, 30.0, 400.0])
    )
    def begin(self, need, uses, checkpoint):
        self.w = World(new_chain(checkpoint=checkpoint), need, uses)
        self.w.begin()

    @precondition(lambda self: not self.w.running)
    @rule(which=st.integers(0, 5), ahead=st.booleans())
    def start(self, which, ahead):
        ready = self.w.may_start()
        if ready and self.w.start(ready[which % len(ready)]) and ahead:
            self.w.look_ahead()

    @precondition(lambda self: self.w.running)
    @rule()
    def think(self):
        self.w.look_ahead()

    @precondition(lambda self: self.w.running)
    @rule(seconds=st.floats(0.1, 2000.0))
    def work(self, seconds):
        self.w.work_for(seconds)

    @precondition(lambda self: self.w.running)
    @rule(is_final=st.booleans(), fits=st.booleans())
    def commit(self, is_final, fits):
        self.w.commit(is_final, fits)

    @precondition(lambda self: self.w.running)
    @rule(code=st.sampled_from([0, 1, 137, 143]), is_told=st.booleans())
    def end(self, code, is_told):
        if code == 0:
            self.w.work_for(1e9)
        self.w.end(code, is_told)

    @precondition(lambda self: self.w.running)
    @rule(
        state=st.sampled_from(["NODE_FAIL", "TIMEOUT", "PREEMPTED", "CANCELLED", "OUT_OF_MEMORY", "FAILED"])
    )
    def die(self, state):
        self.w.die(state)

    @rule()
    def slurm_answers_or_not(self):
        self.w.refuses = not self.w.refuses

    @rule()
    def answers_are_lost_or_not(self):
        self.w.lost_answers = not self.w.lost_answers

    @precondition(lambda self: len(self.w.jobs) > 3)
    @rule()
    def cancel(self):
        self.w.cancel()

    @precondition(lambda self: not self.w.running and not self.w.may_start())
    @rule()
    def resume(self):
        self.w.resume()

    @invariant()
    def one_runs_at_most(self):
        assert sum(link.fate == "running" for link in self.w.chain.links) <= 1
        assert sum(link.fate == "asked" for link in self.w.chain.links) <= 1
        running = [job for job in self.w.jobs.values() if job.state == "running" and job.program is not None]
        assert len(running) <= 1

    @invariant()
    def nothing_goes_on_when_all_is_over(self):
        w = self.w
        if w.chain.over:
            assert not any(link.is_open for link in w.chain.links)
            known = {link.job for link in w.chain.links}
            pending = [name for name, job in w.jobs.items() if job.state == "pending" and name in known]
            assert pending == [] or w.chain.over == "stuck"

    @invariant()
    def what_is_noted_is_true(self):
        w = self.w
        assert len(w.notes) == (w.chain.over == "done")
        for run in w.notes:
            assert run.seconds == pytest.approx(w.need, abs=0.01) or run.seconds >= w.need

    @invariant()
    def what_is_saved_is_in_the_store(self):
        assert self.w.chain.saved <= self.w.stored + 1e-6


AnyOrder.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize("need", [30.0, 700.0, 1500.0, 3500.0, 9000.0])
@pytest.mark.parametrize("checkpoint", [None, 30.0])
def test_every_chain_comes_to_its_end(need, checkpoint):
    """Whatever it needs: each job works until its limit, every third node is lost half-way."""
    w = World(new_chain(checkpoint=checkpoint), need, checkpoint is not None)
    w.begin()
    for turn in range(40):
        if w.chain.over:
            break
        (name,) = w.may_start()
        assert w.start(name)
        w.look_ahead()
        job = w.jobs[name]
        limit = job.limit / 2 if turn % 3 == 1 else job.limit - (60 if job.program.commits else 0)
        if w.work_for(limit - (w.now - job.began)) >= need:
            w.end(0)
        elif turn % 3 == 1:
            w.commit()
            w.die()
        else:
            if job.program.commits:
                w.commit(is_final=True)
            w.end(143, is_told=True)
    assert w.chain.state == "done", said(w)
    assert w.notes[0].seconds == pytest.approx(need)


def test_a_chain_goes_on_when_all_its_jobs_are_gone():
    w = started()
    w.work_for(400)
    w.commit()
    w.work_for(50)
    for job in w.jobs.values():
        job.state = "CANCELLED"
    w.resume()
    assert [link.fate for link in w.chain.links] == ["lost", "dropped", "asked"]
    assert w.chain.saved == 400 and w.may_start() == ["102"] and w.jobs["102"].after == ""
    assert w.start("102") and w.chain.running.number == 3
    w.look_ahead()
    w.work_for(1e9)
    w.end(0)
    assert w.notes[0].seconds == pytest.approx(1500.0)


@pytest.mark.parametrize("how", ["failed", "cancelled", "stuck", "done"])
def test_a_chain_that_is_over_goes_on_if_it_is_not_done(how):
    w = started(need=100.0 if how == "done" else 1500.0)
    if how == "cancelled":
        w.cancel()
    elif how == "stuck":
        w.chain = replace(w.chain, fruitless=4)
        w.end(143, is_told=True)
    else:
        w.work_for(200)
        w.end(0 if how == "done" else 3)
    assert w.chain.state == how
    w.resume(options=("--mem=9G",), longest=7200.0)
    if how == "done":
        assert w.chain.state == "done" and w.may_start() == []
        return
    assert (w.chain.state, w.chain.fruitless, w.chain.options) == ("waiting", 0, ("--mem=9G",))
    assert w.chain.longest == w.chain.plan.max_walltime == 7200.0
    (name,) = w.may_start()
    assert w.start(name) and w.jobs[name].limit <= 7200.0


def test_a_job_that_comes_when_there_were_too_many_in_vain_ends_by_itself():
    w = world()
    w.start("100")
    w.chain = replace(w.chain, fruitless=4)
    w.die()
    assert not w.start("100") and w.jobs["100"].state == "COMPLETED" and w.chain.state == "stuck"


def test_memory_is_asked_for_again():
    chain = new_chain()
    most = [replace(one, memory=float(n)) for n, one in enumerate(chain.plan.requests, start=7)]
    w = World(replace(chain, plan=replace(chain.plan, requests=tuple(most))), 1500.0)
    w.begin()
    w.start("100")
    w.work_for(300)
    w.end(143, is_told=True)
    assert w.jobs["100"].memory == 7.0 and w.jobs["101"].memory == most[-1].memory


def test_each_job_says_why_it_asks_for_that_long():
    w = started()
    assert "step 1 is job 100, asked for 11.0 min (p20 of the empirical law" in said(w)
    assert "step 2 is job 101" in said(w) and "whether the step before commits or not" in said(w)
    w.work_for(300)
    w.end(143, is_told=True)
    w.jobs["101"].state = "NODE_FAIL"
    w.resume()
    why = w.chain.links[-1].why
    assert why.startswith("p") and " of such jobs, as this one needs more than 5.0 min: " in why
