"""What a managed cluster knows of its in situ pipelines: what they tell, checked, for status and story.

The answer to what is told is the placement strategy of the policy in force, so that a pipeline decides by it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from math import inf
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from dask_hpc.cluster.request import check_word
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.in_situ import Phases, PipelineStatus

KEPT = 20  # pipelines
MOST = 200  # of anything that is listed
#: what a pipeline may add to the story
NEWS = ("placement", "pipeline", "skipped", "recovered", "nodes-changed")
#: characters, of words that may be longer than names
_LONGEST = {"job": 2 * MOST, "reason": 600, "warning": 600}
_STATES = ("running", "done", "failed")
_HUGE = 1e18


class KnownPipelines:
    """The newest pipelines, by the id that each has made for itself."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: OrderedDict[str, tuple[str, PipelineStatus]] = OrderedDict()

    def told(self, id: object, client: object, status: object, news: object) -> None:
        """A pipeline says how it goes, and what it decided or found. Raises ``InputError``."""
        check_word("pipeline: id", id, may_be_empty=False)
        check_word("pipeline: client", client, may_be_empty=False)
        found = read_status(status)
        lines = read_news(news)
        key = str(id)
        self._known.pop(key, None)
        self._known[key] = (str(client), found)
        while len(self._known) > KEPT:
            over = (one for one in self._known if self._known[one][1]["state"] != "running")
            del self._known[next(over, next(iter(self._known)))]
        for kind, words in lines:
            self._context.tell(kind, f"pipeline {found['name']}: {words}")

    def _is_client(self, client: str) -> bool:
        return client in self._context.scheduler.clients

    def is_any_running(self) -> bool:
        """Whether there is a pipeline that hears what it is told."""
        return any(
            status["state"] == "running" and self._is_client(client)
            for client, status in self._known.values()
        )

    def as_status(self) -> list[PipelineStatus]:
        """All of them, the one told of last at the end. One whose client is gone does not run any more."""
        return [
            status
            if status["state"] != "running" or self._is_client(client)
            else {**status, "state": "failed"}
            for client, status in self._known.values()
        ]


def read_status(given: object) -> PipelineStatus:
    """How a pipeline goes, as it came over the wire. Raises ``InputError``."""
    found = _read("pipeline", given, PipelineStatus)
    check_word("pipeline: name", found["name"], may_be_empty=False)
    if found["state"] not in _STATES:
        raise InputError("pipeline: state", f"found {shown(found['state'])}", ", ".join(_STATES))
    return cast(PipelineStatus, found)


def read_news(given: object) -> list[tuple[str, str]]:
    """Pairs of a kind and words, for the story. Raises ``InputError``."""
    pairs = []
    for one in _read("pipeline: news", given, list[Any]):
        if not isinstance(one, list | tuple) or len(one) != 2 or one[0] not in NEWS:
            allowed = "pairs of " + ", ".join(NEWS) + " and words"
            raise InputError("pipeline: news", f"found {shown(one)}", allowed)
        check_word("pipeline: news", one[1], longest=_LONGEST["reason"])
        pairs.append((one[0], one[1]))
    return pairs


def _read(where: str, given: Any, kind: Any) -> Any:
    """Plain data of this kind, as the forms of a status declare it: a form itself, a list, a mapping of
    analyses, a number that is not negative, a word. Seconds by phase are a mapping with exactly these."""
    if kind is Any:
        return given
    if get_origin(kind) is UnionType:
        return None if given is None else _read(where, given, get_args(kind)[0])
    if kind is str:
        key = where.rpartition(": ")[2]
        check_word(where, given, longest=_LONGEST.get(key, MOST))
    elif kind is int:
        if type(given) is not int or not 0 <= given <= _HUGE:
            raise InputError(where, f"found {shown(given)}", "a whole number from 0")
    elif kind is float:
        if isinstance(given, bool) or not is_number(given, 0, inf):
            raise InputError(where, f"found {shown(given)}", "0 or more")
    elif get_origin(kind) is list:
        if not isinstance(given, list | tuple) or len(given) > MOST:
            raise InputError(where, f"found {shown(given)}", f"a list of at most {MOST}")
        return [_read(where, one, *get_args(kind)) for one in given]
    elif kind == dict[str, float]:
        return _form(where, given, dict.fromkeys(Phases._fields, float))
    elif get_origin(kind) is dict:
        if not isinstance(given, Mapping) or len(given) > MOST:
            raise InputError(where, f"found {shown(given)}", "a mapping by analyses")
        _read(where, list(given), list[str])
        return {name: _read(where, one, get_args(kind)[1]) for name, one in given.items()}
    else:
        return _form(where, given, get_type_hints(kind))
    return given


def _form(where: str, given: object, kinds: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or set(given) != set(kinds):
        found = sorted(map(shown, given)) if isinstance(given, Mapping) else shown(given)
        raise InputError(where, f"found {found}", ", ".join(kinds))
    return {key: _read(f"{where}: {key}", given[key], kind) for key, kind in kinds.items()}
