"""The picture of how far a program was when."""

import re

from dask_hpc.view.checkpoint import Mark, course_svg


def lines(svg):
    return [
        [tuple(map(float, pair.split(","))) for pair in line.split()]
        for line in re.findall(r'polyline points="([^"]*)"', svg)
    ]


def test_the_line_goes_up_and_is_cut_where_the_program_ended():
    points = [(1.0, 1), (2.0, 2), (3.0, 3), (8.0, 3), (9.0, 4)]
    first, second = lines(course_svg(points, [Mark(2.5, "one dies"), Mark(3.5, "all <die>", ends=True)]))
    assert len(first) == 3 and len(second) == 2
    assert [x for x, _ in first] == sorted(x for x, _ in first)
    assert first[0][1] > first[1][1] > first[2][1] == second[0][1] > second[1][1]


def test_marks_are_escaped_and_everything_is_in_the_label():
    svg = course_svg([(1.0, 1)], [Mark(0.5, "<a>")])
    assert "<a>" not in svg and "&lt;a&gt; at 0.5 s" in svg and "iteration 1 after 1 s" in svg


def test_nothing_at_all():
    assert "no iteration" in course_svg([])
