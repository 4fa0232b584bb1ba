"""The chart in a terminal: what is drawn is where it belongs."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dask_hpc.view.terminal import Line, LineChart

DOTS = range(0x2801, 0x2900)


def drawn(chart, width=40, has_colour=False):
    return [row.plain[9:] for row in chart.rows(width, has_colour)]


def height_of(rows, column):
    """The row in which the line is, from the top."""
    return [number for number, row in enumerate(rows) if ord(row[column]) in DOTS]


def test_a_line_that_rises_and_its_band():
    chart = LineChart([Line([0, 10], [0, 100])], height=10, band=[(0, 0, 50), (5, 50, inf)])
    rows = drawn(chart)
    assert min(height_of(rows, 1)) == 9 and max(height_of(rows, 38)) == 0
    assert rows[8][15] == "░" and rows[2][5] == " " and rows[0][22] == "░" and rows[8][38] == " "
    assert rows[-1].startswith("0 s") and rows[-1].endswith("10 s")
    labels = [row.plain[:8].strip() for row in chart.rows(40)]
    assert "0 W" in labels and "50 W" in labels


def test_what_is_outside_is_told_apart_by_its_colour():
    chart = LineChart([Line([0, 10], [80, 80], "blue")], band=[(0, 0, 50), (5, 50, 90)], outside_style="red")
    styles = {}
    for row in chart.rows(40):
        for start, _, style in row.spans:
            if start >= 9 and ord(row.plain[start]) in DOTS:
                styles[start - 9] = str(style)
    assert "red" in styles[5] and "blue" in styles[30]


def test_only_the_newest_is_seen_and_marks_stand_below():
    line = Line(list(range(101)), [1000.0] * 50 + [10.0] * 51)
    chart = LineChart([line], seconds=40, marks={80: ("▲", "green"), 10: ("▼", "red")})
    rows = drawn(chart)
    assert rows[-2].strip() == "▲" and rows[-2].index("▲") == 20
    assert rows[-1].startswith("60 s")
    assert not any("kW" in row.plain for row in chart.rows(40))


def test_it_fits_the_console():
    console = Console(width=50, color_system=None, force_terminal=False, file=None, record=True, quiet=False)
    with console.capture() as captured:
        console.print(LineChart([Line([0, 1], [1, 2])]))
    assert all(len(line) <= 50 for line in captured.get().splitlines())


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e7)), max_size=9),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6) | st.just(inf)), max_size=4),
    st.integers(10, 60),
    st.integers(3, 15),
)
def test_anything_can_be_drawn(points, bounds, width, height):
    points = sorted(dict(points).items())
    band = sorted({time: (time, low, low + more) for time, low, more in bounds}.values())
    line = Line([time for time, _ in points], [value for _, value in points])
    rows = drawn(LineChart([line], height=height, band=band), width)
    assert len(rows) == height + 1 and all(len(row) == width for row in rows[:-1])
    if len(points) > 1 and points[-1][0] - points[0][0] > 1e-6:  # a moment has no column of its own
        assert any(ord(sign) in DOTS for row in rows for sign in row)
