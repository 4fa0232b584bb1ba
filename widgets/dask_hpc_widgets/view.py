"""What all views of a cluster have in common: they follow its course and draw what is new.

A view keeps nothing of its own: the course is the watch's, and what a front end that opens later is given is
read from there. News go out as messages; what people do comes in as messages, and is carried out on the
client's event loop, so that a cell that computes is not in the way and nobody waits for the other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from inspect import isawaitable
from threading import RLock
from time import monotonic
from typing import Any, ClassVar

import anywidget
import traitlets

from dask_hpc import InputError, manage

logger = logging.getLogger(__name__)
_UNHEARD = 30.0  # seconds since a front end was heard: then nobody is told any more
_UNREAD = 150  # answers of the watch that are on their way at most
_TOLD = 5  # times that everything is told, a second apart, before a front end is heard


def manager_of(given: Any) -> Any:
    """A handle to the cluster: of a client or cluster object, which is managed from then on if it is not."""
    return given if hasattr(given, "watch") else manage(given)


def heard_at_once(widget: Any) -> None:
    """Let what a front end says to this widget come in while a cell computes.

    A front end sends it to a thread of its own in the kernel. ipykernel 7.4 sends it to where the widget
    last spoke from instead; for ours, made in a cell, that is the thread that computes. Others have no such
    rule, and no such name.
    """
    if widget.comm is not None:
        widget.comm._reply_subshell_for = None


def _in_words(problem: str, will_return: bool) -> str:
    """What is wrong with the contact, and whether to wait for it."""
    if not problem:
        return ""
    return f"{problem}. {'It is tried again' if will_return else 'It does not come back by itself'}"


def _at_once(deed: Coroutine[Any, Any, None]) -> None:
    """Carry out what waits for nobody."""
    try:
        deed.send(None)
    except StopIteration:
        return
    deed.close()
    raise RuntimeError("without a cluster there is nothing to wait for")


class View(anywidget.AnyWidget):
    """A view of a managed cluster, or of a course that is over. ``close`` ends it without a trace."""

    #: parts of the status it shows
    parts: ClassVar[tuple[str, ...]] = ()
    #: what of the news it draws besides the head and the order of jobs; "turned" are jobs in brief, told only
    #: when their state changes; a view that draws nothing of them is sent none
    draws: ClassVar[frozenset[str]] = frozenset()
    #: what one can ask for who only looks
    looks: ClassVar[frozenset[str]] = frozenset({"why", "machines", "report", "files"})

    #: all that is remembered of what is over; what is live is asked for by each front end that opens, as
    #: that would keep an hour of it twice
    course = traitlets.Dict(read_only=True).tag(sync=True, to_json=lambda value, self: self._fixed)
    #: whether there is a cluster that goes on
    is_live = traitlets.Bool(read_only=True).tag(sync=True)
    #: what is wrong with the contact to it; empty if nothing is
    contact = traitlets.Unicode(read_only=True).tag(sync=True)
    #: whether it only shows, and what people do is refused
    readonly = traitlets.Bool(read_only=True).tag(sync=True)
    #: what is wrong with what was asked for last
    problem = traitlets.Unicode().tag(sync=True)
    #: what was done last
    done = traitlets.Unicode().tag(sync=True)

    _end: Callable[[], None] | None = None
    #: when a front end was heard last, and how many answers of the watch it had read
    _heard_at = _read = 0.0
    _is_behind = False
    #: whether a front end has ever been heard; if not, how often everything was told, and when last, or since
    #: when it could ask: an hour of many nodes costs a page megabytes each time, so it is not told before
    _is_heard = False
    _told, _told_at = 0, 0.0

    def __init__(self, source: Any = None, *, read_only: bool = False, **traits: Any) -> None:
        #: people say things in one thread, news come in another
        self._one_at_a_time = RLock()
        # what a front end is sent first is read from these
        self._manager: Any = None if source is None or isinstance(source, Mapping) else manager_of(source)
        self._fixed = source if isinstance(source, Mapping) else {}
        self.set_trait("is_live", self._manager is not None)
        self.set_trait("readonly", read_only)
        self._news_at = monotonic()
        super().__init__(**traits)
        heard_at_once(self)
        if self._manager is not None:
            self._awaited = self._manager.awaited
            self._heard_at = self._told_at = monotonic()
            self._read = self._manager.watch.course.head.get("count", 0)
            self._end = self._manager.watch.follow(self._tell, self.parts)
        self.on_msg(self._hear)

    def seen(self) -> Mapping[str, Any]:
        """What a front end that opens now is to draw."""
        return self._fixed if self._manager is None else self.drawn(self._manager.watch.course.whole())

    def drawn(self, news: dict[str, Any]) -> dict[str, Any]:
        """News without what this view does not draw: it would cost the page time and memory."""
        always = ("head", "order")
        found = {k: value for k, value in news.items() if k in self.draws or k in always}
        if "turned" in found:
            found["jobs"] = found.pop("turned")
        return found

    def take(self, news: Mapping[str, Any]) -> None:
        """Something is new, whether anybody looks or not."""

    def close(self) -> None:
        """Follow the cluster no more, and leave the page."""
        if self._end is not None:
            self._end()
            self._end = None
        self.on_msg(self._hear, remove=True)
        super().close()

    def _tell(self, news: dict[str, Any]) -> None:
        with self._one_at_a_time:
            if "problem" in news:
                self.set_trait("contact", _in_words(news["problem"], news.get("will_return", True)))
            if "head" in news:
                self._news_at = monotonic()
            self.take(news)
        if not self.draws:
            return
        if "problem" in news and "head" in news:
            self._tell_all()  # the watch does so after a problem, of a course that may be another one
        elif not self._falls_behind(news.get("head", {}).get("count", 0)):
            self.send({"news": self.drawn(news)})
            self._tell_unheard()

    def _tell_unheard(self) -> None:
        """Where a cell computes since the view was made, a front end is not heard when it asks what was."""
        if not self._is_heard and self._told < _TOLD and monotonic() - self._told_at >= 1:
            self._told, self._told_at = self._told + 1, monotonic()
            self.send({"whole": self.seen()})

    def _falls_behind(self, count: float) -> bool:
        """Whether nobody reads what is sent: on its way to a page that is stuck, hidden or closed it would
        be piled up by others. Such a page is told everything when it comes back."""
        self._is_behind |= monotonic() - self._heard_at > _UNHEARD or count - self._read > _UNREAD
        return self._is_behind

    def _tell_all(self) -> None:
        self._is_behind, self._heard_at = False, monotonic()
        self._read = self._manager.watch.course.head.get("count", 0)
        self.send({"whole": self.seen()})

    def _hear(self, _: Any, message: Any, buffers: Any) -> None:
        what = message.get("do") if isinstance(message, dict) else None
        self._is_heard = True
        deed = getattr(self, f"do_{what}", None) if isinstance(what, str) and what.isidentifier() else None
        if self.readonly and what not in self.looks:
            deed = None
        if self._manager is None:
            if deed is not None:
                _at_once(self._carry_out(deed, message))
            return
        if what == "whole":
            self._manager.client.loop.add_callback(self._tell_all)
            return
        if what == "looks":
            self._manager.watch.somebody_looks()
            self._manager.client.loop.add_callback(self._is_looked_at, message.get("count"))
            self.send(self.answer_to_looks())
            return
        if deed is not None:
            self._manager.client.loop.add_callback(self._carry_out, deed, message)

    def answer_to_looks(self) -> dict[str, Any]:
        """That the kernel hears, and how old the newest news is, in seconds."""
        return {"heard": True, "age": monotonic() - self._news_at}

    def _is_looked_at(self, count: Any) -> None:
        self._heard_at = monotonic()
        if isinstance(count, int):
            self._read = max(self._read, count)
        if self._is_behind:
            self._tell_all()

    async def with_client(self, function: Callable[..., Any], *given: Any, **more: Any) -> None:
        """Call what takes a client. It may wait for an answer, and this is the loop that brings it."""
        client = self._manager.client
        if client.asynchronous:
            done = function(*given, **more, client=client)
        else:
            done = await asyncio.to_thread(function, *given, **more, client=client)
        if isawaitable(done):
            await done

    async def do_undo(self, asked: Mapping[str, Any]) -> str:
        """Back to what was in force before the last change."""
        return f"undone: {(await self._awaited.undo())['name']} is in force"

    async def _carry_out(
        self, deed: Callable[[Mapping[str, Any]], Awaitable[str | None]], asked: Any
    ) -> None:
        """Do what somebody asked for, and say what came of it."""
        try:
            said = await deed(asked)
            if said is not None:  # it was a question: what came of the last deed stays said
                self._came(said, "")
        except InputError as error:
            self._came(self.done, str(error))
        except Exception as error:
            logger.exception("dask-hpc: what was asked for in a widget failed")
            self._came(self.done, f"{type(error).__name__}: {error}")
        self.send({"answer": asked.get("ask"), "problem": self.problem, "done": self.done})

    def _came(self, done: str, problem: str) -> None:
        with self._one_at_a_time:
            self.done, self.problem = done, problem

    def __repr__(self) -> str:
        return self.readable()

    def readable(self) -> str:
        """The view as text, for where there is no front end."""
        whole = self._fixed if self._manager is None else self._manager.watch.course.whole()
        if not whole.get("head"):
            return f"<{type(self).__name__}: has not seen the cluster yet>"
        return "\n".join(self.lines(whole))

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """The course in words: how the cluster is, if a view has nothing better to say."""
        head, gone = whole["head"], whole["nodes"]["gone"]
        there = len(whole["nodes"]["names"]) - sum(last - first + 1 for first, last in gone)
        yield f"policy {head['policy']}, control {head['state']}, {there} nodes"
