"""The page ``/hpc`` of Dask's dashboard, and its parts as pages of their own for the JupyterLab extension.

What is shown is read off the story and the status when somebody looks; nothing is collected for it. Where
Bokeh is missing or the dashboard is off there is no page, and nobody is bothered.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.status import told
from dask_hpc.power.scheduler.status import PowerTrace
from dask_hpc.view.course import Allotments
from dask_hpc.view.dashboard.control import PATH, control_page
from dask_hpc.view.dashboard.html import COLOURS

if TYPE_CHECKING:
    from dask_hpc.cluster.scheduler.plugin import HpcPlugin

logger = logging.getLogger(__name__)

_EVERY = 500  # milliseconds between two looks of an open page
_ROWS = 60  # of the story
_MARKS = 500  # of what was done for the sake of power


class Watched:
    """A managed cluster as all pages see it: brought up to date by whoever looks first."""

    def __init__(self, plugin: "HpcPlugin") -> None:
        self.plugin = plugin
        self.allotments = Allotments()
        self._numbers: dict[str, int] = {}
        #: the newest rows of the story that were decided for the sake of power
        self.for_power: deque[dict[str, Any]] = deque(maxlen=_MARKS)
        #: how much of the story has been read
        self.read = 0
        self.is_open = True

    def catch_up(self) -> None:
        """Read what is new in the story."""
        first, rows = self.plugin.story.since(self.read)
        self.read = first + len(rows)
        for row in rows:
            self.allotments.add(row.time, row.decision, row.job, row.nodes, row.reason)
            if row.job:
                self.colour(row.job)
            why = self.plugin.story.explanation(row)
            if why is not None and why.is_for_power:
                self.for_power.append(told(self.plugin.story, row))

    def colour(self, job: str) -> str:
        """The job's colour on all pages; jobs that follow each other have different ones."""
        number = self._numbers.setdefault(job, len(self._numbers))
        return COLOURS[number % len(COLOURS)]

    def now(self) -> float:
        """The time of the cluster's clock."""
        return self.plugin.clock()

    @property
    def trace(self) -> PowerTrace:
        """How power was."""
        return self.plugin.power_trace

    def status(self) -> dict[str, Any]:
        """As ``Manager.status()``, with the number of resizes."""
        counts = self.plugin.story.counts
        return self.plugin.calls.status() | {"resizes": counts["grow"] + counts["shrink"]}

    def newest(self) -> list[dict[str, Any]]:
        """The last rows of the story, newest first."""
        story = self.plugin.story
        _, rows = story.since(max(0, self.read - _ROWS))
        return [told(story, row) for row in reversed(rows)]


class Dashboard:
    """The pages of one plugin, from ``open`` to ``close``."""

    def __init__(self, plugin: "HpcPlugin") -> None:
        self._plugin = plugin
        #: who knows it may change things on the page ``/hpc-control``
        self.token = token_urlsafe(16)
        self._watched: Watched | None = None
        self._served: Any = None

    @property
    def control(self) -> str | None:
        """Where that page is on this dashboard; None if there is none."""
        return None if self._served is None else f"{PATH.lstrip('/')}?token={self.token}"

    def open(self) -> None:
        """Serve the pages, if there is a dashboard."""
        watched = Watched(self._plugin)
        pages = {
            "/hpc": partial(_whole_page, watched),
            "/individual-hpc-allotments": partial(_part, watched, "allotments"),
            "/individual-hpc-jobs": partial(_part, watched, "jobs"),
            "/individual-hpc-decisions": partial(_part, watched, "decisions"),
            "/individual-hpc-power": partial(_part, watched, "power"),
            "/individual-hpc-pipelines": partial(_part, watched, "pipelines"),
            "/individual-hpc-file-systems": partial(_part, watched, "file systems"),
            "/individual-hpc-checkpoints": partial(_part, watched, "checkpoints"),
            PATH: partial(control_page, self._plugin, self.token),
        }
        try:
            self._served = compat.add_pages(self._plugin.scheduler, pages, unlisted=(PATH,))
            self._watched = watched
        except Exception:
            logger.warning("dask-hpc: no dashboard page", exc_info=True)

    def close(self) -> None:
        """Serve them no more. A page that is open says so, and rests."""
        if self._watched is not None:
            self._watched.is_open = False
        if self._served is not None:
            served, self._served = self._served, None
            compat.remove_pages(self._plugin.scheduler, served)


def _whole_page(watched: Watched, scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Figures on top, then who holds which node, then power if it is known, pipelines, checkpoints and file
    systems if there are any, then jobs beside decisions."""
    from bokeh.layouts import column, row

    from dask_hpc.view.dashboard import parts
    from dask_hpc.view.dashboard.checkpoints import Checkpoints
    from dask_hpc.view.dashboard.file_systems import FileSystems
    from dask_hpc.view.dashboard.pipelines import Pipelines
    from dask_hpc.view.dashboard.power import PowerPlot

    figures, jobs, decisions = parts.Figures(), parts.Jobs(), parts.Decisions()
    allotments = parts.AllotmentsPlot()
    power = PowerPlot(allotments.times)
    pipelines, file_systems = Pipelines(is_alone=False), FileSystems(is_alone=False)
    checkpoints = Checkpoints(is_alone=False)
    doc.add_root(
        column(
            figures.root,
            allotments.root,
            power.root,
            pipelines.root,
            checkpoints.root,
            file_systems.root,
            row(jobs.root, decisions.root, sizing_mode="stretch_width", spacing=12),
            sizing_mode="stretch_width",
            margin=(0, 12, 12, 12),
        )
    )
    template, theme = compat.page_template()
    doc.template = template
    doc.template_variables.update(extra)
    doc.theme = theme
    doc.title = "Dask: HPC"
    parts_shown = (figures, allotments, power, pipelines, checkpoints, file_systems, jobs, decisions)
    _keep_up(watched, doc, [part.update for part in parts_shown])


def _part(watched: Watched, name: str, scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """One part, as large as the window."""
    from dask_hpc.view.dashboard import parts
    from dask_hpc.view.dashboard.checkpoints import Checkpoints
    from dask_hpc.view.dashboard.file_systems import FileSystems
    from dask_hpc.view.dashboard.pipelines import Pipelines
    from dask_hpc.view.dashboard.power import PowerPlot

    kinds: dict[str, Any] = {
        "allotments": parts.AllotmentsPlot,
        "jobs": parts.Jobs,
        "decisions": parts.Decisions,
        "power": PowerPlot,
        "pipelines": Pipelines,
        "file systems": FileSystems,
        "checkpoints": Checkpoints,
    }
    part = kinds[name]()
    part.root.sizing_mode = "stretch_both"
    doc.add_root(part.root)
    doc.theme = compat.page_template()[1]
    doc.title = f"Dask: HPC {name.title()}"
    _keep_up(watched, doc, [part.update])


def _keep_up(watched: Watched, doc: Any, updates: list[Callable[[Watched], None]]) -> None:
    """Bring a document up to date now and every half second, until it is closed or control is."""

    def look() -> None:
        try:
            watched.catch_up()
            for update in updates:
                update(watched)
        except Exception:
            logger.exception("dask-hpc: a dashboard page fails, and rests")
            doc.remove_periodic_callback(again)
        else:
            if not watched.is_open:
                doc.remove_periodic_callback(again)

    again = doc.add_periodic_callback(look, _EVERY)
    watched.catch_up()
    for update in updates:
        update(watched)
