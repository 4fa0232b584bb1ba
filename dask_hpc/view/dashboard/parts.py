"""What the dashboard shows, as Bokeh models: figures, who held which node when, jobs, decisions."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    Div,
    FixedTicker,
    HoverTool,
    Label,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
)
from bokeh.plotting import figure

from dask_hpc.view.course import Span
from dask_hpc.view.dashboard.html import CLOCK, CSS, INK, cards, decisions_table, jobs_table, short

if TYPE_CHECKING:
    from dask_hpc.view.dashboard.page import Watched

_SHOWN = 600.0  # seconds that are seen at first
_MOST_NAMES = 40  # of nodes along the axis
_PIXELS, _LETTER = 1000, 7.5  # a guess of the plot's width, and of a letter's
_EMPTY = "No job has run yet: what is submitted in  with dask_hpc.job(...):  or by  dask-hpc run  shows here."
_COLUMNS = (
    "left",
    "right",
    "bottom",
    "top",
    "colour",
    "ink",
    "job",
    "names",
    "label",
    "middle",
    "y",
    "reason",
)


class Figures:
    """One line of current figures."""

    def __init__(self) -> None:
        self.root = Div(stylesheets=[CSS], sizing_mode="stretch_width", margin=(10, 0, 4, 0))

    def update(self, watched: "Watched") -> None:
        """Look again."""
        _say(self.root, cards(watched.status(), watched.is_open))


class Jobs:
    """Jobs that run; jobs that wait, and why; the last ones that are done."""

    def __init__(self) -> None:
        self.root = _panel()

    def update(self, watched: "Watched") -> None:
        """Look again."""
        _say(self.root, jobs_table(watched.status(), watched.now(), watched.colour))


class Decisions:
    """The newest rows of the story."""

    def __init__(self) -> None:
        self.root = _panel()
        self._seen = -1

    def update(self, watched: "Watched") -> None:
        """Look again, if there is anything new."""
        if watched.read != self._seen:
            self._seen = watched.read
            _say(self.root, decisions_table(watched.newest(), watched.colour))


class AllotmentsPlot:
    """Nodes upwards, time to the right; what a job holds is a block with its name on it."""

    def __init__(self) -> None:
        self._seen = -1
        self._places: dict[str, int] = {}
        self._there = ColumnDataSource({name: [] for name in ("left", "right", "bottom", "top")})
        self._over = ColumnDataSource({name: [] for name in _COLUMNS})
        self._held = ColumnDataSource({name: [] for name in _COLUMNS})
        self._rows = Range1d(0, 1)
        #: the range along the axis of time
        self.times = DataRange1d(follow="end", follow_interval=_SHOWN, range_padding=0)
        self.root = figure(
            title="Who holds which node",
            height=330,
            sizing_mode="stretch_width",
            x_range=self.times,
            y_range=self._rows,
            x_axis_label="time since control began",
            y_axis_label="node",
            tools=[PanTool(dimensions="width"), WheelZoomTool(dimensions="width"), ResetTool()],
            active_scroll=None,
            output_backend="canvas",
            min_border_right=20,
        )
        self.root.title.text_font_size = "15px"
        self.root.xaxis.formatter = CustomJSTickFormatter(code=CLOCK)
        self.root.grid.grid_line_color = None
        self.root.outline_line_color = None
        self.root.yaxis.major_tick_line_color = None
        self.root.toolbar.logo = None
        self.root.quad(
            "left", "right", "top", "bottom", source=self._there, fill_color="#eef0f2", line_color=None
        )
        blocks = [
            self.root.quad(
                "left", "right", "top", "bottom", source=source, fill_color="colour", line_color="white",
                line_width=1,
            )
            for source in (self._over, self._held)
        ]  # fmt: skip
        for source in (self._over, self._held):
            self.root.text(
                "middle", "y", "label", source=source, text_color="ink", text_font_size="12px",
                text_align="center", text_baseline="middle",
            )  # fmt: skip
        self._empty = Label(
            x=20, y=20, x_units="screen", y_units="screen", text_color="#555555", text_font_size="14px",
            text=_EMPTY,
        )  # fmt: skip
        self.root.add_layout(self._empty)
        hover = "<b>@job</b> on @names<br>from @left{0.0} s to @right{0.0} s<br>@reason"
        self.root.add_tools(
            HoverTool(renderers=blocks, tooltips=f'<div style="max-width: 30em">{hover}</div>')
        )

    def update(self, watched: "Watched") -> None:
        """Draw anew if there is anything new; else only let time go on for what is there."""
        now = watched.now()
        allotments = watched.allotments
        if watched.read != self._seen:
            self._seen = watched.read
            self._place({span.node for span in allotments.spans()} | set(allotments.joined))
            self._over.data = self._blocks(watched, allotments.over, now)
            self._there.data = self._presence(allotments.joined, now)
            self._empty.visible = not (allotments.over or allotments.held)
        elif watched.is_open and (count := len(self._there.data["right"])):
            self._there.patch({"right": [(slice(0, count), [now] * count)]})
        if watched.is_open:
            self._held.data = self._blocks(watched, allotments.held.values(), now)

    def _place(self, nodes: Iterable[str]) -> None:
        """Names along the axis: all, or as many as can be read."""
        names = sorted(nodes, key=_natural, reverse=True)  # the first on top
        self._places = {name: number for number, name in enumerate(names)}
        self._rows.end = max(1, len(names))
        step = -(-len(names) // _MOST_NAMES) or 1
        shown = range(len(names) - 1, -1, -step)
        axis = self.root.yaxis[0]
        axis.ticker = FixedTicker(ticks=[number + 0.5 for number in shown])
        axis.major_label_overrides = {number + 0.5: short(names[number], 24) for number in shown}

    def _blocks(self, watched: "Watched", spans: Iterable[Span], now: float) -> dict[str, Sequence[Any]]:
        """Neighbouring nodes that a job got and left together are one block."""
        rows = []
        placed = sorted(
            (span.job, span.start, span.end or now, self._places[span.node], span.node, span.reason)
            for span in spans
            if span.node in self._places
        )
        seen = max(min(now, _SHOWN), 1e-9)
        for (job, start, end, _), group in groupby(
            enumerate(placed), lambda pair: (*pair[1][:3], pair[1][3] - pair[0])
        ):
            ones = [one for _, one in group]
            bottom, top = ones[0][3], ones[-1][3] + 1
            colour = watched.colour(job)
            letters = (end - start) / seen * _PIXELS / _LETTER - 1
            names = (job, job.rpartition("-")[0])  # the second without what makes it unique
            label = next((name for name in names if len(name) <= letters), "")
            rows.append(
                (
                    start, end, bottom + 0.04, top - 0.04, colour, INK[colour], job,
                    ", ".join(one[4] for one in reversed(ones)), label,
                    (start + end) / 2, (bottom + top) / 2, ones[0][5],
                )
            )  # fmt: skip
        return {name: [row[number] for row in rows] for number, name in enumerate(_COLUMNS)}

    def _presence(self, joined: dict[str, float], now: float) -> dict[str, Sequence[Any]]:
        places = [self._places[node] for node in joined]
        return {
            "left": list(joined.values()),
            "right": [now] * len(joined),
            "bottom": [place + 0.04 for place in places],
            "top": [place + 0.96 for place in places],
        }


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _panel() -> Div:
    # The frame scrolls, not what is in it: that is replaced again and again.
    frame = {"background": "#fff", "border": "1px solid #e2e4e7", "border-radius": "8px", "overflow": "auto"}
    return Div(
        stylesheets=[CSS],
        styles={**frame, "padding": "0 14px 8px", "box-sizing": "border-box"},
        sizing_mode="stretch_width",
        height=430,
        margin=(4, 0, 0, 0),
    )


def _say(div: Div, text: str) -> None:
    if div.text != text:
        div.text = text
