"""The dashboard's panel of checkpoints: what is protected, where the copies are, what happened."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from bokeh.models import Div

from dask_hpc.model.units import show_duration, show_large
from dask_hpc.view.checkpoint import copies_svg
from dask_hpc.view.dashboard.html import CSS

if TYPE_CHECKING:
    from dask_hpc.view.dashboard.page import Watched

_EMPTY = "Nothing is protected yet: what  dask_hpc.protect  or a  dask_hpc.Checkpoint  keeps shows here."
_PROTECTED, _VERSIONS = 30, 12  # rows
_CSS = """
.checkpoint { background: #fff; border: 1px solid #e2e4e7; border-radius: 8px; padding: 2px 14px 12px; }
.checkpoint h3 { position: static; } .checkpoint h3 span { font-weight: 400; color: #555; }
.sides { display: flex; flex-wrap: wrap; gap: 18px; align-items: flex-start; }
.sides > div { flex: 1 1 420px; } td .bad { color: #a33b00; font-weight: 600; }
.sides > div.wide { flex: 2 1 640px; } .sides td:last-child { width: auto; }
.sides th { white-space: nowrap; }
"""


class Checkpoints:
    """One panel. Beside other parts it is not seen while nothing is protected."""

    def __init__(self, is_alone: bool = True) -> None:
        self._is_alone = is_alone
        self.root = Div(
            stylesheets=[CSS, _CSS], sizing_mode="stretch_width", margin=(4, 0, 0, 0), visible=is_alone
        )

    def update(self, watched: "Watched") -> None:
        """Look again."""
        found = watched.status()["checkpoint"]
        self.root.visible = self._is_alone or found is not None
        text = checkpoints_html(found)
        if self.root.text != text:
            self.root.text = text


def checkpoints_html(found: Mapping[str, Any] | None) -> str:
    """The status of the checkpoint service; None if nothing was ever protected."""
    if found is None:
        return f'<div class="none">{_EMPTY}</div>'
    figures = "".join(
        f'<div class="card{" bad" if is_bad else ""}"><b>{_text(value)}</b><span>{_text(name)}</span></div>'
        for value, name, is_bad in _figures(found)
    )
    return (
        f'<div class="checkpoint"><h3>Checkpoints <span>{_text(_happened(found["counts"]))}</span></h3>'
        f'<div class="cards">{figures}</div><div class="sides" style="margin-top: 12px">'
        f'<div class="wide">{copies_svg(found["nodes"], width=640)}</div>'
        f"<div>{_protected(found['protected'])}{_versions(found['versions'])}</div></div></div>"
    )


def _figures(found: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    protected, counts = found["protected"], found["counts"]
    keys, copied = (sum(one[name] for one in protected) for name in ("keys", "copied"))
    yield f"{copied} of {keys}", "protected results have a copy", False
    for name, level in found["levels"].items():
        if level["copies"] or name == "partner":
            where = "on other nodes" if name == "partner" else f"of them on {name}"
            copies = _many(level["copies"], "copy", "copies")
            yield show_large(level["nbytes"], "B"), f"{copies} {where}", False
    budget, used = (sum(agent[name] for agent in found["agents"]) for name in ("budget", "used"))
    if budget > 0:
        yield f"{used / budget:.0%}", f"of {show_large(budget, 'B')} that agents may use", used > 0.9 * budget
    last = found["last_commit"]
    if last is not None:
        moved = f"{show_large(last['moved'], 'B')} moved"
        if last["unchanged"]:
            moved += f", {show_large(last['unchanged'], 'B')} unchanged"
        yield f"{_ago(last['ago'])} ago", f"last commit: {show_duration(last['seconds'])}, {moved}", False
    due = [one["next_due"] for one in protected if one["next_due"] is not None]
    if due:
        yield _ago(max(0.0, min(due))), "until the next commit", False
    store = found["store"]
    if store["problem"]:
        yield "no store", f"it cannot be used: {store['problem']}", True
    elif store["waiting"]:
        yield show_large(store["waiting"], "B"), "on their way to the store", False
    if found["exposed"]:
        yield str(found["exposed"]), "results have copies on their own node only", True
    if counts["unrecovered"]:
        yield str(counts["unrecovered"]), "results without an intact copy", True


def _happened(counts: Mapping[str, int]) -> str:
    """In words, what happened so far."""
    parts = [_many(counts["commits"], "commit", "commits"), f"{show_large(counts['moved'], 'B')} moved"]
    if counts["unchanged"]:
        parts.append(f"{show_large(counts['unchanged'], 'B')} unchanged")
    if counts["failed"]:
        parts.append(f"{_many(counts['failed'], 'copy', 'copies')} not made")
    recovered = _many(counts["recovered"], "result", "results")
    parts.append(f"{_many(counts['recoveries'], 'recovery', 'recoveries')} of {recovered}")
    if counts["damaged"]:
        parts.append(f"{_many(counts['damaged'], 'copy', 'copies')} unreadable")
    return ", ".join(parts)


def _many(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def _protected(rows: Iterable[Mapping[str, Any]]) -> str:
    """By name; the newest first."""
    lines = []
    for one in list(rows)[: -_PROTECTED - 1 : -1]:
        last, due = one["last_commit"], one["next_due"]
        commit = f"{_ago(last['ago'])} ago, took {show_duration(last['seconds'])}" if last else "-"
        missing = "" if one["copied"] == one["keys"] else ' class="bad"'
        lines.append(
            f"<tr><td>{_text(one['name'])}</td>"
            f'<td class="n"><span{missing}>{one["copied"]} of {one["keys"]}</span></td>'
            f'<td class="n">{show_large(one["nbytes"], "B")}</td><td class="w">{commit}</td>'
            f'<td class="w">{"-" if due is None else f"in {_ago(max(0.0, due))}"}</td></tr>'
        )
        if why := one.get("why"):
            lines.append(f'<tr><td colspan="5" class="more">{_text(why)}</td></tr>')
    heads = '<th>protected</th><th class="n">copied</th><th class="n">bytes</th>'
    heads += "<th>last commit</th><th>next</th>"
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>" if lines else "<p>Nothing is protected now.</p>"


def _versions(rows: Iterable[Mapping[str, Any]]) -> str:
    """Of checkpoints, the newest first, and the levels that have them."""
    lines = [
        f'<tr><td>{_text(one["name"])}</td><td class="n">{_text(one["version"])}</td><td class="n">'
        f"{'-' if one['nbytes'] is None else show_large(one['nbytes'], 'B')}</td>"
        f"<td>{_text(', '.join(one['levels']))}</td></tr>"
        for one in list(rows)[: -_VERSIONS - 1 : -1]
    ]
    heads = '<th>checkpoint</th><th class="n">iteration</th><th class="n">bytes</th><th>levels</th>'
    return f"<table style='margin-top: 10px'><tr>{heads}</tr>{''.join(lines)}</table>" if lines else ""


def _ago(seconds: float) -> str:
    """Whole seconds: a page that is looked at need not twitch."""
    return show_duration(round(seconds))


def _text(value: object) -> str:
    return escape(str(value))
