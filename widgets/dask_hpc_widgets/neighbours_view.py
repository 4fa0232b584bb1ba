"""Kinds of tasks that share nodes: how they slow each other, what they need of memory, what is limited."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from dask_hpc.model.units import show_duration, show_large
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class NeighboursView(View):
    """What policies ``together`` and ``memory-lanes`` know of kinds of tasks, and what follows from it."""

    _esm = module("neighbours_view")
    _css = style()
    parts: ClassVar[tuple[str, ...]] = ("together",)
    draws = frozenset({"together"})

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """A line for each kind, and one for each limit."""
        found = whole.get("together")
        if found is None:
            yield "kinds of tasks are not watched"
            return
        said = dict(_kinds(found))
        yield from (f"{kind}: {', '.join(words)}" for kind, words in said.items())
        for one in (found["neighbours"] or {}).get("limits", ()):
            alone = "any number" if one["alone"] is None else one["alone"]
            few = f"{one['beside']} at once beside others, {alone} alone; {one['reason']}"
            yield f"{one['kind']}: job {one['job']}: {few}" if one["job"] else f"{one['kind']}: {few}"
        if not said:
            yield "no task has ended yet"


def _kinds(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is known of each kind."""
    said: dict[str, list[str]] = {}
    neighbours, memory = found["neighbours"], found["memory"]
    for one in neighbours["kinds"] if neighbours else ():
        words = said.setdefault(one["kind"], [])
        words.append(f"{show_duration(one['seconds'])} alone")
        beside = neighbours["slowdowns"].get(one["kind"], {})
        words.extend(f"{one['ratio']:.2f} times as long beside {other}" for other, one in beside.items())
    for one in memory["kinds"] if memory else ():
        few = "" if one["at_once"] is None else f", at most {one['at_once']} at once on a worker"
        said.setdefault(one["kind"], []).append(f"needs {show_large(one['peak'], 'B')}{few}")
    for one in found["kept"]:
        said.setdefault(one["kind"], []).append(f"{one['in_flight']} run, {one['waiting']} wait")
    return said
