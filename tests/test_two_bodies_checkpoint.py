"""One brain, two bodies: the agents of commits, and whether they are tried again, on one script."""

from dataclasses import replace

import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import gen_cluster

import dask_hpc
from dask_hpc import Policy
from dask_hpc.checkpoint.version import PARTNER, STORE
from dask_hpc.checkpoint.worker.agent import NAME as AGENT
from dask_hpc.model.job import Job
from dask_hpc.model.plan import Resize
from dask_hpc.simulator import Arrival, Platform
from dask_hpc.simulator.checkpoint import App, CommitService, Costs, SiteStore, simulate_commits
from dask_hpc.simulator.job_commits import JobCommits
from dask_hpc.simulator.machine import Machine
from dask_hpc.simulator.workload import DeclaredCheckpoint
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule

NAME = "dask-hpc-checkpoint"
NODES = 4
POLICY = Policy.load("checkpoint-agents").with_(**{"checkpoint.change": 2.5})
#: from this commit on more agents are better
TURN = 5
SEEN = 10


def seconds(number, agents):
    """The script: at first one agent is best, and each commit takes a little longer. Then one takes 1.0 s and
    two are hoped to take half of it, so that another one pays after five commits."""
    return 100.0 * agents + number if number < TURN else 1.0 / agents


def simulated(policy, commits, monkeypatch):
    """What is told of agents, and how many each of the first commits has, and why, of a job that makes so
    many."""
    seen = []

    def moving(self, *args):
        seen.append((len(self.agents), self._item.why))
        return seconds(self._number, len(self.agents))

    monkeypatch.setattr(JobCommits, "_moving", moving)
    checkpoint = DeclaredCheckpoint(2.0**30, 10.0, ("partner",), asynchronous=False)
    # a program commits at its end, too; a job of a workload ends without
    arrival = Arrival(Job(id="x", nodes=NODES), 10.0 * commits + 1e-3, checkpoint=checkpoint)
    machine = Machine(Platform(NODES), policy)
    machine.run([arrival])
    assert len(seen) == commits
    told = [one.reason for one in machine.story.happenings if one.decision == "agents"]
    return told, seen[:SEEN]


def live(policy, commits):
    """The same of a program on a cluster that commits after each of its iterations."""
    told, seen = [], []

    @gen_cluster(client=True, nthreads=[("", 1)] * NODES)
    async def run(c, s, *workers):
        async with (
            await dask_hpc.manage(c, policy=policy),
            dask_hpc.Checkpoint("x", levels="partner", every=1, client=c) as ck,
        ):
            choice, maker = s.plugins[NAME].choice, s.plugins[NAME].maker
            make = maker.make

            async def made(orders, item="", *args):
                found = await make(orders, item, *args)
                if item:
                    seen.append((choice._had[item], choice.known[item].why))
                    found.seconds, found.moved = seconds(len(seen), choice._had[item]), 2**20
                return found

            maker.make = made
            for label, value in (await blocks(c, workers, -1)).items():
                await ck.add(label, value)
            async for i in ck.loop(range(commits)):
                if i:  # the one before is not to make room for the next
                    await ck.stats()  # the cluster has answered to it
                    await c.scheduler.hpc_checkpoint_settled(name="x", number=ck._number)
                if len(seen) == SEEN:
                    break
                ck.update(await blocks(c, workers, i))
            story = s.plugins["dask-hpc"].story.happenings
            told.extend(one.reason.removeprefix("x: ") for one in story if one.decision == "agents")

    run()
    return told, seen


async def blocks(c, workers, number):
    """One on each node."""
    found = {
        f"u{place}": c.submit(np.full, 10, float(number * NODES + place), workers=[worker.address])
        for place, worker in enumerate(workers)
    }
    await wait(list(found.values()))
    return found


@pytest.mark.parametrize(("left", "agents"), [(3, [1, 1, 1]), (50, [2, 4, 4, 4, 4])])
def test_agents_are_added_only_if_enough_commits_are_left(left, agents, monkeypatch):
    """With three commits left nothing pays any more, with fifty it does."""
    told, seen = simulated(POLICY, TURN + left, monkeypatch)
    assert [number for number, _ in seen] == [4, 2, 1, 1, 1, *agents]
    assert told[:2] == [
        "2 agents instead of 4: a commit took 401 s",
        "1 agents instead of 2: a commit took 202 s",
    ]
    few, many = "1 agents stay: 3 more commits do not make up for a change", "2 agents instead of 1"
    assert seen[TURN][1].startswith(few if left == 3 else many) and len(told) == (2 if left == 3 else 4)
    assert live(POLICY, TURN + left) == (told, seen)


def test_the_published_rule_swings_alike(monkeypatch):
    policy = Policy.load("checkpoint-agents-rigid")
    told, seen = simulated(policy, 50, monkeypatch)
    assert [number for number, _ in seen] == [4, 4, 2, 4, 2, 4, 4, 4, 4, 4]
    assert live(policy, 50) == (told, seen)


def test_agents_follow_the_size_of_a_job(monkeypatch):
    """From four nodes to two and back; as many agents as keep the ratio, or as before."""
    for resize, reasons in (
        ("malleable", ["2 agents, as its data is on 2 nodes now", "4 agents, as its data is on 4 nodes now"]),
        ("rigid", ["2 agents, as its data is on 2 nodes now"]),
    ):
        changes = {"checkpoint.count": "fixed", "checkpoint.resize": resize}
        policy = POLICY.with_(**changes)
        script = replace(policy, malleability=Script())
        job = Job(id="x", nodes=4, kind="malleable", min_nodes=1, max_nodes=4)
        checkpoint = DeclaredCheckpoint(2.0**30, 10.0, ("partner",), asynchronous=False)
        machine = Machine(Platform(NODES, tick=5.0), script)
        machine.run([Arrival(job, 100.0, checkpoint=checkpoint)])
        told = [one.reason for one in machine.story.happenings if one.decision == "agents"]
        assert told == reasons == resized(policy)


class Script:
    """Two nodes from 15 s to 35 s, then all again."""

    def decide(self, snapshot, outlook, memory):
        nodes = 2 if 15.0 <= snapshot.now < 35.0 else NODES
        can = [one.job.id for one in snapshot.resizable if len(one.nodes) != nodes]
        return [Resize(job, nodes, "the script says so") for job in can], memory


def resized(policy):
    """Of what is protected again and again under a name: by data on four nodes, on two, and on four."""
    told = []

    @gen_cluster(client=True, nthreads=[("", 1)] * NODES)
    async def run(c, s, *workers):
        async with await dask_hpc.manage(c, policy=policy):
            for turn, size in enumerate((4, 2, 4)):
                found = await blocks(c, workers[:size], turn)
                await dask_hpc.protect(list(found.values()), "x", client=c)
                await c.scheduler.hpc_protected_commit(name="x")
            story = s.plugins["dask-hpc"].story.happenings
            told.extend(one.reason.removeprefix("x: ") for one in story if one.decision == "agents")

    run()
    return told


@pytest.mark.parametrize(("left", "then"), [(3, "direct"), (50, "agents")])
def test_agents_are_tried_again_only_if_enough_commits_are_left(left, then, tmp_path):
    """The third commit finds no agent. To have one again takes 2.5 s; commits take 1.0 s past it and 0.5 s to
    it, so that it pays after five of them."""
    commits = 3 + left
    app = App("x", nodes=4, nbytes=4.0, interval=10.0, commits=commits, rule=AgentRule(count="fixed"))
    costs = Costs(agent=8.0, change=2.5, registering=1.0, retry_wait=0.5)
    store = SiteStore(bandwidth=4.0)
    service = CommitService(costs=costs, store=store, failures=((25.0, "n1"),), repair=0.1)
    seen = list(simulate_commits([app], service).commits["how"])[:6]
    assert seen == ["agents", "agents", "direct", then, then, then]
    found = []

    @gen_cluster(client=True, nthreads=[("", 1)] * 2)
    async def run(c, s, *workers):
        levels = ("partner", "store")
        async with (
            await dask_hpc.manage(c, policy=POLICY),
            dask_hpc.Checkpoint("x", str(tmp_path), levels=levels, every=1, client=c) as ck,
        ):
            program = s.plugins[NAME].commits.series["x"]
            for label, value in (await blocks(c, workers, -1)).items():
                await ck.add(label, value)
            async for i in ck.loop(range(commits)):
                if i:
                    await ck.stats()  # the cluster has answered to it
                    told = await c.scheduler.hpc_checkpoint_settled(name="x", number=ck._number)
                    found.append("agents" if PARTNER in told["levels"] else "direct")
                    assert STORE in told["levels"]
                if len(found) == 6:
                    break
                program.schedule.costs = {PARTNER: 0.5, STORE: 1.0}
                program.schedule.measured = lambda *args: None
                if program._direct is not None:  # the wait is over
                    program._direct = replace(program._direct, again_at=0.0)
                for worker in workers:
                    kept = worker.plugins[AGENT].kept
                    kept.budget, kept.shelf.budget = (0, 0) if i == 2 else (2**30, 2**30)
                    await worker.heartbeat()
                ck.update(await blocks(c, workers, i))

    run()
    assert found == seen[: len(found)] and len(found) >= 5
