"""What is protected, where its copies are, and when the next commit is due."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from dask_hpc import unprotect
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class CheckpointDeeds:
    """What can be asked for about what is protected."""

    with_client: Any

    async def do_unprotect(self, asked: Mapping[str, Any]) -> str:
        """Copies of that name are not kept any longer."""
        name = str(asked.get("name"))
        await self.with_client(unprotect, name)
        return f"{name} is protected no more"


class CheckpointView(CheckpointDeeds, View):
    """Protected results with their last and next commit, copies by node, versions of checkpoints."""

    _esm = module("checkpoint_view")
    _css = style()
    parts: ClassVar[tuple[str, ...]] = ("checkpoint",)
    draws = frozenset({"checkpoint"})

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """A line for whatever is protected."""
        found = (whole.get("checkpoint") or {}).get("protected") or ()
        for one in found:
            yield f"{one['name']}: {one['copied']} of {one['keys']} results copied; {one['why']}"
        if not found:
            yield "nothing is protected"
