"""One self-contained HTML page: no network, readable in light and dark."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

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
.timeline { position: relative; } .timeline canvas { width: 100%; display: block; touch-action: pan-y; }
.tip { position: absolute; pointer-events: none; background: Canvas; border: 1px solid var(--line);
  padding: .3rem .5rem; border-radius: 4px; font-size: 12px; white-space: pre-wrap; max-width: 24rem; }
pre { background: var(--soft); padding: .7rem; border-radius: 6px; overflow: auto; }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it (HTML)."""

    title: str
    body: str


def html_page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The page. ``title``, ``lead`` and section titles are plain text, bodies are HTML."""
    parts = [f"<section><h2>{escape(one.title)}</h2>{one.body}</section>" for one in sections]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f'<body><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{"".join(parts)}</body></html>\n'
    )


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
    return f'<div class="scroll"><table><tr>{cells("th", heads)}</tr>{body}</table></div>'


def _is_numeric(text: str) -> bool:
    return text[:1].isdigit() or text in ("-", "")
