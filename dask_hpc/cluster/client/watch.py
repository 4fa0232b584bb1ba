"""Watch a managed cluster: the course of it, kept up to date for as long as somebody follows it.

One watch per client, on the client's event loop; followers are called there. It looks ten times a second
while people do, once a second otherwise, and not at all when nobody follows it. What it costs is what has
changed; a scheduler that answers slowly is asked less often.

Nobody takes what was for what is: followers hear it when an answer is late, when the connection is lost, when
the management or the client ends, and whether that may come right by itself. It goes on as soon as it can.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from distributed import Client

from dask_hpc import dask as compat
from dask_hpc.cluster.request import ask
from dask_hpc.view.course import Alert, Course

logger = logging.getLogger(__name__)

_EVERY, _UNSEEN, _JOBS, _PARTS = 0.1, 1.0, 0.5, 1.0  # seconds between looks: at all, at jobs, at parts
_SHARE = 0.2  # of the time at most that an answer may take us
_LATE = 1.5  # seconds after which an answer is late
_AGAIN = 0.3  # seconds until it is tried again, or looked whether it can be
_NOW = 1.0  # seconds before somebody asked for alerts that are news to him

_SILENT = "the scheduler does not answer"
_LOST = "the connection to the scheduler is lost: the client tries to reconnect"
_ENDED = "this cluster is not managed any more"

#: called with what is new, as ``Course.add`` says; or with what is wrong: {"problem": words, "will_return":
#: whether it may come right by itself}. No words when it has.
Follower = Callable[[dict[str, Any]], None]


def watch_of(client: Client) -> "Watch":
    """The one watch of this client; it goes with it."""
    watch: Watch = vars(client).setdefault("dask_hpc_watch", None) or Watch(client)
    vars(client)["dask_hpc_watch"] = watch
    return watch


def rest_after(took: float) -> float:
    """Seconds for which a scheduler whose answer took so long is left alone. One answer may have been late;
    and if the next takes as long there is news before silence is told."""
    return min(took / _SHARE - took, _UNSEEN, max(_AGAIN, _LATE - took))


class Watch:
    """See above. ``follow`` and the function it gives may be called on any thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.course = Course()
        #: what is wrong, in words for people, empty if nothing is; and whether it may come right by itself
        self.problem, self.will_return = "", True
        self._followers: dict[object, tuple[Follower, frozenset[str]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._seen_until = 0.0
        self._is_minded = False  # whether it hears of the client's end
        self._has_closed = False

    @property
    def is_awake(self) -> bool:
        """Whether it looks at the cluster now and then."""
        return self._task is not None and not self._task.done()

    def follow(self, follower: Follower, parts: tuple[str, ...] = ()) -> Callable[[], None]:
        """Tell this function whatever is new, first of all everything that is remembered. ``parts`` of the
        status are looked at for its sake: see ``Manager.feed``. Answers how to end it."""
        number = object()
        if self._is_closed:  # then its loop may have ended, too
            self._followers[number] = follower, frozenset(parts)
            self._closes()
            self._greet(number)
            return lambda: None
        self._client.loop.add_callback(self._begin, number, follower, frozenset(parts))

        def end() -> None:
            self._client.loop.add_callback(self._end, number)

        return end

    def somebody_looks(self, seconds: float = 10.0) -> None:
        """People look at it for so long at least."""
        loop = self._client.loop
        loop.add_callback(lambda: setattr(self, "_seen_until", loop.time() + seconds))

    def _begin(self, number: object, follower: Follower, parts: frozenset[str]) -> None:
        self._followers[number] = follower, parts
        self._greet(number)
        if not self.is_awake and not self._is_closed:
            if not self._is_minded:
                self._is_minded = True
                compat.at_close(self._client, self._closes)
            self._seen_until = self._client.loop.time() + 10.0
            self._task = asyncio.ensure_future(self._look())

    def _greet(self, number: object) -> None:
        found = self.course.whole() if self.course.head else {}
        if self.problem:
            found |= {"problem": self.problem, "will_return": self.will_return}
        if found:
            self._tell(number, found)

    def _end(self, number: object) -> None:
        self._followers.pop(number, None)
        if not self._followers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        clock = self._client.loop.time
        jobs_at = parts_at = 0.0
        while self._followers:
            began = clock()
            look_at_jobs, look_at_parts = began >= jobs_at, began >= parts_at
            wanted = frozenset().union(*(parts for _, parts in self._followers.values()))
            try:
                course = self.course
                asked = course.wants(look_at_jobs, wanted if look_at_parts else ())
                found = await self._in_time("hpc_feed", **asked)
                if self._is_another(found):  # somebody manages the cluster again: that is another story
                    course = Course()
                    found = await self._in_time("hpc_feed", **course.wants(True, wanted))
                if (found["version"], found["state"]) != course.in_force:
                    found["in_force"] = await self._in_time("hpc_set")
                self.course = course
            except Exception as error:
                if self._is_closed:
                    self._closes()
                    return
                self._is_lost(error)
                await asyncio.sleep(_AGAIN)
                while self._client.status == "connecting":
                    await asyncio.sleep(_AGAIN)
                continue
            took = clock() - began
            jobs_at = began + _JOBS if look_at_jobs else jobs_at
            parts_at = began + _PARTS if look_at_parts else parts_at
            self._take_in(found)
            pause = _EVERY if began < self._seen_until else _UNSEEN
            await asyncio.sleep(max(began + pause - clock(), rest_after(took), 0.01))

    @property
    def _is_closed(self) -> bool:
        return self._client.status in ("closed", "closing")

    def _is_another(self, found: Mapping[str, Any]) -> bool:
        """Whether the cluster was managed anew meanwhile."""
        return bool(self.course.head) and found.get("began") != self.course.began

    async def _in_time(self, call: str, **asked: Any) -> dict[str, Any]:
        """The answer of the scheduler. If it is late, followers hear so while it is waited for; a connection
        that is lost is not."""
        answer = asyncio.ensure_future(ask(self._client, call, **asked))
        try:
            patience = _LATE
            while not (await asyncio.wait({answer}, timeout=patience))[0]:
                if self._client.status != "running":
                    raise ConnectionError(_LOST)
                self._say(_SILENT)
                patience = _AGAIN
            found: dict[str, Any] = answer.result()
            return found
        finally:
            answer.cancel()

    def _is_lost(self, error: Exception) -> None:
        if "not managed" in str(error):
            self._say(_ENDED, will_return=False)
        elif isinstance(error, OSError):
            self._say(_LOST)
        else:
            self._say(str(error) or type(error).__name__)

    def _closes(self) -> None:
        """The client does, and with it all that is seen through it."""
        cluster = getattr(self._client, "cluster", None)
        is_cluster = getattr(getattr(cluster, "status", None), "name", "") in ("closing", "closed")
        how = "the cluster was closed" if is_cluster else "the client was closed"
        if self.problem == _LOST:
            how = "the scheduler did not come back, and the client was closed"
        if not self._has_closed:
            self._has_closed = True
            self._say(how, will_return=False)
        if self._task is not None:
            self._task.cancel()

    def _take_in(self, found: dict[str, Any]) -> None:
        is_back, self.problem, self.will_return = bool(self.problem), "", True
        new = self.course.add(found)
        if is_back:
            new = self.course.whole() | {"problem": ""}
        for number in list(self._followers):
            self._tell(number, new)

    def _say(self, problem: str, will_return: bool = True) -> None:
        if problem != self.problem:
            self.problem, self.will_return = problem, will_return
            for number in list(self._followers):
                self._tell(number, {"problem": problem, "will_return": will_return})

    def _tell(self, number: object, new: dict[str, Any]) -> None:
        with suppress(KeyError):  # who has left meanwhile
            try:
                self._followers[number][0](new)
            except Exception:
                logger.exception("dask-hpc: somebody who watches a cluster fails, and is told no more")
                self._end(number)


def tell_alerts(watch: Watch, act: Callable[[Alert], object]) -> Callable[[], None]:
    """See ``Manager.on_alert``. What was before somebody asked for it is no news."""
    since: list[float] = []

    def follower(news: dict[str, Any]) -> None:
        if not since and "head" in news:
            since.append(news["head"]["time"] - _NOW)
        for row in news.get("alerts", ()):
            alert = Alert(*row)
            if alert.number in told or alert.time < since[0]:
                continue
            told.append(alert.number)
            try:
                act(alert)
            except Exception:
                logger.exception("dask-hpc: what was to be done about an alert failed: %s", alert.words)

    told: deque[int] = deque(maxlen=200)
    return watch.follow(follower)
