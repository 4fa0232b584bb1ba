"""Limits of lanes by the policy's I/O strategy, asked when reads have ended, once in a turn of the loop."""

from collections.abc import Callable
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.lanes import Lanes
from dask_hpc.model.io_view import IoView


class LaneTuning:
    """Asks, carries out, tells."""

    def __init__(
        self,
        scheduler: Any,
        lanes: Lanes,
        tell: Callable[[str, str], None],
        is_paused: Callable[[], bool],
        count_error: Callable[[str, Exception], None],
    ) -> None:
        self._scheduler = scheduler
        self._lanes = lanes
        self._tell = tell
        self._is_paused = is_paused
        self._count_error = count_error
        self._strategy: Any = None
        self._memory: Any = None
        self._is_scheduled = False

    def follow(self, strategy: Any) -> None:
        """The strategy from now on, if there is one. Another one begins anew."""
        if strategy != self._strategy:
            self._strategy, self._memory = strategy, None
        self._lanes.tell_strategy = self._nothing if strategy is None else self._news

    def close(self) -> None:
        """Nothing is asked any more."""
        self.follow(None)

    def _nothing(self) -> None:
        return None

    def _news(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.loop.add_callback(self._ask)

    def _ask(self) -> None:
        self._is_scheduled = False
        if self._strategy is None or self._is_paused():
            return
        try:
            lanes = tuple(lane.view() for lane in self._lanes.by_name.values())
            view = IoView(compat.all_threads(self._scheduler), lanes)
            changes, self._memory = self._strategy.decide(view, self._memory)
            for change in changes:
                self._lanes.change(change.lane, change.limit, change.reason)
                most = "no limit" if change.limit is None else f"{change.limit} at once"
                self._tell("io-limit", f"reads of {change.lane}: {most}; {change.reason}")
        except Exception as error:
            self._memory = None
            self._count_error("tuning of I/O", error)
