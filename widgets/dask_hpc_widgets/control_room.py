"""The control room: all views of a cluster in one panel, under a line that says how it is."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import traitlets
from ipywidgets import widget_serialization

from dask_hpc.view.kit import module, style
from dask_hpc.view.page import present_html
from dask_hpc_widgets.checkpoint_view import CheckpointDeeds
from dask_hpc_widgets.corridor_chart import PowerDeeds
from dask_hpc_widgets.jobs_table import JobDeeds, job_lines
from dask_hpc_widgets.nodes_table import NodeDeeds
from dask_hpc_widgets.policy_panel import PolicyPanel
from dask_hpc_widgets.story_view import StoryDeeds
from dask_hpc_widgets.view import View, manager_of
from dask_hpc_widgets.what_if import WhatIf

#: of each tab its title, what draws it, which part of the room it belongs to, if not to the whole, and the
#: part of the status without which there is no such tab, if there is one
_TABS = (
    ("Jobs", "jobs_table", "", ""),
    ("Nodes", "nodes_table", "", ""),
    ("Policy", "policy_panel", "panel", ""),
    ("What if", "what_if", "what_if", ""),
    ("Story", "story_view", "", ""),
    ("Checkpoints", "checkpoint_view", "", ""),
    ("Files", "scratch_files_view", "", "files"),
    ("Neighbours", "neighbours_view", "", "together"),
)
_PAST = ("Jobs", "Story")  # what there is to see of a run that is over
#: what draws them, and what is drawn once for all
_VIEWS = ("headline", "time_toolbar", "allotment_map", "compare", "corridor_chart", "queue")


class HeadlineDeeds:
    """What can be done at any time: pause, and go on."""

    _awaited: Any

    async def do_pause(self, asked: Mapping[str, Any]) -> str:
        """Decide nothing until told otherwise."""
        await self._awaited.pause()
        return "decides nothing until it is resumed"

    async def do_resume(self, asked: Mapping[str, Any]) -> str:
        """Decide again."""
        await self._awaited.resume()
        return "decides again"


class ControlRoom(HeadlineDeeds, JobDeeds, NodeDeeds, PowerDeeds, StoryDeeds, CheckpointDeeds, View):
    """Everything about a managed cluster in one panel: ``ControlRoom(client)``.

    ``source`` is a client, a cluster object or a manager; a cluster that is not managed yet is so from then
    on, by the policy of the configuration. Closing the control room leaves the cluster as it is. With
    ``read_only`` it shows all of it and changes nothing. The result of a simulation is shown in the same way.

    Where a front end has to wait for a cell that computes, the room points to the scheduler's own page: see
    ``Manager.control_page``. The address is told, and never a trait: who has it may change things, and traits
    are saved with a notebook.
    """

    _esm = module("control_room", *_VIEWS, *(one[1] for one in _TABS))
    _css = style()
    parts: ClassVar[tuple[str, ...]] = ("power", "checkpoint", "holds", "files", "together")
    draws = frozenset(
        {
            *("nodes", "presence", "marked", "changes", "jobs", "samples", "marks", "corridor", "power_now"),
            *("story", "signs", "alerts", "figures", "holds", "checkpoint", "in_force", "outside", "curves"),
            *("files", "together"),
        }
    )

    #: its views stand beside each other: what one has, the others need not
    beside = traitlets.Bool(True, read_only=True).tag(sync=True)
    #: as CSS says it
    room_height = traitlets.Unicode("clamp(540px, 84vh, 1100px)").tag(sync=True)
    tabs: Any = traitlets.List(read_only=True).tag(sync=True)
    #: which of them was chosen last
    tab = traitlets.Unicode().tag(sync=True)
    panel = traitlets.Instance(PolicyPanel, allow_none=True).tag(sync=True, **widget_serialization)
    what_if = traitlets.Instance(WhatIf, allow_none=True).tag(sync=True, **widget_serialization)

    _page: str | None = None
    _finding: asyncio.Task[None] | None = None

    def __init__(self, source: Any, height: str | None = None, *, read_only: bool = False) -> None:
        is_over = hasattr(source, "course") and hasattr(source, "metrics")
        self._words = repr(source) if is_over else ""
        given = source.course() if is_over else manager_of(source)
        self.set_trait("tabs", [list(one) for one in _TABS if not is_over or one[0] in _PAST])
        super().__init__(given, read_only=read_only, **({} if height is None else {"room_height": height}))
        if not is_over:
            self.panel = PolicyPanel(given, read_only=read_only)
            self.what_if = WhatIf(given, self.panel, read_only=read_only)

    def on_alert(self, function: Any) -> Any:
        """Call this with whatever is to be told at once: see ``Manager.on_alert``."""
        return self._manager.on_alert(function)

    def report(self, path: str | Path | None = None) -> str:
        """What is shown, as a page of HTML that needs no other file; written to ``path`` if one is given."""
        page = present_html(self._fixed if self._manager is None else self._manager.watch.course.whole())
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def take(self, news: Mapping[str, Any]) -> None:
        """Find the page anew with each change: a cluster that is managed again has another one."""
        if "in_force" in news:
            self._finding = asyncio.ensure_future(self._find_page())
        if not (self._is_heard or self._is_behind):  # whoever opened it may be waiting for a cell already
            self.send({"page": self._page})

    async def _find_page(self) -> None:
        with suppress(Exception):  # the view says itself what is wrong with the cluster
            self._page = await self._awaited.control_page()

    def answer_to_looks(self) -> dict[str, Any]:
        """With the address of the page."""
        return super().answer_to_looks() | {"page": self._page}

    async def do_report(self, asked: Mapping[str, Any]) -> None:
        """Send the report."""
        self.send({"report": self.report()})

    def close(self) -> None:
        """Follow the cluster no more, and leave the page."""
        for part in (self.panel, self.what_if):
            if part is not None:
                part.close()
        super().close()

    def readable(self) -> str:
        """As text: how the cluster is, and its jobs."""
        return self._words or super().readable()

    def lines(self, whole: Mapping[str, Any]) -> Any:
        """How the cluster is, and a line for each job."""
        yield from super().lines(whole)
        yield from job_lines(whole)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        found: Any = super()._repr_mimebundle_(**kwargs)
        found = dict(found[0] if isinstance(found, tuple) else found or {})  # anywidgets differ
        # a front end without widgets shows these; anywidget would cut the text
        found["text/plain"] = words = repr(self)
        found["text/html"] = f"<pre>{escape(words)}</pre>"
        return found


def control_room_of(manager: Any) -> ControlRoom:
    """The one control room that a manager shows itself as, however often it is shown."""
    room = vars(manager).get("control_room")
    if room is None or room.comm is None:
        room = vars(manager)["control_room"] = ControlRoom(manager)
    return room
