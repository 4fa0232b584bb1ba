"""One look for all benchmarks: the table that each ends in, and its picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

#: told apart by the colour-blind, too; ours is always the first
COLOURS = ("#0072b2", "#d55e00", "#8a8a8a", "#009e73", "#cc79a7", "#56b4e9")
MARKERS = "osD^vX"
HEADS = ("what", "ours", "baseline", "ratio", "wanted", "met")

set_matplotlib_formats("svg")
plt.rcParams.update(
    {
        "axes.edgecolor": "#666666",
        "axes.grid": True,
        "axes.grid.axis": "both",
        "axes.prop_cycle": plt.cycler(color=COLOURS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.axisbelow": True,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "figure.facecolor": "white",
        "figure.figsize": (7.2, 3.0),
        "figure.constrained_layout.use": True,
        "font.size": 9,
        "grid.color": "#e4e4e4",
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "svg.fonttype": "none",  # letters stay letters: small, and readable by a screen reader
        "svg.hashsalt": "dask-hpc",
    }
)


class Table:
    """Rows of (what, ours, baseline, ratio, wanted, whether it is met), each but the last as text. At the
    small scale nothing is said of what is met: its times mean nothing."""

    def __init__(self, rows: Sequence[Sequence[Any]], small: bool) -> None:
        said = {True: "yes", False: "no", None: ""}
        if small:
            said = dict.fromkeys(said, "")
        self.rows = [[*map(str, row[:5]), said[None if row[5] is None else bool(row[5])]] for row in rows]

    def __repr__(self) -> str:
        lines = [list(HEADS), *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_markdown_(self) -> str:
        lines = [HEADS, ["---"] * len(HEADS), *self.rows]
        return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def bars(axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """For each group one bar of each series, side by side, the first group on top."""
    height = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * height for group in range(len(groups))]
        axes.barh(places, values, height * 0.9, label=name, color=COLOURS[number])
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    _legend(axes, len(series))


def dots(axes: Any, groups: Sequence[str], values: Sequence[Sequence[float]], name: str = "a round") -> None:
    """For each group its single values, and their middle as a line."""
    for group, found in enumerate(values):
        middle = sorted(found)[(len(found) - 1) // 2] / 2 + sorted(found)[len(found) // 2] / 2
        axes.plot(
            found, [group] * len(found), "o", color=COLOURS[0], alpha=0.5, label=name if not group else ""
        )
        said = "median" if not group else ""
        axes.plot([middle] * 2, [group - 0.3, group + 0.3], color=COLOURS[0], linewidth=2.5, label=said)
    axes.set_yticks(range(len(groups)), groups)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    _legend(axes, 2)


def lines(axes: Any, across: Sequence[float], series: Mapping[str, Sequence[float]]) -> None:
    """One line for each series, each with a marker of its own."""
    for number, (name, values) in enumerate(series.items()):
        axes.plot(across, values, marker=MARKERS[number], markersize=4.5, label=name, color=COLOURS[number])
    _legend(axes, len(series))


def wanted(axes: Any, value: float, label: str = "wanted") -> None:
    """The line that was asked for, across an axis of values that lie along x."""
    axes.axvline(value, color="black", linestyle="--", linewidth=1.2, label=label)
    _legend(axes, len(axes.get_legend_handles_labels()[1]))


def _legend(axes: Any, count: int) -> None:
    if count > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=min(count, 4), borderaxespad=0.2)
