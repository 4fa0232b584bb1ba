"""A field of numbers as a picture: colours for a terminal, a PNG for a page."""

import base64
import struct
import zlib
from typing import Any

import numpy as np

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
