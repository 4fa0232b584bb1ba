"""The picture of who slows whom: every number is there, the worst is the darkest, and it can be read."""

import xml.etree.ElementTree as ET

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
