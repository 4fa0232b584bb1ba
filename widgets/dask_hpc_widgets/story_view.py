"""What was decided and what happened, with the reasons."""

from collections.abc import Iterable, Mapping
from typing import Any

import traitlets

from dask_hpc import InputError
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class StoryDeeds:
    """What can be asked about a row of the story."""

    _awaited: Any
    send: Any

    async def do_why(self, asked: Mapping[str, Any]) -> None:
        """Send the whole row of that number."""
        number = asked.get("number")
        if type(number) is not int or number < 0:
            raise InputError("row", f"found {number!r}", "a number of the story")
        self.send({"why": number, "row": await self._awaited.why(number)})


class StoryView(StoryDeeds, View):
    """The story, newest first: search it, and open a row to see the rule that spoke, what it looked at and
    what it did not do instead."""

    _esm = module("story_view")
    _css = style()
    draws = frozenset({"story", "turned", "signs"})

    height = traitlets.Int(360, help="pixels").tag(sync=True)
    #: what is searched for
    search = traitlets.Unicode().tag(sync=True)

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """The newest rows."""
        names = {job["id"]: job["name"] for job in whole["jobs"]}
        for _, time, decision, job, nodes, reason in whole["story"][-20:]:
            size = f" ({nodes} nodes)" if nodes else ""
            yield f"{time:9.1f} s  {decision:<12} {names.get(job, job)}{size}  {reason}"
