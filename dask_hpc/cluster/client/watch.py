"""Watch a managed cluster: the course of it, kept up to date for as long as somebody follows it.

One watch per client, on the client's event loop; followers are called there. It looks ten times a second
while people do, once a second otherwise, and not at all when nobody follows it. What it costs is what has
changed; a scheduler that answers slowly is asked less often.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Client

from dask_hpc.cluster.request import ask
from dask_hpc.view.course import Course

logger = logging.getLogger(__name__)

_EVERY, _UNSEEN, _JOBS, _PARTS = 0.1, 1.0, 0.5, 1.0  # seconds between looks: at all, at jobs, at parts
_SHARE = 0.2  # of the time at most that an answer may take us
_LOST = 2.0  # seconds until it is tried again

#: called with what is new, as ``Course.add`` says; or with what is wrong: {"problem": words}
Follower = Callable[[dict[str, Any]], None]


def watch_of(client: Client) -> "Watch":
    """The one watch of this client; it goes with it."""
    watch: Watch = vars(client).setdefault("dask_hpc_watch", None) or Watch(client)
    vars(client)["dask_hpc_watch"] = watch
    return watch


class Watch:
    """See above. ``follow`` and the function it gives may be called on any thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.course = Course()
        #: what is wrong, in words for people; empty if nothing is
        self.problem = ""
        self._followers: dict[object, tuple[Follower, frozenset[str]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._seen_until = 0.0

    @property
    def is_awake(self) -> bool:
        """Whether it looks at the cluster now and then."""
        return self._task is not None and not self._task.done()

    def follow(self, follower: Follower, parts: tuple[str, ...] = ()) -> Callable[[], None]:
        """Tell this function whatever is new, first of all everything that is remembered. ``parts`` of the
        status are looked at for its sake: see ``Manager.feed``. Answers how to end it."""
        number = object()
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
        if self.course.head:
            self._tell(number, self.course.whole())
        if not self.is_awake:
            self._seen_until = self._client.loop.time() + 10.0
            self._task = asyncio.ensure_future(self._look())

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
                asked = self.course.wants(look_at_jobs, wanted if look_at_parts else ())
                found = await ask(self._client, "hpc_feed", **asked)
                if (found["version"], found["state"]) != self.course.in_force:
                    found["in_force"] = await ask(self._client, "hpc_set")
            except Exception as error:
                if self._client.status in ("closed", "closing"):
                    self._say("the client was closed")
                    return
                self._say(str(error) or type(error).__name__)
                await asyncio.sleep(_LOST)
                if "not managed" in self.problem:
                    self.course = Course()  # if somebody manages it again, that is another story
                continue
            took = clock() - began
            jobs_at = began + _JOBS if look_at_jobs else jobs_at
            parts_at = began + _PARTS if look_at_parts else parts_at
            self._take_in(found)
            pause = _EVERY if began < self._seen_until else _UNSEEN
            await asyncio.sleep(max(began + pause - clock(), took / _SHARE - took, 0.01))

    def _take_in(self, found: dict[str, Any]) -> None:
        is_back, self.problem = bool(self.problem), ""
        new = self.course.add(found)
        if is_back:
            new = self.course.whole() | {"problem": ""}
        for number in list(self._followers):
            self._tell(number, new)

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            for number in list(self._followers):
                self._tell(number, {"problem": problem})

    def _tell(self, number: object, new: dict[str, Any]) -> None:
        with suppress(KeyError):  # who has left meanwhile
            try:
                self._followers[number][0](new)
            except Exception:
                logger.exception("dask-hpc: somebody who watches a cluster fails, and is told no more")
                self._end(number)
