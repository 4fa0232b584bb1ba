"""The pictures and the page are well-formed, complete and safe."""

import re
from math import inf
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.units import show_large
from dask_hpc.view import Held, Section, gantt_svg, html_page, table
from dask_hpc.view.page import Curve, Mark, power_curve, timeline_html, timeline_script

times = st.floats(0, 1e7, allow_nan=False)


@given(st.lists(st.tuples(st.text(max_size=9), st.sets(st.sampled_from("abcdef")), times, times), max_size=8))
def test_any_run_gives_well_formed_svg(rows):
    held = [
        Held(
            job.encode("ascii", "ignore").decode().translate(dict.fromkeys(range(32))),
            sorted(nodes),
            min(a, b),
            max(a, b),
        )
        for job, nodes, a, b in rows
    ]
    ElementTree.fromstring(gantt_svg(held, list("abcdef")))


def test_neighbouring_rows_make_one_bar():
    svg = gantt_svg([Held("job", ["n0", "n1", "n3"], 0, 10)], [f"n{i}" for i in range(4)])
    assert svg.count("<rect") == 2


def test_empty_run_is_a_picture_too():
    ElementTree.fromstring(gantt_svg([], ["n0"]))


def test_text_is_escaped_everywhere():
    evil = "<script>alert(1)</script>"
    page = html_page(
        evil,
        evil,
        [Section(evil, table([evil], [[evil]]) + gantt_svg([Held(evil, ["n"], 0, 1, evil)], ["n"]))],
    )
    assert "<script" not in page


def test_page_needs_no_network():
    page = html_page("t", "l", [Section("s", gantt_svg([Held("a", ["n"], 0, 1)], ["n"]))])
    links = re.findall(r"(?:src|href)\s*=", page) + re.findall(r"url\(", page)
    assert links == []


def test_numbers_stand_right():
    assert 'class="number">3' in table(["a", "b"], [[3, "x"], [4, "y"]])


def test_timeline_carries_ranges_of_nodes_and_curves():
    held = [Held("a</script>", ["0", "1", "2", "5"], 0, 10.5, "why")]
    html = timeline_html(held, 6, 10.5, [Curve("busy nodes", "", [0, 10.5], [4, 0], 6)])
    assert '[0,0,10.5,[0,2,5,5],"why"]' in html
    assert html.count("</script>") == 1  # a name cannot end the script
    assert timeline_script().count("</script>") == 1


def test_power_is_drawn_in_its_own_unit_with_its_corridor():
    curve = power_curve(
        [0, 10, 20, 30],
        [1800, 2700, 900, 2000],
        band=[(0, 1000, 2500), (5, 1000, 2500), (25, 0, inf)],
        forecast=[(0, 1700, 1900)],
        outside=[(10, 25)],
        marks=[Mark(10, "less", "shrink </script>")],
    )
    assert curve.unit == "kW" and curve.value == [1.8, 2.7, 0.9, 2.0]
    assert curve.band == [(0, 1.0, 2.5), (25, 0.0, inf)]  # a step that changes nothing is none
    assert curve.outside == [(10, 25, "outside for 15 s, up to 200 W above and up to 100 W below")]
    html = timeline_html([], 1, 30.0, [curve])
    assert '"band":[[0,1,2.5],[25,0,null]]' in html and '"forecast":[[0,1.7,1.9]]' in html
    assert html.count("</script>") == 1
    assert power_curve([0], [90.5]).unit == "W" and power_curve([0], [3.2e6]).unit == "MW"
    assert power_curve([], []).value == []


@given(
    st.lists(st.tuples(times, st.floats(0, 1e6)), min_size=1, max_size=9),
    st.lists(st.tuples(times, st.floats(0, 5e5), st.floats(0, 5e5)), min_size=1, max_size=5),
    st.tuples(times, times),
)
def test_how_far_outside_is_what_a_dense_look_finds(powers, bounds, interval):
    powers = sorted(dict(powers).items())
    band = sorted({when: (when, low, low + more) for when, low, more in bounds}.values())
    start, end = sorted(interval)
    looks = {start, *(t for t, *_ in [*powers, *band] if start < t < end)}

    def now(steps, when):
        return ([one for one in steps if one[0] <= when] or steps[:1])[-1]

    above = max(0.0, *(now(powers, t)[1] - now(band, t)[2] for t in looks))
    below = max(0.0, *(now(band, t)[1] - now(powers, t)[1] for t in looks))
    curve = power_curve(*zip(*powers, strict=True), band=band, outside=[(start, end)])
    said = curve.outside[0][2]
    assert (" above" in said) == (above > 0) and (" below" in said) == (below > 0)
    if above:
        assert f"up to {show_large(above, 'W')} above" in said
    if below:
        assert f"{show_large(below, 'W')} below" in said
