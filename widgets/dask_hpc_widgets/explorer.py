"""What explorers have in common: parameters that people move, and a plan that follows. Without a cluster."""

from typing import Any

import anywidget
import traitlets

from dask_hpc import InputError
from dask_hpc_widgets.view import heard_at_once


class Explorer(anywidget.AnyWidget):
    """Any trait with the tag ``asks`` is a question; ``found`` is the plan's answer as plain data."""

    found: Any = traitlets.Dict(read_only=True).tag(sync=True)
    #: what is wrong with what was asked
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        heard_at_once(self)
        self.observe(self._follow, list(self.traits(asks=True)))
        self._follow()

    def plan(self) -> dict[str, Any]:
        """The answer to what is asked now."""
        raise NotImplementedError

    def _follow(self, _: Any = None) -> None:
        try:
            self.set_trait("found", self.plan())
            self.problem = ""
        except InputError as error:
            self.problem = str(error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.problem or self.readable()}>"

    def readable(self) -> str:
        """The plan in a line."""
        return str(self.found.get("reason", ""))
