"""A picture of protections against failures: a bar for each, of what its time goes into."""

from collections.abc import Iterator, Mapping

from dask_hpc.model.units import show_duration
from dask_hpc.view.page import hinted, label, svg, tag

_WIDTH, _LEFT, _RIGHT, _HEAD, _ROW, _BAR = 760, 128, 96, 44, 34, 20
_LINE = 18  # the height of a line of text
_INK, _SOFT = "#222", "#666"
#: of a bar, from the left; what fails is a pale cousin of what succeeds
PARTS = {
    "computing": "#2563eb",
    "recomputation": "#bfd0f7",
    "recovery": "#009e73",
    "commits": "#e69f00",
    "failed_commits": "#f2cf80",
    "restarts": "#777777",
    "failed_restarts": "#c4c4c4",
}
_LONGEST = 3.0  # bars: the axis is no longer than so many of the shortest
_COLUMNS = 4  # of the legend


def protocols_svg(title: str, reason: str, ways: Mapping[str, Mapping[str, float]]) -> str:
    """The picture of protocols by name, each with seconds by part, the best first."""
    totals = {name: sum(parts.values()) for name, parts in ways.items()}
    longest, shortest = max(totals.values(), default=1.0), min(totals.values(), default=1.0)
    end = min(longest, shortest * _LONGEST)
    scale = (_WIDTH - _LEFT - _RIGHT) / end
    lines = reason.split("; ")
    head = _HEAD + _LINE * len(lines)
    foot = head + _ROW * len(ways)
    height = foot + _LINE * -(-len(PARTS) // _COLUMNS) + 22
    parts = [
        tag("rect", width=_WIDTH, height=height, fill="#fff"),
        label(18, 27, title, font_size=17, font_weight=600, fill=_INK),
        *(label(18, 48 + _LINE * line, words, fill=_SOFT) for line, words in enumerate(lines)),
    ]
    for row, (name, spent) in enumerate(ways.items()):
        y = head + _ROW * row
        parts.append(label(_LEFT - 10, y + 15, name, "end", fill=_INK))
        parts.append(hinted(_words(name, spent), *_bar(spent, y, scale, end)))
        cut = "… " if totals[name] > end else ""
        parts.append(label(_WIDTH - _RIGHT + 8, y + 15, cut + show_duration(totals[name]), fill=_INK))
    parts += _legend(foot + 18)
    size = {"width": _WIDTH, "height": height, "font_size": 13}
    said = "; ".join([title, *(_words(name, spent) for name, spent in ways.items())])
    return svg("resilience", _WIDTH, height, said, parts, **size, fill=_INK) + "\n"


def _bar(spent: Mapping[str, float], y: float, scale: float, end: float) -> Iterator[str]:
    at = 0.0
    for part, colour in PARTS.items():
        until = min(at + spent[part], end)
        if until > at:
            wide = max((until - at) * scale, 0.5)
            yield tag("rect", x=_LEFT + at * scale, y=y, width=wide, height=_BAR, fill=colour)
        at = until


def _legend(top: float) -> Iterator[str]:
    for number, (part, colour) in enumerate(PARTS.items()):
        row, column = divmod(number, _COLUMNS)
        x, y = _LEFT + column * 150, top + row * _LINE
        yield tag("rect", x=x, y=y - 9, width=10, height=10, fill=colour)
        yield label(x + 15, y, part.replace("_", " "), fill=_SOFT, font_size=12)


def _words(name: str, spent: Mapping[str, float]) -> str:
    """Of a bar: what it takes, and for what."""
    parts = ", ".join(
        f"{show_duration(spent[part])} for {part.replace('_', ' ')}" for part in PARTS if spent[part] > 0
    )
    return f"{name} takes {show_duration(sum(spent.values()))}: {parts}"
