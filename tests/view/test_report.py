"""The pictures and the page are well-formed, complete and safe."""

import re
from math import inf
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.view import Held, Section, course_html, gantt_svg, html_page, past, table

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


def test_a_run_that_is_over_is_drawn_by_the_kit():
    held = [Held("a</script>", ["0", "1", "2", "5"], 0, 10.5, "why")]
    samples = [(0.0, 90.0, 0.0, inf)]
    course = past(held, [str(number) for number in range(6)], 10.5, samples=samples)
    assert course["changes"] == [
        [0, "a</script>", [[0, 2], [5, 5]], "why"],
        [10.5, None, [[0, 2], [5, 5]], ""],
    ]
    assert course["samples"] == [[0.0, 90.0, 0.0, None]]  # JSON knows no infinity
    body = course_html(course)
    assert body.count("</script>") == 1  # a name cannot end the script
    assert '"views":["time_toolbar","allotment_map","corridor_chart"]' in body
    page = html_page("t", "l", [Section("s", body), Section("t", body)])
    assert page.count("const daskHpc") == 1 and page.count("daskHpc.show(") == 2
    assert not re.search(r"https?://(?!www\.w3\.org/)", page)
