"""A field in a terminal."""

import numpy as np
from rich.console import Console

from dask_hpc.view.field import FieldPicture

FIELD = np.linspace(0, 1, 600).reshape(20, 30)


def printed(colours, **more):
    console = Console(width=60, force_terminal=True, color_system=colours)
    with console.capture() as capture:
        console.print(FieldPicture(FIELD, 0, 1, **more))
    return capture.get()


def test_two_pixels_stand_in_one_character():
    shown = printed("truecolor", width=30, height=10)
    assert shown.count("▀") == 300 and len(shown.splitlines()) == 10
    assert "38;2;4;4;16" in shown  # the coldest colour, in front


def test_it_is_no_larger_than_asked_and_no_wider_than_there_is_room():
    assert printed("truecolor", width=12, height=4).count("▀") == 48
    assert len(FieldPicture(FIELD, 0, 1, width=200).rows(200).__next__()) == 30


def test_an_odd_number_of_rows_has_a_last_line_of_one_pixel():
    rows = list(FieldPicture(FIELD[:5], 0, 1).rows(40))
    assert len(rows) == 3 and rows[-1].plain == "▀" * 30


def test_without_colours_there_are_shades():
    shown = printed(None, width=30, height=10)
    assert "▀" not in shown and shown.splitlines()[0].startswith("  ") and "@" in shown.splitlines()[-1]
