"""Which kinds of tasks may share a node, from rows as people write them (``dask-hpc plan colocation``)."""

import re
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any

from dask_hpc.model.errors import InputError, insist, is_number, shown, within
from dask_hpc.model.interference import MEM_CLASSES, CacheCounters, TaskKind
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.colocation.known import KnownInterference, RunBeside
from dask_hpc.planning.colocation.plan import ColocationPlan

_COUNTERS = ("misses", "accesses", "instructions")
#: what a row may say of its kind
_OF_KINDS = (*_COUNTERS, "mem_class", "count", "deadline")
_KEYS = ("kind", "seconds", "beside", *_OF_KINDS)
_MOST_CORES, _MOST_KINDS = 256, 16
_BESIDE = re.compile(r"(?:(\d+)(?:\s*\*\s*|\s+))?(\S.*)")
_WAYS = 'tasks such as "cg", "3 cg" or "2 cg + ep"'


def plan_colocation(
    runs: Iterable[Mapping[str, Any]],
    cores: int,
    nodes: int = 1,
    *,
    rng: Any = None,
    progress: Callable[[int], None] | None = None,
) -> ColocationPlan:
    """Which kinds of tasks may share a node of so many ``cores``, how much each slows the other, and how many
    of each to run at once.

    Each of ``runs`` is a mapping with the ``kind`` of a task and how long it took (``seconds``). Where it ran
    alone, that is all, and may also say the counters of its last cache over the whole run (``misses``,
    ``accesses`` and ``instructions``), or in their place a class of memory use, I (memory bound) to V
    (``mem_class``); how many tasks of the kind there are to do (``count``), and by when (``deadline``, a time
    from now). Where it ran beside others all the while, it says beside whom: "ep", "3 cg", "2 cg + ep". Of
    several runs alone the mean counts.

    Of two kinds that were never measured beside each other a law of counters or classes says what they do, an
    assumption; or where these are not known the mean of all runs. With ``rng``, a numpy generator, and ten
    runs beside others or more, ways to predict are compared on runs that are held out, and the best one is
    used; without, what each pair costs is added up.
    """
    for name, value, most in (("cores", cores, _MOST_CORES), ("nodes", nodes, 10**6)):
        fine = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
        insist(fine, name, value, f"a whole number from 1 to {most}")
    insist(isinstance(runs, Iterable) and not isinstance(runs, str | bytes), "runs", runs, "a list of runs")
    alone: dict[str, list[dict[str, Any]]] = {}
    beside = []
    for number, run in enumerate(runs, 1):
        with within(f"run {number}"):
            row = _read(run)
            if row["beside"]:
                others = row["beside"]
                count = sum(others.values())
                insist(count < cores, "beside", count, f"fewer tasks than {cores} cores")
                beside.append(RunBeside(row["kind"], others, row["seconds"]))
            else:
                alone.setdefault(row["kind"], []).append(row)
    if not alone:
        raise InputError("runs", "found no run of a task alone", "one of each kind")
    insist(len(alone) <= _MOST_KINDS, "kinds", len(alone), f"up to {_MOST_KINDS}")
    said = {name: _merged(name, rows) for name, rows in alone.items()}
    kinds = [_kind(name, rows, said[name]) for name, rows in alone.items()]
    known = KnownInterference.of(kinds, beside, rng, progress)
    counts = {name: of["count"] for name, of in said.items() if "count" in of}
    deadlines = {name: of["deadline"] for name, of in said.items() if "deadline" in of}
    return ColocationPlan(known, cores, nodes, counts, deadlines)


def _read(run: Any) -> dict[str, Any]:
    """One run, as numbers."""
    check_keys(run, _KEYS, "")
    kind = run.get("kind")
    insist(isinstance(kind, str) and bool(kind.strip()), "kind", kind, "a name")
    row: dict[str, Any] = {"kind": kind.strip()}
    if run.get("seconds") in (None, ""):
        raise InputError("seconds", "found none", "how long the task took")
    row["seconds"] = parse_quantity(run["seconds"], "s", "seconds")
    fine = is_number(row["seconds"], 0, 1e15) and row["seconds"] > 0
    insist(fine, "seconds", run["seconds"], "more than 0 seconds")
    row["beside"] = _others(run.get("beside"))
    given = {key: run[key] for key in _OF_KINDS if run.get(key) not in (None, "")}
    for key, value in given.items():
        row[key] = _VALUES[key](key, value)
    some = [key for key in _COUNTERS if key in given]
    if some and len(some) < len(_COUNTERS):
        raise InputError(some[0], "found without the others", f"all of {', '.join(_COUNTERS)}")
    if row["beside"] and given:
        raise InputError(next(iter(given)), "found in a run beside others", "in a run alone")
    if some:
        CacheCounters(*(row[key] for key in _COUNTERS))
    return row


def _others(found: Any) -> dict[str, int]:
    """From "2 cg + ep", or a mapping."""
    if found is None or found == "":
        return {}
    if isinstance(found, Mapping):
        return dict(found)
    insist(isinstance(found, str), "beside", found, _WAYS)
    others: dict[str, int] = {}
    for part in found.split("+"):
        match = _BESIDE.fullmatch(part.strip())
        if match is None or match[1] == "0":
            raise InputError("beside", f"found {shown(found)}", _WAYS)
        name = match[2].strip()
        others[name] = others.get(name, 0) + int(match[1] or 1)
    return others


def _number(key: str, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InputError(key, f"found {shown(value)}", "a number") from None
    insist(
        is_number(value, float("-inf"), float("inf")) and not isinstance(value, bool), key, value, "a number"
    )
    return float(value)


def _class(key: str, value: Any) -> str:
    insist(value in MEM_CLASSES, key, value, ", ".join(MEM_CLASSES))
    return str(value)


def _count(key: str, value: Any) -> int:
    number = _number(key, value)
    insist(0 <= number <= 1e12 and number.is_integer(), key, value, "a whole number, 0 or more")
    return int(number)


def _deadline(key: str, value: Any) -> float:
    seconds = parse_quantity(value, "s", key)
    insist(is_number(seconds, 0, float("inf")) and seconds > 0, key, value, "a time from now, more than 0")
    return seconds


_VALUES: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(_COUNTERS, _number),
    "mem_class": _class,
    "count": _count,
    "deadline": _deadline,
}


def _merged(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What runs of a kind say of it. Counters add up; of the rest only one may say something, or all the
    same."""
    found: dict[str, Any] = {}
    for key in _OF_KINDS:
        values = [row[key] for row in rows if key in row]
        if not values:
            continue
        if key in _COUNTERS:
            found[key] = sum(values)
            continue
        if any(value != values[0] for value in values):
            raise InputError(f"kind {name}: {key}", f"found {shown(values[0])} and others", "one value")
        found[key] = values[0]
    return found


def _kind(name: str, rows: list[dict[str, Any]], said: Mapping[str, Any]) -> TaskKind:
    counters = None
    if "misses" in said:
        counters = CacheCounters(*(said[key] for key in _COUNTERS))
    return TaskKind(name, fmean(row["seconds"] for row in rows), counters, said.get("mem_class", ""))
