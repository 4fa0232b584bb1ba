"""Restart, multilevel, recovery, redundancy on 1 to 100 % of a machine (seed 003, chapters 3 and 4)."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

from dask_hpc.planning.resilience.hardware import Calculation, Case, Hardware
from dask_hpc.planning.resilience.recovery import recovery
from dask_hpc.planning.resilience.redundancy import redundancy
from dask_hpc.planning.resilience.rollback import multilevel, restart
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
)
from dask_hpc.reproduce.resilience_reliability import (
    CR,
    ML,
    PR,
    REDUNDANCIES,
    SYSTEMS,
    TWICE,
    Printed,
    Techniques,
    but,
    by_digest,
    least,
    play_all,
)

#: bytes of a node, and the share of the time that is messages (Table 4.1)
_TYPES = {"L32": (32e9, 0.0), "L64": (64e9, 0.0), "H32": (32e9, 0.75), "H64": (64e9, 0.75)}
_SIZES = (1, *range(10, 101, 10))
_HALF = "redundancy 1.5"
_FIVE = (CR, ML, PR, _HALF, TWICE)
#: digest of 003, 6.3: efficiencies of the five by type and size, two of them from a simulation of few trials
_DIGEST = {
    "L32": {1: (0.987, 0.988, 0.994, 0.989, 1.000), 10: (0.871, 0.936, 0.964, 0.887, 0.999),
            25: (0.680, 0.866, 0.907, 0.731, 0.994), 50: (0.402, 0.754, 0.796, 0.468, 0.982),
            75: (0.204, 0.638, 0.689, 0, 0), 100: (0.089, 0.512, 0.564, 0, 0)},
    "L64": {1: (0.982, 0.983, 0.995, 0.987, 1.000), 10: (0.818, 0.910, 0.947, 0.843, 0.998),
            25: (0.557, 0.811, 0.844, 0.623, 1.000), 50: (0.232, 0.647, 0.713, 0.298, 0.988),
            75: (0.071, 0.468, 0.527, 0, 0), 100: (0.016, 0.274, 0.312, 0, 0)},
    "H32": {1: (0.987, 0.988, 0.926, 0.720, 0.571), 10: (0.871, 0.936, 0.892, 0.652, 0.571),
            25: (0.680, 0.866, 0.840, 0.528, 0.568), 50: (0.402, 0.754, 0.739, 0.344, 0.562),
            75: (0.204, 0.638, 0.637, 0, 0), 100: (0.089, 0.512, 0.531, 0, 0)},
    "H64": {1: (0.982, 0.983, 0.925, 0.717, 0.571), 10: (0.818, 0.910, 0.876, 0.615, 0.570),
            25: (0.557, 0.811, 0.808, 0.448, 0.565), 50: (0.232, 0.647, 0.658, 0.220, 0.552),
            75: (0.071, 0.468, 0.494, 0, 0), 100: (0.016, 0.274, 0.298, 0, 0)},
}  # fmt: skip
#: digest of 003, 6.5
_SYSTEMS: Mapping[str, Printed] = {
    "small scale": (0.708, 0.838, 0.963),
    "sunway": (0.461, 0.676, 0.925),
    "exascale": (0.050, 0.232, 0.79),
}


def run(bench: Bench) -> Outcome:
    """Which protocol is best on how much of a machine (seed 003, 3.5.3 and 4.6; digest E3.2, E4.1, 6.3).

    Chapter 4: four types of applications on 1 to 100 % of an exascale machine; each protocol at its optimum,
    by its exact mean time. The source simulates intervals that are optimal by its equations. Chapter 3:
    three systems of today and tomorrow, as in resilience-reliability.

    Not ours: a size from which recovery is ahead of multilevel, where nothing is sent. Messages that are
    logged cost nothing there, and recovery is ahead on any number of nodes.

    To try another size or type::

        dask-hpc plan resilience --nodes 60000 --run 24h --memory 32GB --redundancy 2
    """
    table = {(kind, share): _five(kind, share) for kind in _TYPES for share in _SIZES}
    systems = {name: Techniques(name) for name in SYSTEMS}
    play_all(bench, systems.values())
    claims = [*_best(table), *_losses(table), *_crossing(table), *_by_table(), *_scaling(systems)]
    beside = [*_readings(), *(line for one in systems.values() for line in one.figures())]
    return Outcome(claims, beside)


_Table = Mapping[tuple[str, int], Mapping[str, float]]


@cache
def _five(kind: str, share: int, all_write: bool = False) -> Mapping[str, float]:
    """Efficiencies of the five protocols at their optima, in per cent."""
    machine, (memory, messages) = Hardware(), _TYPES[kind]
    nodes = machine.nodes * share // 100
    case = Case(Calculation(nodes=nodes, work=86400.0, memory=memory, messages=messages), machine)
    ways = [restart(case), multilevel(case), recovery(case)]
    ways += [redundancy(case, degree, all_write=all_write) for degree in (1.5, 2.0)]
    return {way.protocol: 100 * way.efficiency for way in ways}


def _best(table: _Table) -> list[Claim]:
    best = {where: max(row, key=row.__getitem__) for where, row in table.items()}
    half = [share for share in _SIZES if share <= 50]
    twice = {kind: sum(best[kind, share] == TWICE for share in half) for kind in ("L32", "L64")}
    above = sum(row[TWICE] > 0 for (_, share), row in table.items() if share > 50)
    never = sum(name in (CR, _HALF) for name in best.values())
    return [
        *(claim(f"{kind}: sizes up to 50 % at which redundancy 2 is best", len(half), wins,
                exactly(len(half)), "", "of six") for kind, wins in twice.items()),
        claim("types and sizes above 50 % at which redundancy 2 can be had", 0, above, exactly(0), "",
              "of 20", "what we put in: it takes twice the nodes, and the machine has one each"),
        claim("types and sizes at which restart or redundancy 1.5 is best", 0, never, exactly(0), "",
              "of 44"),
    ]  # fmt: skip


def _losses(table: _Table) -> list[Claim]:
    """What messages and memory take from each protocol, as a share of its efficiency."""

    def gap(more: Sequence[str], less: Sequence[str], before: str, after: str) -> float:
        """How much more the first lose than the second, where all can be had, at least."""
        gaps = []
        for share in _SIZES:
            rows = table[before, share], table[after, share]
            lost = {name: 100 * (1 - rows[1][name] / rows[0][name]) for name in _FIVE if rows[0][name]}
            gaps += [lost[a] - lost[b] for a in more if a in lost for b in less if b in lost]
        return min(gaps)

    sent = "what we put in: only messages that are logged or sent twice cost anything"
    messages, memory = (("L32", "H32"), ("L64", "H64")), (("L32", "L64"), ("H32", "H64"))
    return [
        *(direction(f"{before} to {after}: recovery and redundancy lose more than restart and multilevel, by "
                    "at least", "more", gap((PR, _HALF, TWICE), (CR, ML), before, after), at_least(0),
                    by_construction=sent) for before, after in messages),
        *(direction(f"{before} to {after}: restart, multilevel and redundancy 1.5 lose more than recovery "
                    "and redundancy 2, by at least", "more", gap((CR, ML, _HALF), (PR, TWICE), before, after),
                    at_least(0)) for before, after in memory),
    ]  # fmt: skip


def _crossing(table: _Table) -> list[Claim]:
    """Whether multilevel leads over recovery, and where."""
    ahead = {
        kind: {share: table[kind, share][ML] - table[kind, share][PR] for share in _SIZES} for kind in _TYPES
    }
    found = []
    for kind, by in ahead.items():
        changes, published = sum((a > 0) != (b > 0) for a, b in pairwise(by.values())), int(kind != "H32")
        text = f"{kind}: sizes at which multilevel and recovery change places"
        note = "with all types but H32 one leads up to some size, and then the other"
        found.append(claim(text, published, changes, exactly(published), "", note))
    last = max((share for share, by in ahead["H64"].items() if by > 0), default=0)
    return [
        *found,
        claim("H64: multilevel leads up to", "1 to 50 %", last, (1, 50), "%", "depending on the type"),
        *(direction(f"{kind} on the whole machine: recovery is ahead of multilevel by", "ahead", -by[100],
                    at_least(0), "points") for kind, by in ahead.items()),
    ]  # fmt: skip


def _by_table() -> list[Claim]:
    """What the digest computed, two of five columns by simulation of a few trials; all nodes write there."""
    far = dict.fromkeys(_FIVE, 0.0)
    for kind, rows in _DIGEST.items():
        for share, row in rows.items():
            ours = _five(kind, share, all_write=True)
            for name, theirs in zip(_FIVE, row, strict=True):
                far[name] = max(far[name], ours[name] / 100 - theirs, key=abs)
    trials = {PR: 60, _HALF: 25, TWICE: 25}
    return [
        claim(f"chapter 4, efficiency of {name}: farthest from (digest)", 0, value, around(0, 0.01), "",
              "within 0.01 at 24 types and sizes"
              + (f"; simulated with {trials[name]} trials, which it puts at 0.03" if name in trials else ""))
        for name, value in far.items()
    ]  # fmt: skip


def _readings() -> list[Figure]:
    """Whether one node of each pair writes to the store, or both."""
    how = {"one of each pair writes": False, "all nodes write": True}
    return [
        figure(f"{kind}, 50 %: {name} if {who}", _five(kind, 50, all_write)[name], "%")
        for kind in _TYPES
        for name in (_HALF, TWICE)
        for who, all_write in how.items()
    ]


def _scaling(seen: Mapping[str, Techniques]) -> list[Claim]:
    """Chapter 3: three systems."""
    large, today, all_of_them = seen["exascale"], seen["sunway"], seen.values()
    cut = (CR, *REDUNDANCIES[:2])
    both = least((large.efficiency(PR), large.efficiency(TWICE))) - large.efficiency(*but(PR, TWICE))
    cut_off = least(large.energy(*cut) / large.energy(name) - 1 for name in but(*cut))
    return [
        direction("exascale: recovery and redundancy 2 are more efficient than all others, by at least",
                  "only these scale", both, at_least(0), "points"),
        direction("on every system recovery is more efficient than redundancy, by at least", "more",
                  least(one.lead(PR, *REDUNDANCIES) for one in all_of_them), at_least(0), "points"),
        direction("on every system redundancy 2 takes more energy than recovery, by at least", "much more",
                  least(one.more_energy(TWICE) for one in all_of_them), at_least(0)),
        direction("on every system any other takes more energy than recovery, by at least", "more",
                  least(one.more_energy(*but(PR)) for one in all_of_them), at_least(0)),
        direction("sunway: restart takes more energy than partial redundancy, by", "more",
                  100 * (today.energy(CR) / today.energy(*REDUNDANCIES[:-1]) - 1), at_least(0)),
        direction("sunway: restart is less efficient than any other, by at least", "far less",
                  least(-today.lead(CR, name) for name in but(CR)), at_least(0), "points"),
        direction("exascale: restart and redundancy 1.25 and 1.5 take more energy than all others, by at "
                  "least", "their bars are cut off", 100 * cut_off, at_least(0)),
        *by_digest([(one, _SYSTEMS[name]) for name, one in seen.items()]),
    ]  # fmt: skip
