"""How long each iteration of a pipeline took, drawn in a terminal: one character for each of the newest."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dask_hpc.model.units import show_duration
from dask_hpc.report.phases import COLOURS

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LABEL = 9  # characters to the left


@dataclass(frozen=True, slots=True)
class IterationBars:
    """A bar has the colour of the part of the machine that took longest, a line is what was planned, and a
    sign stands above the iterations from which on there was another partition."""

    #: as in a pipeline's status
    history: Sequence[Mapping[str, Any]]
    changes: Collection[int] = ()
    height: int = 5

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.rows(max(options.max_width - _LABEL, 10))

    def rows(self, width: int) -> Iterator[Text]:
        """From the top down."""
        shown = self.history[-width:]
        if not shown:
            return
        top = max(max(one["seconds"], one["expected"] or 0.0) for one in shown) or 1.0
        signs = "".join("▼" if one["iteration"] in self.changes else " " for one in shown)
        yield Text(" " * _LABEL).append(signs, "bold #d55e00")
        for row in range(self.height, 0, -1):
            label = {self.height: show_duration(top), 1: "0 s"}.get(row, "")
            line = Text(f"{label:>{_LABEL - 1}} ", "dim", no_wrap=True)
            for one in shown:
                line.append(*self._cell(one, row, top))
            yield line
        first, last = f"iteration {shown[0]['iteration']}", f" {shown[-1]['iteration']}"
        yield Text(" " * _LABEL + first + last.rjust(len(shown) - len(first)), "dim", no_wrap=True)

    def _cell(self, one: Mapping[str, Any], row: int, top: float) -> tuple[str, str]:
        """The sign of a bar in one row, counted from the bottom, and its style."""
        eighths = round(8 * (one["seconds"] / top * self.height - row + 1))
        colour = COLOURS[max(COLOURS, key=lambda part: one["measured"][part])]
        if eighths > 0:
            return _EIGHTHS[min(eighths, 8)], f"not dim {colour}"
        is_planned = one["expected"] is not None and row - 1 < one["expected"] / top * self.height <= row
        return ("╌", "not dim") if is_planned else (" ", "")
