"""What is protected, where its copies are, and when the next commit is due."""

import asyncio
from collections.abc import Iterable, Mapping
from inspect import isawaitable
from typing import Any, ClassVar

from dask_hpc import unprotect
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class CheckpointView(View):
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

    async def do_unprotect(self, asked: Mapping[str, Any]) -> str:
        """Copies of that name are not kept any longer."""
        name, client = str(asked.get("name")), self._manager.client
        done = (
            unprotect(name, client=client)
            if client.asynchronous
            else await asyncio.to_thread(unprotect, name, client=client)
        )
        if isawaitable(done):
            await done
        return f"{name} is protected no more"
