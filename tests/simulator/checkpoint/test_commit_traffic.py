"""Commits to simulated agents: what they cost, what becomes of them, and that nothing is lost or made up."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.simulator.checkpoint import (
    AgentRule,
    App,
    CommitService,
    Compression,
    Costs,
    Pool,
    SiteStore,
    SizeChange,
    simulate_commits,
)
from dask_hpc.simulator.checkpoint.run import FIXED

HEAT = App("heat", nodes=4, nbytes=8.0, interval=10.0, commits=5)
PLAIN = Costs(agent=1.0, registering=1.0, probe=0.0)


def play(app=HEAT, service=None, **changes):
    return simulate_commits([replace(app, **changes)], service or CommitService(costs=PLAIN))


def test_one_agent_takes_parts_one_after_the_other_and_two_halve_that():
    one, two = play().of("heat"), play(agents=2).of("heat")
    assert [seen.transfer for seen in one] == [8.0] * 5
    assert [seen.transfer for seen in two] == [4.0] * 5
    assert one[0].parts == {0: 2.0, 1: 4.0, 2: 6.0, 3: 8.0}
    assert two[0].parts == {0: 2.0, 1: 4.0, 2: 2.0, 3: 4.0}, "runs of nodes, not nodes in turn"


def test_each_process_for_itself_pays_for_each_operation():
    costs = replace(PLAIN, operation=0.25)
    shared = play(service=CommitService(costs=costs), processes=8).of("heat")
    each = play(service=CommitService(costs=costs), processes=8, way="mr").of("heat")
    assert shared[0].transfer == 8 + 4 * 0.25
    assert each[0].transfer == 8 + 32 * 0.25


def test_equations_6_3_and_6_4():
    service = CommitService(costs=replace(PLAIN, message=0.5, copy=4.0))  # 2 bytes of each node: 0.5 s
    for interval in (10.0, 8.0, 3.0):
        waited = play(service=service, interval=interval).of("heat")
        alone = play(service=service, interval=interval, asynchronous=True).of("heat")
        assert [seen.stall for seen in waited] == pytest.approx([1 + 8] * 5)
        assert [seen.stall for seen in alone][:-1] == pytest.approx([1 + max(0, 8 - interval)] * 4)


def test_the_first_commit_to_new_agents_registers_memory():
    service = CommitService(costs=replace(PLAIN, registering=7.0))
    found = play(service=service, commits=4, changes=((25, 2),)).of("heat")
    assert [seen.transfer for seen in found] == [7 * 8, 7 * 4, 4, 4]
    assert [seen.is_first for seen in found] == [True, True, False, False]


def test_applications_share_links_fairly():
    apps = [App(name, nodes=1, nbytes=10.0, interval=1.0, commits=1) for name in "ab"]
    found = simulate_commits(apps, CommitService(link=2.0, costs=replace(PLAIN, agent=float("inf"))))
    assert [seen.transfer for seen in found.made] == [10.0, 10.0]
    apart = simulate_commits(apps, CommitService(nodes=2, link=2.0, costs=replace(PLAIN, agent=float("inf"))))
    assert [seen.transfer for seen in apart.made] == [5.0, 5.0]
    assert {apart.agents_at(name, 1.0) for name in "ab"} == {("n1",), ("n2",)}


apps = st.builds(
    App,
    st.just("app"),
    nodes=st.integers(1, 9),
    nbytes=st.floats(0, 1e3),
    interval=st.floats(0.1, 30),
    commits=st.integers(1, 12),
    processes=st.integers(1, 3),
    way=st.sampled_from(["mr", "shmr"]),
    agents=st.integers(1, 6),
    rule=st.builds(
        AgentRule,
        count=st.sampled_from(["fixed", "by-sign", "climb"]),
        resize=st.sampled_from(["rigid", "malleable"]),
        rank=st.sampled_from(["memory", "bandwidth", "frequency", "power"]),
        deal=st.sampled_from(["block", "round-robin", "fill"]),
        candidates=st.integers(0, 2),
        per_node=st.sampled_from([1, 8]),
        change=st.sampled_from([0.0, 2.0]),
    ),
    probe_every=st.sampled_from([20.0, float("inf")]),
)
resizes = st.lists(
    st.builds(SizeChange, st.integers(1, 10), st.integers(1, 16), st.floats(0, 1e3)), max_size=3
).map(tuple)
services = st.builds(
    CommitService,
    nodes=st.integers(1, 4),
    link=st.sampled_from([20.0, float("inf")]),
    memory=st.sampled_from([500.0, float("inf")]),
    buffer=st.sampled_from([50.0, float("inf")]),
    costs=st.builds(
        Costs,
        agent=st.sampled_from([10.0, float("inf")]),
        copy=st.sampled_from([10.0, float("inf")]),
        operation=st.sampled_from([0.0, 0.1]),
        change=st.sampled_from([0.0, 2.0]),
        retry_wait=st.just(15.0),
        noise=st.sampled_from([0.0, 0.2]),
    ),
    store=st.builds(
        SiteStore,
        bandwidth=st.sampled_from([30.0, float("inf")]),
        writers=st.integers(1, 3),
        flush_every=st.integers(0, 2),
    ),
    joins=st.sampled_from([(), ((30.0, 1),)]),
    leaves=st.sampled_from([(), ((40.0, 1),)]),
    failures=st.lists(st.tuples(st.floats(0, 100), st.sampled_from(["n1", "n2"])), max_size=3).map(tuple),
    repair=st.sampled_from([5.0, float("inf")]),
    pool=st.sampled_from([None, Pool(every=7.0, spare=2, rule=AgentRule(idle=20.0))]),
)


@pytest.mark.slow
@given(apps, resizes, services, st.integers(0, 3))
@settings(deadline=None)
def test_every_commit_arrives_and_bytes_are_conserved(app, changes, service, seed):
    found = simulate_commits([replace(app, resizes=changes)], service, seed=seed)
    commits = found.of("app")
    assert [seen.number for seen in commits] == list(range(1, app.commits + 1))
    assert found.ended["app"] >= commits[-1].end
    by_way = Counter()
    for seen in commits:
        by_way[seen.how] += seen.nbytes
        assert seen.begin <= seen.end
        assert seen.stall >= 0 and seen.transfer >= 0
    traffic = found.traffic
    assert traffic.to_agents == pytest.approx(by_way["agents"] + traffic.wasted, abs=1e-6)
    assert traffic.direct == pytest.approx(by_way["direct"], abs=1e-6)
    assert traffic.written <= traffic.flushed + 1e-6 <= traffic.to_agents + 2e-6
    assert all(count >= 1 for _, count, _ in found.pool) or service.failures
    again = simulate_commits([replace(app, resizes=changes)], service, seed=seed)
    assert found.dataset.identical(again.dataset)


@given(apps, services)
@settings(deadline=None)
def test_nothing_is_left_in_memory_when_all_is_over(app, service):
    from dask_hpc.simulator.checkpoint.run import AppLife
    from dask_hpc.simulator.checkpoint.world import World

    world = World(replace(service, failures=(), leaves=(), pool=None), 0)
    world.live = 1
    world.clock.start(AppLife(app, world).live())
    world.clock.run()
    assert all(seat.used == pytest.approx(0, abs=1e-6) for seat in world.seats.values())
    assert not any(seat.agents for seat in world.seats.values())


@given(apps, resizes, services)
@settings(deadline=None)
def test_asynchronous_is_never_slower(app, changes, service):
    # alone, without chance, and with agents that stay as they are: else the two see different things
    service = replace(
        service, failures=(), joins=(), leaves=(), pool=None, memory=float("inf"),
        costs=replace(service.costs, noise=0.0), store=replace(service.store, flush_every=0),
    )  # fmt: skip
    app = replace(app, resizes=changes, rule=replace(app.rule, count="fixed"), probe_every=float("inf"))
    waits = simulate_commits([app], service).ended["app"]
    goes_on = simulate_commits([replace(app, asynchronous=True)], service).ended["app"]
    assert goes_on <= waits * (1 + 1e-9)


@pytest.mark.slow
@given(
    st.integers(1, 16), st.floats(1, 100), st.floats(0, 2), st.floats(0, 5), st.integers(1, 8),
    st.sampled_from([4.0, 8.0, float("inf")]),
)  # fmt: skip
@settings(deadline=None)
def test_climbing_settles_for_good_and_never_on_something_worse(
    nodes, nbytes, operation, change, agents, fabric
):
    agents = min(agents, nodes)
    app = App(
        "app", nodes=nodes, nbytes=nbytes, interval=1.0, commits=60, agents=agents, probe_every=1.0,
        rule=AgentRule(count="climb", change=change, per_node=64),
    )  # fmt: skip
    service = CommitService(fabric=fabric, costs=Costs(agent=1.0, operation=operation, change=change))
    found = simulate_commits([app], service)
    late = [time for time, _, nodes in found.seated if nodes and time > found.of("app")[30].begin]
    assert late == [], "it is settled long before half of its commits"
    first, last = found.of("app")[1], found.of("app")[-1]
    assert last.transfer <= first.transfer * 1.06


def test_the_published_rule_goes_on_for_ever():
    app = App("a", nodes=12, nbytes=12.0, interval=1.0, commits=60, agents=2, probe_every=1.0)
    service = CommitService(fabric=4.0, costs=Costs(agent=1.0))
    rules = {count: AgentRule(count=count, per_node=64, change=0.0) for count in ("by-sign", "climb")}
    by = {count: simulate_commits([replace(app, rule=rule)], service) for count, rule in rules.items()}
    changes = {count: len(found.seated) for count, found in by.items()}
    assert by["climb"].of("a")[-1].agents == 4
    assert changes["climb"] <= 6
    # it stops only where two commits take equally long, as when the fabric is full
    worse = CommitService(costs=Costs(agent=1.0, noise=0.02))
    noisy = {
        count: len(simulate_commits([replace(app, rule=rule)], worse, seed=1).seated)
        for count, rule in rules.items()
    }
    assert noisy["by-sign"] > 3 * noisy["climb"]


@given(
    st.sampled_from([(2, 1), (4, 2), (4, 4), (6, 3), (8, 2)]),
    st.lists(st.integers(1, 16), min_size=1, max_size=4),
)
@settings(deadline=None)
def test_malleable_agents_keep_their_ratio_and_rigid_ones_their_number(start, sizes):
    nodes, agents = start
    changes = tuple(SizeChange(2 * at, size, 8.0) for at, size in enumerate(sizes, 1))
    app = App(
        "a", nodes=nodes, nbytes=8.0, interval=1.0, commits=2 * len(sizes) + 1, agents=agents,
        resizes=changes, rule=replace(FIXED, resize="malleable"),
    )  # fmt: skip
    found = play(app, CommitService(costs=PLAIN)).of("a")
    ratio = nodes // agents
    if all(size % ratio == 0 for size in sizes):
        assert [seen.agents * ratio for seen in found] == [seen.nodes for seen in found]
    assert all(1 <= seen.agents <= seen.nodes for seen in found)
    rigid = play(replace(app, rule=FIXED), CommitService(costs=PLAIN)).of("a")
    before = agents
    for seen in rigid:
        assert seen.agents == min(before, seen.nodes)
        before = seen.agents


# failures


def test_agents_that_die_under_a_commit():
    """It goes past them; so do the next ones, until a probe finds another node (equation 6.13)."""
    costs = replace(PLAIN, change=3.0, retry_wait=25.0)
    store = SiteStore(bandwidth=0.5)
    service = CommitService(nodes=2, costs=costs, store=store, failures=((15.0, "n1"),))
    app = replace(HEAT, commits=20)
    found = play(app, service)
    ways = [seen.how for seen in found.of("heat")]
    assert ways[0] == "direct" and found.of("heat")[0].has_failed
    back = ways.index("agents")
    assert set(ways[:back]) == {"direct"} and set(ways[back:]) == {"agents"}
    assert found.agents_at("heat", 1e9 - 1) == () and found.agents_at("heat", 500.0) != ("n1",)
    calm = play(app, replace(service, failures=()))
    slow, fast = 16.0, 8.0
    failed = 2.0  # what the first commit had spent when it failed; the agent died 2 s into it
    overhead = costs.change + failed + back * (slow - fast)
    assert found.ended["heat"] - calm.ended["heat"] == pytest.approx(overhead)


def test_it_does_not_go_back_to_agents_for_too_few_commits():
    costs = replace(PLAIN, change=50.0, retry_wait=5.0)
    both = ((200.0, "n1"), (200.0, "n2"))
    service = CommitService(nodes=2, costs=costs, store=SiteStore(bandwidth=0.5), failures=both, repair=1.0)
    few = play(replace(HEAT, commits=14), service).of("heat")
    many = play(replace(HEAT, commits=40), service).of("heat")
    assert few[-1].how == "direct" and many[-1].how == "agents"


def test_without_any_node_commits_go_to_the_store():
    service = CommitService(
        costs=replace(PLAIN, give_up=2.0), failures=((5.0, "n1"),), store=SiteStore(bandwidth=1.0)
    )
    found = play(service=service).of("heat")
    assert [seen.how for seen in found] == ["direct"] * 5
    assert found[0].stall == 2 + 8 and found[1].stall == 8


# the store


def test_flushing_is_bounded_and_costs_the_application_nothing():
    store = SiteStore(
        flush_every=2, writers=1, background=4.0, compression=Compression(2.0, rate=8.0, above=7.0)
    )
    found = play(service=CommitService(nodes=2, costs=PLAIN, store=store), agents=2)
    calm = play(service=CommitService(nodes=2, costs=PLAIN), agents=2)
    assert found.ended["heat"] == calm.ended["heat"]
    assert (found.traffic.flushed, found.traffic.written) == (16.0, 8.0)
    assert found.stored == {"heat": 4}


@pytest.mark.parametrize(
    ("store", "seconds"),
    [
        (SiteStore(flush_every=1, writer=1.0), 4.0),  # two agents write 4 bytes each at once
        (SiteStore(flush_every=1, writer=1.0, writers=1), 8.0),
        (SiteStore(flush_every=1, writer=1.0, background=1.0), 8.0),
        (SiteStore(flush_every=1, bandwidth=0.8), 10.0),
        (SiteStore(flush_every=1, writer=1.0, open=0.5), 4.5),
        (SiteStore(flush_every=1, writer=1.0, compression=Compression(2.0, rate=4.0, above=7.0)), 3.0),
    ],
)
def test_how_long_flushing_takes(store, seconds):
    found = play(service=CommitService(nodes=2, costs=PLAIN, store=store), agents=2, commits=1)
    ((time, app, number),) = found.flushed
    assert (app, number) == ("heat", 1)
    assert time - found.of("heat")[0].end == pytest.approx(seconds)


def test_a_node_that_dies_while_it_is_flushed_leaves_nothing_in_the_store():
    store = SiteStore(flush_every=1, writer=1.0)
    service = CommitService(costs=PLAIN, store=store, failures=((20.0, "n1"),))
    found = play(service=service, commits=1)  # it is there at 18 s, and would be in the store at 26 s
    assert found.flushed == [] and found.stored == {}
    assert found.traffic.flushed == 0


def test_an_agent_without_room_writes_to_the_store():
    service = CommitService(buffer=2.0, costs=PLAIN, store=SiteStore(bandwidth=1.0))
    found = play(service=service).of("heat")
    assert [seen.spilled for seen in found] == [3] * 5
    assert found[0].transfer == 8 + 6


def test_compression_leaves_small_commits_alone():
    store = SiteStore(flush_every=1, compression=Compression(2.0, rate=8.0, above=8.0))
    assert play(service=CommitService(costs=PLAIN, store=store)).traffic.written == 40.0


# nodes for agents


def test_a_pool_grows_when_it_is_full_and_shrinks_when_nobody_needs_it():
    pool = Pool(every=1.0, rule=AgentRule(idle=20.0), spare=1, grant=2.0)
    costs = replace(PLAIN, retry_wait=3.0)
    service = CommitService(memory=20.0, costs=costs, pool=pool, store=SiteStore(bandwidth=0.5))
    apps = [App(name, nodes=1, nbytes=9.5, interval=5.0, commits=8, probe_every=5.0) for name in "ab"]
    late = App("c", nodes=1, nbytes=0.5, interval=5.0, commits=60, probe_every=5.0)
    found = simulate_commits([*apps, late], service)
    sizes = [count for _, count, _ in found.pool]
    assert sizes == [1, 2, 1], "it neither wavers nor stays large"
    assert "full" in found.pool[1][2]
    assert found.of("b")[0].how == "direct" and found.of("b")[-1].how == "agents"


def test_a_node_that_is_wanted_back_goes_when_its_commits_lie_elsewhere():
    service = CommitService(nodes=2, costs=PLAIN, leaves=((25.0, 1), (30.0, 5)))
    apps = [replace(HEAT, name=name, commits=10) for name in "ab"]
    found = simulate_commits(apps, service)
    assert [count for _, count, _ in found.pool] == [2, 1], "the last one stays"
    assert found.agents_at("a", 100.0) == found.agents_at("b", 100.0)
    assert all(seen.how == "agents" for seen in found.made)


def test_agents_spread_to_a_node_that_joins():
    service = CommitService(costs=PLAIN, joins=((25.0, 1),))
    found = play(service=service, agents=4, commits=10, probe_every=10.0)
    assert Counter(found.agents_at("heat", 20.0)) == {"n1": 4}
    assert Counter(found.agents_at("heat", 100.0)) == {"n1": 2, "n2": 2}


def test_what_it_says_of_itself():
    found = play()
    assert list(found.commits["transfer"]) == [8.0] * 5
    assert found.agents.iloc[0].to_dict() == {"time": 0.0, "app": "heat", "agents": 1, "nodes": 1}
    assert found.nodes_at(10.0) == 1
    assert found.dataset.sizes == {"commit": 5, "change": 2, "pool_time": 1}
    assert found.dataset.attrs["bytes_to_agents"] == 40.0


def test_bad_input():
    with pytest.raises(InputError, match="twice"):
        simulate_commits([HEAT, HEAT], CommitService())
    with pytest.raises(InputError, match="agents"):
        replace(HEAT, agents=0)
    with pytest.raises(InputError, match="never ends"):
        simulate_commits([App("a", 1, 1.0, 1.0)], CommitService())
    with pytest.raises(InputError, match="link"):
        CommitService(link=0)
