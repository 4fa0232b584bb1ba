"""The units of a cluster object: their names, their workers, and sizes in whatever people count them."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from math import ceil, floor, inf, isinf
from typing import Any, get_args

import dask.config
from dask.utils import parse_bytes

from dask_hpc import dask as compat
from dask_hpc.model.cluster_view import Submission, UnitState
from dask_hpc.model.errors import InputError, insist, is_number, shown


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

    def size(self, *asked: Any, where: str = "scale") -> int:
        """How many units are at least so many workers, jobs, cores, and so much memory together."""
        return max((ceil(units) for _, units in self._asked(where, *asked)), default=0)

    def limits(self, least: tuple[Any, ...], most: tuple[Any, ...], allow_empty: bool) -> tuple[int, float]:
        """The least number of units that is at least all of these (workers, jobs, cores, memory), and the
        largest one that is at most all of those; the configured ones where none is given."""
        if set(least) == {None}:
            least = (dask.config.get("distributed.adaptive.minimum", default=0),)
        if set(most) == {None}:
            most = (dask.config.get("distributed.adaptive.maximum", default=inf),)
        low, high = self.size(*least, where="adapt: minimum"), inf
        for asked, units in self._asked("adapt: maximum", *most):
            if units < 1 and not allow_empty:
                one = f"less than one unit ({self})" if units else "so every worker would be closed"
                allowed = "at least one unit, or allow_empty=True"
                raise InputError("adapt: maximum", f"found {asked}: {one}", allowed)
            high = min(high, units if isinf(units) else floor(units))
        if low > high:
            raise InputError("adapt: minimum", f"found {low} units", f"at most {high:g} units")
        return low, high

    def __str__(self) -> str:
        words = [f"{self.workers} worker{'' if self.workers == 1 else 's'}"]
        words += [f"{self.cores} cores"] if self.cores else []
        return ", ".join([*words, *([f"{self.memory / 1e9:.3g} GB"] if self.memory else [])])

    def _asked(
        self, where: str, workers: Any, jobs: Any = None, cores: Any = None, memory: Any = None
    ) -> list[tuple[str, float]]:
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
                allowed = "workers: how many of these one has is unknown"
                raise InputError(where, f"found {amount} {word}", allowed)
            found.append((f"{amount:g} {word}", amount / one))
        return found


_LONGEST = 300  # characters of a name or a reason
_MOST = 1_000_000
_STATES = get_args(UnitState)
_SUBMISSIONS = get_args(Submission)


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
    starts_in: float | None = None
    is_preempted: bool = False
    restarts: int = 0
    asked_ago: float = 0.0
    submission: Submission = ""
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
    #: units that may be submitted now
    may_submit: float = inf
    #: of the size strategy, as ``adapt`` was given them
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: what happened to the last decision: kind and words
    news: tuple[tuple[str, str], ...] = ()


def read_facts(given: object) -> Facts:
    """Facts that came over the wire. Raises ``InputError``."""
    facts: Facts = _read("facts", given, Facts, _FACTS)
    insist(facts.minimum <= facts.maximum, "facts: minimum", facts.minimum, f"at most {facts.maximum:g}")
    return facts


def read_news(where: str, given: object) -> tuple[tuple[str, str], ...]:
    """Pairs of a kind and words, for the story. Raises ``InputError``."""
    pairs = _list(where, given)
    for pair in pairs:
        insist(isinstance(pair, list | tuple) and len(pair) == 2, where, pair, "pairs of words")
    return tuple((_text(where, kind), _text(where, words)) for kind, words in pairs)


def read_asks(given: object) -> list[dict[str, Any]]:
    """Rows of what a cluster object has asked a batch system for. Raises ``InputError``."""
    rows = []
    for one in _list("asks", given):
        row = _mapping("asks", one)
        insist(set(row) == set(_ASK), "asks", [*row], ", ".join(_ASK))
        rows.append({name: read(f"asks: {name}", row[name]) for name, read in _ASK.items()})
    return rows


def read_units(given: object) -> dict[str, list[str]]:
    """Names of units, and for each those of its workers. Raises ``InputError``."""
    return {name: list(_texts("units", found)) for name, found in _mapping("units", given).items()}


def _read(where: str, given: object, kind: type, readers: Mapping[str, Callable[[str, Any], Any]]) -> Any:
    """An object of this kind, each of its fields read as ``readers`` say."""
    found = _mapping(where, given)
    insist(readers.keys() >= found.keys(), where, [*found], ", ".join(readers))
    needed = {one.name for one in fields(kind) if one.default is one.default_factory is MISSING}
    return kind(
        **{
            name: read(f"{where}: {name}", found.get(name))
            for name, read in readers.items()
            if name in found or name in needed
        }
    )


def _mapping(where: str, given: Any) -> Mapping[str, Any]:
    is_fine = isinstance(given, Mapping) and all(isinstance(key, str) for key in given)
    insist(is_fine, where, given, "a mapping")
    found: Mapping[str, Any] = given
    return found


def _list(where: str, given: Any) -> list[Any]:
    insist(isinstance(given, list | tuple) and len(given) <= _MOST, where, given, "a list")
    return list(given)


def _text(where: str, given: Any) -> str:
    insist(isinstance(given, str), where, given, "text")
    return str(given[:_LONGEST])


def _texts(where: str, given: object) -> tuple[str, ...]:
    return tuple(_text(where, one) for one in _list(where, given))


def _number(where: str, given: Any, low: float = 0.0, high: float = inf) -> float:
    is_fine = isinstance(given, int | float) and not isinstance(given, bool) and is_number(given, low, high)
    insist(is_fine, where, given, f"a number from {low:g} to {high:g}")
    return float(given)


def _whole(where: str, given: Any, low: int = 0) -> int:
    insist(
        type(given) is int and low <= given <= _MOST, where, given, f"a whole number from {low} to {_MOST:,}"
    )
    return int(given)


def _one_of(where: str, given: Any, words: tuple[Any, ...]) -> Any:
    insist(given in words, where, given, ", ".join(filter(None, words)))
    return given


def _units(where: str, given: object) -> tuple[UnitFacts, ...]:
    units = enumerate(_list(where, given), 1)
    return tuple(_read(f"facts: unit {number}", one, UnitFacts, _UNIT) for number, one in units)


_UNIT: Mapping[str, Callable[[str, Any], Any]] = {
    "name": _text,
    "members": _texts,
    "state": lambda where, given: _one_of(where, given, _STATES),
    "why": _text,
    "age": _number,
    "running_for": lambda where, given: None if given is None else _number(where, given),
    "left": partial(_number, low=-inf),
    "starts_in": lambda where, given: None if given is None else _number(where, given),
    "is_preempted": lambda where, given: given is True,
    "restarts": _whole,
    "asked_ago": _number,
    "submission": lambda where, given: _one_of(where, given, _SUBMISSIONS),
    "is_leaving": lambda where, given: given is True,
    "refused_ago": _number,
}
_FACTS: Mapping[str, Callable[[str, Any], Any]] = {
    "asker": _text,
    "interval": partial(_number, low=0.001, high=1e6),
    "units": _units,
    "minimum": _whole,
    "maximum": _number,
    "members": partial(_whole, low=1),
    "threads": partial(_whole, low=1),
    "memory": _number,
    "may_submit": _number,
    "parameters": _mapping,
    "news": read_news,
}


def _perhaps(where: str, given: Any) -> float | None:
    return None if given is None else _number(where, given)


_ASK: Mapping[str, Callable[[str, Any], Any]] = {
    "unit": _text,
    "job": _text,
    "walltime": _number,
    "partition": _text,
    "qos": _text,
    "nodes": partial(_whole, low=1),
    "asked_ago": _number,
    "starts_in": _perhaps,
    "low": _perhaps,
    "high": _perhaps,
    "why": _text,
}
