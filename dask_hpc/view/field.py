"""A field of numbers as a picture: colours for a terminal, a PNG for a page."""

import base64
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

#: from cold to hot, as shares of red, green and blue
_HEAT = np.array(
    [[4, 4, 16], [52, 12, 92], [130, 28, 96], [205, 58, 66], [246, 134, 26], [252, 208, 72], [255, 252, 210]]
)


def thinned(field: Any, rows: int, columns: int) -> np.ndarray:
    """A field of at most so many rows and columns: each number is the mean of those that it stands for."""
    field = np.asarray(field, dtype=float)
    for axis, most in enumerate((rows, columns)):
        size = field.shape[axis]
        starts = np.unique(np.linspace(0, size, min(most, size), endpoint=False).astype(int))
        counts = np.diff(np.append(starts, size))
        field = np.add.reduceat(field, starts, axis=axis) / (counts[:, None] if axis == 0 else counts)
    return field


def heat_colours(field: Any, low: float, high: float) -> np.ndarray:
    """Red, green and blue (0 to 255) of every number, along a new last axis; beyond the bounds is as at them,
    and what is no number is grey."""
    field = np.asarray(field, dtype=float)
    place = np.clip((field - low) / max(high - low, 1e-300), 0, 1) * (len(_HEAT) - 1)
    known = np.isfinite(place)
    place = np.where(known, place, 0)
    left = np.minimum(place.astype(int), len(_HEAT) - 2)
    share = (place - left)[..., None]
    found = _HEAT[left] * (1 - share) + _HEAT[left + 1] * share
    return np.where(known[..., None], found.round(), 128).astype(np.uint8)


def field_png(field: Any, low: float, high: float) -> bytes:
    """The field as a PNG of one pixel per number, its first row on top."""
    pixels = heat_colours(field, low, high)
    height, width = pixels.shape[:2]
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def field_html(field: Any, low: float, high: float, *, alt: str, width: str = "100%") -> str:
    """The picture as HTML that needs no other file; pixels stay sharp when it is enlarged."""
    data = base64.b64encode(field_png(field, low, high)).decode()
    return (
        f'<img alt="{alt}" src="data:image/png;base64,{data}" '
        f'style="width:{width};image-rendering:pixelated;border-radius:4px;display:block">'
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


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
