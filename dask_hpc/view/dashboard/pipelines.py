"""The dashboard's panels of in situ pipelines: who computes what where, how long it takes, what changed."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from bokeh.models import Div

from dask_hpc.model.in_situ import hear_partition
from dask_hpc.model.units import show_duration
from dask_hpc.view.dashboard.html import CSS
from dask_hpc.view.in_situ import COLOURS, NAMES, heard, partition_svg, phases_svg

if TYPE_CHECKING:
    from dask_hpc.view.dashboard.page import Watched

_EMPTY = "No pipeline has run yet: what a  dask_hpc.InSituPipeline  does on this cluster shows here."
_CHANGES = 12  # of a pipeline, the newest ones
_CSS = """
.pipeline { background: #fff; border: 1px solid #e2e4e7; border-radius: 8px; padding: 2px 14px 10px;
  margin-bottom: 10px; }
.pipeline h3 { position: static; } .pipeline h3 span { font-weight: 400; color: #555; }
.sides { display: flex; flex-wrap: wrap; gap: 18px; }
.sides > div { flex: 1 1 320px; } .sides > div.wide { flex: 2 1 520px; }
.sides table { width: auto; } .sides td:last-child { width: auto; } .sides th { white-space: nowrap; }
i.part { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
"""


class Pipelines:
    """A panel for each pipeline, those that run first. Beside other parts it is not seen without any."""

    def __init__(self, is_alone: bool = True) -> None:
        self._is_alone = is_alone
        self.root = Div(
            stylesheets=[CSS, _CSS], sizing_mode="stretch_width", margin=(4, 0, 0, 0), visible=is_alone
        )

    def update(self, watched: "Watched") -> None:
        """Look again."""
        pipelines = watched.status()["pipelines"]
        text = pipelines_html(pipelines)
        self.root.visible = self._is_alone or bool(pipelines)
        if self.root.text != text:
            self.root.text = text


def pipelines_html(pipelines: Iterable[Mapping[str, Any]]) -> str:
    """All of them, those that run first."""
    shown = sorted(pipelines, key=lambda one: one["state"] != "running")
    return "".join(map(_pipeline, shown)) or f'<div class="none">{_EMPTY}</div>'


def _pipeline(one: Mapping[str, Any]) -> str:
    of = "" if one["iterations"] is None else f" of {one['iterations']}"
    heading = (
        f"{_text(one['name'])} <span>{_text(one['state'])}, {one['iteration']}{of} iterations done</span>"
    )
    partition = ""
    if one["partition"] is not None:
        partition = partition_svg(
            hear_partition(one["partition"]), len(one["nodes"]), one["cores"], width=460
        )
    changes = {change["iteration"]: change["reason"] for change in one["changes"]}
    iterations = phases_svg(heard(one["history"]), changes, last=_nearby(one), width=700)
    return (
        f'<div class="pipeline"><h3>{heading}</h3><div class="sides">'
        f"<div>{partition}{_analyses(one)}</div>"
        f'<div class="wide">{iterations}{_changes(one["changes"])}</div></div></div>'
    )


def _nearby(one: Mapping[str, Any]) -> int | None:
    """Room for all iterations of one that runs, unless those to come squeeze those that are done."""
    last = one["iterations"] if one["state"] == "running" else None
    return last if last is not None and last <= 3 * one["iteration"] else None


def _analyses(one: Mapping[str, Any]) -> str:
    """Where each runs, and what it did not look at."""
    places = {
        name: part for part in ("in_situ", "in_transit") for name in (one["partition"] or {}).get(part, ())
    }
    rows = []
    for name in one["analyses"]:
        part = places.get(name)
        where = f'<i class="part" style="background:{COLOURS[part]}"></i>{NAMES[part]}' if part else "-"
        rows.append(f"<tr><td>{_text(name)}</td><td>{where}</td><td>{_skipped(one, name)}</td></tr>")
    return (
        f"<table><tr><th>analysis</th><th>runs</th><th>skipped</th></tr>{''.join(rows)}</table>"
        if rows
        else ""
    )


def _skipped(one: Mapping[str, Any], name: str) -> str:
    found = one["skipped"].get(name)
    if not found or not found["count"]:
        return "none"
    newest = ", ".join(map(str, found["newest"]))
    return f'<span title="newest: {newest}">{found["count"]} iterations ({_text(found["how"])})</span>'


def _changes(changes: Iterable[Mapping[str, Any]]) -> str:
    """The newest first."""
    rows = "".join(
        f'<tr><td class="n">{one["iteration"]}</td>'
        f'<td class="n">{show_duration(one["partition"]["expected"])}</td>'
        f"<td>{_text(one['reason'])}</td></tr>"
        for one in list(changes)[: -_CHANGES - 1 : -1]
    )
    heads = '<th class="n">from iteration</th><th class="n">planned</th><th>divided, because</th>'
    return f"<table><tr>{heads}</tr>{rows}</table>" if rows else ""


def _text(value: object) -> str:
    return escape(str(value))
