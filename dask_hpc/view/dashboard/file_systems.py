"""The dashboard's panel of file systems: how many tasks read at once, how fast, and why so many."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from bokeh.models import Div

from dask_hpc.view.dashboard.html import CSS

if TYPE_CHECKING:
    from dask_hpc.view.dashboard.page import Watched

_SHOWN = 20  # file systems, those with most reads
_HEADS = ("file system", "reads at once", "wait", "done", "per second", "why")
_EMPTY = "No task in a lane: limits are set by  hpc.io-lanes, or found by the policy  io-lanes."


class FileSystems:
    """A table. Beside other parts it is not seen while nothing is in a lane."""

    def __init__(self, is_alone: bool = True) -> None:
        self._is_alone = is_alone
        self.root = Div(stylesheets=[CSS], sizing_mode="stretch_width", margin=(4, 0, 0, 0), visible=is_alone)

    def update(self, watched: "Watched") -> None:
        """Look again."""
        lanes = watched.status()["io"]
        self.root.visible = self._is_alone or bool(lanes)
        text = file_systems_html(lanes)
        if self.root.text != text:
            self.root.text = text


def file_systems_html(lanes: Iterable[Mapping[str, Any]]) -> str:
    """Rows of the status, those with most reads first."""
    shown = sorted(lanes, key=lambda lane: (-lane["done"], lane["file_system"]))[:_SHOWN]
    if not shown:
        return f'<h3>File systems</h3><div class="none">{_EMPTY}</div>'
    head = "".join(f"<th>{name}</th>" for name in _HEADS)
    return f"<h3>File systems</h3><table><tr>{head}</tr>{''.join(map(_row, shown))}</table>"


def _row(lane: Mapping[str, Any]) -> str:
    limit = "no limit" if lane["limit"] is None else f"at most {lane['limit']}"
    rate = "-" if lane["reads_per_second"] is None else f"{lane['reads_per_second']:.3g}"
    cells = (
        lane["file_system"], f"{lane['in_flight']} ({limit})", lane["waiting"], lane["done"], rate,
        lane["reason"],
    )  # fmt: skip
    return f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
