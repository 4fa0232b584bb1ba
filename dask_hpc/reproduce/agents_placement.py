"""On which nodes agents are least in each other's way (seed 000, 7.1.2, 9.4.1.2, 9.4.1.3; digest 3.7, 3.8).

One application commits all the time; five others arrive, and a rule says where the agent of each runs.
What the first one's commits get of a link shows whether the others keep out of its way: "stacking" puts
all on its node, "bandwidth" on the node with the least traffic, "interval" on the one with the fewest
commits. Then nodes for agents are given one by one, and agents spread over them when they next ask.

Sizes and intervals are not given, so the absolute minimum under stacking is only roughly comparable; the
order of the rules is what counts. The last figures let the pool's own rule ask for nodes instead.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Outcome,
    at_least,
    change,
    claim,
    direction,
    exactly,
    mean,
    rounded,
)
from dask_hpc.simulator.checkpoint import AgentRule, App, Costs, Pool, Service, simulate_commits

_LINK = 11.5e9
_SERVICE = Service(nodes=4, link=_LINK, costs=Costs(agent=_LINK, noise=0.05))
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


def run(bench: Bench) -> Outcome:
    """Both experiments for each seed."""
    rows = bench.each(_one_seed, [(seed,) for seed in range(bench.seeds)])
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    claims = (*_placed(columns), *_spread(columns))
    return Outcome(claims, (*_ASSUMPTIONS, _drawn(bench)), tuple(_beside(columns)))


_ASSUMPTIONS = (
    "Link, not given: 11.5 GB/s, the most that is printed. 5 % of noise on each transfer.",
    "Application A: 2 GB every 0.2 s, from which it follows that it fills most of a link.",
    "Bandwidth and interval of a node: over 30 s. What an agent brought before it moved counts where it is "
    "now, or all agents would run to a node that has just joined.",
    "Nodes one by one: the second at 40 s, as is said; the others at 200 and 330 s. Applications at 0, 100, "
    "180 and 280 s with 0.008, 1, 1.4 and 2.3 GB every 1, 2, 2 and 3 s: none of it is given. Every 20 s "
    "they ask whether their agents should move.",
)


def _drawn(bench: Bench) -> str:
    return (
        f"The five others: {bench.seeds} draws of 1 to 8 GB every 1 to 5 s, one more every 20 s, the same "
        "for every rule."
    )


def _one_seed(seed: int) -> dict[str, float]:
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
        row[f"{name}: stall"] = sum(seen.stall for seen in one.log.commits)
    return row


def _placed(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figure 9.9."""
    stacked, apart = columns["stacking: fluctuation"], columns["bandwidth: fluctuation"]
    between = columns["interval: fluctuation"]
    read = "read off a plot for one draw of which nothing is given: within 1 GB/s"
    return [
        claim("stacking: A gets at least", 3, mean(columns["stacking: least"]), rounded(3, 2), "GB/s", read),
        claim("stacking: A gets at most", 11.5, mean(columns["stacking: most"]), rounded(11.5, 0.1), "GB/s",
              "printed with one decimal; our link was fitted to this"),
        claim("bandwidth: A gets at least", 9.5, mean(columns["bandwidth: least"]), rounded(9.5, 2), "GB/s",
              f"{read}; our noise"),
        claim("bandwidth: A gets at most", 11.5, mean(columns["bandwidth: most"]), rounded(11.5, 0.1), "GB/s",
              "printed with one decimal; our link was fitted to this"),
        direction("bandwidth fluctuates less than stacking by", "least", mean(100 * (1 - apart / stacked)),
                  at_least(0.0)),
        direction("interval fluctuates less than stacking by", "between", mean(100 * (1 - between / stacked)),
                  at_least(0.0)),
        direction("bandwidth fluctuates less than interval by", "least", mean(100 * (1 - apart / between)),
                  at_least(0.0)),
        claim("bandwidth: nodes with agents", 2, mean(columns["bandwidth: nodes"]), exactly(2), "nodes",
              "said in words; of four nodes whose least busy one is taken, none stays without an agent"),
        claim("interval: nodes with agents", 2, mean(columns["interval: nodes"]), exactly(2), "nodes",
              "said in words, as of bandwidth"),
    ]  # fmt: skip


def _spread(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figure 9.10."""
    balanced = [
        claim(f"at {time:g} s the fullest and the emptiest node differ by", "balanced",
              mean(columns[f"uneven at {time:g} s"]), (0.0, 1.0), "agents",
              "no number is printed: one agent at most")
        for time in _LOOKS[1:]
    ]  # fmt: skip
    return [
        claim("at 150 s LULESH's agents are on nodes 1 and 2, in", 100, mean(100 * columns["as said"]),
              exactly(100), "%", "of all seeds; an event log of one run is quoted"),
        *balanced,
    ]  # fmt: skip


def _beside(columns: dict[str, np.ndarray]) -> list[Figure]:
    figures = []
    for name in _RULES:
        one = mean(columns[f"{name}: mean"])
        figures.append(Figure(f"{name}: A gets on average", one.mean, "GB/s", one.half_width))
    gain = change(columns["bandwidth: mean"], columns["stacking: mean"])
    figures.append(Figure("bandwidth over stacking", gain.mean, "%", gain.half_width))
    nodes = mean(columns["pool: nodes"])
    asked = "nodes that a pool asks for by itself, busy from 10 % of a link"
    figures.append(Figure(asked, nodes.mean, "nodes", nodes.half_width))
    for name, how in (("given", "nodes given one by one"), ("pool", "nodes as a pool asks for them")):
        one = mean(columns[f"{name}: stall"])
        figures.append(Figure(f"{how}: all stand still for", one.mean, "s", one.half_width))
    return figures
