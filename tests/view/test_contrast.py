"""What is written in pictures, where no tool that looks at a page sees it, has a contrast of 4.5 to 1."""

import re
import sys
from pathlib import Path

import pytest

from dask_hpc.view import kit

LAB = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab")
COLOURS = (Path(kit.__file__).parent / "shared" / "colours.js").read_text()
HEAT = (Path(kit.__file__).parent / "neighbours_view.js").read_text()
LEAST = 4.5
#: what is written in which colour on what, by the names of the style sheet
WRITTEN = [
    ("ink", "paper"), ("ink", "raised"), ("ink", "idle"), ("ink", "gone"), ("faint", "paper"),
    ("faint", "raised"), ("bad", "paper"), ("good", "paper"), ("accent", "paper"), ("paper", "accent"),
]  # fmt: skip


def variables(text):
    return dict(re.findall(r"(--[\w-]+):\s*([^;}]+)", text))


def ours(scheme):
    """The style sheet's own colours, for pages of ours."""
    found = [variables(one) for one in re.findall(r"\{([^{}]*--dh-ink[^{}]*)\}", kit.style())]
    first, dark = [one for one in found if one.get("--dh-ink", "inherit") != "inherit"]
    return first | (dark if scheme == "dark" else {})


def lab(scheme):
    """JupyterLab's, which a widget takes over."""
    path = LAB / f"theme-{scheme}-extension" / "index.css"
    if not path.exists():
        pytest.skip("needs jupyterlab")
    return variables(path.read_text()) | ours("light")


def colour(words, given, on=(255, 255, 255)):
    """Red, green, blue of what the style sheet says: #123, rgba(), var(), white, color-mix()."""
    words = words.strip()
    if found := re.fullmatch(r"var\((--[\w-]+)(?:,\s*(.*))?\)", words, re.DOTALL):
        return colour(given.get(found[1], found[2]), given, on)
    if found := re.fullmatch(r"color-mix\(in srgb,\s*(.*?)\s+([\d.]+)%,\s*(.*)\)", words, re.DOTALL):
        part = float(found[2]) / 100
        first, second = colour(found[1], given, on), colour(found[3], given, on)
        return tuple(part * a + (1 - part) * b for a, b in zip(first, second, strict=True))
    if found := re.fullmatch(r"rgba?\(([^)]*)\)", words):
        red, green, blue, *alpha = [float(one) for one in re.split(r"[,\s/]+", found[1])]
        part = alpha[0] if alpha else 1.0
        return tuple(part * a + (1 - part) * b for a, b in zip((red, green, blue), on, strict=True))
    digits = {"white": "ffffff", "black": "000000"}.get(words, words.removeprefix("#"))
    digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
    return tuple(float(int(digits[i : i + 2], 16)) for i in (0, 2, 4))


def brightness(rgb):
    parts = [one / 255 for one in rgb]
    red, green, blue = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted(map(brightness, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("host", [ours, lab])
def test_colours_of_a_theme(host, scheme):
    given = host(scheme)
    found = {}
    for ink, paper in WRITTEN:
        below = colour(given[f"--dh-{paper}"], given)
        found[ink, paper] = contrast(colour(given[f"--dh-{ink}"], given, below), below)
    assert {key: round(one, 2) for key, one in found.items() if one < LEAST} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("host", [ours, lab])
def test_slowdowns_in_their_deepest_colour(host, scheme):
    given = host(scheme)
    rule = re.search(r"\.dh-heat \{ background: ([^;]*);", kit.style())[1]
    least, more = re.search(r"Math.round\((\d+) \+ depth \* (\d+)\)", HEAT).groups()
    cell = colour(rule.replace("var(--dh-depth)", f"{int(least) + int(more)}%"), given)
    assert contrast(colour(given["--dh-ink"], given, cell), cell) >= LEAST


def test_names_on_jobs():
    """Each colour of a job with the ink that is written on it."""
    found = re.search(r"COLOURS = \[(.*?)\]", COLOURS, re.DOTALL)[1]
    white = re.search(r"WHITE_INK = new Set\(\[(.*?)\]", COLOURS, re.DOTALL)[1]
    inks = dict(zip(("light", "dark"), re.search(r'\? "(#\w+)" : "(#\w+)"', COLOURS).groups(), strict=True))
    jobs = re.findall(r"#\w{6}", found)
    assert len(jobs) == 12
    told = {
        job: contrast(colour(job, {}), colour(inks["light" if job in white else "dark"], {})) for job in jobs
    }
    assert {job: round(one, 2) for job, one in told.items() if one < LEAST} == {}
