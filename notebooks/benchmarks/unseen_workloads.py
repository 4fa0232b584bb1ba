"""``elastic`` against each other policy on workloads that nothing was tuned on, losses first.

``python unseen_workloads.py --scale small`` prints the table of a few cells. A cell is a machine, a load, a
share of malleable jobs, a rule for their sizes and a law of how they scale.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import pandas as pd

from dask_hpc.policy import Policy
from dask_hpc.simulator.comparison import mean_and_half_width
from dask_hpc.simulator.study import Trial, reporting_seeds, tuning_seeds

#: they start every job on the nodes that it asks for: rules, laws and shares make no difference to them
PLAIN = ("easy-backfill", "easy-sjbf", "conservative-backfill")
RESIZING = ("fpsma-pwma", "egs-pwma", "malleable-easy")
#: less is better of each, and none may be more than so many per cent worse than the best other's
FIGURES = ("mean_response", "mean_bounded_slowdown", "makespan")
WORSE = 2.0
#: the longest wait is at most so many times that of EASY
LONGEST = 1.5
OURS = "elastic"


class Cell(NamedTuple):
    """One kind of workload."""

    nodes: int
    load: float
    malleable: float
    rule: str
    law: str

    @property
    def plain(self) -> "Cell":
        """The same jobs, none of them malleable."""
        return self._replace(malleable=0.0, rule="half-double", law="linear")

    def workload(self, jobs: int) -> str:
        """As ``Trial`` takes it."""
        values = "&".join(f"{key}={value}" for key, value in self._asdict().items())
        return f"builtin:production?jobs={jobs}&{values}"


def cells(
    nodes: Sequence[int] = (100, 320, 1000, 10_000),
    loads: Sequence[float] = (0.5, 0.7, 0.9, 1.2),
    shares: Sequence[float] = (0.0, 0.2, 0.5, 1.0),
    rules: Sequence[str] = ("half-double", "wide"),
    laws: Sequence[str] = ("linear", "mixed"),
) -> list[Cell]:
    """All of them: where no job is malleable, rules and laws make no difference."""
    found = [Cell(*values) for values in itertools.product(nodes, loads, shares, rules, laws)]
    return [cell for cell in found if cell.malleable or (cell.rule, cell.law) == (rules[0], laws[0])]


SMALL = cells(nodes=(100,), loads=(0.7, 1.2), shares=(0.0, 1.0), rules=("wide",), laws=("linear",))

#: of one simulation: what was played, under which policy, with which seed
Key = tuple[Cell, str, int]


def compare(
    chosen: Sequence[Cell],
    *,
    ours: str | Policy = OURS,
    jobs: int = 400,
    seeds: int = 10,
    rigid_seeds: int = 0,
    skip: int = 0,
    tuning: bool = False,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """A row for each cell. ``FIGURE`` is by how many per cent ``ours`` has more of it than the best of the
    others, which is another one in each cell and for each figure and chosen after the fact; ``FIGURE half``
    is half of its 95 % interval, paired by seed. ``longest`` is the longest wait in multiples of EASY's.

    Seeds are the reporting half, unless it is for ``tuning``, without the first ``skip``; ``rigid_seeds``, if
    that is more, where no job is malleable: there ``ours`` is closest to the others, and runs are short.
    """
    half = tuning_seeds if tuning else reporting_seeds

    def drawn(cell: Cell) -> list[int]:
        return list(half(skip + (seeds if cell.malleable else max(seeds, rigid_seeds))))[skip:]

    policies = {name: Policy.load(name) for name in (*PLAIN, *RESIZING)} | {OURS: Policy.load(ours)}
    keys: dict[Key, None] = {}
    for cell in chosen:
        for seed in drawn(cell):
            keys |= dict.fromkeys((_played(cell, name), name, seed) for name in policies)
    trials = [Trial(cell.workload(jobs), policies[name], seed) for cell, name, seed in keys]
    found: dict[Key, dict[str, float]] = {}
    for key, figures in zip(keys, _run(trials, processes), strict=True):
        found[key] = figures
        if progress is not None:
            progress(len(found), len(trials))
    return pd.DataFrame([cell._asdict() | _against(cell, found, policies, drawn(cell)) for cell in chosen])


def _played(cell: Cell, policy: str) -> Cell:
    return cell.plain if policy in PLAIN else cell


def _run(trials: Iterable[Trial], processes: int) -> Iterator[dict[str, float]]:
    if processes == 1:
        yield from map(Trial.run, trials)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(Trial.run, trials, chunksize=8)


def _against(
    cell: Cell, found: dict[Key, dict[str, float]], policies: Iterable[str], seeds: Sequence[int]
) -> dict[str, Any]:
    runs = pd.DataFrame(
        [
            {"seed": seed, "policy": name} | found[_played(cell, name), name, seed]
            for name, seed in itertools.product(policies, seeds)
        ]
    )
    row: dict[str, Any] = {}
    for figure in FIGURES:
        table = runs.pivot(index="seed", columns="policy", values=figure)
        means = table.drop(columns=OURS).mean()
        rival = means.idxmin()
        more = 100.0 * (table[OURS] - table[rival]).to_numpy() / means[rival]
        mean, half = mean_and_half_width(more)
        row |= {figure: mean, f"{figure} half": half if half == half else 0.0, f"{figure} rival": rival}
    waits = runs.groupby("policy")["max_wait"].mean()
    theirs = waits["easy-backfill"]
    alone = 1.0 if waits[OURS] == 0 else float("inf")
    row["longest"] = waits[OURS] / theirs if theirs else alone
    return row


def losses(rows: pd.DataFrame) -> pd.DataFrame:
    """The cells in which something is worse than it may be, the worst first."""
    over = pd.concat([rows[figure] / WORSE for figure in FIGURES] + [rows["longest"] / LONGEST], axis=1)
    worst = over.max(axis=1)
    return rows[worst > 1.0].loc[worst[worst > 1.0].sort_values(ascending=False).index]


def totals(rows: pd.DataFrame) -> pd.DataFrame:
    """For each figure: in how many cells it is worse than it may be, and in how many of them surely (all of
    the interval), the worst of them, and in what share of the cells with malleable jobs it is better."""
    malleable, found = rows[rows["malleable"] > 0], []
    for figure in FIGURES:
        found.append(
            {
                "figure": figure,
                "cells": len(rows),
                "worse": int((rows[figure] > WORSE).sum()),
                "surely": int((rows[figure] - rows[f"{figure} half"] > WORSE).sum()),
                "worst": rows[figure].max(),
                "median": rows[figure].median(),
                "better": (malleable[figure] < 0).mean(),
            }
        )
    longest = rows["longest"]
    found.append(
        {
            "figure": "longest",
            "cells": len(rows),
            "worse": int((longest > LONGEST).sum()),
            "worst": longest.max(),
            "median": longest.median(),
        }
    )
    return pd.DataFrame(found).set_index("figure")


def summary(rows: pd.DataFrame) -> list[tuple[str, str, str, str, str, bool]]:
    """What is wanted of ``elastic``, as rows of a table of ours."""
    found, lines = totals(rows), []
    for figure in FIGURES:
        what, one = f"unseen, {figure.replace('_', ' ')}", found.loc[figure]
        worse, between = int(one["worse"]), f"{rows[figure].min():+.1f} to {rows[figure].max():+.1f} %"
        said = f"over {WORSE:g} % worse in {worse}, {int(one['surely'])} of them surely"
        wanted = f"over {WORSE:g} % worse in 0"
        lines.append((f"{what}, {len(rows)} cells", said, "best other in each", between, wanted, worse == 0))
        share = one["better"]
        lines.append((f"{what}: better", f"{share:.0%} of cells", "the same", "", ">= 80 %", share >= 0.8))
    one = found.loc["longest"]
    worse = int(one["worse"])
    what, between = f"unseen, longest wait, {len(rows)} cells", f"at most {one['worst']:.2f}"
    said = f"over {LONGEST:g} times in {worse}"
    lines.append((what, said, "EASY", between, f"<= {LONGEST:g} times", worse == 0))
    return lines


def main() -> None:
    """Print the totals and the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=("small", "full"), default="small")
    parser.add_argument("--policy", default="elastic", help="name or file of what is compared")
    parser.add_argument("--tuning", action="store_true", help="the seeds to try things with")
    parser.add_argument("--skip", type=int, default=0, help="not these first seeds: 100 are in the notebook")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    small = given.scale == "small"
    rows = compare(
        SMALL if small else cells(),
        ours=given.policy,
        jobs=300 if small else 400,
        seeds=2 if small else 40,
        rigid_seeds=3 if small else 200,
        skip=given.skip,
        tuning=given.tuning,
        processes=given.processes,
    )
    print(totals(rows).round(2).to_string())
    print(losses(rows).round(2).to_string())


if __name__ == "__main__":
    main()
