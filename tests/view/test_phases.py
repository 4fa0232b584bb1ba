"""Iterations of a pipeline as a picture."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.in_situ.partition import Partition, Phases, tell_iteration
from dask_hpc.view.in_situ import phases_svg
from dask_hpc.view.page import nice_step

SVG = "{http://www.w3.org/2000/svg}"
FIRST, SECOND = Phases(1.0, 0.5, 0.0), Phases(1.5, 1.4, 0.0)


def rows(count=10, change=6):
    for number in range(count):
        plan = FIRST if number < change else SECOND
        partition = Partition("async", 1, 1, (), (), plan)
        yield tell_iteration(number, max(plan) * 1.1, Phases(*(1.1 * one for one in plan)), partition)


def test_bars_lines_plans_and_the_reason_of_a_change():
    picture = ET.fromstring(phases_svg(rows(), {6: "spectrum takes <5> s"}, last=12))
    tips = [one.text for one in picture.iter(f"{SVG}title")]
    assert tips[0] == "iteration 0: 1.1 s, planned 1 s\nsimulation 1.1 s, in situ 0.55 s, in transit 0 s"
    assert len(tips) == 11 and tips[-1] == "from iteration 6: spectrum takes <5> s"
    lines = list(picture.iter(f"{SVG}polyline"))
    assert len(lines) == 2  # nothing was done in transit
    assert all(len(one.get("points").split()) == 10 for one in lines)
    dashed = [one for one in picture.iter(f"{SVG}line") if one.get("stroke-dasharray")]
    assert len(dashed) == 2 * 4 + 1  # three parts and the whole, twice; and the legend's


def test_nothing_yet():
    ET.fromstring(phases_svg([]))


@pytest.mark.slow
@given(st.lists(st.tuples(*[st.floats(0, 1e5)] * 4), max_size=30))
def test_everything_stays_inside(values):
    given_rows = [tell_iteration(i, one[0], Phases(*one[1:]), None) for i, one in enumerate(values)]
    svg = phases_svg(given_rows, {3: "why"}, width=500, height=200)
    assert "nan" not in svg and "inf" not in svg.replace("info", "")
    for x, y in re.findall(r"([\d.-]+),([\d.-]+)(?= |\")", "".join(re.findall(r'points="[^"]*"', svg))):
        assert 0 <= float(x) <= 500 and 0 <= float(y) <= 200


@given(st.floats(1e-9, 1e9))
def test_a_nice_step_is_round_and_not_much_longer(least):
    step = nice_step(least)
    assert least * 0.998 <= step <= 2.6 * least
    assert f"{step:.6e}".lstrip("0.")[0] in "125"
