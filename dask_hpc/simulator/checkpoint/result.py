"""What came of a run: every commit, where agents were, how many nodes there were, and all bytes."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr

#: to agents, or past them to the store
How = Literal["agents", "direct"]


@dataclass(slots=True)
class Committed:
    """One commit."""

    app: str
    number: int
    begin: float
    nodes: int
    nbytes: float
    agents: int
    #: the first one to these agents
    is_first: bool
    how: How = "agents"
    #: seconds that the application stood still for it
    stall: float = 0.0
    #: seconds from its copy on until everything was there
    transfer: float = 0.0
    end: float = float("nan")
    #: when each part arrived, counted from the copy on, by its number
    parts: dict[int, float] = field(default_factory=dict)
    #: parts that an agent had to write to the store at once
    spilled: int = 0
    #: agents died under it, and it was done again past them
    has_failed: bool = False


@dataclass(slots=True)
class Traffic:
    """Bytes, of all applications together."""

    to_agents: float = 0.0
    direct: float = 0.0
    spilled: float = 0.0
    #: what was flushed, and what that came to in the store
    flushed: float = 0.0
    written: float = 0.0
    #: arrived before their commit failed
    wasted: float = 0.0


_COLUMNS = ("app", "number", "begin", "end", "stall", "transfer", "nodes", "nbytes", "agents", "is_first",
            "how", "spilled", "has_failed")  # fmt: skip


@dataclass
class CommitResult:
    """One run, all in the order of time."""

    made: list[Committed] = field(default_factory=list)
    #: from when on an application had its agents on these nodes
    seated: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)
    #: when, who, seconds, and whether anything changed
    probes: list[tuple[float, str, float, bool]] = field(default_factory=list)
    #: how many nodes there were for agents, and why that changed
    pool: list[tuple[float, int, str]] = field(default_factory=list)
    #: number of the newest commit in the store, by application
    stored: dict[str, int] = field(default_factory=dict)
    #: when which commit of whom had been flushed
    flushed: list[tuple[float, str, int]] = field(default_factory=list)
    #: when each application was through
    ended: dict[str, float] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)

    def of(self, app: str) -> list[Committed]:
        return [one for one in self.made if one.app == app]

    def agents_at(self, app: str, time: float) -> tuple[str, ...]:
        """The node of each of its agents then."""
        there = (nodes for since, name, nodes in reversed(self.seated) if name == app and since <= time)
        return next(there, ())

    def nodes_at(self, time: float) -> int:
        return next(count for since, count, _ in reversed(self.pool) if since <= time)

    @cached_property
    def commits(self) -> pd.DataFrame:
        """One row per commit, in the order in which they began. ``stall`` is what the application stood
        still for it; ``transfer`` is how long it was on its way."""
        rows = [[getattr(one, name) for name in _COLUMNS] for one in self.made]
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    @cached_property
    def agents(self) -> pd.DataFrame:
        """From which time on which application had how many agents, on how many nodes."""
        rows = [(time, app, len(nodes), len(set(nodes))) for time, app, nodes in self.seated]
        return pd.DataFrame(rows, columns=["time", "app", "agents", "nodes"])

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All of it: ``commit``s, ``change``s of agents, and ``pool_time``s from which on there were so many
        nodes for agents."""
        columns = {
            name: ("commit", column.to_numpy(dtype="U" if name in ("app", "how") else None))
            for name, column in self.commits.items()
        }
        agents = self.agents
        dataset = xr.Dataset(
            columns
            | {
                "agents_app": ("change", agents["app"].to_numpy(dtype="U")),
                "agents_there": ("change", agents["agents"].to_numpy()),
                "pool_nodes": ("pool_time", np.array([count for _, count, _ in self.pool])),
            },
            coords={
                "change": agents["time"].to_numpy(),
                "pool_time": np.array([time for time, _, _ in self.pool]),
            },
            attrs={f"bytes_{name}": getattr(self.traffic, name) for name in Traffic.__slots__},
        ).set_coords("number")
        for name in ("begin", "end", "stall", "transfer", "change", "pool_time"):
            dataset[name].attrs["units"] = "s"
        dataset["nbytes"].attrs["units"] = "B"
        return dataset
