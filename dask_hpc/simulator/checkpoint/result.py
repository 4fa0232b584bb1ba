"""What came of a run: every commit, where agents were, how many nodes there were, and all bytes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.simulator.checkpoint.record import Committed, Log, Traffic

_COLUMNS = ("app", "number", "begin", "end", "stall", "transfer", "nodes", "nbytes", "agents", "is_first",
            "how", "spilled", "has_failed")  # fmt: skip
_SECONDS = ("begin", "end", "stall", "transfer")


@dataclass(frozen=True)
class CommitResult:
    """One run."""

    log: Log

    @cached_property
    def commits(self) -> pd.DataFrame:
        """One row per commit, in the order in which they began. ``stall`` is what the application stood
        still for it; ``transfer`` is how long it was on its way."""
        rows = [[getattr(one, name) for name in _COLUMNS] for one in self.log.commits]
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    def of(self, app: str) -> list[Committed]:
        """One application's commits."""
        return [one for one in self.log.commits if one.app == app]

    @property
    def traffic(self) -> Traffic:
        """Bytes, of all applications together."""
        return self.log.traffic

    def ended(self, app: str) -> float:
        """When it was through."""
        return self.log.ended[app]

    def agents_at(self, app: str, time: float) -> tuple[str, ...]:
        """The node of each of its agents then."""
        found: tuple[str, ...] = ()
        for since, name, nodes in self.log.agents:
            if name == app and since <= time:
                found = nodes
        return found

    def nodes_at(self, time: float) -> int:
        """Nodes for agents then."""
        return next(count for since, count, _ in reversed(self.log.nodes) if since <= time)

    @cached_property
    def agents(self) -> pd.DataFrame:
        """From which time on which application had how many agents, on how many nodes."""
        rows = [(time, app, len(nodes), len(set(nodes))) for time, app, nodes in self.log.agents]
        return pd.DataFrame(rows, columns=["time", "app", "agents", "nodes"])

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All of it: ``commit``s, ``change``s of agents, and ``pool_time``s from which on there were so many
        nodes for agents."""
        table = self.commits
        columns: dict[str, Any] = {
            name: ("commit", table[name].to_numpy(dtype="U" if name in ("app", "how") else None))
            for name in _COLUMNS
            if name != "number"
        }
        agents = self.agents
        dataset = xr.Dataset(
            {
                **columns,
                "agents_app": ("change", agents["app"].to_numpy(dtype="U")),
                "agents_there": ("change", agents["agents"].to_numpy()),
                "pool_nodes": ("pool_time", np.array([count for _, count, _ in self.log.nodes])),
            },
            coords={
                "number": ("commit", table["number"].to_numpy()),
                "change": agents["time"].to_numpy(),
                "pool_time": np.array([time for time, _, _ in self.log.nodes]),
            },
            attrs={f"bytes_{name}": getattr(self.traffic, name) for name in Traffic.__slots__},
        )
        for name in (*_SECONDS, "change", "pool_time"):
            dataset[name].attrs["units"] = "s"
        dataset["nbytes"].attrs["units"] = "B"
        return dataset
