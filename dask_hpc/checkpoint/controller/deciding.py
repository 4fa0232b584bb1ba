"""To which levels a program's version goes, and whether past the agents.

If no agent takes copies (none can be reached, or all are full), versions go to the store directly: workers
write what they hold. That is told once. Agents are tried again after a while, each time a longer one, and
when that pays (``strategies.agents.fallback``); in any case now and then, as copies in memory are what the
death of a worker is survived with.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.controller.schedule import Failures, Schedule
from dask_hpc.checkpoint.controller.series import Series
from dask_hpc.checkpoint.levels import DISK, PARTNER, STORE
from dask_hpc.model.errors import one_line
from dask_hpc.strategies.agents.fallback import LONGEST_WAIT, failed, pays
from dask_hpc.strategies.agents.when import Every


class Deciding:
    """``failures`` are those that were seen, and ``nodes`` says how many nodes there are."""

    def __init__(
        self, failures: Callable[[], Failures], nodes: Callable[[], int], tell: Callable[[str, str], None]
    ) -> None:
        self._failures = failures
        self._nodes = nodes
        self._tell = tell

    def said(self, series: Series, levels: Sequence[str], every: Every | None, nbytes: float) -> None:
        """What the program wants. Without ``every`` each of its commits goes to all levels."""
        known = series.schedule
        wanted = every or {}
        if known is None or (known.levels, known.every) != (tuple(levels), wanted):
            series.schedule = Schedule(levels, wanted, nbytes, self._failures())
        series.levels, series.is_each = tuple(levels), every is None

    async def plan(self, series: Series) -> None:
        """Anew, if costs, failures or the number of nodes have changed."""
        if series.schedule is not None and not series.is_each:
            found = await series.schedule.plan(max(1, self._nodes()))
            if found is not None:
                self._tell("interval", f"{series.name}: {found.reason}")

    def is_due(self, series: Series, level: str) -> bool:
        """Whether the version that is committed now goes to that level. It is taken to get there."""
        if level not in series.levels or series.schedule is None:
            return False
        return series.is_each or series.schedule.is_due(level)

    def done(self, series: Series, level: str) -> None:
        """A version goes there."""
        if series.schedule is not None and level in series.levels:
            series.schedule.done([level])

    def measured(self, series: Series, level: str, seconds: float, nbytes: float) -> None:
        """What it cost."""
        if series.schedule is not None and nbytes and level in series.levels:
            series.schedule.measured(level, seconds, nbytes)

    # past the agents

    def is_direct(self, series: Series) -> bool:
        """Whether agents are not even asked now."""
        if PARTNER not in series.levels:
            return True
        known, costs = series.direct, series.schedule
        if known is None or costs is None or STORE not in series.levels:
            return False
        if (now := monotonic()) < known.again_at:
            return True
        is_worth_it = pays(series.probe, 0.0, costs.cost(STORE), costs.cost(PARTNER), inf)
        return not is_worth_it and now < series.tried_at + LONGEST_WAIT

    def no_copy(self, series: Series, why: str, seconds: float) -> None:
        """A try was in vain."""
        if STORE not in series.levels:
            return
        if series.direct is None:
            what = "versions go to the store directly until it pays to try agents again"
            self._tell("direct", one_line(f"{series.name}: {why}; {what}"))
        series.tried_at, series.probe, series.why_direct = monotonic(), seconds, why
        series.direct = failed(series.direct, series.tried_at)

    def room_comes(self, series: Series) -> None:
        """There is another agent: the next version tries."""
        if series.direct is not None:
            series.direct, series.tried_at = replace(series.direct, again_at=0.0), -inf

    def copied(self, series: Series) -> None:
        """Agents have taken it all."""
        if series.direct is not None:
            self._tell("direct", f"{series.name}: agents take copies again")
        series.direct, series.why_direct = None, ""

    # what is told

    def as_plain(self, series: Series) -> dict[str, Any]:
        """``every`` and ``due_in``: seconds by level, if that is planned; and why."""
        schedule = series.schedule
        planned = schedule.planned if schedule is not None else None
        return {
            "levels": list(series.levels),
            "every": dict(planned.every) if planned is not None else None,
            "due_in": schedule.due_in() if schedule is not None and planned is not None else {},
            "why": planned.reason if planned is not None else "",
            "direct": series.why_direct,
            "disk_problem": series.disk_problem if DISK in series.levels else "",
        }
