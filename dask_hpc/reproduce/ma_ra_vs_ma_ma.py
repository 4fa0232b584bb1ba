"""Agents of a job that grows and shrinks."""

import itertools
from dataclasses import replace

import numpy as np

from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Outcome,
    around,
    at_least,
    claim,
    direction,
    exactly,
    figure,
    rounded,
)
from dask_hpc.simulator.checkpoint import (
    AgentRule,
    App,
    CommitResult,
    CommitService,
    Costs,
    SiteStore,
    SizeChange,
    simulate_commits,
)

_PART = 0.48e9  # bytes of one node
_LINK = 12.5e9
_SIZES = (1, 16, 8, 4)
#: commits after which it is resized
_WHEN = (26, 43, 53)
_COMMITS = 63
#: reads per node reached in the first phase, and on 16 nodes with MA-MA, as powers of two
_REACHED, _REACHED_MA = 18, 16
#: the same commits one by one, without pipelining (9.4.2.3)
_WHEN_SPILLING = (23, 43, 53)
#: 16 agents on two nodes are as fast as one alone
_AGENT = _LINK / 8
_SEND = _PART / _AGENT
#: one agent takes twice as long for 16 nodes as for one: 15 parts more are as long as all that one takes
_FIXED = 14 * _SEND
#: seconds of each read, beside its bytes
_READ = 1e-5
#: after the resize MA-MA is a fifth faster than MA-RA if the size is fixed, which divides what is fixed
_COPY = (_FIXED - (0.8 * _SEND - _SEND / 16) / 0.2) * 16 / 15
_COSTS = Costs(
    agent=_AGENT,
    copy=_PART / _COPY,
    message=_FIXED - _COPY,
    noise=0.05,
    launch=1.0,
    per_agent=0.2,
    connect=0.1,
)
_SERVICE = CommitService(nodes=2, link=_LINK, costs=_COSTS)
_RULE = AgentRule(count="fixed", rank="bandwidth", per_node=64)
_DOUBLED = "fitted: what is fixed, so that MA-RA doubles"
_CONSTANT = "fitted: the rate of an agent, so that MA-MA is constant"
_BOTH = "fitted: MA-RA doubles, and MA-MA is constant"
_SEVENFOLD = "what we put in: a first commit takes seven times as long on its way"
_HALVED = "what we put in: so many commits before the resize, each with twice the reads"
_EACH_READ = "what we put in: each read takes longer or shorter on its own"
_DIVIDED = "the formula itself: bytes over reads"
_ROOM = "the formula itself: all parts but the one there is room for"
_HOW = {"MA-RA": replace(_RULE, resize="rigid"), "MA-MA": replace(_RULE, resize="malleable")}


def run(bench: Bench) -> Outcome:
    """A job that grows to 16 nodes and shrinks again: as many agents as before (MA-RA), or as many for each
    node (MA-MA) (seed 000, 7.2, 9.4.2; digest 3.11).

    A commit takes a fixed time, the copy of a node's part, and what an agent needs for the parts of its
    nodes, one after the other. Three statements of the source fix these three, and the rest has to follow;
    where it does not, the note says what the source's own figures make of it.

    One node has one agent at first. After commit 26 the job has 16 nodes, then 8, then 4. With MA-RA the one
    agent then serves them all, which costs little when the size changes and much at each commit; with MA-MA
    there are as many agents as nodes, which is the other way round. "Growing" lets the bytes of a commit grow
    with the nodes, "fixed" divides the same bytes among them.
    """
    columns = bench.columns(_one_seed)
    claims = (*_growing(columns), *_fixed(columns), *_pipelined(columns))
    return Outcome(claims, _beside(columns))


def _play(
    rule: AgentRule,
    seed: int,
    fixed: bool = False,
    service: CommitService = _SERVICE,
    pipelined: bool = False,
    when: tuple[int, ...] = _WHEN,
) -> CommitResult:
    resizes = tuple(
        SizeChange(after, nodes, _PART if fixed else _PART * nodes)
        for after, nodes in zip(when, _SIZES[1:], strict=False)
    )
    app = App(
        "job", 1, _PART, 5.0, _COMMITS, rule=rule, resizes=resizes, reads=_halved if pipelined else None
    )
    return simulate_commits([app], service, seed=seed)


def _halved(commits: int) -> int:
    """Reads are half as large after each commit, until the next resize."""
    return int(2 ** min(18, commits - 1))


def _one_seed(seed: int) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, how in _HOW.items():
        for size in ("growing", "fixed"):
            found = _play(how, seed, size == "fixed")
            usual = [seen for seen in found.of("job") if not seen.is_first]
            for nodes in _SIZES:
                stalls = [seen.stall for seen in usual if seen.nodes == nodes]
                row[f"{name} {size} {nodes}"] = float(np.mean(stalls))
                row[f"{name} {size} {nodes} spread"] = float(np.std(stalls))
            row[f"{name} {size} first"] = found.of("job")[_WHEN[0]].stall
            row[f"{name} {size} second"] = found.of("job")[_WHEN[0] + 1].stall
            row[f"{name} {size} before"] = sum(seen.stall for seen in found.of("job")[: _WHEN[0]])
            row[f"{name} {size} resize"] = found.probes[1][2]
            row[f"{name} {size} all"] = sum(seen.stall for seen in found.made)
        reading = replace(_SERVICE, costs=replace(_COSTS, turn=_READ, noise=0.0))
        piped = list(_play(how, seed, service=reading, pipelined=True).of("job"))
        row |= {f"{name} piped {seen.number}": seen.stall for seen in piped}
        for nodes in _SIZES:
            stalls = [seen.stall for seen in piped if seen.nodes == nodes and not seen.is_first]
            row[f"{name} piped on {nodes}"] = float(np.mean(stalls))
    return row | _reached(seed) | _fluctuation(seed)


def _reached(seed: int) -> dict[str, float]:
    """Powers of two that reads per node reach on 16 nodes by the time at which MA-MA has reached its own: the
    job is resized then, whatever its agents are at."""
    grows = _REACHED + 1
    shrinks = grows + _REACHED_MA + 1
    service = replace(_SERVICE, costs=replace(_COSTS, turn=_READ))
    ours = _play(_HOW["MA-MA"], seed, service=service, pipelined=True, when=(grows, shrinks)).of("job")
    until = ours[shrinks - 1].end
    theirs = _play(_HOW["MA-RA"], seed, service=service, pipelined=True, when=(grows,)).of("job")
    return {
        "MA-MA first": float(sum(seen.nodes == 1 for seen in ours) - 1),
        "MA-MA reached": float(sum(seen.nodes == 16 for seen in ours) - 1),
        "MA-RA reached": float(sum(seen.nodes == 16 and seen.end <= until for seen in theirs) - 1),
    }


def _fluctuation(seed: int) -> dict[str, float]:
    """How far MA-RA's commits on 16 nodes are from what they take without noise."""
    row = {}
    for name, pipelined in (("plain", False), ("piped", True)):
        noisy, calm = (
            _play(_HOW["MA-RA"], seed, False, replace(_SERVICE, costs=costs), pipelined).of("job")
            for costs in (replace(_COSTS, turn=_READ), replace(_COSTS, turn=_READ, noise=0.0))
        )
        apart = [
            one.stall - two.stall
            for one, two in zip(noisy, calm, strict=True)
            if one.nodes == 16 and not one.is_first
        ]
        row[f"MA-RA {name} fluctuation"] = float(np.std(apart))
    return row


def _growing(columns: dict[str, np.ndarray]) -> list[Claim]:
    """Figures 9.12a and 9.12b."""
    rigid = {nodes: columns[f"MA-RA growing {nodes}"] for nodes in _SIZES}
    ratio = {nodes: columns[f"MA-MA growing {nodes}"] for nodes in _SIZES}
    own = {
        16: "a doubled MA-RA over a constant MA-MA make 100 %",
        8: "MA-RA hardly less than doubled over a constant MA-MA makes nearly 100 %",
        4: "MA-RA doubled and then 36 % faster, over a constant MA-MA, make 28 % at most",
    }
    better = [
        claim(f"{nodes} nodes: MA-RA takes longer than MA-MA by", 110 if nodes == 16 else 58,
              100 * (rigid[nodes] / ratio[nodes] - 1), (57.5, 110.5), "%",
              f"58 to 110 % at every change of size; {own[nodes]}", _BOTH)
        for nodes in _SIZES[1:]
    ]  # fmt: skip
    return [
        claim("bytes of a commit on 8 nodes", 3.48, 8 * _PART / 1e9, rounded(3.48, 0.01), "GB",
              "so in its table; 8 times 0.48 make 3.84, which it has elsewhere",
              "the formula itself: 8 parts of 0.48 GB"),
        claim("MA-RA: 16 nodes take longer than one, times", 2, rigid[16] / rigid[1], around(2, 0.2),
              "", "doubled: within a tenth", _DOUBLED),
        claim("MA-RA: 8 nodes are faster than 16 by", "hardly", 100 * (1 - rigid[8] / rigid[16]),
              (0.0, 10.0), "%", "no number is printed: within 10 %; half of what 16 nodes add goes"),
        claim("MA-RA: 4 nodes are faster than 8 by", 36, 100 * (1 - rigid[4] / rigid[8]), around(36, 5),
              "%", "about 36: within 5; 58 % over a constant MA-MA at 4 nodes and hardly less than 110 at 8 "
              "make 25 at most"),
        *[
            claim(f"MA-MA: {nodes} nodes over one", "almost constant",
                  100 * (ratio[nodes] / ratio[1] - 1), around(0, 10), "%",
                  "no number is printed: within 10 %", _CONSTANT)
            for nodes in _SIZES[1:]
        ],
        *better,
        direction("growing to 16 nodes costs MA-MA more than MA-RA by", "much more",
                  columns["MA-MA growing resize"] - columns["MA-RA growing resize"], at_least(0.0),
                  "s", "what we put in: seconds to launch each agent"),
        direction("the first commit after that is faster with MA-MA by", "faster",
                  columns["MA-RA growing first"] - columns["MA-MA growing first"], at_least(0.0), "s",
                  f"{_BOTH}; a first commit takes seven times as long on its way"),
    ]  # fmt: skip


def _fixed(columns: dict[str, np.ndarray]) -> list[Claim]:
    """9.4.2.2: 0.48 GB in all."""
    rigid, ratio = columns["MA-RA fixed 16"], columns["MA-MA fixed 16"]
    before = columns["MA-RA fixed before"] - columns["MA-MA fixed before"]
    spreads = columns["MA-RA fixed 16 spread"] - columns["MA-MA fixed 16 spread"]
    return [
        claim("fixed size: the two differ until commit 26 by", "equal", before, exactly(0), "s",
              "as long as there is one node there is one agent", "one and the same run until then"),
        *[
            direction(f"fixed size: commit 27 takes {name} longer than commit 28 by", "a spike",
                      columns[f"{name} fixed first"] - columns[f"{name} fixed second"], at_least(0.0),
                      "s", _SEVENFOLD)
            for name in _HOW
        ],
        *[
            direction(f"fixed size: 16 nodes are faster than one with {name} by", "faster",
                      100 * (1 - columns[f"{name} fixed 16"] / columns[f"{name} fixed 1"]),
                      at_least(0.0))
            for name in _HOW
        ],
        claim("fixed size: MA-MA is faster than MA-RA by up to", 20, 100 * (1 - ratio / rigid),
              around(20, 5), "%", "printed as up to 20: within 5", "fitted: the copy's share, to this"),
        direction("fixed size: MA-RA's commits spread more than MA-MA's by", "fluctuates", spreads,
                  at_least(0.0), "s"),
        claim("fixed size: bytes of a process on one node over those on 16", 768, (1 / 48) / (1 / 768),
              exactly(768), "", "said of the size; 1/48 and 1/768 of it, its own figures, make 16",
              "the formula itself: 1/48 over 1/768"),
    ]  # fmt: skip


def _pipelined(columns: dict[str, np.ndarray]) -> list[Claim]:
    """9.4.2.3: reads that become smaller, and agents without room."""
    gaps = np.array(
        [
            columns[f"MA-RA piped {number}"] - columns[f"MA-MA piped {number}"]
            for number in range(1, _COMMITS + 1)
        ]
    )
    first = [float(columns[f"MA-RA piped {number}"][0]) for number in range(2, 20)]
    short = replace(_SERVICE, buffer=_PART, store=SiteStore(bandwidth=5e9), costs=replace(_COSTS, noise=0.0))
    spilling, plain = (
        _play(_HOW["MA-RA"], 0, service=one, when=_WHEN_SPILLING).of("job")
        for one in (short, replace(short, buffer=float("inf")))
    )
    writes = {seen.nodes: seen.spilled for seen in spilling}
    more = [(one.nodes, one.stall - two.stall) for one, two in zip(spilling, plain, strict=True)]
    extra = dict(more)
    on_16 = [seconds for nodes, seconds in more if nodes == 16]
    differ = {
        nodes: columns[f"MA-RA piped on {nodes}"] - columns[f"MA-MA piped on {nodes}"] for nodes in (16, 8)
    }
    damped = 100 * (1 - columns["MA-RA piped fluctuation"] / columns["MA-RA plain fluctuation"])
    return [
        claim("reads per node reached on one node, as a power of two", _REACHED, columns["MA-MA first"],
              exactly(_REACHED), "", "read off a plot", _HALVED),
        claim("the same on 16 nodes with MA-MA", _REACHED_MA, columns["MA-MA reached"],
              exactly(_REACHED_MA), "", "read off a plot", _HALVED),
        claim("the same with MA-RA, by then", 12, columns["MA-RA reached"], rounded(12), "",
              "read off a plot: what rounds to it, on average"),
        claim("MA-RA lags behind MA-MA by", 4, columns["MA-MA reached"] - columns["MA-RA reached"],
              rounded(4), "commits", "said to be 2^4, of reads that double: what rounds to four, on average"),
        direction("pipelining damps MA-RA's fluctuation on 16 nodes by", "damps", damped, at_least(0.0), "%",
                  _EACH_READ),
        claim("MA-RA is slower than MA-MA on 8 nodes over on 16", "constant", differ[8] / differ[16],
              around(1, 0.1), "", "no number is printed: within a tenth; half of what an agent serves goes"),
        claim("a read at 2^18 reads", 1830, _PART / 2**18, rounded(1830, 10), "B",
              "printed in tens of bytes", _DIVIDED),
        claim("a read at 2^12 reads", 0.23, _PART / 2**12 / 1e6, rounded(0.23, 0.01), "MB",
              "0.48 GB over 2^12 make 0.117 MB; 0.23 MB is 2^11", _DIVIDED),
        claim("smaller reads: the least that a commit is slower than the one before", "slower",
              min(b - a for a, b in itertools.pairwise(first)), at_least(0.0), "s",
              "a direction only; 18 commits of one node", "what we put in: each read costs 10 us"),
        claim("smaller reads: the least that MA-RA is slower than MA-MA", "throughout", float(gaps.min()),
              at_least(0.0), "s", "a direction only, in all commits; on one node both are one agent"),
        *[
            claim(f"one agent with room for one part: writes to the store on {nodes} nodes", writes_said,
                  writes[nodes], exactly(writes_said), "", "15 on 16 nodes, in proportion on fewer", _ROOM)
            for nodes, writes_said in ((1, 0), (16, 15), (8, 7), (4, 3))
        ],
        claim("what they cost on 8 nodes over on 16", "in proportion", extra[8] / extra[16],
              around(7 / 15, 0.02), "", "7 of 15 writes; within rounding", _ROOM),
        claim("what they cost on 16 nodes differs between two commits by", "constant",
              100 * (max(on_16) / min(on_16) - 1), around(0, 5), "%", "no number is printed: within 5 %",
              _ROOM),
    ]  # fmt: skip


def _beside(columns: dict[str, np.ndarray]) -> list[Figure]:
    figures = []
    for size in ("growing", "fixed"):
        for name in _HOW:
            one: np.ndarray = columns[f"{name} {size} all"] / 60
            figures.append(figure(f"{size} size, {_COMMITS} commits: standing still with {name}", one, "min"))
    for name in _HOW:
        one = columns[f"{name} growing resize"]
        figures.append(figure(f"growing to 16 nodes with {name}", one, "s"))
    return figures
