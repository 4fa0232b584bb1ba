"""The dashboard's figures and tables as HTML. Everything that comes from users is escaped here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import inf
from typing import Any

from dask_hpc.model.units import count_nodes, show_bounds, show_duration, show_large

#: Okabe and Ito's colours, which the colour-blind can tell apart, then lighter cousins
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
    "#7fb8d8", "#f2cf80", "#80ceb9", "#e5bcd3", "#aad9f4",
)  # fmt: skip
#: what to write on them
INK = {colour: "#ffffff" if colour in ("#0072b2", "#009e73", "#d55e00") else "#222222" for colour in COLOURS}

CSS = """
:host { font: 13px/1.4 system-ui, sans-serif; color: #222; }
:host .bk-clearfix { display: block; width: 100%; height: 100%; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; }
.card { background: #fff; border: 1px solid #e2e4e7; border-radius: 8px; padding: 7px 14px; min-width: 84px; }
.card b { display: block; font-size: 21px; font-weight: 600; line-height: 1.25; white-space: nowrap; }
.card span { color: #555; display: block; max-width: 330px; }
.card.bad { background: #fdebe5; border-color: #eab8a3; } .card.bad b { color: #a33b00; }
h3 { font-size: 15px; margin: 0; position: sticky; top: 0; background: #fff; padding: 9px 0 5px; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; color: #555; font-weight: 600; border-bottom: 1px solid #ccc; }
th, td { padding: 3px 12px 3px 0; }
td { vertical-align: top; border-bottom: 1px solid #eee; }
td:last-child { width: 40%; padding-right: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.w { white-space: nowrap; }
i.job { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
.what { font-weight: 600; white-space: nowrap; }
.more, .none { color: #666; } .none { padding: 14px 0; }
"""
#: along an axis of time, the code of ``show_clock`` for the browser
CLOCK = """
    const t = Math.max(0, tick), h = Math.floor(t / 3600), m = Math.floor(t % 3600 / 60), s = t % 60
    const two = (x) => String(Math.floor(x)).padStart(2, "0")
    const rest = s % 1 > 0.01 ? (s % 1).toFixed(1).slice(1) : ""
    return (h ? h + ":" + two(m) : m) + ":" + two(s) + rest
"""
_SIGNS = {
    "start": "▶", "end": "■", "grow": "▲", "shrink": "▼", "submit": "+", "node-joined": "●", "node-left": "○",
    "error": "!", "off": "!", "lost": "!", "hold": "‖", "cap": "▽", "give-back": "○", "corridor": "≈",
    "placement": "◧", "skipped": "↷", "recovered": "↺", "nodes-changed": "●",
    "commit": "⇉", "recovery": "↺", "agents": "◉", "store": "▤", "interval": "◷", "drain": "○",
}  # fmt: skip
_NUMERIC = {"tasks left", "for", "time"}  # heads of right-aligned columns
_NUMBERS = ' class="n"'
_DONE, _WAITING = 8, 200  # at most so many jobs that are over, or wait, are shown


def cards(status: Mapping[str, Any], is_open: bool) -> str:
    """The current figures."""
    nodes, jobs = status["nodes"], status["jobs"]
    held = {hold["worker"] for hold in status["holds"]}
    allotted = sum(node["job"] is not None for node in nodes)
    on_hold = sum(bool(held.intersection(node["workers"])) for node in nodes)
    states = [job["state"] for job in jobs]
    control = status["state"] if is_open else "closed"
    figures: list[tuple[object, str, bool]] = [
        (control, f"control, policy {status['policy']}", control in ("off", "closed")),
        (f"{allotted} of {len(nodes)}", "nodes allotted", False),
        (on_hold, "nodes on hold", False),
        (states.count("running"), "jobs running", False),
        (states.count("waiting"), "jobs waiting", False),
        (status["resizes"], "resizes", False),
        (status["results_lost"], "results lost", status["results_lost"] > 0),
        (status["errors"], "errors", status["errors"] > 0),
        *_power_figures(status["power"]),
    ]
    parts = [
        f'<div class="card{" bad" if is_bad else ""}"><b>{_text(value)}</b><span>{_text(name)}</span></div>'
        for value, name, is_bad in figures
    ]
    return f'<div class="cards">{"".join(parts)}</div>'


def _power_figures(power: Mapping[str, Any] | None) -> Iterator[tuple[object, str, bool]]:
    """Of a cluster whose power is steered."""
    if power is None or not power["is_steered"]:
        return
    doubt = f" ± {show_large(power['uncertainty'], 'W')}" if power["uncertainty"] else ""
    yield show_large(power["watts"], "W"), f"power, {power['source']}{doubt}", power["is_outside"]
    upper = inf if power["upper"] is None else power["upper"]
    if power["lower"] <= 0 and upper == inf:
        return
    yield show_bounds(power["lower"], upper, "W"), "power corridor", False
    verdict = power["verdict"]
    if power["doubt"]:
        yield "careful", f"power cannot be trusted: {power['doubt']}", True
    elif verdict is not None and not verdict["is_kept"]:
        yield "cannot be kept", verdict["reason"], True
    else:
        where = "outside" if power["is_outside"] else "inside"
        yield where, f"the corridor; violations: {power['violations']}", power["is_outside"]


def jobs_table(status: Mapping[str, Any], now: float, colour: Callable[[str], str]) -> str:
    """Jobs that run; those that wait, with why; the newest of those that are done."""
    by_state: dict[str, list[Mapping[str, Any]]] = {"waiting": [], "running": [], "done": []}
    for job in status["jobs"]:
        by_state[job["state"]].append(job)
    shown = [*by_state["running"], *by_state["waiting"][:_WAITING], *by_state["done"][: -_DONE - 1 : -1]]
    heads = ("job", "state", "nodes", "tasks left", "for", "why")
    empty = "No job yet. Work outside of jobs runs as in plain Dask and is not shown here."
    return _panel("Jobs", heads, [_job_row(job, now, colour) for job in shown], empty)


def decisions_table(rows: Iterable[Mapping[str, Any]], colour: Callable[[str], str]) -> str:
    """Rows of the story, as they come."""
    parts = [
        (
            _cell(show_clock(row["time"]), "n"),
            _cell(f"{_SIGNS.get(row['decision'], '·')} {_text(row['decision'])}", "what"),
            _cell(_job(row["job"], colour), "w"),
            _cell(_nodes(row["nodes"])),
            _cell(_text(row["reason"]) + _more(row)),
        )
        for row in rows
    ]
    return _panel(
        "Decisions", ("time", "what", "job", "nodes", "why"), parts, "Nothing has been decided yet."
    )


def show_clock(seconds: float) -> str:
    """As along the time axis: "3:07.5", "1:02:03"."""
    minutes, rest = divmod(max(0.0, seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{int(rest):02}" if hours else f"{minutes}:{int(rest * 10) / 10:04.1f}"


def short(text: str, longest: int) -> str:
    """The text, cut if it is too long."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _panel(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    if not rows:
        return f'<h3>{title}</h3><div class="none">{empty}</div>'
    head = "".join(f"<th{_NUMBERS if name in _NUMERIC else ''}>{name}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<h3>{title}</h3><table><tr>{head}</tr>{body}</table>"


def _cell(html: str, kind: str = "") -> str:
    return f'<td class="{kind}">{html}</td>' if kind else f"<td>{html}</td>"


def _text(value: object) -> str:
    return escape(str(value))


def _job_row(job: Mapping[str, Any], now: float, colour: Callable[[str], str]) -> tuple[str, ...]:
    state, low, high = job["state"], job["min_nodes"], job["max_nodes"]
    can_be = f" ({low} to {high})" if low != high else ""
    sizes = {"running": f"{len(job['nodes'])}{can_be}", "waiting": f"asks {job['asks']}{can_be}"}
    since = job["submitted"] if state == "waiting" or job["started"] is None else job["started"]
    until = job["ended"] if state == "done" else now
    progress = "" if job["progress"] is None else f" ({job['progress']:.0%} done)"
    return (
        _cell(_job(job["id"], colour), "w"),
        _cell(state),
        _cell(sizes.get(state, ""), "w"),
        _cell("" if state == "done" else f"{job['unfinished_tasks']}{progress}", "n"),
        _cell(show_duration(max(0.0, until - since)), "n"),
        _cell(_text((job["waiting_because"] if state == "waiting" else job["reason"]) or "")),
    )


def _job(job: str, colour: Callable[[str], str]) -> str:
    if not job:
        return ""
    name, dash, unique = job.rpartition("-")
    text = f'{_text(short(name, 40))}<span class="more">{dash}{_text(short(unique, 40))}</span>'
    return f'<i class="job" style="background:{colour(job)}"></i>{text}'


def _nodes(nodes: Iterable[str]) -> str:
    names = list(nodes)
    shown = ", ".join(short(name, 20) for name in names[:3]) + (" …" if len(names) > 3 else "")
    return f'{count_nodes(len(names))} <span class="more">{_text(shown)}</span>' if names else ""


def _more(row: Mapping[str, Any]) -> str:
    parts = [row.get("rule") or "", *(f"not: {one}" for one in row.get("rejected") or ())]
    said = "; ".join(_text(part) for part in parts if part)
    return f'<div class="more">{said}</div>' if said else ""
