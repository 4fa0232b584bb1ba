"""I/O lanes as a service of a managed cluster: which limits are in force, and what is shown of them."""

from collections.abc import Hashable, Mapping
from typing import Any

from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.service import Samples, Service
from dask_hpc.config import AUTO
from dask_hpc.lanes.scheduler import Lanes
from dask_hpc.policy import Policy

_MOST = 20  # file systems that metrics tell apart


class LaneService(Service):
    """Limits by the setting ``io-lanes`` and by the policy's ``io`` strategy."""

    metrics = {
        "io_limit": (False, "Most reads at once of a file system, where there is a limit", "file_system"),
        "io_in_flight": (False, "Reads in flight by file system", "file_system"),
        "io_waiting": (False, "Reads that wait by file system", "file_system"),
        "io_reads": (
            True,
            "Reads that have ended, by file system, since it was first read from",
            "file_system",
        ),
        "io_reads_per_second": (False, "Reads per second by file system, as last measured", "file_system"),
    }
    parts = {"lanes": "lanes"}
    lanes: Lanes

    def begin(self) -> None:
        """Lanes anew. At the end the gate closes them."""
        self.lanes = self.context.get(Gate).waves.queue = Lanes(self.context)
        self.policy_changes()

    def policy_changes(self) -> None:
        if self.context.is_dry:
            return
        limits, strategy = self.context.settings["io-lanes"], self.context.policy.io
        if limits == AUTO:
            limits, strategy = None, strategy or Policy.load("io-lanes").io
        self.lanes.set_rules(limits, strategy)
        if limits or strategy is not None or self.lanes.lane_of:
            self.context.watch(self, self.lanes.lane_of)
        else:
            self.context.unwatch(self)

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        self.lanes.submit(tasks)

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        self.lanes.task_moves(key, start, finish)

    def tasks_vanish(self) -> None:
        self.lanes.vanish()

    def status(self) -> Mapping[str, Any]:
        return {"io": self.lanes.as_status(), "io_next": self.lanes.paired}

    def part(self, name: str) -> Any:
        return self.lanes.as_status()

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        """Of those with most reads: each file system is a time series."""
        shown = sorted(status["io"], key=lambda lane: -lane["done"])[:_MOST]
        return {
            name: {lane["file_system"]: lane[key] for lane in shown if lane[key] is not None}
            for name in self.metrics
            for key in ["done" if name == "io_reads" else name.removeprefix("io_")]
        }


SERVICE = LaneService
