"""I/O lanes as a service of a managed cluster: which limits are in force, and what is shown of them."""

from collections.abc import Hashable, Mapping
from typing import Any

from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.service import Context, Samples, Service
from dask_hpc.config import AUTO
from dask_hpc.lanes.scheduler import Lanes, LaneTuning
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
        "io_reads_per_second": (
            False,
            "Reads per second by file system, as last measured",
            "file_system",
        ),
    }
    parts = {"lanes": "lanes"}
    lanes: Lanes

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._tuning: LaneTuning | None = None

    def begin(self) -> None:
        """Lanes anew."""
        context, waves = self.context, self.context.get(Gate).waves
        self.lanes = waves.queue = Lanes(context.scheduler, context.owner, waves.queue_wakes)
        self._tuning = LaneTuning(
            context.scheduler, self.lanes, context.tell, lambda: context.is_paused, context.count_error
        )
        self.policy_changes()

    def policy_changes(self) -> None:
        """The limits and the strategy that are in force."""
        if self.context.is_dry or self._tuning is None:
            return
        limits, strategy = self.context.settings["io-lanes"], self.context.policy.io
        if limits == AUTO:
            limits, strategy = None, strategy or Policy.load("io-lanes").io
        self._tuning.follow(strategy)
        self.lanes.set_rules(limits, strategy)
        if limits or strategy is not None or self.lanes.lane_of:
            self.context.watch(self, self.lanes.lane_of)
        else:
            self.context.unwatch(self)

    def release(self) -> None:
        """Nothing is tuned; the gate ends the lanes."""
        if self._tuning is not None:
            self._tuning.close()

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        """Reads among them wait in lanes."""
        self.lanes.submit(tasks)

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        """A task in a lane."""
        self.lanes.task_moves(key, start, finish)

    def tasks_vanish(self) -> None:
        """No lane has any."""
        self.lanes.vanish()

    def status(self) -> Mapping[str, Any]:
        """Each file system that is read from, and what goes next."""
        return {"io": self.lanes.as_status(), "io_next": self.lanes.paired}

    def part(self, name: str) -> Any:
        """Each file system."""
        return self.lanes.as_status()

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        """Of those with most reads: each file system is a time series."""
        shown = sorted(status["io"], key=lambda lane: -lane["done"])[:_MOST]
        return {
            f"io_{name}": {lane["file_system"]: lane[key] for lane in shown if lane[key] is not None}
            for name, key in (
                ("limit", "limit"),
                ("in_flight", "in_flight"),
                ("waiting", "waiting"),
                ("reads", "done"),
                ("reads_per_second", "reads_per_second"),
            )
        }


SERVICE = LaneService
