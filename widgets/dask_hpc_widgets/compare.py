"""Two runs, or a cluster and its prediction, on one axis of time."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import traitlets

from dask_hpc import side_by_side
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View, manager_of


class Compare(View):
    """Two runs beside each other: ``Compare(a, b)``.

    Each is a result of ``simulate``, a course, a managed cluster (which goes on), or a study of one policy,
    of which there are figures only. A prediction of a cluster, ``simulate(snapshot=manager.snapshot())``, is
    on the cluster's clock; runs whose times have nothing in common begin together. ``names`` are theirs.
    """

    _esm = module("compare", "allotment_map")
    _css = style()
    parts = ("power",)
    draws = frozenset({"nodes", "presence", "marked", "changes", "turned", "samples", "power_now"})

    names: Any = traitlets.List(read_only=True).tag(sync=True)
    #: of both; None for the one that goes on, or for figures only
    courses: Any = traitlets.List(read_only=True).tag(sync=True)
    has_pictures = traitlets.Bool(read_only=True).tag(sync=True)
    #: in words: what, the first's, the second's, what differs, whether that is better
    table: Any = traitlets.List(read_only=True).tag(sync=True)
    about = traitlets.Unicode(read_only=True).tag(sync=True)

    def __init__(self, a: Any, b: Any, names: Any = None, **traits: Any) -> None:
        given = [_source(one) for one in (a, b)]
        self._both = both = side_by_side(*given, names=names)
        # one is followed; a second cluster is seen as it is now
        lives = [number for number, one in enumerate(given) if hasattr(one, "watch")]
        self._live = lives[0] if lives else None
        self.set_trait("names", both.names)
        courses = [None if number == self._live else one for number, one in enumerate(both.courses)]
        self.set_trait("courses", courses)
        self.set_trait("has_pictures", None not in both.courses)
        self.set_trait("table", both.table)
        self.set_trait("about", both.about)
        super().__init__({} if self._live is None else given[self._live], **traits)

    def take(self, news: Mapping[str, Any]) -> None:
        """Compare anew when jobs have ended."""
        if self._live is None or not ({"jobs", "turned"} & news.keys()):
            return
        courses = list(self._both.courses)
        courses[self._live] = self._manager.watch.course.whole()
        self.set_trait("table", list(self._both.rows(*courses)))

    def save(self, path: str | Path) -> None:
        """Write what is shown as a page of HTML that needs no other file."""
        self._both.save(path)

    def readable(self) -> str:
        """What is compared, as a table of text."""
        return repr(self._both)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        found: Any = super()._repr_mimebundle_(**kwargs)
        found = dict(found[0] if isinstance(found, tuple) else found or {})  # anywidgets differ
        # a front end without widgets shows these; it would cut the text after a line
        return found | {"text/plain": repr(self), "text/html": f"<pre>{escape(repr(self))}</pre>"}


def _source(given: Any) -> Any:
    """A cluster by its manager; anything else as it is."""
    is_cluster = (
        hasattr(given, "watch") or hasattr(given, "scheduler_info") or hasattr(given, "scheduler_address")
    )
    return manager_of(given) if is_cluster else given
