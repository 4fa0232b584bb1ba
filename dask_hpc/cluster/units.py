"""The units of a cluster object: their names, their workers, and sizes in whatever people count them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import ceil, floor, inf, isinf
from typing import Any, get_args

import dask.config
from dask.utils import parse_bytes

from dask_hpc import dask as compat
from dask_hpc.model.cluster_view import UnitState
from dask_hpc.model.errors import InputError, is_number, shown


def members(name: Any, spec: Mapping[str, Any]) -> list[str]:
    """Names of the workers of a unit, as the scheduler has them (as text)."""
    return [f"{name}{suffix}" for suffix in spec.get("group", ("",))]


def is_closing(cluster: Any) -> bool:
    """Whether a cluster object is on its way out, or has never started."""
    return cluster.status.name != "running"


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """What one unit of a cluster object is made of, as far as its options say."""

    workers: int
    cores: int | None
    memory: int | None

    @classmethod
    def of(cls, cluster: Any) -> "UnitLayout":
        """The layout of a new unit."""
        job = compat.batch_job_of(cluster)
        if job is not None:
            return cls(job.worker_processes, job.worker_cores, job.worker_memory)
        workers = len((cluster.new_spec or {}).get("group", ("",)))
        return cls(workers, compat.threads_per_worker(cluster), compat.memory_per_worker(cluster))

    def size(self, workers: Any = None, jobs: Any = None, cores: Any = None, memory: Any = None) -> int:
        """How many units are at least so many workers, jobs, cores, and so much memory together."""
        return max(
            (ceil(units) for _, units in self._asked("scale", workers, jobs, cores, memory)), default=0
        )

    def minimum(self, workers: Any, jobs: Any, cores: Any, memory: Any) -> int:
        """The least number of units that is at least all of these; the configured one if none is given."""
        if workers is jobs is cores is memory is None:
            workers = dask.config.get("distributed.adaptive.minimum", default=0)
        asked = self._asked("adapt: minimum", workers, jobs, cores, memory)
        return max((ceil(units) for _, units in asked), default=0)

    def maximum(self, workers: Any, jobs: Any, cores: Any, memory: Any, allow_empty: bool) -> float:
        """The largest number of units that is at most all of these; the configured one if none is given."""
        if workers is jobs is cores is memory is None:
            workers = dask.config.get("distributed.adaptive.maximum", default=inf)
        most = inf
        for asked, units in self._asked("adapt: maximum", workers, jobs, cores, memory):
            if units < 1 and not allow_empty:
                one = f"less than one unit ({self})" if units else "so every worker would be closed"
                raise InputError(
                    "adapt: maximum", f"found {asked}: {one}", "at least one unit, or allow_empty=True"
                )
            most = min(most, units if isinf(units) else floor(units))
        return most

    def __str__(self) -> str:
        words = [f"{self.workers} worker{'' if self.workers == 1 else 's'}"]
        words += [f"{self.cores} cores"] if self.cores else []
        return ", ".join([*words, *([f"{self.memory / 1e9:.3g} GB"] if self.memory else [])])

    def _asked(self, where: str, workers: Any, jobs: Any, cores: Any, memory: Any) -> list[tuple[str, float]]:
        """Each amount that was given, in words and in units."""
        found = []
        if isinstance(memory, str):
            try:
                memory = parse_bytes(memory)
            except ValueError:
                raise InputError(where, f"found {shown(memory)}", "memory such as '4 GiB'") from None
        for word, amount, one in (
            ("workers", workers, self.workers),
            ("jobs", jobs, 1),
            ("cores", cores, self.cores),
            ("bytes", memory, self.memory),
        ):
            if amount is None:
                continue
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
                raise InputError(where, f"found {shown(amount)} {word}", "a number >= 0")
            if not one:
                raise InputError(
                    where, f"found {amount} {word}", "workers: how many of these one has is unknown"
                )
            found.append((f"{amount:g} {word}", amount / one))
        return found


_LONGEST = 300  # characters of a name or a reason
_MOST = 1_000_000
_STATES = get_args(UnitState)


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit, as ``model.cluster_view.Unit`` has it. ``members`` are the names of its workers."""

    name: str
    members: tuple[str, ...]
    state: UnitState = "unknown"
    why: str = ""
    age: float = 0.0
    running_for: float | None = None
    left: float = inf
    is_leaving: bool = False
    refused_ago: float = inf


@dataclass(frozen=True, slots=True)
class Facts:
    """A cluster object at one instant. ``asker`` tells it from others, and from itself adapted anew."""

    asker: str
    interval: float
    units: tuple[UnitFacts, ...] = ()
    minimum: int = 0
    #: in units
    maximum: float = inf
    #: what a new unit brings, as far as its options say
    members: int = 1
    threads: int = 1
    memory: float = 0.0
    #: of the size strategy, as ``adapt`` was given them
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: what happened to the last decision: kind and words
    news: tuple[tuple[str, str], ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """As it is sent."""
        return asdict(self)


def read_facts(given: object) -> Facts:
    """Facts that came over the wire. Raises ``InputError``."""
    found = _mapping("facts", given, Facts)
    units = tuple(_unit(one) for one in _list("facts: units", found.get("units", ())))
    facts = Facts(
        asker=_text("facts: asker", found.get("asker")),
        interval=_number("facts: interval", found.get("interval"), 0.001, 1e6),
        units=units,
        minimum=_whole("facts: minimum", found.get("minimum", 0), 0),
        maximum=_number("facts: maximum", found.get("maximum", inf), 0, inf),
        members=_whole("facts: members", found.get("members", 1), 1),
        threads=_whole("facts: threads", found.get("threads", 1), 1),
        memory=_number("facts: memory", found.get("memory", 0.0), 0, inf),
        parameters=_mapping("facts: parameters", found.get("parameters", {})),
        news=read_news(found.get("news", ())),
    )
    if facts.minimum > facts.maximum:
        raise InputError("facts: minimum", f"found {facts.minimum}", f"at most {facts.maximum:g}")
    return facts


def read_news(given: object) -> tuple[tuple[str, str], ...]:
    """Pairs of a kind and words, for the story. Raises ``InputError``."""
    pairs = [_pair(one) for one in _list("news", given)]
    return tuple((_text("news", kind), _text("news", words)) for kind, words in pairs)


def read_units(given: object) -> dict[str, list[str]]:
    """Names of units, and for each those of its workers. Raises ``InputError``."""
    found = _mapping("units", given)
    return {name: [_text("units", one) for one in _list("units", found[name])] for name in found}


def _unit(given: object) -> UnitFacts:
    found = _mapping("facts: unit", given, UnitFacts)
    name = _text("facts: unit: name", found.get("name"))
    where = f"facts: unit {name}"
    state = found.get("state", "unknown")
    if state not in _STATES:
        raise InputError(f"{where}: state", f"found {shown(state)}", ", ".join(_STATES))
    running_for = found.get("running_for")
    return UnitFacts(
        name=name,
        members=tuple(_text(f"{where}: members", one) for one in _list(where, found.get("members", ()))),
        state=state,
        why=_text(f"{where}: why", found.get("why", "")),
        age=_number(f"{where}: age", found.get("age", 0.0), 0, inf),
        running_for=None if running_for is None else _number(f"{where}: running_for", running_for, 0, inf),
        left=_number(f"{where}: left", found.get("left", inf), -inf, inf),
        is_leaving=found.get("is_leaving", False) is True,
        refused_ago=_number(f"{where}: refused_ago", found.get("refused_ago", inf), 0, inf),
    )


def _mapping(where: str, given: object, of: Any = None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InputError(where, f"found {shown(given)}", "a mapping")
    if of is not None and (unknown := set(given) - set(of.__slots__)):
        raise InputError(where, f"found {shown(sorted(unknown))}", ", ".join(of.__slots__))
    return given


def _list(where: str, given: object) -> list[Any]:
    if not isinstance(given, list | tuple) or len(given) > _MOST:
        raise InputError(where, f"found {shown(given)}", "a list")
    return list(given)


def _pair(given: object) -> tuple[object, object]:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise InputError("news", f"found {shown(given)}", "pairs of words")
    return given[0], given[1]


def _text(where: str, given: object) -> str:
    if not isinstance(given, str):
        raise InputError(where, f"found {shown(given)}", "text")
    return given[:_LONGEST]


def _number(where: str, given: object, low: float, high: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not is_number(given, low, high):
        raise InputError(where, f"found {shown(given)}", f"a number from {low:g} to {high:g}")
    return float(given)


def _whole(where: str, given: object, low: int) -> int:
    if type(given) is not int or not low <= given <= _MOST:
        raise InputError(where, f"found {shown(given)}", f"a whole number from {low} to {_MOST:,}")
    return given
