"""An array laid out anew."""

import random
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from dask_hpc.planning.moves.layout import Layout
from dask_hpc.planning.moves.redistribution import Blocks, Index, RedistributionPlan, redistribution
from dask_hpc.reproduce.claim import Bench, Claim, Figure, Outcome, around, claim, exactly, figure, rounded
from dask_hpc.simulator.network import NetworkFlow, ends
from dask_hpc.strategies.checkpoint.agent_rule import shares

_BYTES = 1.5e9
_ELEMENTS = 16 * 3 * 5 * 7  # that many parts are even
_LINK = 12.5e9
#: of one stream: 16 agents on two nodes are then 16 times as fast as one
_STREAM = _LINK / 8
_NOISE = 0.05
_AGENTS = (1, 2, 4, 8, 16)
_SIXTEEN = "fitted: the rate of a stream, so that 16 agents on two nodes do not wait for each other"
_EQUAL = "the formula itself: equal parts at equal rates, one after the other"
_PUBLISHED = {2: 2.0, 4: 4.0, 8: 8.0, 16: 17.0}


def run(bench: Bench) -> Outcome:
    """An array laid out anew after a resize (seed 000, 7.4, 9.4.3; digest 2.34, 3.12).

    Three ways: by agents, each of which sends its nodes their parts one after the other; through a lead node,
    which gathers before the resize and scatters after it; and from peer to peer, by the plan that moves
    fewest bytes. How many bytes a plan moves is ``planning.moves.redistribution``'s word; how long that
    takes, with fair shares of all links, ``simulator.network``'.
    """
    columns = bench.columns(_one_seed)
    return Outcome([*_by_agents(columns), *_shape(), *_naive(columns)], _beside(columns))


def _times(transfers: Iterable[NetworkFlow]) -> dict[object, float]:
    """When each ends; the links of all nodes are alike."""
    known = list(transfers)
    links = {link: _LINK for one in known for link in one.links}
    return dict(ends(known, links))


def _agents(agents: int, nodes: int, dice: random.Random | None) -> list[float]:
    """When each node has its part: agents on two nodes, each with its own run of nodes."""
    transfers, first = [], 0
    for agent, share in enumerate(shares(nodes, agents)):
        for node in range(first, first + share):
            before = node - 1 if node > first else None
            links = (("agents", agent % 2), ("in", node))
            transfers.append(NetworkFlow(node, _BYTES / nodes, links, _rate(dice), after=before))
        first += share
    found = _times(transfers)
    return [found[node] for node in range(nodes)]


def _lead(before: int, after: int, dice: random.Random | None, rate: float = _STREAM) -> float:
    """Gathered from ``before`` nodes to the first of them, and scattered to ``after`` nodes."""
    steps = [
        (nodes, node, way)
        for nodes, way in ((before, "gather"), (after, "scatter"))
        for node in range(1, nodes)
    ]
    transfers = []
    for place, (nodes, node, way) in enumerate(steps):
        links = (("lead", way), (way, node))
        transfers.append(
            NetworkFlow(place, _BYTES / nodes, links, _rate(dice, rate), after=place - 1 if place else None)
        )
    return max(_times(transfers).values(), default=0.0)


def _rate(dice: random.Random | None, rate: float = _STREAM) -> float:
    return rate if dice is None else rate / max(0.1, dice.gauss(1.0, _NOISE))


def _by_rank(before: int, after: int) -> float:
    """The share of the array that moves if the first nodes stay, and each has the block of its number."""
    stays = 0.0
    for rank in range(min(before, after)):
        begin, end = max(rank / before, rank / after), min((rank + 1) / before, (rank + 1) / after)
        stays += max(0.0, end - begin)
    return 1 - stays


def _plan(before: int, after: int) -> RedistributionPlan:
    """In even blocks on so many nodes before and after."""
    edges = tuple(round(part * _ELEMENTS / before) for part in range(before + 1))
    holders: dict[Index, tuple[str, ...]] = {(part,): (f"n{part}",) for part in range(before)}
    blocks = Blocks(("x",), (edges,), holders, _BYTES / _ELEMENTS)
    pool = [f"n{node}" for node in range(max(before, after))]
    return redistribution(blocks, Layout.read("block"), nodes=after, candidates=pool)


def _peers(plan: RedistributionPlan, dice: random.Random | None) -> float:
    """Every piece that moves, all at once, each a stream of its own."""
    moves = [
        (piece.source, target, piece.nbytes)
        for chunk in plan.chunks
        for piece in chunk.pieces
        for target in chunk.targets
        if piece.source != target
    ]
    transfers = [
        NetworkFlow(number, nbytes, (("out", source), ("in", target)), _rate(dice))
        for number, (source, target, nbytes) in enumerate(moves)
    ]
    return max(_times(transfers).values(), default=0.0)


def _one_seed(seed: int) -> dict[str, float]:
    dice = random.Random(seed)
    row = {f"{agents} agents": max(_agents(agents, 16, dice)) for agents in _AGENTS}
    row["8 agents shrink"] = max(_agents(8, 8, dice))
    row["lead grows"], row["lead shrinks"] = _lead(1, 16, dice), _lead(16, 8, dice)
    row["peers grow"], row["peers shrink"] = _peers(_plan(1, 16), dice), _peers(_plan(16, 8), dice)
    before, after = dice.randint(1, 16), dice.randint(1, 16)
    plan = _plan(before, after)
    row["over bound"] = plan.bytes_moved / plan.lower_bound if plan.lower_bound else 1.0
    row["by rank"] = _by_rank(before, after) - plan.bytes_moved / _BYTES
    return row


def _by_agents(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figure 9.16."""
    claims = []
    for agents, published in _PUBLISHED.items():
        note = "a whole factor is printed: within a tenth"
        if agents == 16:
            note = (
                "16 nodes served at once instead of one by one are 16 times as fast at most, and so is ours"
            )
        band = rounded(17) if agents == 16 else around(published, published / 10)
        ours = columns["1 agents"] / columns[f"{agents} agents"]
        text = f"1 to 16 nodes: {agents} agents are faster than one, times"
        claims.append(claim(text, published, ours, band, "", note, _SIXTEEN))
    return claims


def _shape() -> list[Claim]:
    """Figure 9.17: how long each node waits."""
    alike = _agents(16, 16, None)
    claims = [
        claim("16 agents: the last node has its part later than the first by", "equal",
              100 * (max(alike) / min(alike) - 1), around(0, 5), "%", "no number is printed: within 5 %",
              _EQUAL),
    ]  # fmt: skip
    for agents in (1, 2, 4, 8):
        waits = _agents(agents, 16, None)
        teeth = 1 + sum(b < a for a, b in pairwise(waits))
        claims.append(claim(f"{agents} agents: teeth of the saw of waiting times by node", agents, teeth,
                            exactly(agents), "", "as many peaks as agents", _EQUAL))  # fmt: skip
    steps = np.diff(_agents(2, 16, None)[:8])
    claims.append(
        claim("2 agents, nodes 0 to 7: steps of waiting times differ by", "linear",
              100 * float(steps.max() / steps.min() - 1), around(0, 5), "%",
              "no number is printed: within 5 %", _EQUAL)
    )  # fmt: skip
    return claims


def _naive(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figure 9.18; in words it is gather and scatter, in its title MPI-IO."""
    grow = columns["lead grows"] / columns["16 agents"]
    shrink = columns["lead shrinks"] / columns["8 agents shrink"]
    why = "one stream at a time, as fast as an agent's; as fast as a link it is beside these claims"
    return [
        claim("1 to 16 nodes: agents are faster than a lead node, times", 7, grow, rounded(7), "",
              f"a whole factor: whatever rounds to it; {why}"),
        claim("16 to 8 nodes: agents are faster than a lead node, times", 9, shrink, rounded(9), "",
              f"a whole factor: whatever rounds to it; {why}"),
    ]  # fmt: skip


def _beside(columns: dict[str, np.ndarray]) -> list[Figure]:
    figures = []
    for name, how in (
        ("16 agents", "1 to 16 nodes by 16 agents"), ("lead grows", "1 to 16 nodes through a lead node"),
        ("peers grow", "1 to 16 nodes from peer to peer"), ("8 agents shrink", "16 to 8 nodes by 8 agents"),
        ("lead shrinks", "16 to 8 nodes through a lead node"),
        ("peers shrink", "16 to 8 nodes from peer to peer"),
    ):  # fmt: skip
        one = 1000 * columns[name]
        figures.append(figure(how, one, "ms"))
    to_agents = 1000 * _BYTES / _LINK
    figures.append(
        figure("what agents need before: the commit of one node, at the rate of its link", to_agents, "ms")
    )
    for before, after in ((1, 16), (16, 8)):
        fast = _lead(before, after, None, _LINK) / max(_agents(after, after, None))
        figures.append(
            figure(f"{before} to {after} nodes: agents over a lead node that fills its link", fast)
        )
    for before, after in ((1, 16), (16, 8)):
        plan = _plan(before, after)
        figures += [
            figure(f"{before} to {after} nodes: bytes moved, our plan", 100 * plan.bytes_moved / _BYTES, "%"),
            figure(f"{before} to {after} nodes: bytes moved by rank", 100 * _by_rank(before, after), "%"),
        ]
    over, by_rank = columns["over bound"], 100 * columns["by rank"]
    figures += [
        figure("random sizes from 1 to 16: bytes moved over the lower bound", over),
        figure("random sizes from 1 to 16: by rank more moves by, of the array", by_rank, "%"),
    ]  # fmt: skip
    return figures
