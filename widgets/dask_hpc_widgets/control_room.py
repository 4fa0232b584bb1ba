"""The control room: all views of a cluster in one panel, under a line that says how it is."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import Any

import ipywidgets

from dask_hpc.view.kit import module, style
from dask_hpc_widgets.allotment_map import AllotmentMap
from dask_hpc_widgets.checkpoint_view import CheckpointView
from dask_hpc_widgets.corridor_chart import CorridorChart
from dask_hpc_widgets.jobs_table import JobsTable
from dask_hpc_widgets.policy_panel import PolicyPanel
from dask_hpc_widgets.story_view import StoryView
from dask_hpc_widgets.view import View, heard_at_once, manager_of
from dask_hpc_widgets.what_if import WhatIf


class Headline(View):
    """How the cluster is, in a line: policy, state, nodes, jobs, power. Pauses, resumes and undoes.

    Where a front end has to wait for a cell that computes, it points to the scheduler's own page: see
    ``Manager.control_page``. The address is told, and never a trait: who has it may change things, and traits
    are saved with a notebook.
    """

    _esm = module("control_room")
    _css = style()
    parts = ("power",)
    draws = frozenset({"nodes", "turned", "power_now"})

    _page: str | None = None
    _finding: asyncio.Task[None] | None = None

    def take(self, news: Mapping[str, Any]) -> None:
        """Find the page anew with each change: a cluster that is managed again has another one."""
        if "in_force" in news:
            self._finding = asyncio.ensure_future(self._find_page())
        if not (self._is_heard or self._is_behind):  # whoever opened it may be waiting for a cell already
            self.send({"page": self._page})

    async def _find_page(self) -> None:
        with suppress(Exception):  # the view says itself what is wrong with the cluster
            self._page = await self._awaited.control_page()

    def _hear(self, _: Any, message: Any, buffers: Any) -> None:
        super()._hear(_, message, buffers)
        if self._manager is not None and isinstance(message, dict) and message.get("do") == "looks":
            self.send({"heard": True, "page": self._page})

    async def do_pause(self, asked: Mapping[str, Any]) -> str:
        """Decide nothing until told otherwise."""
        await self._awaited.pause()
        return "decides nothing until it is resumed"

    async def do_resume(self, asked: Mapping[str, Any]) -> str:
        """Decide again."""
        await self._awaited.resume()
        return "decides again"


class ControlRoom(ipywidgets.VBox):
    """Everything about a managed cluster in one panel: ``ControlRoom(client)``.

    ``source`` is a client, a cluster object or a manager; a cluster that is not managed yet is so from then
    on, by the policy of the configuration. Closing the control room leaves the cluster as it is. The result
    of a simulation is shown in the same way, where there is nothing to do about it.
    """

    views: tuple[View, ...] = ()

    def __init__(self, source: Any, height: str | None = None) -> None:
        is_over = hasattr(source, "course") and hasattr(source, "metrics")
        self._source = source.course() if is_over else manager_of(source)
        self._words = repr(source) if is_over else ""
        self.headline = Headline(self._source)
        self.allotments = AllotmentMap(self._source)
        self.corridor = CorridorChart(self._source)
        self.jobs = JobsTable(self._source)
        self.story = StoryView(self._source)
        tabs: dict[str, View] = {"Jobs": self.jobs, "Story": self.story}
        if not is_over:
            self.panel = PolicyPanel(self._source)
            self.what_if = WhatIf(self._source, self.panel)
            self.checkpoints = CheckpointView(self._source)
            tabs = {"Policy": self.panel, "What if": self.what_if, **tabs, "Checkpoints": self.checkpoints}
        self.tabs = ipywidgets.Tab(list(tabs.values()), titles=list(tabs))
        #: all of them, the headline first
        self.views = (self.headline, self.allotments, self.corridor, *tabs.values())
        is_drawn = not is_over or self._source["samples"]
        height = height or ("810px" if is_drawn else "510px")
        pictures = ipywidgets.VBox([self.allotments, *([self.corridor] if is_drawn else [])])
        body = ipywidgets.GridBox(
            [pictures, self.tabs],
            layout=ipywidgets.Layout(grid_template_columns="repeat(auto-fit, minmax(min(100%, 430px), 1fr))"),
        )
        super().__init__([self.headline, body], layout=ipywidgets.Layout(height=height))
        self.add_class("dask-hpc-room")
        heard_at_once(self.tabs)

    def close(self) -> None:
        """Follow the cluster no more, and leave the page."""
        for view in self.views:
            view.close()
        super().close()

    def __repr__(self) -> str:
        return self._words or self.jobs.readable()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        # a front end without widgets shows these; ipywidgets would cut the text after a line
        found["text/plain"] = repr(self)
        found["text/html"] = f"<pre>{escape(repr(self))}</pre>"
        return found


def control_room_of(manager: Any) -> ControlRoom:
    """The one control room that a manager shows itself as, however often it is shown."""
    room = vars(manager).get("control_room")
    if room is None or room.comm is None:
        room = vars(manager)["control_room"] = ControlRoom(manager)
    return room
