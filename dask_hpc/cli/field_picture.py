"""A field of numbers as a small picture in a terminal: two pixels to a character, one above the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dask_hpc.report.field import heat_colours, thinned

_SHADES = " .:-=+*#%@"  # where there is no colour


@dataclass(frozen=True, slots=True)
class FieldPicture:
    """At most so many characters wide and high; ``low`` and ``high`` have the coldest and hottest colour."""

    field: Any
    low: float
    high: float
    width: int = 48
    height: int = 12

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.rows(min(self.width, options.max_width), console.color_system is not None)

    def rows(self, width: int, has_colour: bool = True) -> Iterator[Text]:
        """From the top down."""
        if not has_colour:
            yield from self._shades(width)
            return
        colours = heat_colours(thinned(self.field, 2 * self.height, width), self.low, self.high)
        for number in range(0, len(colours), 2):
            row = Text(no_wrap=True)
            above = colours[number]
            below = colours[min(number + 1, len(colours) - 1)]
            for one, other in zip(above, below, strict=True):
                row.append("▀", f"{_style(one)} on {_style(other)}")
            yield row

    def _shades(self, width: int) -> Iterator[Text]:
        field = thinned(self.field, self.height, width)
        share = np.clip((field - self.low) / max(self.high - self.low, 1e-300), 0, 1)
        for row in (np.nan_to_num(share) * (len(_SHADES) - 1)).round().astype(int):
            yield Text("".join(_SHADES[place] for place in row), no_wrap=True)


def _style(colour: Any) -> str:
    return f"rgb({colour[0]},{colour[1]},{colour[2]})"
