"""The pages ``/hpc``, its parts, and ``/hpc-control``, on Dask's own HTTP server.

They are drawn by the kit and follow the feed that the widgets follow. What is shown is read off the story and
the status when somebody looks; nothing is collected for it. Where the dashboard is off there is no page, and
nobody is bothered.

``/hpc-control`` is for front ends whose widgets have to wait until a cell is done, and for people without a
notebook. The dashboard knows no users, and any page of the web could send a browser there; so it only opens,
and changes anything, with the token that ``Manager.control_page`` puts into its address.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from html import escape
from secrets import compare_digest, token_urlsafe
from time import monotonic
from typing import Any

from tornado.web import RequestHandler

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.calls import Calls
from dask_hpc.cluster.scheduler.service import Service
from dask_hpc.model.errors import InputError
from dask_hpc.policy import Policy
from dask_hpc.view.course import Course
from dask_hpc.view.in_situ import pipelines_html
from dask_hpc.view.kit import script, shown
from dask_hpc.view.page import board_page, present_html

logger = logging.getLogger(__name__)

_PAGE, _FEED, _REPORT, _CONTROL = "/hpc", "/hpc-feed", "/hpc-report", "/hpc-control"
_EVERY = 0.2  # seconds between two looks at the cluster, however many pages are open
_KEPT = 100  # news that a page may be behind; one that is further behind is told everything
_PARTS = ("power", "checkpoint", "pipelines", "holds", "lanes", "files", "together")
#: what can be seen alone, by the names of its pages
_VIEWS = {
    "allotments": "allotment_map",
    "power": "corridor_chart",
    "pipelines": "pipelines",
    "checkpoints": "checkpoint_view",
    "scratch-files": "scratch_files_view",
    "file-systems": "lanes",
    "neighbours": "neighbours_view",
    "jobs": "jobs_table",
    "decisions": "story_view",
}
#: what ``/hpc`` shows, from the top down
_PICTURES = ["headline", "time_toolbar", "allotment_map", "corridor_chart", "queue"]
PAGE = [*_PICTURES, *(view for view in _VIEWS.values() if view not in _PICTURES)]
_CLOSED = "This page opens with the address that <code>manager.control_page()</code> gives."


class Watched:
    """A managed cluster as all pages see it: brought up to date by whoever looks first."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._course = Course()
        self._news: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._looked_at = -_EVERY

    def since(self, count: int) -> dict[str, Any]:
        """What is new for a page that has seen the news up to ``count``; everything for one that saw none."""
        if monotonic() - self._looked_at >= _EVERY:
            self._looked_at = monotonic()
            self._look()
        last = self._course.head["count"]
        if 0 <= last - count <= len(self._news):
            return {"count": last, "news": list(self._news)[len(self._news) - (last - count) :]}
        return {"count": last, "whole": _drawn(self._course.whole())}

    def whole(self) -> dict[str, Any]:
        """All that is remembered."""
        self._look()
        return self._course.whole()

    def why(self, number: int) -> dict[str, Any] | None:
        """A row of the story with all its reasons; None if it is forgotten."""
        found = self.calls.story_since(number, 1)
        return found["rows"][0] if found["first"] == number and found["rows"] else None

    def _look(self) -> None:
        found = self.calls.feed(**self._course.wants(jobs=True, parts=_PARTS))
        if (found["version"], found["state"]) != self._course.in_force:
            found["in_force"] = self.calls.set()
        self._news.append(_drawn(self._course.add(found)))


def _drawn(news: dict[str, Any]) -> dict[str, Any]:
    """News with the pictures that the Python side draws."""
    if "pipelines" not in news:
        return news
    return news | {"drawn_pipelines": pipelines_html(news["pipelines"] or ())}


class _Handler(RequestHandler):
    def initialize(self, **given: Any) -> None:
        self.given = given

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.finish(f"{status_code}: {escape(self._reason)}")

    def answer(self, found: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(found, default=str, allow_nan=False))


class _PageHandler(_Handler):
    """A page of ours, which is the same for everybody."""

    def get(self) -> None:
        links, views, title = self.given["links"](), self.given["views"], self.given["title"]
        body = script(*views) + shown(views, feed=_FEED.strip("/"), report=_REPORT.strip("/"))
        self.finish(board_page(title, links if len(views) > 1 else (), body))


class _FeedHandler(_Handler):
    """What is new, or why something was decided."""

    def get(self) -> None:
        watched = self.given["watched"]
        try:
            number = int(self.get_query_argument("why", "-1"))
            count = int(self.get_query_argument("count", "-1"))
        except ValueError:
            self.send_error(400, reason="count and why are numbers")
            return
        self.answer(watched.why(number) if number >= 0 else watched.since(count))

    def log_exception(self, *failure: Any) -> None:
        logger.error("dask-hpc: the dashboard's page fails", exc_info=failure)


class _ReportHandler(_Handler):
    """What is shown now, to keep."""

    def get(self) -> None:
        self.set_header("Content-Disposition", 'attachment; filename="dask-hpc.html"')
        self.finish(present_html(self.given["watched"].whole()))


class _ControlHandler(_Handler):
    """The form, and what it asks for."""

    def get(self) -> None:
        if not self._knows(self.get_query_argument("token", "")):
            self.finish(board_page("dask-hpc: control", (), f"<p>{_CLOSED}</p>"))
            return
        more = {"token": self.given["token"], "control": _CONTROL.strip("/"), "names": Policy.names()}
        body = script("control_page") + shown(["control_page"], feed=_FEED.strip("/"), **more)
        self.finish(board_page("dask-hpc: control", (), body))

    def post(self) -> None:
        try:
            sent = json.loads(self.request.body)
            token, asked = sent["token"], sent["asked"]
        except (ValueError, TypeError, KeyError):
            self.send_error(400, reason="token and asked are missing")
            return
        if not self._knows(token):
            self.send_error(403)
            return
        self.answer(changed(self.given["calls"], asked))

    def _knows(self, token: object) -> bool:
        return compare_digest(str(token).encode(), self.given["token"].encode())


def changed(calls: Calls, asked: Mapping[str, Any]) -> dict[str, str]:
    """Change what somebody asked for, and what came of it."""
    try:
        if not isinstance(asked, dict) or not asked.keys() <= {"policy", "changes", "action"}:
            raise InputError("asked", "found something else", "policy, changes, action")
        found = calls.set(**asked)
    except InputError as error:
        return {"problem": str(error)}
    return {"done": f"{found['name']} is in force; control is {found['state']}"}


class DashboardService(Service):
    """Serves the pages while the cluster is managed."""

    #: who knows it may change things on the page ``/hpc-control``
    token = ""
    _served: Any = None

    def start(self) -> None:
        """The pages are there, if there is a dashboard."""
        self.token = token_urlsafe(16)
        calls = self.context.get(Calls)
        listed = {_PAGE: ("HPC", PAGE)}
        for name, view in _VIEWS.items():
            listed[f"/individual-hpc-{name}"] = (f"HPC {name.replace('-', ' ').title()}", [view])
        pages: dict[str, tuple[Any, dict[str, Any]]] = {
            path: (_PageHandler, {"title": f"Dask: {title}", "views": views, "links": self._links})
            for path, (title, views) in listed.items()
        }
        watched = Watched(calls)
        pages[_FEED] = _FeedHandler, {"watched": watched}
        pages[_REPORT] = _ReportHandler, {"watched": watched}
        pages[_CONTROL] = _ControlHandler, {"calls": calls, "token": self.token}
        try:
            self._served = compat.add_pages(self.context.scheduler, pages, listed)
        except Exception:
            logger.warning("dask-hpc: no dashboard page", exc_info=True)

    def close(self) -> None:
        """They are gone. A page that is open says so."""
        if self._served is not None:
            served, self._served = self._served, None
            compat.remove_pages(self.context.scheduler, served)

    cancel = close

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Where the page is that changes things."""
        return {"hpc_control_page": self.control_page}

    def control_page(self) -> dict[str, Any]:
        """Where the page is on which anybody who has its address may change things."""
        return {"page": None if self._served is None else f"{_CONTROL.lstrip('/')}?token={self.token}"}

    def _links(self) -> list[str]:
        """Dask's own pages beside ours."""
        return compat.listed_pages(self.context.scheduler)


SERVICE = DashboardService
