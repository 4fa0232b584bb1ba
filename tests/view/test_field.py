"""Fields as pictures."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.view.field import field_html, field_png, heat_colours, thinned


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), st.integers(1, 50))
def test_a_thinned_field_has_means_within_bounds(height, width, rows, columns):
    field = np.arange(height * width, dtype=float).reshape(height, width)
    thin = thinned(field, rows, columns)
    assert thin.shape == (min(height, rows), min(width, columns))
    assert thin.min() >= field.min() and thin.max() <= field.max()
    if height % thin.shape[0] == 0 and width % thin.shape[1] == 0:
        assert thin.mean() == pytest.approx(field.mean())


def test_colours_go_from_dark_to_bright_and_know_what_is_no_number():
    light = heat_colours(np.linspace(-1, 2, 31), 0.0, 1.0).astype(int).sum(axis=-1)
    assert (np.diff(light) >= 0).all()
    assert light[0] == light[10] < 50 and light[-1] == light[20] > 600
    assert heat_colours([float("nan")], 0, 1).tolist() == [[128, 128, 128]]
    assert heat_colours([3.0, 3.0], 3, 3).tolist() == [[4, 4, 16]] * 2  # a field that is the same everywhere


def test_a_png_holds_these_pixels():
    field = np.linspace(0, 1, 15).reshape(3, 5)
    png = field_png(field, 0, 1)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (5, 3)
    at = png.index(b"IDAT")
    lines = zlib.decompress(png[at + 4 : at + 4 + struct.unpack(">I", png[at - 4 : at])[0]])
    pixels = np.frombuffer(lines, np.uint8).reshape(3, 16)
    assert (pixels[:, 0] == 0).all()
    assert (pixels[:, 1:].reshape(3, 5, 3) == heat_colours(field, 0, 1)).all()


def test_a_picture_needs_no_other_file():
    html = field_html(np.eye(4), 0, 1, alt="a plate")
    assert 'src="data:image/png;base64,' in html and 'alt="a plate"' in html and "http" not in html
