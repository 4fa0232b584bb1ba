"""A planned partition beside what else could be done, as a picture."""

import xml.etree.ElementTree as ET
from math import inf

import pytest

from dask_hpc.planning.in_situ.partition import (
    Analysis,
    EqualNodes,
    Partition,
    PartitionProblem,
    Phases,
    Simulation,
)
from dask_hpc.view.in_situ import COLOURS, plan_svg

SVG = "{http://www.w3.org/2000/svg}"
PROBLEM = PartitionProblem(
    EqualNodes(count=4, cores=4, memory=2.0**36, bandwidth=1e10),
    Simulation(time=6),
    (Analysis(name="front", time=1), Analysis(name="<b>", time=1), Analysis(name="spectrum", time=1)),
)
PLAN = Partition("async", 3, 1, ("front", "<b>"), ("spectrum",), Phases(0.5, 0.4, 0.45))


def drawn(*args):
    return ET.fromstring(plan_svg(*args))


def bars(picture):
    """What is said of each bar of the ways -> (x, width)."""
    found = {}
    for group in picture.findall(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect.get("fill") in COLOURS.values()
        found[group.find(f"{SVG}title").text] = (float(rect.get("x")), float(rect.get("width")))
    return found


def test_ways_are_drawn_to_the_same_scale():
    other = Partition("async", 3, 0, (), ("front", "<b>", "spectrum"), Phases(0.4, 0, 1.0))
    picture = drawn(
        PROBLEM, PLAN, {"all in transit": other, "all in situ": None}, "limited by the simulation"
    )
    found = bars(picture)
    assert set(found) == {
        "this plan, simulation: 0.5 s",
        "this plan, in situ: 0.4 s",
        "this plan, in transit: 0.45 s",
        "all in transit, simulation: 0.4 s",
        "all in transit, in transit: 1 s",
    }
    scale = {round(width / float(name.split()[-2]), 0) for name, (_, width) in found.items()}
    assert max(scale) - min(scale) <= 1
    words = [one.text for one in picture.iter(f"{SVG}text")]
    assert words[0] == "2 analyses in situ, 1 in transit: 0.5 s an iteration"
    assert (
        words[1]
        == "4 nodes with 4 cores, 64 GiB of memory, 10 GB/s each; the simulation takes 6 s on a single core"
    )
    assert {"in situ: front, <b>", "in transit: spectrum", "limited by the simulation", "1 s (+100%)"} <= {
        *words
    }


def test_in_sync_mode_one_after_the_other():
    found = bars(drawn(PROBLEM, Partition("sync", 4, 0, ("front",), (), Phases(2.0, 1.0, 0)), {}))
    (x, wide), (then, _) = found.values()
    assert then == pytest.approx(x + wide, abs=0.2)


def test_what_takes_much_longer_is_cut():
    slow = Partition(
        "async", 3, 1, ("front",), ("spectrum",), Phases(0.5, 0.4, 500.0), "memory does not suffice"
    )
    never = Partition("async", 3, 1, ("front",), ("spectrum",), Phases(0.5, 0.4, inf))
    picture = drawn(PROBLEM, PLAN, {"slow": slow, "never": never})
    found, right = bars(picture), float(picture.get("viewBox").split()[2])
    assert all(x + wide < right for x, wide in found.values())
    assert found["this plan, simulation: 0.5 s"][1] > 150, "the plan can still be seen"
    words = [one.text for one in picture.iter(f"{SVG}text")]
    assert "does not fit" in words and "8.3 min (+99900%)" in words


def test_nothing_takes_any_time():
    assert drawn(PROBLEM, Partition("async", 4, 0, (), (), Phases(0, 0, 0)), {}) is not None
