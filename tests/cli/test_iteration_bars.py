"""Iterations in a terminal."""

from dask_hpc.view.in_situ import COLOURS
from dask_hpc.view.terminal import IterationBars


def rows(count=20):
    for number in range(count):
        slow = number >= 10
        yield {
            "iteration": number,
            "seconds": 2.0 if slow else 1.0,
            "expected": None if number < 3 else 1.0 if not slow else 1.5,
            "measured": {"simulation": 1.0, "in_situ": 2.0 if slow else 0.5, "in_transit": 0.1},
        }


def drawn(width=80, **more):
    return list(IterationBars(list(rows()), **more).rows(width))


def test_bars_are_as_high_as_iterations_were_long():
    lines = drawn(changes={3, 10})
    assert [line.plain[9:] for line in lines[1:6]] == [
        " " * 10 + "█" * 10,
        " " * 10 + "█" * 10,
        "▄" * 10 + "█" * 10,
        "█" * 20,
        "█" * 20,
    ]
    assert lines[0].plain[9:] == "   ▼      ▼         "
    assert lines[1].plain.startswith("     2 s") and lines[5].plain.startswith("     0 s")
    assert lines[6].plain[9:].startswith("iteration 0") and lines[6].plain.endswith(" 19")


def test_a_bar_has_the_colour_of_what_took_longest():
    styles = [str(span.style) for span in drawn()[5].spans]
    assert any(COLOURS["simulation"] in style for style in styles[:10])
    assert any(COLOURS["in_situ"] in style for style in styles[10:])


def test_what_was_planned_is_a_line_above_shorter_bars():
    history = [one | {"seconds": 0.2} for one in rows(6)]
    lines = list(IterationBars(history).rows(40))
    assert sum(line.plain[9:].count("╌") for line in lines) == 3


def test_only_the_newest_have_room():
    lines = drawn(width=12)
    assert lines[-1].plain[9:].startswith("iteration 8")
    assert all(len(line.plain) <= 9 + 23 for line in lines)
    assert list(IterationBars([]).rows(10)) == []
