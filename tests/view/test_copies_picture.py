"""The picture of where copies are."""

import re

from dask_hpc.view.checkpoint import copies_svg


def node(name, own=0, kept=()):
    return {"name": name, "own": own, "kept": dict(kept)}


def fills(svg):
    return re.findall(r'<rect [^>]*height="14" fill="(#\w+)"( fill-opacity)?', svg)


def test_copies_have_the_colour_of_the_node_that_holds_the_result():
    svg = copies_svg([node("a", 10, {"b": 5}), node("b", 20, {"a": 10, "": 3})])
    (a, _), (of_b, pale), (b, _), *rest = fills(svg)
    assert a != b and of_b == b and pale
    assert [colour for colour, _ in rest] == ["#999999", a]


def test_lengths_are_to_scale_and_the_longest_fills_its_place():
    svg = copies_svg([node("a", 400), node("b", 100, {"a": 200})])
    assert [float(long) for long in re.findall(r'width="([\d.]+)" height="14"', svg)] == [98, 24.5, 49]


def test_names_are_escaped_and_cut_and_many_nodes_are_counted():
    svg = copies_svg([node(f"<{number}>" + "x" * 50, 1) for number in range(30)])
    assert "<0>" not in svg and "&lt;0&gt;xxx" in svg and "…" in svg
    assert svg.count("<g>") == 24 and "6 nodes more are not shown" in svg


def test_nothing_at_all():
    assert "<svg" in copies_svg([]) and "nothing" in copies_svg([node("a")])
