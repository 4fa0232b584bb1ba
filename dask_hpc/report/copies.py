"""Where the copies are, as an SVG picture: a box for each node, with the protected results that it holds and
the copies that it keeps for others, each in the colour of the node whose results they are."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from dask_hpc.model.units import show_large

#: Okabe and Ito's, which the colour-blind can tell apart, then lighter cousins
_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
    "#7fb8d8", "#f2cf80", "#80ceb9", "#e5bcd3", "#aad9f4",
)  # fmt: skip
_NOBODYS = "#999999"
_WIDE, _HIGH, _GAP = 208, 74, 8  # of a box, and between two
_LEFT, _BAR, _LONG = 46, 14, 98  # in a box: where bars begin, how high and long they are
_LETTERS = 30  # of a name
_MOST = 24  # boxes


def copies_svg(nodes: Sequence[Mapping[str, Any]], *, width: int = 900) -> str:
    """The picture. Of each node ``name``, the bytes of protected results that it holds (``own``), and those
    of copies that it keeps by the node that holds the result (``kept``; "": nobody holds it now)."""
    shown = nodes[:_MOST]
    across = max(1, (width + _GAP) // (_WIDE + _GAP))
    rows = -(-len(shown) // across)
    height = rows * (_HIGH + _GAP) + 22
    colours = {node["name"]: _COLOURS[number % len(_COLOURS)] for number, node in enumerate(nodes)}
    most = max((size for node in shown for size in (node["own"], sum(node["kept"].values()))), default=0)
    parts = [
        f'<svg class="copies" viewBox="0 0 {width} {height}" width="{width}" style="max-width: 100%" '
        f'role="img" aria-label="{escape(_words(shown))}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="system-ui, sans-serif" font-size="11">'
    ]
    for number, node in enumerate(shown):
        row, column = divmod(number, across)
        parts += _box(node, column * (_WIDE + _GAP), row * (_HIGH + _GAP), colours, (most or 1) / _LONG)
    more = f"; {len(nodes) - _MOST} nodes more are not shown" if len(nodes) > _MOST else ""
    parts.append(
        f'<text x="1" y="{height - 8}" fill="currentColor" fill-opacity="0.75">Copies have the colour of the '
        f"node that holds the result{more}</text></svg>"
    )
    return "".join(parts)


def _box(
    node: Mapping[str, Any], x: float, y: float, colours: Mapping[str, str], bytes_per_pixel: float
) -> Iterable[str]:
    name = node["name"] if len(node["name"]) <= _LETTERS else node["name"][: _LETTERS - 1] + "…"
    yield (
        f'<g><title>{escape(_of_node(node))}</title><rect x="{x + 0.5}" y="{y + 0.5}" width="{_WIDE - 1}" '
        f'height="{_HIGH - 1}" rx="6" fill="#8881" stroke="#8886"/>'
        f'<text x="{x + 8}" y="{y + 16}" font-weight="600" fill="currentColor">{escape(name)}</text>'
    )
    own = [(node["name"], node["own"])] if node["own"] else []
    kept = sorted(node["kept"].items())  # the same order in every box
    for line, (label, sizes) in enumerate((("holds", own), ("keeps", kept))):
        top, at = y + 25 + line * 22, float(x + _LEFT)
        yield f'<text x="{x + 8}" y="{top + 11}" fill="currentColor">{label}</text>'
        for of, size in sizes:
            colour, long = colours.get(of, _NOBODYS), size / bytes_per_pixel
            paler = f' fill-opacity="0.5" stroke="{colour}"' if label == "keeps" else ""
            yield (
                f'<rect x="{at:.1f}" y="{top}" width="{max(long, 1):.1f}" height="{_BAR}" '
                f'fill="{colour}"{paler}/>'
            )
            at += long
        total = sum(size for _, size in sizes)
        yield (
            f'<text x="{at + 5:.1f}" y="{top + 11}" fill="currentColor">'
            f"{show_large(total, 'B') if total else 'nothing'}</text>"
        )
    yield "</g>"


def _of_node(node: Mapping[str, Any]) -> str:
    """What is to be seen in a box."""
    kept = [f"{show_large(size, 'B')} of {of or 'no node'}" for of, size in node["kept"].items()]
    copies = f"copies of {', '.join(kept)}" if kept else "no copies"
    return f"{node['name']} holds {show_large(node['own'], 'B')}, keeps {copies}"


def _words(nodes: Iterable[Mapping[str, Any]]) -> str:
    """All that can be seen, for those who cannot."""
    return "; ".join(map(_of_node, nodes)) or "no nodes"
