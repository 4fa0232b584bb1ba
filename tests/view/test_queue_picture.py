"""The picture of a queue: free nodes, holes, and jobs that are asked for."""

import re

from dask_hpc.view.queue import QueuedBar, queue_svg

HOUR = 3600.0
FREE = [(0.0, 3), (HOUR, 1), (2 * HOUR, 4)]


def rects(svg):
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" [^>]*fill="(#\w+)"', svg)
    return [(float(x), float(wide), colour) for x, wide, colour in found]


def outlines(svg):
    """Where the steps of the two areas are, and how high: in pixels."""
    found = re.findall(r'<path d="M120 154((?:H[\d.]+V[\d.]+)*)H736V154Z"', svg)
    return [[(float(x), float(y)) for x, y in re.findall(r"H([\d.]+)V([\d.]+)", one)] for one in found]


def test_areas_are_to_scale():
    free, holes = outlines(queue_svg(FREE, [], 4 * HOUR, [(HOUR, 3), (3 * HOUR, 1)]))
    assert free == [(120.0, 56.5), (274.0, 121.5), (428.0, 24.0)]  # of four nodes in 130 pixels
    assert holes == [(120.0, 56.5), (274.0, 121.5), (582.0, 154.0)]
    free, _ = outlines(queue_svg(FREE, [], 2 * HOUR))
    assert free == [(120.0, 24.0), (428.0, 110.7)]  # of the three nodes that are free till then
    assert outlines(queue_svg([(0.0, 0)], [], HOUR)) == [[(120.0, 154.0)], [(120.0, 154.0)]]


def test_a_row_for_each_job_and_a_colour_for_each_kind():
    bars = [QueuedBar("ours", 0.0, HOUR), QueuedBar("ours", 0.0, HOUR), QueuedBar("usual", HOUR, 8 * HOUR)]
    svg = queue_svg(FREE, bars, 4 * HOUR)
    (first, second, usual) = rects(svg)
    assert first == second and first[:2] == (120.0, 154.0)
    assert usual[:2] == (274.0, 462.0) and usual[2] != first[2], "it ends where the picture does"
    assert svg.count(">ours</text>") == 1 and "8.0 h" in svg and "<circle" not in svg


def test_what_was_expected_and_what_came():
    bar = QueuedBar("<usual>", 2 * HOUR, HOUR, low=HOUR, high=3 * HOUR, really=2.5 * HOUR)
    svg = queue_svg(FREE, [bar], 4 * HOUR)
    assert "M274.0 193.0H582.0" in svg and '<circle cx="505" cy="193"' in svg
    assert "starts in 2.0 h (most likely in 60.0 min to 3.0 h); it really started after 2.5 h" in svg
    assert "<usual>" not in svg
    late = QueuedBar("x", 9 * HOUR, HOUR, low=0.0, high=0.0, really=9 * HOUR)
    svg = queue_svg(FREE, [late], 4 * HOUR)
    assert "<circle" not in svg and "most likely" not in svg
