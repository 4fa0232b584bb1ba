"""Who holds which node, over time, and who waits."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import traitlets

from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class AllotmentMap(View):
    """Nodes x time, coloured by job, with the queue in a line below it.

    Of very many nodes, each job is a band as high as the nodes it holds. Point at a block to see the job, the
    reason and its power. Ctrl or Shift with the wheel, or + and -, zoom; dragging selects times and nodes;
    arrows move; Escape or a double click follows the present again. Above it are buttons for the same, for
    what the signs mean, and to save the picture.
    """

    _esm = module("allotment_map")
    _css = style()
    parts: ClassVar[tuple[str, ...]] = ("power",)
    draws = frozenset({"nodes", "presence", "marked", "changes", "turned", "power_now"})

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """Who has how many nodes now, and who waits."""
        yield from super().lines(whole)
        for job in whole["jobs"]:
            if job["state"] == "running":
                yield f"  {job['name']} holds {job['nodes']}"
            elif job["state"] == "waiting":
                yield f"  {job['name']} waits for {job['asks']}: {job['waiting_because']}"

    height = traitlets.Int(320, help="pixels").tag(sync=True)
