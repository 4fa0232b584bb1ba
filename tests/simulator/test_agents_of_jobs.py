"""Agents take the commits of a workload's jobs to partners, as the policy's strategy for checkpoints says."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_job_commits import checkpoints
from test_properties import arrivals, platforms, play

from dask_hpc import InputError, Policy
from dask_hpc.model.job import Job
from dask_hpc.planning.interval import young
from dask_hpc.simulator import (
    Arrival,
    Failures,
    Metering,
    NodeType,
    Platform,
    Record,
    load_workload,
    simulate,
)
from dask_hpc.simulator.application import Application, Phase, Task
from dask_hpc.simulator.checkpoint import AgentRule, App, CommitService, Costs, simulate_commits
from dask_hpc.simulator.execution import Phased
from dask_hpc.simulator.in_situ import Pipeline
from dask_hpc.simulator.job_commits import pattern_for
from dask_hpc.simulator.machine import Machine
from dask_hpc.simulator.workload import DeclaredCheckpoint
from dask_hpc.strategies.checkpoint.agent_rule import served, shares
from dask_hpc.strategies.checkpoint.agents import ItemAgents

COSTS = Costs(agent=10.0, registering=1.0)
MACHINE = Platform(12, link=20.0, agents=COSTS)
#: 10 B of each of four nodes after each 30 s of work
COMMITS = DeclaredCheckpoint(40.0, 30.0, ("partner",), asynchronous=False)


def policy(**rule):
    changes = {"checkpoint.count": "fixed", **{f"checkpoint.{name}": value for name, value in rule.items()}}
    return Policy.load("checkpoint-agents").with_(**changes)


def job(name="a", checkpoint=COMMITS, nodes=4, runtime=100.0, **more):
    return Arrival(Job(id=name, nodes=nodes, **more), runtime, checkpoint=checkpoint)


def ends(chosen, *jobs, platform=MACHINE):
    frame = simulate(list(jobs), policy=chosen, platform=platform).jobs
    return dict(zip(frame["id"], frame["end"], strict=True))


def known_at(time, chosen, *jobs, platform=MACHINE):
    """What is known then of each job that has not ended."""
    machine = Machine(platform, chosen)
    machine.run(jobs, until=time)
    return next(one for one in machine._services if hasattr(one, "at_work")).known


def agents_of(chosen, *jobs, platform=MACHINE):
    """Where each job has its agents, before any has ended."""
    return {name: one.agents for name, one in known_at(99.0, chosen, *jobs, platform=platform).items()}


@pytest.mark.parametrize(
    "costs", [COSTS, replace(COSTS, operation=0.3, registering=3.0, message=0.2, copy=50.0)]
)
@pytest.mark.parametrize(
    "rule", [{"per_node": 1}, {"per_node": 3, "deal": "fill"}, {"per_node": 2, "candidates": 1}]
)
def test_a_commit_takes_what_it_takes_in_the_model_of_commits_alone(costs, rule, monkeypatch):
    """On nodes of their own, that nobody else uses: as many as are there beside the job."""
    chosen = policy(**rule)
    for agents in (1, 2, 4):
        app = App("a", 4, 40.0, 30.0, commits=3, agents=agents, rule=chosen.checkpoint)
        alone = simulate_commits([app], CommitService(nodes=8, link=20.0, costs=costs)).commits
        monkeypatch.setattr(AgentRule, "first", lambda *_, agents=agents: ItemAgents(agents, 4))
        found = simulate([job()], policy=chosen, platform=replace(MACHINE, agents=costs))
        assert found.metrics["commit_time"] == pytest.approx(alone["stall"].sum())


def test_numbers_and_places_of_agents_decide_how_long_a_commit_takes():
    # one agent after the other takes the 10 B of a node at 10 B/s: all four at once, or each the parts of two
    four = ends(policy(), job())["a"]
    assert four == pytest.approx(100 + 3 * 1.0)
    assert agents_of(policy(), job())["a"] == ("4", "5", "6", "7"), "beside the job"
    assert agents_of(policy(candidates=2, per_node=1), job())["a"] == ("4", "5")
    stacked = policy(candidates=1, deal="fill")
    assert agents_of(stacked, job())["a"] == ("4",) * 4
    assert ends(stacked, job())["a"] == pytest.approx(100 + 3 * 2.0), "they share a link of 20 B/s"
    assert ends(Policy.load("fcfs"), job())["a"] == pytest.approx(100 + 3 * 0.5), (
        "each to the next, by its link"
    )


def test_agents_of_others_are_avoided_or_shared():
    two = (job("a"), job("b"))
    assert agents_of(policy(), *two) == {"a": ("4", "5", "6", "7"), "b": ("0", "1", "2", "3")}, "the emptiest"
    stacked = policy(candidates=1, deal="fill")
    assert agents_of(stacked, *two) == {"a": ("4",) * 4, "b": ("0",) * 4}


def test_who_commits_at_the_same_time_shares_the_links_of_agents():
    """All agents are on the node that draws least. Who sets out first has 10 B/s for each of its agents; the
    other has four at work there, and 5 B/s; after that they commit one after the other."""
    power = Metering(types=(NodeType(4, 1.0, 200.0), NodeType(1, 1.0, 100.0)))
    machine = replace(MACHINE, nodes=5, metering=power)
    two = [job(name, nodes=2, checkpoint=replace(COMMITS, nbytes=20.0)) for name in "ab"]
    there = policy(candidates=1, rank="power", deal="fill")
    assert agents_of(there, *two, platform=machine) == {"a": ("4", "4"), "b": ("4", "4")}
    assert ends(there, *two, platform=machine) == pytest.approx({"a": 103.0, "b": 104.0})


def test_a_job_has_one_agent_though_all_nodes_are_at_the_bound():
    """Each node may have one. Job b has its agents on those of a, which fail; the others have a's."""
    two = [job(name, nodes=2, checkpoint=replace(COMMITS, nbytes=20.0)) for name in "ab"]
    machine = replace(MACHINE, nodes=4)
    assert agents_of(policy(per_node=1), *two, platform=machine) == {"a": ("2", "3"), "b": ("0", "1")}
    for failed, left in (((0,), ("1",)), ((0, 1), ("2",))):
        failures = Failures(trace=tuple((40.0, node) for node in failed), repair=1e6)
        found = agents_of(policy(per_node=1), *two, platform=replace(machine, failures=failures))
        assert found == {"a": ("2", "3"), "b": left}


def test_a_change_of_agents_takes_time():
    costs = replace(COSTS, change=2.5, per_agent=0.5, launch=1.0, connect=0.25)
    machine = replace(MACHINE, agents=costs)
    assert ends(policy(), job(), platform=machine)["a"] == pytest.approx(103 + 2.5 + 1.0 + 4 * 0.5 + 0.25)
    failing = replace(machine, failures=Failures(trace=((50.0, 4),), repair=1e6))
    found = ends(policy(), job(), platform=failing)["a"]
    assert found == pytest.approx(103 + (5.5 + 0.25) + (3.5 + 0.5 + 0.25)), "one agent is replaced by another"


def test_fewer_agents_are_tried_and_more_again():
    chosen = Policy.load("checkpoint-agents").with_(**{"checkpoint.change": 0.0})
    machine = Machine(MACHINE, chosen)
    machine.run([job(runtime=400.0)])
    told = [(one.time, one.job, one.reason) for one in machine.story.happenings if one.decision == "agents"]
    assert told == [
        (31.0, "a", "2 agents instead of 4: a commit took 1 s"),
        (63.0, "a", "4 agents instead of 2: a commit took 2 s"),
    ]


def test_a_resize_in_the_middle_of_a_commit_forgets_who_worked():
    arrival = job(kind="malleable", min_nodes=1, max_nodes=4)
    machine = Machine(replace(MACHINE, tick=0.5), replace(policy(), malleability=Shrink()))
    machine.run([arrival])
    desk = next(one for one in machine._services if hasattr(one, "at_work"))
    assert not desk.at_work and not desk.known
    (told,) = [one.reason for one in machine.story.happenings if one.decision == "agents"]
    assert told == "2 agents, as its data is on 2 nodes now"


class Shrink:
    def decide(self, snapshot, outlook, memory):
        from dask_hpc.model.plan import Resize

        is_time = snapshot.now >= 30.5
        return [
            Resize(one.job.id, 2, "") for one in snapshot.resizable if is_time and len(one.nodes) == 4
        ], memory


@pytest.mark.parametrize(
    ("nodes", "lost"),
    [((0, 1), False), ((0, 7), False), ((0, 4), True), ((4, 5), False)],
)
def test_a_part_is_lost_with_its_node_and_its_agents(nodes, lost):
    machine = replace(MACHINE, failures=Failures(trace=tuple((45.0, one) for one in nodes), repair=1e6))
    found = simulate([job()], policy=policy(), platform=machine)
    expected = 0 if 0 not in nodes else 4 * (44.0 if lost else 14.0) / 3600
    assert found.metrics["lost_node_hours"] == pytest.approx(expected, abs=1e-9)


def test_what_is_read_back_comes_from_the_agents():
    machine = replace(MACHINE, failures=Failures(trace=((45.0, 0),), repair=0.0))
    assert ends(policy(), job(), platform=machine)["a"] == pytest.approx(45 + 1 + 70 + 2)
    stacked = policy(candidates=1, deal="fill")
    # the four of them share a link of 20 B/s
    assert ends(stacked, job(), platform=machine)["a"] == pytest.approx(45 + 2 + 70 + 2 * 2)


names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True)


@given(names, st.data())
def test_agents_serve_even_shares_of_other_nodes(nodes, data):
    agents = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=len(nodes)))
    found = served(nodes, agents)
    assert list(found) == nodes
    counts = sorted(list(found.values()).count(agent) for agent in set(agents))
    if len(set(agents)) == len(agents):
        assert counts == sorted(shares(len(nodes), len(agents)))
    beside = [node for node, agent in found.items() if node == agent]
    assert len(beside) <= (len(set(agents)) == 1), "a copy elsewhere wherever that can be"


def test_what_is_left_of_a_job_is_known():
    failures = Failures(mtbf=40_000.0)
    platform = Platform(4, file_system=10.0, link=100.0, failures=failures)
    declared = DeclaredCheckpoint(100.0, "auto", ("partner", "store"))
    endless = pattern_for(declared, platform, 2)
    assert pattern_for(declared, platform, 2, 1e6) == endless
    assert pattern_for(declared, platform, 2, 60.0).counts[0] > 1000 > endless.counts[0]
    alone = DeclaredCheckpoint(100.0, "young", asynchronous=False)
    assert pattern_for(alone, platform, 2, 60.0) is None and pattern_for(alone, platform, 2).work < 1000
    for seconds, commits in ((100.0, 0), (4000.0, 4)):
        run = simulate([job(checkpoint=alone, nodes=2, runtime=seconds)], policy="fcfs", platform=platform)
        assert run.metrics["commits"] == commits
    phased = Phased(Application((Phase((Task("compute", lambda nodes: 20.0),), iterations=5),)), platform)
    phased.begin(7.0, 2)
    assert phased.left(7.0) == inf, "nobody knows how long an iteration takes"
    while phased._rounds < 2:
        phased.proceed(0.0)
    assert phased.left(47.0) == 60.0


def test_commits_that_take_longer_are_planned_more_rarely(monkeypatch):
    """Four agents take the parts of four nodes in a second; one takes them one after the other, in four."""
    machine = replace(MACHINE, failures=Failures(mtbf=1e9, repair=1.0))
    planned = job(checkpoint=replace(COMMITS, every="young"), runtime=1e9)
    works = {}
    for agents in (1, 4):
        monkeypatch.setattr(AgentRule, "first", lambda *_, agents=agents: ItemAgents(agents, 4))
        found = known_at(1e5, policy(), planned, platform=machine)["a"]
        works[len(found.agents)] = found._pattern.work
    assert works == {4: pytest.approx(young(1.0, 4e-9)), 1: pytest.approx(young(4.0, 4e-9))}


@pytest.mark.parametrize(("chosen", "count"), [("elastic", "by-sign"), ("node-stealing", "climb")])
@given(jobs=arrivals(), platform=platforms, checkpoint=checkpoints)
@settings(max_examples=12, deadline=None)
def test_every_run_with_agents_is_sound_and_the_same_each_time(chosen, count, jobs, platform, checkpoint):
    platform = replace(platform, file_system=20.0, link=50.0, agents=Costs(agent=30.0, change=1.0))
    rule = {"checkpoint.strategy": "agents", "checkpoint.per_node": 3, "checkpoint.count": count}
    chosen = Policy.load(chosen).with_(**rule)
    jobs = [
        replace(one, checkpoint=checkpoint) if at % 3 and not isinstance(one.application, Pipeline) else one
        for at, one in enumerate(jobs)
    ]
    machine, again = (play(chosen, jobs, platform, record) for record in (Record(), None))
    assert machine.indices.now == again.indices.now
    for detail in machine.record.details.values():
        assert detail.lost >= -1e-9
    desk = next(one for one in machine._services if hasattr(one, "at_work"))
    assert set(desk.known) <= set(machine.lives)
    if not machine.lives:
        assert not +desk.at_work


def test_costs_of_agents_in_a_workload_file(tmp_path):
    path = tmp_path / "w.yaml"
    job = (
        "jobs: [{id: a, nodes: 2, runtime: 1 h, checkpoint: {bytes: 4 GB, every: 600, levels: [partner]}}]\n"
    )
    path.write_text("platform: {nodes: 4, agents: {agent: 1 GB/s, change: 2.5 s, operation: 1 ms}}\n" + job)
    assert load_workload(path).platform.agents == Costs(
        agent=1e9, change=2.5, operation=1e-3, registering=1.0
    )
    wrong = {
        "{agent: 0}": "agents.* agent: found 0",
        "{chang: 1}": "agents.chang: unknown",
        "{change: -1}": "change: found",
    }
    for text, complaint in wrong.items():
        path.write_text(f"platform: {{nodes: 4, agents: {text}}}\n" + job)
        with pytest.raises(InputError, match=complaint):
            load_workload(path)
