"""Our defaults in Dask's configuration, under ``hpc``; loaded by importing this module."""

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

import dask.config
import yaml

from dask_hpc.model.errors import insist, is_number, within
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.asks.budget import AskSettings, parse_node_hours
from dask_hpc.planning.polling import Manners

FILE = Path(__file__).with_name("hpc.yaml")
NODE_MODES = ("auto", "host", "worker")
#: limits of file systems that are found by trying
AUTO = "auto"
#: where checkpoints may be kept
LEVELS = ("process", "partner", "disk", "store")
METERS = ("auto", "modelled", "simulated")

# Puts a commented-out copy where people look for settings, as Dask's packages do; does nothing if it cannot.
dask.config.ensure_file(source=str(FILE), comment=True)
DEFAULTS: dict[str, Any] = yaml.safe_load(FILE.read_text())
dask.config.update_defaults(DEFAULTS)


Reader = Callable[[Any], Any]


def _if(is_fine: bool, value: Any, allowed: str) -> Any:
    insist(is_fine, "", value, allowed)
    return value


def _word(value: Any, allowed: str) -> Any:
    return _if(isinstance(value, str) and value != "", value, allowed)


def _word_of(*words: str) -> Reader:
    return lambda value: _if(isinstance(value, str) and value in words, value, ", ".join(words))


def _quantity(unit: str, is_fine: Callable[[float], bool], allowed: str) -> Reader:
    def read(value: Any) -> float:
        found = parse_quantity(value, unit)
        _if(is_fine(found), found, allowed)
        return found

    return read


def _count(value: Any) -> Any:
    return _if(type(value) is int and value >= 1, value, "a whole number >= 1")


def _yes_or_no(value: Any) -> Any:
    return _if(isinstance(value, bool), value, "true, false")


def _shares(value: Any) -> Any:
    if isinstance(value, Mapping):
        fine = all(isinstance(name, str) and is_number(value[name], 1e-3, 1e3) for name in value)
        value = {name: float(value[name]) for name in value} if fine else value
    else:
        fine = isinstance(value, bool)
    return _if(fine, value, "true, false, or weights from 0.001 to 1000 by names of clients")


def _lanes(value: Any) -> Any:
    if value is None or value == AUTO:
        return value
    fine = isinstance(value, Mapping) and all(
        isinstance(path, str) and (path == "default" or path.startswith("/") or "://" in path)
        for path in value
    )
    fine = fine and all(type(most) is int and most >= 1 for most in value.values())
    allowed = 'null, auto, or whole numbers >= 1 by absolute paths, URLs, or "default"'
    return _if(fine, dict(value) if fine else value, allowed)


def _directory(value: Any) -> Any:
    return None if value is None else str(Path(_word(value, "a directory, or null")).expanduser())


#: what a simulated meter can be told, and in which unit; "" is a plain number
_SIMULATED = {"idle": "W", "busy": "W", "lag": "s", "noise": "", "seed": ""}


def _meter(value: Any) -> Any:
    allowed = (
        "auto, modelled, simulated, or {simulated: {" + ", ".join(f"{key}: ..." for key in _SIMULATED) + "}}"
    )
    if isinstance(value, Mapping) and set(value) == {"simulated"}:
        found = value["simulated"]
        _if(isinstance(found, Mapping) and set(found) <= set(_SIMULATED), value, allowed)
        said = {
            key: parse_quantity(one, unit) if (unit := _SIMULATED[key]) else one for key, one in found.items()
        }
        _if(all(is_number(one, 0, 1e6) for one in said.values()), value, allowed)
        return {"simulated": said}
    return _if(isinstance(value, str) and value in METERS, value, allowed)


def _model(value: Any) -> Any:
    if value is None:
        return None
    allowed = "null, or {idle: WATTS, busy: WATTS}, 0 < idle <= busy"
    _if(isinstance(value, Mapping) and set(value) == {"idle", "busy"}, value, allowed)
    idle, busy = (parse_quantity(value[key], "W") for key in ("idle", "busy"))
    return _if(0 < idle <= busy <= 1e6, {"idle": idle, "busy": busy}, allowed)


def _levels(value: Any) -> Any:
    fine = isinstance(value, list | tuple) and value and all(one in LEVELS for one in value)
    _if(bool(fine) and len(set(value)) == len(value), value, ", ".join(LEVELS))
    return tuple(value)


def _mtbf(value: Any) -> Any:
    defaults = DEFAULTS["hpc"]["checkpoint"]["mtbf"]
    fine = isinstance(value, Mapping) and set(value) <= set(defaults)
    _if(fine, value, f"times by levels: some of {', '.join(defaults)}")
    found = {level: parse_quantity(one, "s") for level, one in (defaults | dict(value)).items()}
    return _if(all(1 <= one < inf for one in found.values()), found, "1 s or more")


def _history(value: Any) -> Any:
    word = value if value is None else _word(value, "a path, null, or default")
    return word if word in (None, "default") else str(Path(word).expanduser())


def _batch(value: Any) -> Any:
    defaults = DEFAULTS["hpc"]["batch"]
    _if(isinstance(value, Mapping) and set(value) <= set(defaults), value, "some of " + ", ".join(defaults))
    given = defaults | dict(value)
    return {key: _read(_BATCH, key, given[key], key) for key in _BATCH}


def _names(value: Any) -> tuple[str, ...]:
    """Names from a list, or a single one."""
    names = [value] if isinstance(value, str) else value
    fine = isinstance(names, list | tuple) and all(isinstance(one, str) and one for one in names)
    fine = fine and all(one.isprintable() and not set(one) & set(" ,=") for one in names)
    return tuple(_if(fine, names if fine else value, "a list of names"))


def _ask(value: Any) -> Any:
    known = DEFAULTS["hpc"]["ask"]
    _if(isinstance(value, Mapping) and set(value) <= set(known), value, "some of " + ", ".join(known))
    given = known | dict(value)
    return {key: _read(_ASK, key, given[key], key) for key in _ASK}


def _checkpoint(value: Any) -> Any:
    known = set(_CHECKPOINT)
    _if(isinstance(value, Mapping) and set(value) <= known, value, "some of " + ", ".join(_CHECKPOINT))
    given = DEFAULTS["hpc"]["checkpoint"] | dict(value)
    return {key: _read(_CHECKPOINT, key, given[key], key) for key in _CHECKPOINT}


def _memory_files(value: Any) -> Any:
    known = DEFAULTS["hpc"]["memory-files"]
    _if(isinstance(value, Mapping) and set(value) <= set(known), value, "some of " + ", ".join(known))
    return {key.replace("-", "_"): found for key, found in (known | dict(value)).items()}


def _read(readers: Mapping[str, Reader], key: str, value: object, where: str) -> Any:
    with within(where):
        return readers[key](value)


_rate = _quantity("B/s", lambda rate: rate > 0, "more than 0 B/s, or null")
_some_time = _quantity("s", lambda seconds: 0.1 <= seconds <= 86400, "100 ms to 1 day")
#: of every key under ``hpc.batch``
_BATCH: Mapping[str, Reader] = {"poll": _some_time, "due": _some_time, "per-minute": _count}
_span = _quantity("s", lambda seconds: 0 <= seconds <= 86400, "0 s to 1 day")
#: of every key under ``hpc.ask``
_ASK: Mapping[str, Reader] = {
    "budget": parse_node_hours,
    "qos": _names,
    "partitions": _names,
    "overhead": _span,
    "least": _quantity("s", lambda seconds: 60 <= seconds <= 86400, "1 min to 1 day"),
    "margin": lambda value: _if(is_number(value, 0, 0.9), value, "0 to 0.9"),
    "gain": _span,
    "latency": _span,
}
#: of every key under ``hpc.checkpoint``
_CHECKPOINT: Mapping[str, Reader] = {
    "store": lambda value: None if value is None else _word(value, "a directory or a URL, or null"),
    "key": lambda value: _if(
        value is None or (isinstance(value, str) and value.partition(":")[0] in ("file", "env")),
        value,
        "file:PATH, env:NAME, or null",
    ),
    "keep": _count,
    "compress": _word_of("auto", "always", "never"),
    "levels": _levels,
    "memory": lambda value: _if(is_number(value, 0.01, 0.9), value, "0.01 to 0.9 of the memory limit"),
    "bandwidth": lambda value: None if value is None else _rate(value),
    "writers": _count,
    "disk": _directory,
    "mtbf": _mtbf,
}
#: of every key under ``hpc``: from what a person may write to what we use, or an ``InputError``
_READERS: Mapping[str, Reader] = {
    "policy": lambda value: _word(value, "the name or path of a policy"),
    "node": lambda value: _if(value in NODE_MODES, value, ", ".join(NODE_MODES)),
    "topology": lambda value: (
        value if value in (None, "slurm") else str(Path(_word(value, "slurm, a path, or null")).expanduser())
    ),
    "story-length": _count,
    "max-errors": _count,
    "dry-run": _yes_or_no,
    "fair-shares": _shares,
    "drain": _quantity("s", lambda seconds: seconds >= 0, "0 s or more"),
    "spread": _yes_or_no,
    "farewell": _quantity("s", lambda seconds: 0 < seconds <= 3600, "more than 0 s, up to 1 h"),
    "io-lanes": _lanes,
    "rescue": _directory,
    "power-watch": _yes_or_no,
    "power-interval": _quantity("s", lambda seconds: 0.05 <= seconds <= 60, "50 ms to 1 min"),
    "power-meter": _meter,
    "power-model": _model,
    "power-history": _history,
    "history": _history,
    "batch": _batch,
    "ask": _ask,
    "checkpoint": _checkpoint,
    "memory-files": _memory_files,
}
_APART = ("policy", "batch", "ask", "checkpoint", "memory-files")
#: the keys that can also be changed while a cluster is managed, by ``Manager.set``
LIVE = ("drain", "fair-shares", "io-lanes", "spread")


def policy() -> str:
    """``hpc.policy``: which policy when none is named."""
    found: str = _configured("policy")
    return found


def settings() -> dict[str, Any]:
    """Everything else under ``hpc``, checked: what the scheduler is told when control starts."""
    return {key: _configured(key) for key in _READERS if key not in _APART}


def checkpoint() -> dict[str, Any]:
    """``hpc.checkpoint``, checked: what checkpoints do if nothing else is said."""
    found: dict[str, Any] = _configured("checkpoint")
    return found


def memory_files() -> dict[str, Any]:
    """``hpc.memory-files``: what a file system in memory is if nothing else is said. Its values are checked
    where they are used."""
    found: dict[str, Any] = _configured("memory-files")
    return found


def manners(poll: object = None) -> Manners:
    """``hpc.batch``, checked: how often a batch system is asked, and how much is submitted. Who says how
    often to ask at most means it, also while something is due."""
    found = _configured("batch")
    if poll is not None:
        often = _read(_BATCH, "poll", poll, "adapt: poll")
        found |= {"poll": often, "due": min(found["due"], often)}
    return Manners(found["poll"], min(found["due"], found["poll"]), found["per-minute"])


def ask_settings(changes: Mapping[str, object] | None = None) -> AskSettings:
    """``hpc.ask``, checked, with these changes: how a cluster asks for what fits."""
    found = _configured("ask")
    for key, value in (changes or {}).items():
        insist(key in _ASK, "adapt: ask", key, ", ".join(_ASK))
        found[key] = _read(_ASK, key, value, f"adapt: ask: {key}")
    return AskSettings(**found)


def live_setting(key: object, value: object) -> Any:
    """A new value for a key of ``LIVE``, checked as in the configuration."""
    insist(isinstance(key, str) and key in LIVE, "settings", key, ", ".join(LIVE))
    return _read(_READERS, str(key), value, f"settings.{key}")


def _configured(key: str) -> Any:
    # The default again: a program may have cleared Dask's configuration, as its own tests do.
    value = dask.config.get(f"hpc.{key}", default=DEFAULTS["hpc"][key])
    return _read(_READERS, key, value, f"configuration hpc.{key}")
