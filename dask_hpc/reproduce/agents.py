"""Checkpoint agents: how many of them, and on which nodes (seed 000, 6.4.2, 7.1, 9.3.5, 9.4.1)."""

import random
from collections import Counter
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from dask_hpc.reproduce.claim import (
    Band,
    Bench,
    Claim,
    Figure,
    Outcome,
    around,
    at_least,
    change,
    claim,
    direction,
    exactly,
    figure,
    rounded,
)
from dask_hpc.simulator.checkpoint import (
    AgentRule,
    App,
    CommitService,
    Compression,
    Costs,
    Pool,
    SiteStore,
    simulate_commits,
)
from dask_hpc.strategies.checkpoint.agent_rule import break_even, break_even_published

#: 0.7 s by two agents: 1 GB/s each; four of them fill the network
_COSTS = Costs(agent=1e9, change=2.5, probe=0.002, noise=0.05)
_FULL = CommitService(nodes=4, link=12.5e9, fabric=4e9, costs=_COSTS)
_HEAT = App("heat", nodes=12, nbytes=1.4e9, interval=0.0, until=200.0, agents=2)
_ORDER = ((40.0, 3), (80.0, 4), (120.0, 6), (160.0, 8))
#: how the number of agents is found, beside the published order
_FINDERS: dict[str, dict[str, Any]] = {
    "two agents for ever": {},
    "four for ever": {"agents": 4},
    "one for each node for ever": {"agents": 12},
    "by the published rule": {"rule": AgentRule(count="by-sign", rank="bandwidth", per_node=64)},
    "by ours": {"rule": AgentRule(count="climb", rank="bandwidth", per_node=64, change=2.5)},
}
_QUIET = "no number is printed: within 5 %, which is our noise"
_RATE = "fitted: the rate of an agent, to this"
_NETWORK = "fitted: the network, which four agents fill"
_IN_TURN = "what we put in: an agent serves its nodes one after the other"
_CHANGING = "what we put in: seconds to launch agents and to connect one to a node"
_EQUATION = "the formula itself, with the seconds we put in"


def scaling(bench: Bench) -> Outcome:
    """More agents, faster commits, until the network is full (seed 000, 6.4.2, 7.1.1, 9.3.5, 9.4.1; digest
    3.4 to 3.6, 3.9, 3.10).

    An application of 12 nodes commits 1.4 GB again and again. Each of its agents fetches the parts of some
    nodes, one after the other, at 1 GB/s; so two agents take 0.7 s, four half of that, and with more than
    four the network is full. That much is fitted; what follows from it is compared: what more agents bring,
    from which commit on a change of them has paid, what a run loses when agents die, and, beside the claims,
    which rule finds the right number by itself. The rules are the functions that decide on a live cluster
    (``strategies.checkpoint``).

    Where the source contradicts itself, the note of a claim says what its own figures make: a factor of 400
    is claimed for what its tables show as 12.5, and its break-even holds only where new agents are twice as
    fast.

    To try another application or network::

        from dask_hpc.simulator.checkpoint import AgentRule, App, Costs, CommitService, simulate_commits

        rule = AgentRule(count="climb", change=2.5)
        app = App("mine", nodes=12, nbytes=1.4e9, interval=60.0, commits=100, rule=rule, probe_every=300.0)
        service = CommitService(nodes=4, link=12.5e9, costs=Costs(agent=1e9, change=2.5))
        result = simulate_commits([app], service)
        print(result.agents, result.commits["stall"].sum())
    """
    columns = bench.columns(_scaling_row)
    claims = [*_dynamic(columns), *_gains(), *_break_even(), *_failures(), *_other()]
    return Outcome(claims, _scaling_beside(columns))


def _scaling_row(seed: int) -> dict[str, float]:
    """Seconds of a commit by the published order, and of standing still with each way to find a number."""
    found = simulate_commits([replace(_HEAT, changes=_ORDER)], _FULL, seed=seed)
    row: dict[str, float] = {}
    for agents in (2, 3, 4, 6, 8):
        usual = [seen.transfer for seen in found.of("heat") if seen.agents == agents and not seen.is_first]
        row[f"{agents} agents"] = float(np.mean(usual))
    row["commits of a probe"] = _COSTS.change / row["2 agents"]
    still = replace(_HEAT, interval=1.0, until=float("inf"), commits=300, probe_every=5.0)
    for where, service in (("full", _FULL), ("free", replace(_FULL, fabric=float("inf")))):
        for name, how in _FINDERS.items():
            one = simulate_commits([replace(still, **how)], service, seed=seed)
            row[f"{where}: {name}"] = one.ended["heat"] - 300 * 1.0
            row[f"{where}: changes {name}"] = len(one.seated) - 2.0  # not the first, not the last
    return row


def _dynamic(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figure 9.8: two, three, four and more agents."""
    two, four = columns["2 agents"], columns["4 agents"]
    more = np.minimum(columns["6 agents"], columns["8 agents"])
    return [
        claim("heat, 2 agents: a commit takes", 0.7, two, rounded(0.7, 0.1), "s",
              "printed with one decimal", _RATE),
        direction("3 agents are faster than 2 by", "faster", 100 * (1 - columns["3 agents"] / two),
                  at_least(0.0), by_construction=_IN_TURN),
        claim("4 agents are faster than 2, times", 2, two / four, around(2, 0.2), "",
              "about twice: within a tenth", _NETWORK),
        claim("more agents than 4 bring no more than", "no gain", 100 * (1 - more / four),
              around(0, 5), "%", _QUIET, _NETWORK),
        claim("commits that a probe which changes agents takes", 4, columns["commits of a probe"],
              rounded(4), "", "about four: whatever rounds to it", "the formula itself: 2.5 s over 0.7 s"),
        claim("commits that a probe which changes nothing takes", 2, _COSTS.probe / two, rounded(2), "",
              "0.002 s is printed beside it, which we took; two of these commits take 1.4 s, two of ls1 "
              "mardyn's 0.002 s", "the formula itself: 0.002 s over 0.7 s"),
        claim("dynamic agents shorten a commit by up to", 80, 100 * (1 - four / two), rounded(80, 10),
              "%", "of its summary; twice the rate, its own figure, makes 50 %", _NETWORK),
    ]  # fmt: skip


def _transfer(app: App, service: CommitService) -> float:
    """Seconds of a commit that is not the first."""
    return simulate_commits([replace(app, commits=3)], service).of(app.name)[-1].transfer


def _gains() -> list[Claim]:
    """One agent against twelve, of 12 nodes."""
    small = App("ls1", nodes=12, nbytes=8e6, interval=1.0)
    large = App("synthetic", nodes=12, nbytes=2.3e9, interval=1.0)
    gains = []
    for app, costs in ((small, Costs(agent=10e9, operation=18e-6)), (large, Costs(agent=1e9))):
        service = CommitService(nodes=4, costs=costs)
        gains.append(_transfer(app, service) / _transfer(replace(app, agents=12), service))
    mardyn, synthetic = gains
    bound = "agents alone make 12 times at most, so one agent of the source's was slower than one twelfth"
    scr = (56.5 / 3.95, 57.5 / 3.85)
    mpi: Band = (99.5 / 7.65, 100.5 / 7.55)
    return [
        claim("8 MB: 12 agents are faster than one, times", 12.5, mardyn, (4500 / 450, 5500 / 350), "",
              "5,000 times MPI-IO over 400 times, each with one digit", _IN_TURN),
        claim("8 MB: the same, in 9.4.1.1", 400, mardyn, rounded(400, 100), "",
              "its own tables make 12.5: 400 is one agent against MPI-IO", _IN_TURN),
        claim("2.3 GB: 12 agents are faster than one, by SCR, times", 14.6, synthetic, scr, "",
              f"57 over 3.9, each rounded; {bound}", _IN_TURN),
        claim("2.3 GB: the same, by MPI-IO, times", 13.2, synthetic, mpi, "",
              f"100 over 7.6, each rounded; {bound}", _IN_TURN),
        claim("2.3 GB: the same, in 9.4.1.1", 50, synthetic, rounded(50, 10), "",
              "its own tables make 13 to 15", _IN_TURN),
    ]  # fmt: skip


def _break_even() -> list[Claim]:
    """From which commit on a change has paid: the published equations against the simulation's own clock."""
    claims = []
    for after in (0.6, 0.5, 0.35, 0.2):
        published = ceil(break_even_published(2.5, 0.7, after) - 1e-9)
        twice = after == 0.35
        same = "the two agree only here" if twice else "it holds only if new agents are twice as fast"
        why = "picked: agents twice as fast, with which the equation holds" if twice else ""
        claims.append(
            claim(f"from 0.7 s to {after:g} s: the change has paid from commit", published, _paid_from(after),
                  exactly(published), "", f"by equation 6.12, for a probe of 2.5 s; {same}", why)
        )  # fmt: skip
    return claims


def _paid_from(after: float) -> int:
    """The first commit that is over no later than it would be without the change."""
    app = App("a", nodes=2, nbytes=0.7, interval=0.0, commits=40)
    stays, goes = (
        CommitService(costs=Costs(agent=1.0, registering=1.0)),
        Costs(agent=0.7 / after, registering=1.0),
    )
    old = [seen.end for seen in simulate_commits([app], stays).of("a")]
    # the new agents are there from the beginning, once the change is over
    new = [
        seen.end for seen in simulate_commits([app], CommitService(costs=replace(goes, change=2.5))).of("a")
    ]
    return next(number for number, (a, b) in enumerate(zip(old, new, strict=True), 1) if b <= a + 1e-9)


def _failures() -> list[Claim]:
    """An agent's node fails: commits go past agents, for three waits or to the end."""
    app = App("a", nodes=12, nbytes=1.4e9, interval=10.0, commits=60)
    costs = Costs(agent=2e9, registering=1.0, probe=0.002, change=2.5, retry_wait=60.0)
    slow, fast, fails = 7.0, 0.7, 95.0
    period = app.interval + slow
    calm = CommitService(costs=costs, store=SiteStore(bandwidth=app.nbytes / slow))
    lasts = simulate_commits([app], calm).ended["a"]
    claims = []
    waits = "; probes come between commits only, so that each wait is longer by up to one of them"
    for how, repair, equation, why in (
        ("after three waits", 160.0, "6.13", waits), ("never", float("inf"), "6.14", ""),
    ):  # fmt: skip
        found = simulate_commits([app], replace(calm, failures=((fails, "n1"),), repair=repair))
        ends = found.ended["a"]
        elapsed = ends - fails if repair == float("inf") else 3 * costs.retry_wait
        published = costs.probe + costs.change + elapsed * (slow - fast) / period
        claims.append(
            claim(f"agents are lost and come back {how}: the run takes longer by", round(published, 1),
                  ends - lasts, around(round(published, 1), published / 10), "s",
                  f"equation {equation}, with its frequency as a period of {period:g} s: within a tenth{why}",
                  _EQUATION)
        )  # fmt: skip
    return claims


def _other() -> list[Claim]:
    """Probes by what comes of them, asynchronous commits, and compression by agents."""
    spread, shifted = _changing(16, 16) / _changing(1, 1), _changing(16, 1) / _changing(1, 1)
    short = App("a", nodes=2, nbytes=1.0, interval=1e-6, commits=10)
    service = CommitService(costs=Costs(agent=1.0, message=0.1, registering=1.0))
    waits = simulate_commits([short], service).of("a")[5].stall
    goes_on = simulate_commits([replace(short, asynchronous=True)], service).of("a")[5].stall
    flushing = SiteStore(bandwidth=1.0, flush_every=1, compression=Compression(2.0, rate=1.0, above=0.0))
    slow = replace(short, interval=10.0)
    plain, packed = (
        simulate_commits([slow], replace(service, store=store)).ended["a"]
        for store in (SiteStore(), flushing)
    )
    said = "no number is printed"
    return [
        claim("a probe that gives each node an agent takes, on 16 nodes over on one", "constant",
              spread, around(1, 0.05), "", f"{said}: within 5 %", _CHANGING),
        claim("a probe that shifts one agent takes, on 16 nodes over on one", "grows", shifted,
              at_least(1.05), "", f"{said}: by more than 5 %", _CHANGING),
        claim("the first of these takes longer than the second, on 16 nodes, by", "longer",
              _changing(16, 16) - _changing(16, 1), at_least(0.0), "s",
              f"{said}, a direction only; with our costs one agent that connects to all nodes is slower",
              _CHANGING),
        claim("an asynchronous commit stalls, as a share of another, where commits follow one another",
              "as long", goes_on / waits, around(1, 0.05), "", "equation 6.3 says that they come together",
              "what we put in: a commit waits for the one before"),
        claim("compression by agents makes the application slower by", "not", packed / plain - 1,
              around(0, 1e-9), "", "they are done before the next commit: nothing else counts",
              "what we put in: agents write in the background"),
    ]  # fmt: skip


def _changing(nodes: int, agents: int) -> float:
    """Seconds until so many new agents are ready for an application of so many nodes."""
    app = App("a", nodes=nodes, nbytes=1e6, interval=1.0, commits=1, agents=agents)
    found = simulate_commits([app], CommitService(nodes=2, costs=Costs(launch=1.0, connect=0.1)))
    return found.probes[0][2]


def _scaling_beside(columns: dict[str, np.ndarray]) -> list[Figure]:
    figures = []
    words = {"full": "network of 4 GB/s", "free": "no limit but agents"}
    for where, how in words.items():
        base = columns[f"{where}: two agents for ever"]
        for name in _FINDERS:
            text = f"{how}, 300 commits: standing still, {name}"
            figures.append(figure(text, columns[f"{where}: {name}"], "s"))
        for name in ("by the published rule", "by ours"):
            figures.append(figure(f"{how}: changes {name}", columns[f"{where}: changes {name}"]))
        ours = -change(columns[f"{where}: by ours"], base)
        figures.append(figure(f"{how}: ours stands still less than two by", ours, "%"))
    for after in (0.6, 0.5, 0.35, 0.2):
        figures.append(
            figure(f"true break-even from 0.7 s to {after:g} s", break_even(2.5, 0.7, after), "commits")
        )
    return figures


_LINK = 11.5e9
_LINK_FITTED = "fitted: the link, to this"
_SERVICE = CommitService(nodes=4, link=_LINK, costs=Costs(agent=_LINK, noise=0.05))
_LOUD = App("A", nodes=2, nbytes=2e9, interval=0.2, until=150.0)
_END = 150.0
#: how the agents of all are placed
_RANK = AgentRule(count="fixed", rank="bandwidth", per_node=64)
_RULES: dict[str, dict[str, Any]] = {
    "stacking": {"allowed": ("n1",)},
    "bandwidth": {"rule": _RANK},
    "interval": {"rule": replace(_RANK, rank="frequency")},
    "memory": {"rule": replace(_RANK, rank="memory")},
}

_JOINS = ((40.0, 1), (200.0, 1), (330.0, 1))
_LOOKS = (150.0, 270.0, 400.0)
#: who runs beside, with bytes of a commit, seconds between two, nodes, agents and start
_FOUR = (
    ("ls1 mardyn", 8e6, 1.0, 2, 1, 0.0),
    ("LULESH", 1e9, 2.0, 2, 2, 100.0),
    ("heat", 1.4e9, 2.0, 4, 4, 180.0),
    ("synthetic", 2.3e9, 3.0, 4, 4, 280.0),
)


def placement(bench: Bench) -> Outcome:
    """On which nodes agents are least in each other's way (seed 000, 7.1.2, 9.4.1.2, 9.4.1.3; digest 3.7,
    3.8).

    One application commits all the time; five others arrive, and a rule says where the agent of each runs.
    What the first one's commits get of a link shows whether the others keep out of its way: "stacking" puts
    all on its node, "bandwidth" on the node with the least traffic, "interval" on the one with the fewest
    commits. Then nodes for agents are given one by one, and agents spread over them when they next ask.

    Sizes and intervals are not given, so the absolute minimum under stacking is only roughly comparable; the
    order of the rules is what counts. The last figures let the pool's own rule ask for nodes instead.
    """
    columns = bench.columns(_placement_row)
    claims = (*_placed(columns), *_spread(columns))
    return Outcome(claims, _placement_beside(columns))


def _placement_row(seed: int) -> dict[str, float]:
    """What A gets under each rule, and where agents are as nodes join."""
    row: dict[str, float] = {}
    for name, rule in _RULES.items():
        dice = random.Random(seed)
        others = [
            App(f"B{number}", 2, dice.uniform(1e9, 8e9), dice.uniform(1, 5), start=20.0 * number, until=_END)
            for number in range(1, 6)
        ]
        apps = [replace(app, **rule) for app in (_LOUD, *others)]
        found = simulate_commits(apps, _SERVICE, seed=seed, horizon=_END)
        rates = [
            seen.nbytes / seen.transfer / 1e9
            for seen in found.of("A")
            if seen.end == seen.end and not seen.is_first and seen.begin > 20.0
        ]
        last = [found.agents_at(app.name, _END - 1) for app in apps]
        row |= {
            f"{name}: least": min(rates),
            f"{name}: most": max(rates),
            f"{name}: mean": float(np.mean(rates)),
            f"{name}: fluctuation": float(np.std(rates)),
            f"{name}: nodes": float(len({node for nodes in last for node in nodes})),
        }
    return row | _growing(seed)


def _growing(seed: int) -> dict[str, float]:
    """Nodes that join one by one under the bandwidth rule; and as many as the pool finds it needs."""
    apps = [
        App(name, nodes, nbytes, interval, agents=agents, start=start, until=420.0 - start, probe_every=20.0)
        for name, nbytes, interval, nodes, agents, start in _FOUR
    ]
    service = replace(_SERVICE, nodes=1, costs=Costs(agent=5e9, noise=0.05))
    found = simulate_commits(apps, replace(service, joins=_JOINS), seed=seed, horizon=420.0)
    row = {"as said": float(set(found.agents_at("LULESH", _LOOKS[0])) == {"n1", "n2"})}
    for time in _LOOKS:
        there = Counter(node for app in apps for node in found.agents_at(app.name, time))
        each = [there[f"n{number}"] for number in range(1, found.nodes_at(time) + 1)]
        row[f"uneven at {time:g} s"] = float(max(each) - min(each))
    pool = Pool(every=10.0, rule=AgentRule(busy=0.1), spare=3, grant=5.0)
    pooled = simulate_commits(apps, replace(service, pool=pool), seed=seed, horizon=420.0)
    row["pool: nodes"] = float(pooled.nodes_at(420.0))
    for name, one in (("given", found), ("pool", pooled)):
        row[f"{name}: stall"] = sum(seen.stall for seen in one.made)
    return row


def _placed(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figure 9.9."""
    stacked, apart = columns["stacking: fluctuation"], columns["bandwidth: fluctuation"]
    between = columns["interval: fluctuation"]
    read = "read off a plot for one draw of which nothing is given: within 1 GB/s"
    return [
        claim("stacking: A gets at least", 3, columns["stacking: least"], rounded(3, 2), "GB/s", read),
        claim("stacking: A gets at most", 11.5, columns["stacking: most"], rounded(11.5, 0.1), "GB/s",
              "printed with one decimal", _LINK_FITTED),
        claim("bandwidth: A gets at least", 9.5, columns["bandwidth: least"], rounded(9.5, 2), "GB/s",
              read, "fitted: the link; a node of its own gives all of it, less our noise"),
        claim("bandwidth: A gets at most", 11.5, columns["bandwidth: most"], rounded(11.5, 0.1), "GB/s",
              "printed with one decimal", _LINK_FITTED),
        direction("bandwidth fluctuates less than stacking by", "least", 100 * (1 - apart / stacked),
                  at_least(0.0)),
        direction("interval fluctuates less than stacking by", "between", 100 * (1 - between / stacked),
                  at_least(0.0)),
        direction("bandwidth fluctuates less than interval by", "least", 100 * (1 - apart / between),
                  at_least(0.0)),
        claim("bandwidth: nodes with agents", 2, columns["bandwidth: nodes"], exactly(2), "nodes",
              "said in words; of four nodes whose least busy one is taken, none stays without an agent"),
        claim("interval: nodes with agents", 2, columns["interval: nodes"], exactly(2), "nodes",
              "said in words, as of bandwidth"),
    ]  # fmt: skip


def _spread(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figure 9.10."""
    balanced = [
        claim(f"at {time:g} s the fullest and the emptiest node differ by", "balanced",
              columns[f"uneven at {time:g} s"], (0.0, 1.0), "agents",
              "no number is printed: one agent at most")
        for time in _LOOKS[1:]
    ]  # fmt: skip
    return [
        claim("at 150 s LULESH's agents are on nodes 1 and 2, in", 100, 100 * columns["as said"],
              exactly(100), "%", "of all seeds; an event log of one run is quoted"),
        *balanced,
    ]  # fmt: skip


def _placement_beside(columns: dict[str, np.ndarray]) -> list[Figure]:
    gain = change(columns["bandwidth: mean"], columns["stacking: mean"])
    asked = "nodes that a pool asks for by itself, busy from 10 % of a link"
    return [
        *(figure(f"{name}: A gets on average", columns[f"{name}: mean"], "GB/s") for name in _RULES),
        figure("bandwidth over stacking", gain, "%"),
        figure(asked, columns["pool: nodes"], "nodes"),
        figure("nodes given one by one: all stand still for", columns["given: stall"], "s"),
        figure("nodes as a pool asks for them: all stand still for", columns["pool: stall"], "s"),
    ]
