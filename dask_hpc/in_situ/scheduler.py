"""What a managed cluster knows of its in situ pipelines: what they tell, checked, for status and story.

The answer to what is told is the placement strategy of the policy in force, so that a pipeline decides by it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, cast, get_type_hints

from dask_hpc.cluster.request import check_word
from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.in_situ import (
    ChangeStatus,
    IterationStatus,
    PartitionStatus,
    PipelineStatus,
    SkippedStatus,
)

KEPT = 20  # pipelines
MOST = 200  # of anything that is listed
#: what a pipeline may add to the story
NEWS = ("placement", "pipeline", "skipped", "recovered", "nodes-changed")
_LONGEST = 600  # characters of a reason
_STATES = ("running", "done", "failed")
_HUGE = 1e18


class Pipelines:
    """The newest pipelines, by the id that each has made for itself."""

    def __init__(self, tell: Callable[[str, str], None], is_client: Callable[[str], bool]) -> None:
        self._tell = tell
        self._is_client = is_client
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
            self._tell(kind, f"pipeline {found['name']}: {words}")

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
    found = _form("pipeline", given, PipelineStatus)
    where = "pipeline"
    check_word(f"{where}: name", found["name"], may_be_empty=False)
    if found["state"] not in _STATES:
        raise InputError(f"{where}: state", f"found {shown(found['state'])}", ", ".join(_STATES))
    if found["job"] is not None:
        check_word(f"{where}: job", found["job"], longest=2 * MOST)
    _whole(f"{where}: iteration", found["iteration"])
    if found["iterations"] is not None:
        _whole(f"{where}: iterations", found["iterations"])
    for key in ("nodes", "analyses"):
        found[key] = _words(f"{where}: {key}", found[key])
    for key in ("cores", "changed"):
        _whole(f"{where}: {key}", found[key])
    check_word(f"{where}: when_slow", found["when_slow"])
    if found["partition"] is not None:
        found["partition"] = _partition(f"{where}: partition", found["partition"])
    for key, read in (("history", _iteration), ("changes", _change)):
        found[key] = [read(f"{where}: {key}", one) for one in _list(f"{where}: {key}", found[key])]
    skipped = found["skipped"]
    if not isinstance(skipped, Mapping) or len(skipped) > MOST:
        raise InputError(f"{where}: skipped", f"found {shown(skipped)}", "a mapping by analyses")
    _words(f"{where}: skipped", list(skipped))
    found["skipped"] = {name: _skipped(f"{where}: skipped", skipped[name]) for name in skipped}
    return cast(PipelineStatus, found)


def read_news(given: object) -> list[tuple[str, str]]:
    """Pairs of a kind and words, for the story. Raises ``InputError``."""
    pairs = []
    for one in _list("pipeline: news", given):
        if not isinstance(one, list | tuple) or len(one) != 2 or one[0] not in NEWS:
            raise InputError(
                "pipeline: news", f"found {shown(one)}", "pairs of " + ", ".join(NEWS) + " and words"
            )
        check_word("pipeline: news", one[1], longest=_LONGEST)
        pairs.append((one[0], one[1]))
    return pairs


def _partition(where: str, given: object) -> PartitionStatus:
    found = _form(where, given, PartitionStatus)
    check_word(f"{where}: mode", found["mode"])
    check_word(f"{where}: warning", found["warning"], longest=_LONGEST)
    for key in ("nodes", "helper_cores", "expected"):
        _number(f"{where}: {key}", found[key])
    for key in ("in_situ", "in_transit"):
        found[key] = _words(f"{where}: {key}", found[key])
    found["planned"] = _phases(f"{where}: planned", found["planned"])
    return cast(PartitionStatus, found)


def _iteration(where: str, given: object) -> IterationStatus:
    found = _form(where, given, IterationStatus)
    _whole(f"{where}: iteration", found["iteration"])
    _number(f"{where}: seconds", found["seconds"])
    found["measured"] = _phases(f"{where}: measured", found["measured"])
    if found["planned"] is not None:
        found["planned"] = _phases(f"{where}: planned", found["planned"])
    if found["expected"] is not None:
        _number(f"{where}: expected", found["expected"])
    return cast(IterationStatus, found)


def _change(where: str, given: object) -> ChangeStatus:
    found = _form(where, given, ChangeStatus)
    _whole(f"{where}: iteration", found["iteration"])
    _number(f"{where}: time", found["time"])
    check_word(f"{where}: reason", found["reason"], longest=_LONGEST)
    found["partition"] = _partition(f"{where}: partition", found["partition"])
    return cast(ChangeStatus, found)


def _skipped(where: str, given: object) -> SkippedStatus:
    found = _form(where, given, SkippedStatus)
    _whole(f"{where}: count", found["count"])
    check_word(f"{where}: how", found["how"])
    found["newest"] = _list(f"{where}: newest", found["newest"])
    for one in found["newest"]:
        _whole(f"{where}: newest", one)
    return cast(SkippedStatus, found)


def _form(where: str, given: object, form: Any) -> dict[str, Any]:
    keys = [*get_type_hints(form)]
    if not isinstance(given, Mapping) or set(given) != set(keys):
        found = sorted(map(shown, given)) if isinstance(given, Mapping) else shown(given)
        raise InputError(where, f"found {found}", ", ".join(keys))
    return dict(given)


def _phases(where: str, given: object) -> dict[str, float]:
    keys = ("simulation", "in_situ", "in_transit")
    if not isinstance(given, Mapping) or set(given) != set(keys):
        raise InputError(where, f"found {shown(given)}", ", ".join(keys))
    for key in keys:
        _number(f"{where}: {key}", given[key])
    return {key: float(given[key]) for key in keys}


def _list(where: str, given: object) -> list[Any]:
    if not isinstance(given, list | tuple) or len(given) > MOST:
        raise InputError(where, f"found {shown(given)}", f"a list of at most {MOST}")
    return list(given)


def _words(where: str, given: object) -> list[str]:
    found = _list(where, given)
    for one in found:
        check_word(where, one, longest=MOST)
    return found


def _number(where: str, given: object) -> None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not is_number(given, 0, float("inf")):
        raise InputError(where, f"found {shown(given)}", "0 or more")


def _whole(where: str, given: object) -> None:
    if type(given) is not int or not 0 <= given <= _HUGE:
        raise InputError(where, f"found {shown(given)}", "a whole number from 0")
