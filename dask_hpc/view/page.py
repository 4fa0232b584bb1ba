"""Self-contained HTML pages, readable in light and dark and without a network, and SVG pictures for them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from typing import Any

from dask_hpc.model.job import runs
from dask_hpc.model.units import show_duration
from dask_hpc.view.course import Held
from dask_hpc.view.kit import script, shown, style

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.lead { margin-top: .2rem; opacity: .75; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 600; position: sticky; top: 0; background: Canvas; }
td.number, th.number { width: 1%; text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.scroll { max-height: 30rem; overflow: auto; }
.gantt { border: 1px solid var(--line); border-radius: 6px; background: var(--soft); }
details summary { cursor: pointer; margin: .7rem 0; }
pre { background: var(--soft); padding: .7rem; border-radius: 6px; overflow: auto; }
.sides { display: flex; flex-wrap: wrap; gap: 18px; } .sides > div { flex: 1 1 320px; }
.sides > div.wide { flex: 2 1 520px; }
.dask-hpc-board { max-width: none; margin: 0; padding: 12px 14px; }
.dask-hpc-board nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: -12px -14px 10px;
  padding: 7px 14px; border-bottom: 1px solid var(--line); font-size: 13px; }
.dask-hpc-board nav a { color: inherit; text-decoration: none; opacity: .8; }
.dask-hpc-board nav a:hover { text-decoration: underline; }
"""
#: what draws a run that is over, from the top down
_VIEWS = ("time_toolbar", "allotment_map", "corridor_chart", "curves", "jobs_table", "story_view")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it (HTML)."""

    title: str
    body: str


def html_page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The page. ``title``, ``lead`` and section titles are plain text, bodies are HTML."""
    parts = [
        f"<section>{f'<h2>{escape(one.title)}</h2>' if one.title else ''}{one.body}</section>"
        for one in sections
    ]
    code = script(*_VIEWS) if any("daskHpc.show(" in one.body for one in sections) else ""
    body = f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{code}{"".join(parts)}'
    return _page(title, f"<body>{body}</body>", style() if code else "")


def board_page(title: str, links: Iterable[str], body: str) -> str:
    """A page as wide as the window, with links to others of the same server above."""
    nav = "".join(f'<a href="{escape(one)}">{escape(one.title().replace("Hpc", "HPC"))}</a>' for one in links)
    nav = f"<nav>{nav}</nav>" if nav else ""
    return _page(title, f'<body class="dask-hpc-board">{nav}{body}</body>', style())


def _page(title: str, body: str, more: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}{more}</style></head>'
        f"{body}</html>\n"
    )


def course_html(course: Mapping[str, Any]) -> str:
    """A run that is over, for a section of a page: what there is to draw, in views that move together."""
    there = {
        "time_toolbar": course["nodes"]["names"] or course["samples"],
        "allotment_map": course["nodes"]["names"],
        "corridor_chart": course["samples"],
        "curves": course.get("curves"),
        "jobs_table": course["jobs"],
        "story_view": course["story"],
    }
    return shown([view for view in _VIEWS if there[view]], course)


def present_html(course: Mapping[str, Any]) -> str:
    """A cluster that goes on, as it is now: a page that needs no other file, drawn as a run that is over."""
    head = course["head"]
    when = f"policy {head['policy']}, {show_duration(head['time'])} after control began"
    body = course_html({**course, "head": {**head, "state": "simulated"}})
    return html_page("dask-hpc: the cluster as it was", when, [Section("", body)])


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; numbers (and texts that start like one) stand to the right."""
    lines = [[str(cell) for cell in row] for row in rows]
    numeric = [bool(lines) and all(_is_numeric(line[i]) for line in lines) for i in range(len(heads))]

    def cells(tag: str, texts: Sequence[str]) -> str:
        marks = (' class="number"' if numeric[i] else "" for i in range(len(heads)))
        return "".join(
            f"<{tag}{mark}>{escape(text)}</{tag}>" for mark, text in zip(marks, texts, strict=True)
        )

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
    return f'<div class="scroll" tabindex="0"><table><tr>{cells("th", heads)}</tr>{body}</table></div>'


def _is_numeric(text: str) -> bool:
    return text[:1].isdigit() or text in ("-", "")


#: Okabe and Ito's colours, which the colour-blind can tell apart, then lighter cousins
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
    "#7fb8d8", "#f2cf80", "#80ceb9", "#e5bcd3", "#aad9f4",
)  # fmt: skip


def tag(name: str, inner: str = "", /, **attributes: object) -> str:
    """An SVG element: ``font_size=11`` is font-size="11", numbers are rounded, what is None is left out.
    ``inner`` is markup."""
    given = "".join(
        f' {key.replace("_", "-")}="{f"{value:.6g}" if isinstance(value, float) else escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>"


def label(x: float, y: float, words: str, anchor: str | None = None, **more: object) -> str:
    """Text that begins, ends or has its middle there."""
    return tag("text", escape(words), x=x, y=y, text_anchor=anchor, **{"fill": "currentColor"} | more)


def hinted(hint: str, *parts: str) -> str:
    """Parts of a picture that say something when they are pointed at."""
    return tag("g", f"<title>{escape(hint)}</title>{''.join(parts)}")


def grid_line(x1: float, x2: float, y: float, words: str, **more: object) -> str:
    """A line across, and what it stands for to its left."""
    line = tag("line", x1=x1, x2=x2, y1=y, y2=y, stroke="currentColor", stroke_opacity=0.14)
    return line + label(x1 - 6, y + 4, words, "end", **more)


def svg(kind: str, width: float, height: float, words: str, parts: Iterable[str], /, **more: object) -> str:
    """A picture; ``words`` are for those who do not see it. As wide as its place, unless ``more`` says so."""
    kept = {"width": "100%", "font_family": "system-ui, sans-serif", "font_size": 11} | more
    box = f"0 0 {width:.0f} {height:.0f}"
    named = {"class": kind, "viewBox": box, "role": "img", "aria_label": words}
    return tag("svg", "".join(parts) or " ", **named, xmlns="http://www.w3.org/2000/svg", **kept)


_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 28, 8, 26
_LETTER = 6.6  # width of a character at 11 px


def gantt_svg(
    held: Iterable[Held], nodes: Sequence[str], end: float | None = None, *, width: int = 900, row: int = 22
) -> str:
    """Who held which node when. ``nodes`` gives the rows from top to bottom."""
    held = list(held)
    end = end if end is not None else max((one.end for one in held), default=1.0)
    end = end or 1.0
    row = max(3, min(row, 600 // max(len(nodes), 1)))
    depth, scale = row * len(nodes), (width - _LEFT - _RIGHT) / end
    names = sorted({one.job for one in held})  # the same colour in every picture of the same jobs
    parts = []
    step = _nice(end / 8)
    for tick in range(int(end / step) + 1):
        x = _LEFT + tick * step * scale
        line = tag("line", x1=x, x2=x, y1=_TOP, y2=_TOP + depth, stroke="currentColor", stroke_opacity=0.14)
        words = show_duration(tick * step)
        parts += [line, label(x, _TOP + depth + 16, words, "middle", fill_opacity=0.7)]
    for index in range(0, len(nodes), -(-14 // row)):  # not every node can be named when rows are thin
        name = nodes[index] if len(nodes[index]) <= 13 else f"…{nodes[index][-12:]}"
        parts.append(label(_LEFT - 6, _TOP + row * (index + 0.5) + 4, name, "end"))
    place = {node: index for index, node in enumerate(nodes)}
    for one in held:
        parts += _bars(one, place, scale, row, COLOURS[names.index(one.job) % len(COLOURS)])
    return svg("gantt", width, _TOP + depth + _BOTTOM, "Nodes over time", parts)


def _nice(step: float) -> float:
    """The next round number of seconds, minutes, hours or days."""
    for round_step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400):
        if step <= round_step:
            # below a second decimal steps do
            return float(round_step) if step > 0.5 else 10.0 ** -(int(-log10(step)) if step > 0 else 0)
    return 86400.0 * -(-step // 86400)


def _bars(one: Held, place: dict[str, int], scale: float, row: int, colour: str) -> Iterable[str]:
    """One rectangle for each run of neighbouring rows."""
    x, width = _LEFT + one.start * scale, max((one.end - one.start) * scale, 1.0)
    tip = f"{one.job}: {len(one.nodes)} nodes, {show_duration(one.start)} to {show_duration(one.end)}"
    tip += f"\n{one.note}" if one.note else ""
    for first, last in runs(place[node] for node in one.nodes if node in place):
        y, height = _TOP + row * first, row * (last - first + 1)
        bar = tag("rect", x=x, y=y + 0.5, width=width, height=height - 1, rx=2, fill=colour)
        name = ""
        if width > len(one.job) * _LETTER + 6 and height >= 12:
            ink = "#fff" if colour == COLOURS[0] else "#000"
            name = label(x + width / 2, y + height / 2 + 4, one.job, "middle", fill=ink)
        yield hinted(tip, bar, name)


def nice_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... (and of 0.5, 0.2, ...)."""
    if least <= 0:
        return 1.0
    ten = 10.0 ** floor(log10(least))
    return next(number * ten for number in (1, 2, 5, 10) if number * ten >= least * 0.999)
