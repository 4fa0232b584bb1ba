"""A picture of who slows whom on a node: a square for each kind beside each other, the darker the slower."""

from collections.abc import Iterator, Mapping

from dask_hpc.view.page import hinted, label, svg, tag

_EDGE, _HEAD, _LINE, _CELL, _DEEP = 18, 44, 18, 74, 34
_LETTER = 7.2  # width of a character at 13 px
_LONGEST = 18  # characters of a name
_LETTERS = 96  # of a line above the picture
_INK, _SOFT = "#222", "#666"
#: from 1 to the most, as shares of red, green and blue
_PALE, _DARK = (247, 244, 237), (140, 45, 4)
_LEAST_SPAN = 0.5  # so that a slowdown of a few per cent is not drawn as if it were much


def slowdowns_svg(title: str, reason: str, beside: str, slowdowns: Mapping[str, Mapping[str, float]]) -> str:
    """The picture of slowdowns by kind (a row) and by kind beside it (a column). ``beside`` says how many of
    these there are."""
    names = list(slowdowns)
    lines = _wrapped(reason)
    left = _EDGE + min(_LONGEST, max(map(len, names), default=0)) * _LETTER + 12
    top = _HEAD + _LINE * len(lines) + 2 * _LINE + 12
    width = max(left + _CELL * len(names) + _EDGE, 2 * _EDGE + _LETTERS * 6.6)
    height = top + _DEEP * len(names) + _EDGE
    most = max((value for row in slowdowns.values() for value in row.values()), default=1.0)
    parts = [
        tag("rect", width=width, height=height, fill="#fff"),
        label(_EDGE, 27, title, font_size=17, font_weight=600, fill=_INK),
        *(label(_EDGE, 48 + _LINE * line, words, fill=_SOFT) for line, words in enumerate(lines)),
        label(left, top - _LINE - 12, beside, fill=_SOFT, font_size=12),
        *(label(left + _CELL * (place + 0.5), top - 8, _cut(name, 10), "middle", fill=_INK)
          for place, name in enumerate(names)),
    ]  # fmt: skip
    for row, name in enumerate(names):
        y = top + _DEEP * row
        parts.append(label(left - 8, y + 22, _cut(name, _LONGEST), "end", fill=_INK))
        parts += _squares(name, slowdowns[name], left, y, max(most - 1, _LEAST_SPAN))
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "font_size": 13}
    said = "; ".join(
        _words(name, other, value) for name, row in slowdowns.items() for other, value in row.items()
    )
    return svg("colocation", width, height, f"{title}; {said}", parts, **size, fill=_INK) + "\n"


def _squares(name: str, row: Mapping[str, float], left: float, y: float, span: float) -> Iterator[str]:
    for place, (other, value) in enumerate(row.items()):
        share = min(max((value - 1) / span, 0.0), 1.0)
        shades = (round(pale + (dark - pale) * share) for pale, dark in zip(_PALE, _DARK, strict=True))
        x = left + _CELL * place
        square = tag("rect", x=x + 1, y=y + 1, width=_CELL - 2, height=_DEEP - 2, rx=3,
                     fill="#{:02x}{:02x}{:02x}".format(*shades))  # fmt: skip
        ink = "#fff" if share > 0.72 else "#000"
        yield hinted(
            _words(name, other, value),
            square,
            label(x + _CELL / 2, y + 22, f"{value:.2f}", "middle", fill=ink),
        )


def _words(name: str, other: str, value: float) -> str:
    return f"{name} beside {other} takes {value:.2f} times as long"


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _wrapped(words: str) -> list[str]:
    """In lines that the picture is wide enough for."""
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _LETTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
