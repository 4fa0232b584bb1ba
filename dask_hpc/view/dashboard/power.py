"""The dashboard's chart of power: measured, its corridor, what is forecast, and what was done about it."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    HoverTool,
    Label,
    Legend,
    LegendItem,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
)
from bokeh.plotting import figure

from dask_hpc.model.units import show_bounds, show_large
from dask_hpc.power.scheduler.status import Sample
from dask_hpc.view.dashboard.html import CLOCK, show_clock

if TYPE_CHECKING:
    from dask_hpc.view.dashboard.page import Watched

_SHOWN = 600.0  # seconds that the axis of watts is made for
_AHEAD, _SHARE = 30.0, 0.15  # seconds over which a forecast is drawn; at most as a share of what is there
_VAGUE = 0.3  # of the axis, beyond the rest, that a forecast may take
_BLUE, _GREEN, _RED, _ORANGE = "#0072b2", "#009e73", "#d55e00", "#e69f00"
_EMPTY = "Nobody has measured any power yet."
_TRACE = ("time", "watts", "low", "high", "edge", "red", "said")
_MARKS = ("time", "watts", "sign", "colour", "said")
_BAND = ("left", "right", "bottom", "top")
#: what was done -> how it is marked
_SIGNS = {
    "start": ("triangle", _GREEN),
    "grow": ("triangle", _GREEN),
    "shrink": ("inverted_triangle", _ORANGE),
    "hand-over": ("inverted_triangle", _ORANGE),
    "corridor": ("circle", "#888888"),
}
_OTHER = ("square", "#cc79a7")


class PowerPlot:
    """Watts upwards, time to the right. With ``times``, the range of another plot, it moves along with that
    one, and is not seen while there is nothing to be shown."""

    def __init__(self, times: Any = None) -> None:
        self._seen = 0
        self._watts = Range1d(0, 1)
        self._trace = ColumnDataSource({name: [] for name in _TRACE})
        self._band = ColumnDataSource({name: [] for name in _BAND})
        self._ahead = ColumnDataSource({"time": [], "least": [], "most": []})
        self._marks = ColumnDataSource({name: [] for name in _MARKS})
        is_along = times is not None
        if not is_along:
            times = DataRange1d(follow="end", follow_interval=_SHOWN, range_padding=0)
        self.root = figure(
            title="Power",
            height=260,
            sizing_mode="stretch_width",
            x_range=times,
            y_range=self._watts,
            x_axis_label="time since control began",
            y_axis_label="watts",
            tools=[PanTool(dimensions="width"), WheelZoomTool(dimensions="width"), ResetTool()],
            active_scroll=None,
            output_backend="canvas",
            min_border_right=20,
        )
        self._draw()
        self._empty = Label(
            x=20, y=20, x_units="screen", y_units="screen", text_color="#555555", text_font_size="14px",
            text=_EMPTY,
        )  # fmt: skip
        self.root.add_layout(self._empty)
        self.root.visible = not is_along

    def _draw(self) -> None:
        plot = self.root
        plot.title.text_font_size = "15px"
        plot.xaxis.formatter = CustomJSTickFormatter(code=CLOCK)
        plot.grid.grid_line_alpha = 0.5
        plot.outline_line_color = None
        plot.toolbar.logo = None
        band = plot.quad(
            "left", "right", "top", "bottom", source=self._band, fill_color=_GREEN, fill_alpha=0.14,
            line_color=None,
        )  # fmt: skip
        for edge in ("bottom", "top"):
            plot.segment("left", edge, "right", edge, source=self._band, line_color=_GREEN, line_alpha=0.8)
        ahead = plot.varea("time", "least", "most", source=self._ahead, fill_color=_BLUE, fill_alpha=0.25)
        plot.varea("time", "low", "high", source=self._trace, fill_color=_BLUE, fill_alpha=0.15)
        plot.varea("time", "edge", "watts", source=self._trace, fill_color=_RED, fill_alpha=0.4)
        line = plot.line("time", "watts", source=self._trace, line_color=_BLUE, line_width=1.8)
        red = plot.line("time", "red", source=self._trace, line_color=_RED, line_width=2.6)
        marks = plot.scatter(
            "time", "watts", marker="sign", fill_color="colour", source=self._marks, size=11,
            line_color="white",
        )  # fmt: skip
        items = [("power", line), ("corridor", band), ("outside", red), ("forecast", ahead)]
        entries = [LegendItem(label=label, renderers=[drawn]) for label, drawn in items]
        self._forecast = entries[-1]
        legend = Legend(
            items=entries,
            orientation="horizontal", location="top_left", border_line_color=None, padding=2,
            label_text_font_size="12px", spacing=14, glyph_height=14, background_fill_alpha=0,
        )  # fmt: skip
        plot.add_layout(legend, "above")
        wide = '<div style="max-width: 30em">@said</div>'
        plot.add_tools(
            HoverTool(renderers=[line], tooltips=wide, mode="vline"),
            HoverTool(renderers=[marks], tooltips=wide),
        )

    def update(self, watched: "Watched") -> None:
        """Add what is new."""
        trace = watched.trace
        new = list(trace.since(self._seen))
        if not new:
            return
        self._seen = trace.count
        self._empty.visible, self.root.visible = False, True
        samples = list(trace.samples)
        before = samples[-len(new) - 1] if len(samples) > len(new) else None
        self._trace.stream(_columns(new, before), rollover=trace.samples.maxlen)
        self._scale(samples)
        self._band.data = _corridor(samples, self._watts.end)
        self._ahead.data = _cone(new[-1])
        self._forecast.visible = new[-1].forecast is not None
        self._marks.data = _marks(watched.for_power, samples)

    def _scale(self, samples: Sequence[Sample]) -> None:
        """The axis of watts holds what is seen now: power, and the corridor around it."""
        end = samples[-1].time
        seen = [one for one in samples if one.time >= end - _SHOWN]
        values = [watts for one in seen for watts in (one.watts, one.lower, one.upper) if watts < inf]
        low, high = min(values), max(values)
        if forecast := seen[-1].forecast:  # a vague one is not to squeeze all the rest
            room = _VAGUE * (high - low)
            low, high = min(low, max(forecast.least, low - room)), max(high, min(forecast.most, high + room))
        low = low if low > 0.4 * high else 0.0
        room = (high - low or 1.0) * 0.08
        self._watts.update(start=low - room if low else 0.0, end=high + room)


def _columns(samples: Sequence[Sample], before: Sample | None) -> dict[str, list[Any]]:
    rows = []
    for one in samples:
        is_red = one.is_outside or (
            before is not None and before.is_outside
        )  # up to where it is inside again
        edge = min(max(one.watts, one.lower), one.upper)
        red = one.watts if is_red else float("nan")
        low, high = one.watts - one.uncertainty, one.watts + one.uncertainty
        rows.append((one.time, one.watts, low, high, edge, red, _said(one)))
        before = one
    return {name: [row[number] for row in rows] for number, name in enumerate(_TRACE)}


def _said(one: Sample) -> str:
    """A sample in words, as HTML."""
    parts = [
        f"<b>{show_large(one.watts, 'W')}</b> at {show_clock(one.time)}, {one.origin}",
        f"corridor: {show_bounds(one.lower, one.upper, 'W')}",
    ]
    if one.forecast:
        parts.append(f"forecast: {show_bounds(*one.forecast, 'W')}")
    if one.doubt:
        parts.append(f"not to be trusted: {escape(one.doubt)}")
    return "<br>".join(parts)


def _corridor(samples: Sequence[Sample], top: float) -> dict[str, list[float]]:
    """One block for as long as the bounds stay what they are; none where there are none."""
    pairs = pairwise((None, *samples))
    steps = [one for before, one in pairs if one and (before is None or one[2:4] != before[2:4])]
    ends = [*(one.time for one in steps[1:]), samples[-1].time]
    blocks = [
        (one.time, end, one.lower, min(one.upper, 2 * top))  # no upper bound is one that is out of sight
        for one, end in zip(steps, ends, strict=True)
        if one.lower > 0 or one.upper < inf
    ]
    return {name: [block[number] for block in blocks] for number, name in enumerate(_BAND)}


def _cone(last: Sample) -> dict[str, list[float]]:
    """From power now to what is forecast."""
    if last.forecast is None:
        return {"time": [], "least": [], "most": []}
    least, most = last.forecast
    ahead = min(_AHEAD, max(1.0, _SHARE * last.time))
    return {
        "time": [last.time, last.time + ahead],
        "least": [last.watts, least],
        "most": [last.watts, most],
    }


def _marks(rows: Iterable[Mapping[str, Any]], samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """What was done, where power was at that time."""
    times = [one.time for one in samples]
    marks = []
    for row in rows:
        place = bisect_right(times, row["time"]) - 1
        if place < 0:
            continue
        sign, colour = _SIGNS.get(row["decision"], _OTHER)
        what = f"<b>{row['decision']} {escape(row['job'])}</b> at {show_clock(row['time'])}"
        marks.append((row["time"], samples[place].watts, sign, colour, f"{what}<br>{escape(row['reason'])}"))
    return {name: [mark[number] for mark in marks] for number, name in enumerate(_MARKS)}
