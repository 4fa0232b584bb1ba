"""A partition as a picture."""

import xml.etree.ElementTree as ET
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.in_situ.partition import Partition, Phases
from dask_hpc.view.in_situ import COLOURS, partition_svg

SVG = "{http://www.w3.org/2000/svg}"
PARTITION = Partition("async", 3, 1, ("front", "<b>"), ("spectrum",), Phases(0.5, 0.4, 0.45))


def areas(svg):
    """What is said of each area -> (its colour, width x height)."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        size = float(rect.get("width")) * float(rect.get("height"))
        found[group.find(f"{SVG}title").text] = (rect.get("fill"), size)
    return found


def test_three_colours_have_as_much_room_as_they_have_cores():
    found = areas(partition_svg(PARTITION, 4, 4))
    assert list(found) == [
        "3 nodes, 3 cores of each: simulation",
        "3 nodes, 1 cores of each: in situ: front, <b>",
        "1 nodes, 4 cores of each: in transit: spectrum",
    ]
    assert [colour for colour, _ in found.values()] == [*COLOURS.values()]
    (_, simulation), (_, in_situ), (_, in_transit) = found.values()
    assert simulation == pytest.approx(9 * in_situ / 3) and in_transit == pytest.approx(4 * in_situ / 3)


def test_in_sync_mode_all_cores_do_both_by_turns():
    sync = Partition("sync", 4, 0, ("front",), (), Phases(0.5, 0.4, 0))
    assert list(areas(partition_svg(sync, 4, 2))) == [
        "4 nodes, 2 cores of each: simulation, then in situ: front"
    ]


def test_nodes_that_nobody_needs_are_idle():
    found = areas(partition_svg(Partition("async", 1, 1, ("front",), (), Phases(1, 1, 0)), 4, 2))
    assert found["3 nodes, 2 cores of each: idle"][0] not in COLOURS.values()


def test_bars_say_how_long_each_takes():
    words = [one.text for one in ET.fromstring(partition_svg(PARTITION, 4, 4)).iter(f"{SVG}text")]
    assert words[0] == "async: 3 of 4 nodes (4 cores) simulate, 1 helper core each"
    assert words[-8:] == [
        "simulation",
        "0.5 s",
        "in situ",
        "0.4 s",
        "in transit",
        "0.45 s",
        "iteration",
        "0.5 s",
    ]
    ET.fromstring(partition_svg(Partition("async", 1, 0, (), ("a",), Phases(1, 0, inf)), 1, 1))


@given(
    st.sampled_from(("async", "sync")),
    st.integers(1, 2000),
    st.integers(1, 128),
    st.floats(0.01, 1),
    st.floats(0, 1),
    st.integers(300, 1200),
)
def test_everything_stays_inside(mode, nodes, cores, share, helpers, width):
    partition = Partition(mode, share * nodes, helpers * cores, ("a", "b"), ("c",), Phases(1, 0.0, 2))
    svg = ET.fromstring(partition_svg(partition, nodes, cores, width=width))
    right, bottom = map(float, svg.get("viewBox").split()[2:])
    assert bottom < 350
    for rect in (one for group in svg.iter(f"{SVG}g") for one in group.iter(f"{SVG}rect")):
        x, y, wide, high = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        assert (
            x >= 0 and x + wide <= right + 1e-2 and y >= 0 and y + high <= bottom and wide >= 0 and high >= 0
        )
