"""Scratch files in the memory of nodes: how each file system is, how fast, and who keeps its blocks."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from dask_hpc.model.units import count_nodes, counted, show_large
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class ScratchFilesView(View):
    """The file systems of ``dask_hpc.MemoryFiles``, with their nodes, blocks and speed."""

    _esm = module("scratch_files_view")
    _css = style()
    parts: ClassVar[tuple[str, ...]] = ("files",)
    draws = frozenset({"files"})

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """A line for each file system."""
        found = whole.get("files") or ()
        for one in found:
            kept = f"{counted(one['files'], 'file')} of {show_large(one['nbytes'], 'B')}"
            yield f"{one['name']}: {one['state']}, {kept} on {count_nodes(len(one['nodes']))}"
        if not found:
            yield "no file system in memory"
