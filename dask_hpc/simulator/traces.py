"""A table for a folder of traces: strategies, shares of malleable jobs and rules for their sizes.

Traces are rigid. What is asked of each is: if a share of its jobs could change size, between such sizes, what
would each strategy make of it?
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dask_hpc.model.errors import InputError, insist, is_number
from dask_hpc.policy import Policy
from dask_hpc.simulator.overlay import Overlay, offered_load
from dask_hpc.simulator.readers import load_workload
from dask_hpc.simulator.study import study
from dask_hpc.simulator.workload import Workload

ENDINGS = (".swf", ".swf.gz")
POLICIES = (
    "easy-backfill",
    "easy-sjbf",
    "conservative-backfill",
    "fpsma-pwma",
    "egs-pwma",
    "malleable-easy",
    "elastic",
)
RULES, SHARES = ("half-double", "wide"), (0.0, 0.2, 0.5, 1.0)
#: what the table is about; less is better of each
FIGURES = ("mean_response", "mean_bounded_slowdown", "mean_slowdown_as_asked", "makespan", "max_wait")
#: what makes a cell of the table
CELL = ("trace", "sizes", "malleable")


@dataclass(frozen=True)
class TraceTable:
    """What came of it: one row for each trace, rule, share and policy, with means over seeds."""

    rows: pd.DataFrame

    def against_best(self, policy: str) -> pd.DataFrame:
        """For each cell how many per cent more ``policy`` has of each figure than the best of the others,
        which is another one in each cell and for each figure."""
        names = set(self.rows["policy"])
        insist(policy in names and len(names) > 1, "policy", policy, "one of the table, and others beside it")
        rows = self.rows.set_index([*CELL, "policy"])[list(FIGURES)]
        ours = rows.xs(policy, level="policy")
        best = rows.drop(policy, level="policy").groupby(level=list(CELL), sort=False).min()
        return pd.DataFrame(
            {name: _more(ours[name], best[name].reindex(ours.index)) for name in FIGURES}, index=ours.index
        )


def _more(ours: pd.Series, best: pd.Series) -> pd.Series:
    """In per cent; nothing against nothing is no more."""
    return (100.0 * (ours - best) / best).where(best != 0, (ours != best) * float("inf")).fillna(0.0)


@dataclass(frozen=True, kw_only=True)
class TraceStudy:
    """All that is to be run over a folder. ``nodes`` are for traces that do not say how many there are."""

    folder: str | Path
    policies: Sequence[Policy]
    rules: Sequence[str] = RULES
    shares: Sequence[float] = SHARES
    law: str = "linear"
    load: float | None = None
    first: int | None = None
    nodes: int | None = None
    seeds: int = 1

    def __post_init__(self) -> None:
        insist(bool(self.policies), "policies", list(self.policies), "one or more")
        insist(bool(self.rules), "rules", list(self.rules), "one or more")
        fine = len(self.shares) > 0 and all(is_number(share, 0, 1) for share in self.shares)
        insist(fine, "shares", list(self.shares), "0 to 1")
        for what in ("rules", "shares"):
            values = getattr(self, what)
            insist(len(set(values)) == len(values), what, list(values), "each once")
        for rule in self.rules:  # complain before anything is read
            replace(self._overlay(rule, 1.0), load=None).over(Workload("none", (), 1))

    @cached_property
    def traces(self) -> Mapping[str, Path]:
        """By name, in order."""
        folder = Path(self.folder)
        try:
            found = sorted(path for path in folder.iterdir() if path.name.lower().endswith(ENDINGS))
        except OSError as error:
            raise InputError(str(folder), f"cannot be read: {error.strerror or error}", "a folder") from None
        if not found:
            raise InputError(str(folder), "has no traces", " or ".join(ENDINGS))
        return {path.name: path for path in found}

    @cached_property
    def cells(self) -> Sequence[tuple[str, float, Overlay, int]]:
        """Sizes, share, what is done to the trace, and how many seeds that is worth: where none or all of the
        jobs are malleable there is nothing to draw, and where none are sizes make no difference."""
        shares = [share for share in self.shares if share > 0]
        found = [("as asked", 0.0)] if len(shares) < len(self.shares) else []
        found += [(rule, share) for rule in self.rules for share in shares]
        return [
            (rule, share, self._overlay(rule, share), self.seeds if 0 < share < 1 else 1)
            for rule, share in found
        ]

    @property
    def trials(self) -> int:
        """How many simulations that is."""
        return len(self.traces) * len(self.policies) * sum(seeds for *_, seeds in self.cells)

    @cached_property
    def described(self) -> list[dict[str, Any]]:
        """Each trace as it will be played; complains of what cannot be."""
        found = []
        for name, path in self.traces.items():
            workload = load_workload(path)
            nodes = self.nodes if workload.nodes is None else workload.nodes
            if nodes is None:
                raise InputError(name, "does not say how many nodes its machine has", "--nodes N")
            played = self._overlay("", 0.0).over(workload, nodes=nodes)
            found.append(
                {
                    "trace": name,
                    "jobs": len(played),
                    "nodes": nodes,
                    "load": offered_load(played, nodes),
                    "notes": workload.notes,
                }
            )
        return found

    def run(
        self,
        client: Any = None,
        store: str | Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> TraceTable:
        """Play them all; ``client`` and ``store`` as in ``study``. ``progress`` is told how many are done."""
        rows, before = [], 0
        for one in self.described:
            for rule, share, overlay, seeds in self.cells:
                found = study(
                    self.traces[one["trace"]],
                    self.policies,
                    seeds=seeds,
                    nodes=one["nodes"],
                    overlay=overlay,
                    client=client,
                    store=store,
                    progress=_counted(progress, before),
                )
                before += len(found.runs)
                for policy, row in found.summary.iterrows():
                    cell = dict(zip(CELL, (one["trace"], rule, share), strict=True))
                    rows.append(cell | {"policy": policy, **row})
        return TraceTable(pd.DataFrame(rows))

    def _overlay(self, rule: str, share: float) -> Overlay:
        if not share:
            return Overlay(load=self.load, first=self.first)
        return Overlay(malleable=share, rule=rule, law=self.law, load=self.load, first=self.first)


def _counted(progress: Callable[[int], None] | None, before: int) -> Callable[[int, int], None] | None:
    """The progress of one study, as that of all."""
    if progress is None:
        return None

    def count(done: int, _: int) -> None:
        progress(before + done)

    return count
