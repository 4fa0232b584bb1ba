"""A line over time, and a band it is to stay in, drawn in a terminal with Braille's dots."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf, log10
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dask_hpc.model.units import show_duration, show_large
from dask_hpc.view.in_situ import COLOURS

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a cell, from its top row down
_BRAILLE = 0x2800
_LABEL = 9  # characters to the left
_SMALL = 1e-6  # differences that nobody wants to see, and that floats can hardly tell apart


@dataclass(frozen=True, slots=True)
class Line:
    """A quantity over time; straight between two values."""

    time: Sequence[float]
    value: Sequence[float]
    style: str = "bright_blue"


@dataclass(frozen=True, slots=True)
class LineChart:
    """As wide as the console. The newest ``seconds`` are seen, or what lies between the times of ``span``.

    In ``band`` are bounds from each time on; parts of lines that are not within them have another colour.
    ``marks`` are signs and styles by time."""

    lines: Sequence[Line]
    unit: str = "W"
    seconds: float = inf
    span: tuple[float, float] | None = None
    height: int = 12
    band: Sequence[tuple[float, float, float]] = ()
    marks: Mapping[float, tuple[str, str]] = field(default_factory=dict)
    band_style: str = "on #17402f"
    outside_style: str = "bold #ff7f3f"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.rows(max(options.max_width - _LABEL, 10), has_colour=console.color_system is not None)

    def rows(self, width: int, has_colour: bool = True) -> Iterator[Text]:
        """The chart from the top down, so many characters wide beside what stands at its left."""
        begin, end = self.span or self._newest()
        end = max(end, begin + 1e-9)
        low, high = self._scale(begin, end)
        canvas = _Canvas(self, width, begin, end, low, high)
        for line in self.lines:
            canvas.draw(line)
        labels = canvas.labels(self.unit)
        for row in range(self.height):
            yield canvas.row(row, labels.get(row, ""), has_colour)
        if self.marks:
            yield canvas.marks()
        left, right = show_duration(begin), show_duration(end)
        yield Text(" " * _LABEL + left + right.rjust(width - len(left)), style="dim")

    def _newest(self) -> tuple[float, float]:
        times = [time for line in self.lines for time in line.time]
        end = max(times, default=1.0)
        return max(min(times, default=0.0), end - self.seconds), end

    def _scale(self, begin: float, end: float) -> tuple[float, float]:
        """From where to where the axis reaches: what is seen, and the band."""
        values = [
            value
            for line in self.lines
            for time, value in zip(line.time, line.value, strict=True)
            if begin <= time <= end
        ]
        for number, (start, *bounds) in enumerate(self.band):
            until = self.band[number + 1][0] if number + 1 < len(self.band) else inf
            if start <= end and until > begin:
                values += [bound for bound in bounds if bound < inf]
        low, high = min(values, default=0.0), max(values, default=1.0)
        low = low if low > 0.4 * high else 0.0
        room = 0.06 * (high - low if high - low > _SMALL else 1.0)
        return low - room if low else 0.0, high + room


class _Canvas:
    """Cells of two by four dots."""

    def __init__(
        self, chart: LineChart, width: int, begin: float, end: float, low: float, high: float
    ) -> None:
        self._chart, self._width = chart, width
        self._begin, self._end, self._low, self._high = begin, end, low, high
        self._dots: dict[tuple[int, int], int] = {}
        self._styles: dict[tuple[int, int], str] = {}
        self._steps = [step[0] for step in chart.band]

    def draw(self, line: Line) -> None:
        """Dots of a line, and between neighbours that are apart."""
        before: int | None = None
        for column in range(2 * self._width):
            time = self._begin + (column + 0.5) / (2 * self._width) * (self._end - self._begin)
            value = _at(line, time)
            if value is None:
                continue
            place = self._place(value)
            lower, upper = self._bounds(time)
            style = line.style if lower <= value <= upper else self._chart.outside_style
            start = place if before is None else before + (before < place) - (before > place)
            for dot in range(min(start, place), max(start, place) + 1):
                self._dot(column, dot, style)
            before = place

    def row(self, row: int, label: str, has_colour: bool) -> Text:
        """One line of text."""
        text = Text(f"{label:>{_LABEL - 1}} ", style="dim", no_wrap=True)
        for column in range(self._width):
            dots = self._dots.get((row, column), 0)
            is_in_band = self._is_in_band(row, column)
            sign = chr(_BRAILLE | dots) if dots else "░" if is_in_band and not has_colour else " "
            style = self._styles.get((row, column), "")
            text.append(sign, f"not dim {style} {self._chart.band_style if is_in_band else ''}")
        return text

    def labels(self, unit: str) -> dict[int, str]:
        """Round values, by row."""
        span = self._high - self._low
        raw = span / max(2, self._chart.height // 3)
        ten = 10.0 ** floor(log10(raw))
        step = next(n * ten for n in (1, 2, 5, 10) if n * ten >= raw * 0.999)
        found = {}
        value = -(-self._low // step) * step
        while value <= self._high:
            found[self._place(value) // 4] = show_large(value, unit)
            value += step
        return found

    def marks(self) -> Text:
        """Signs below, each at its time."""
        signs = {}
        for time, (sign, style) in sorted(self._chart.marks.items()):
            if self._begin <= time <= self._end:
                signs[self._column(time)] = (sign, style)
        text = Text(" " * _LABEL, no_wrap=True)
        for column in range(self._width):
            text.append(*signs.get(column, (" ", "")))
        return text

    def _is_in_band(self, row: int, column: int) -> bool:
        if not self._steps:
            return False
        time = self._begin + (column + 0.5) / self._width * (self._end - self._begin)
        lower, upper = self._bounds(time)
        if lower <= 0 and upper == inf:
            return False
        middle = self._high - (row + 0.5) / self._chart.height * (self._high - self._low)
        return lower <= middle <= upper

    def _bounds(self, time: float) -> tuple[float, float]:
        if not self._steps:
            return -inf, inf
        _, lower, upper = self._chart.band[max(bisect_right(self._steps, time) - 1, 0)]
        return lower, upper

    def _column(self, time: float) -> int:
        share = (time - self._begin) / (self._end - self._begin)
        return min(int(share * self._width), self._width - 1)

    def _place(self, value: float) -> int:
        """Dots below the top."""
        share = (self._high - value) / (self._high - self._low)
        return min(max(int(share * 4 * self._chart.height), 0), 4 * self._chart.height - 1)

    def _dot(self, column: int, place: int, style: str) -> None:
        cell = (place // 4, column // 2)
        self._dots[cell] = self._dots.get(cell, 0) | _DOTS[place % 4][column % 2]
        if self._styles.get(cell) != self._chart.outside_style:
            self._styles[cell] = style


def _at(line: Line, time: float) -> float | None:
    """The value at a time; None before the first and after the last."""
    if not line.time or not line.time[0] <= time <= line.time[-1]:
        return None
    right = bisect_right(line.time, time)
    if right == len(line.time):
        return line.value[-1]
    start, end = line.time[right - 1], line.time[right]
    share = (time - start) / (end - start)
    return line.value[right - 1] * (1 - share) + line.value[right] * share


_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LABEL_OF_ITERATION_BARS = 9  # characters to the left


@dataclass(frozen=True, slots=True)
class IterationBars:
    """A bar has the colour of the part of the machine that took longest, a line is what was planned, and a
    sign stands above the iterations from which on there was another partition."""

    #: as in a pipeline's status
    history: Sequence[Mapping[str, Any]]
    changes: Collection[int] = ()
    height: int = 5

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.rows(max(options.max_width - _LABEL_OF_ITERATION_BARS, 10))

    def rows(self, width: int) -> Iterator[Text]:
        """From the top down."""
        shown = self.history[-width:]
        if not shown:
            return
        top = max(max(one["seconds"], one["expected"] or 0.0) for one in shown) or 1.0
        signs = "".join("▼" if one["iteration"] in self.changes else " " for one in shown)
        yield Text(" " * _LABEL_OF_ITERATION_BARS).append(signs, "bold #d55e00")
        for row in range(self.height, 0, -1):
            label = {self.height: show_duration(top), 1: "0 s"}.get(row, "")
            line = Text(f"{label:>{_LABEL_OF_ITERATION_BARS - 1}} ", "dim", no_wrap=True)
            for one in shown:
                line.append(*self._cell(one, row, top))
            yield line
        first, last = f"iteration {shown[0]['iteration']}", f" {shown[-1]['iteration']}"
        yield Text(
            " " * _LABEL_OF_ITERATION_BARS + first + last.rjust(len(shown) - len(first)), "dim", no_wrap=True
        )

    def _cell(self, one: Mapping[str, Any], row: int, top: float) -> tuple[str, str]:
        """The sign of a bar in one row, counted from the bottom, and its style."""
        eighths = round(8 * (one["seconds"] / top * self.height - row + 1))
        colour = COLOURS[max(COLOURS, key=lambda part: one["measured"][part])]
        if eighths > 0:
            return _EIGHTHS[min(eighths, 8)], f"not dim {colour}"
        is_planned = one["expected"] is not None and row - 1 < one["expected"] / top * self.height <= row
        return ("╌", "not dim") if is_planned else (" ", "")
