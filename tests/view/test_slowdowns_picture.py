"""The picture of who slows whom: every number is there, the worst is the darkest, and it can be read."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from dask_hpc.view.colocation import slowdowns_svg

SVG = "{http://www.w3.org/2000/svg}"


def squares(slowdowns):
    root = ET.fromstring(slowdowns_svg("Title", "It rests on runs.", "beside 3", slowdowns))
    return root, [
        (group[1].get("fill"), group[2].text, group[2].get("fill")) for group in root.iter(f"{SVG}g")
    ]


def light(colour):
    """Relative luminance (WCAG 2)."""
    colour = colour if len(colour) == 7 else "#" + "".join(2 * one for one in colour[1:])
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_each_number_has_its_square():
    root, found = squares({"a": {"a": 2.0, "b": 1.0}, "b": {"a": 1.5, "b": 1.004}})
    assert [text for _, text, _ in found] == ["2.00", "1.00", "1.50", "1.00"]
    assert found[0][0] == "#8c2d04" and found[1][0] == "#f7f4ed"
    lights = [light(fill) for fill, _, _ in found]
    assert lights[0] < lights[2] < lights[3] < lights[1]
    assert "b beside a takes 1.50 times as long" in root.get("aria-label")


def box(square):
    x, y, width, height = (float(square.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


@pytest.mark.parametrize(
    "names", ["ab", ["a", "b", "c", "kind-of-long"], [f"k{number}" for number in range(16)]]
)
@pytest.mark.parametrize("reason", ["It rests on runs.", "words " * 60])
def test_nothing_lies_on_anything_else(names, reason):
    slowdowns = {one: dict.fromkeys(names, 1.5) for one in names}
    root = ET.fromstring(slowdowns_svg("Title", reason, "beside 3", slowdowns))
    width, height = (float(root.get(name)) for name in ("width", "height"))
    groups = list(root.iter(f"{SVG}g"))
    boxes = [box(group[1]) for group in groups]
    for group, (left, top, right, bottom) in zip(groups, boxes, strict=True):
        x, y = (float(group[2].get(name)) for name in ("x", "y"))
        assert x == pytest.approx((left + right) / 2) and top + 12 < y < bottom - 8, (
            "the number is in the middle"
        )
        assert 0 < left < right < width and 0 < top < bottom < height
    rows = [boxes[place : place + len(names)] for place in range(0, len(boxes), len(names))]
    assert all(one[2] < other[0] < one[2] + 4 for row in rows for one, other in pairwise(row))
    assert all(one[0][3] < other[0][1] < one[0][3] + 4 for one, other in pairwise(rows))
    texts = [one for one in root.iter(f"{SVG}text") if one not in {group[2] for group in groups}]
    ys = [float(one.get("y")) for one in texts]
    heads, sides = texts[-2 * len(names) : -len(names)], texts[-len(names) :]
    above = ys[: -2 * len(names)]
    assert all(14 <= later - earlier <= 40 for earlier, later in pairwise(above)), "a line each"
    for head, (left, top, right, _) in zip(heads, rows[0], strict=True):
        assert float(head.get("x")) == pytest.approx((left + right) / 2)
        assert above[-1] + 12 < float(head.get("y")) < top
    for side, row in zip(sides, rows, strict=True):
        left, top, _, bottom = row[0]
        assert 0 < left - float(side.get("x")) < 16 and top + 12 < float(side.get("y")) < bottom - 8


def test_a_few_per_cent_are_pale():
    _, found = squares({"a": {"a": 1.05}})
    assert light(found[0][0]) > 0.7


@pytest.mark.parametrize("share", [number / 40 for number in range(41)])
def test_numbers_can_be_read(share):
    _, found = squares({"a": {"a": 1 + share, "b": 2.0}})
    fill, _, ink = found[0]
    dark, bright = sorted((light(fill), light(ink)))
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_long_names_and_reasons():
    name = "preprocess-" * 4
    picture = slowdowns_svg("T", "words " * 60, "beside 1", {name: {name: 1.2}})
    root = ET.fromstring(picture)
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert all(len(text) <= 96 for text in texts) and sum(text.count("words") for text in texts) == 60
    assert sum(text.endswith("…") for text in texts) == 2
    assert slowdowns_svg("T", "", "", {}).startswith("<svg")
