"""What a managed cluster knows of its in situ pipelines: what they tell, checked, for status and story.

The answer to what is told is the placement strategy of the policy in force, so that a pipeline decides by it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from dask_hpc.cluster.request import check_word
from dask_hpc.cluster.scheduler.leaving import Leaving
from dask_hpc.cluster.scheduler.service import Context, Samples, Service
from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.planning.in_situ.partition import Phases, PipelineStatus
from dask_hpc.policy import Policy

KEPT = 20  # pipelines
MOST = 200  # of anything that is listed
#: what a pipeline may add to the story
NEWS = ("placement", "pipeline", "skipped", "recovered", "nodes-changed")
#: characters, of words that may be longer than names
_LONGEST = {"job": 2 * MOST, "reason": 600, "warning": 600}
_STATES = ("running", "done", "failed")
_HUGE = 1e18


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


class PipelineService(Service):
    """Hears how pipelines go."""

    metrics = {
        "pipeline_iterations": (True, "Iterations that a pipeline has done", "pipeline"),
        "pipeline_iteration_seconds": (False, "Seconds of its last iteration", "pipeline", "is"),
        "pipeline_part_seconds": (
            False,
            "Seconds of each part of its last iteration",
            "pipeline",
            "part",
            "is",
        ),
        "pipeline_nodes": (False, "Nodes that simulate or stage", "pipeline", "part"),
        "pipeline_helper_cores": (False, "Cores of each simulation node that analyse", "pipeline"),
        "pipeline_analyses": (False, "Analyses by where they run", "pipeline", "part"),
        "pipeline_changes": (True, "Partitions that came into force", "pipeline"),
        "pipeline_skipped": (True, "Iterations that an analysis did not look at", "pipeline", "analysis"),
    }
    parts = {"pipelines": "pipelines"}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: the newest by the id that each has made for itself, with the client's
        self._known: OrderedDict[str, tuple[str, PipelineStatus]] = OrderedDict()
        self._written: tuple[Policy | None, str] = (None, "")

    def hears_who_leaves(self) -> bool:
        return any(one["state"] == "running" for one in self.status()["pipelines"])

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        return {"hpc_pipeline": self.told}

    def told(
        self, id: Any = None, client_id: Any = None, status: Any = None, news: Any = ()
    ) -> dict[str, Any]:
        """An in situ pipeline says how it goes, and what it decided or found. The answer is what it is to
        decide by, the policy in force as YAML, None if nothing is to be changed; and the workers that it is
        to leave. Raises ``InputError``."""
        context = self.context
        check_word("pipeline: id", id, may_be_empty=False)
        check_word("pipeline: client", client_id, may_be_empty=False)
        found, lines = read_status(status), read_news(news)
        self._known.pop(id, None)
        self._known[id] = (client_id, found)
        while len(self._known) > KEPT:
            over = (one for one in self._known if self._known[one][1]["state"] != "running")
            del self._known[next(over, next(iter(self._known)))]
        for kind, words in lines:
            context.tell(kind, f"pipeline {found['name']}: {words}")
        decides = context.is_on and not context.is_paused
        leaving = sorted(context.get(Leaving).addresses) if context.is_on else []
        return {"policy": self._policy_text() if decides else None, "leaving": leaving}

    def _policy_text(self) -> str:
        """The policy in force; pipelines ask after every iteration, and it seldom changes."""
        policy, text = self._written
        if policy is not self.context.policy:
            policy = self.context.policy
            text = policy.to_yaml()
            self._written = (policy, text)
        return text

    def status(self) -> Mapping[str, Any]:
        """All of them, the one told of last at the end. One whose client is gone does not run any more."""
        clients = self.context.scheduler.clients
        return {
            "pipelines": [
                status if status["state"] != "running" or client in clients else {**status, "state": "failed"}
                for client, status in self._known.values()
            ]
        }

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        """Of two pipelines of one name, the one that was told of last."""
        found: dict[str, Samples] = {name: {} for name in self.metrics}
        for one in status["pipelines"]:
            name, partition = one["name"], one["partition"]
            found["pipeline_iterations"][name] = one["iteration"]
            found["pipeline_changes"][name] = one["changed"]
            for analysis, skipped in one["skipped"].items():
                found["pipeline_skipped"][name, analysis] = skipped["count"]
            if partition is not None:
                found["pipeline_helper_cores"][name] = partition["helper_cores"]
                found["pipeline_nodes"][name, "simulation"] = partition["nodes"]
                found["pipeline_nodes"][name, "in_transit"] = len(one["nodes"]) - partition["nodes"]
                for part in ("in_situ", "in_transit"):
                    found["pipeline_analyses"][name, part] = len(partition[part])
            for last in one["history"][-1:]:
                seconds = {"measured": last["seconds"], "planned": last["expected"]}
                found["pipeline_iteration_seconds"] |= {
                    (name, kind): value for kind, value in seconds.items() if value is not None
                }
                found["pipeline_part_seconds"] |= {
                    (name, part, kind): value
                    for kind in ("measured", "planned")
                    for part, value in (last[kind] or {}).items()
                }
        return found


SERVICE = PipelineService
