"""Built-in workloads by name: ``built_in("esp", malleable=0.5)`` or ``"builtin:esp?malleable=0.5"``.

What a parameter can be is what its annotation says: a type, with bounds if it is ``Annotated``.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.built_in.ours import commits, five_jobs, in_situ, node_stealing, synthetic, ten_jobs
from dask_hpc.simulator.built_in.published import esp, io_intensity, mebf, power_batch
from dask_hpc.simulator.workload import Workload

PREFIX = "builtin:"
BUILT_IN: Mapping[str, Callable[..., Workload]] = {
    "commits": commits,
    "esp": esp,
    "five-jobs": five_jobs,
    "in-situ": in_situ,
    "io-intensity": io_intensity,
    "mebf": mebf,
    "node-stealing": node_stealing,
    "power-batch": power_batch,
    "synthetic": synthetic,
    "ten-jobs": ten_jobs,
}


def describe() -> dict[str, str]:
    """One line about each."""
    return {name: (make.__doc__ or "").partition("\n")[0] for name, make in BUILT_IN.items()}


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a built-in workload and their defaults."""
    signature = inspect.signature(_find(name))
    return {key: parameter.default for key, parameter in signature.parameters.items()}


def built_in(name: str, **values: Any) -> Workload:
    """A built-in workload. The same parameters always give the same jobs."""
    make = _find(name)
    for key, value in values.items():
        _check(name, key, value)
    with within(f"{PREFIX}{name}"):
        return make(**values)


def parse_built_in(text: str) -> Workload:
    """``builtin:NAME`` or ``builtin:NAME?parameter=value&parameter=value``."""
    name, _, query = text.removeprefix(PREFIX).partition("?")
    _find(name)
    values: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        key, equals, value = part.partition("=")
        where = f"{PREFIX}{name}: {key if key.isidentifier() else shown(key)}"
        if not equals:
            raise InputError(where, "has no value", f"{PREFIX}{name}?parameter=value&parameter=value")
        if key in values:
            raise InputError(where, "is said twice")
        values[key] = _typed(value, _hint(name, key))
    return built_in(name, **values)


def _find(name: str) -> Callable[..., Workload]:
    if name not in BUILT_IN:
        found = f"unknown workload{nearest(name, BUILT_IN)}"
        raise InputError(f"{PREFIX}{shown(name)}", found, ", ".join(BUILT_IN))
    return BUILT_IN[name]


def _hint(name: str, key: str) -> tuple[Any, float, float]:
    """The type of a parameter, and its bounds."""
    hints = get_type_hints(_find(name), include_extras=True)
    if key not in parameters(name):
        where = f"{PREFIX}{name}: {key if key.isidentifier() else shown(key)}"
        raise InputError(
            where, f"unknown parameter{nearest(key, parameters(name))}", ", ".join(parameters(name))
        )
    if get_origin(hints[key]) is Annotated:
        kind, low, high = get_args(hints[key])
        return kind, low, high
    return hints[key], -inf, inf


def _typed(text: str, hint: tuple[Any, float, float]) -> Any:
    """The text as a value of the type, if it is one."""
    kind = hint[0]
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return words.get(text.lower(), text)
    if kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _check(name: str, key: str, value: Any) -> None:
    kind, low, high = _hint(name, key)
    if get_origin(kind) is Literal:
        fits, allowed = value in get_args(kind), ", ".join(get_args(kind))
    elif isinstance(value, bool) or kind is bool:
        fits, allowed = isinstance(value, bool) and kind is bool, _WORDS[kind]
    else:
        fits = isinstance(value, kind if kind is not float else int | float)
        fits = fits and (isinstance(value, str) or low <= value <= high)  # not-a-number fails this, too
        allowed = _WORDS[kind]
        if low > -inf:
            allowed += f", {low:,} or more" if high == inf else f", {low:,} to {high:,}"
    if not fits:
        raise InputError(f"{PREFIX}{name}: {key}", f"found {shown(value)}", allowed)


_WORDS: Mapping[Any, str] = {
    bool: "true, false",
    int: "a whole number",
    float: "a number",
    str: "text",
    float | str: "a number or a time",
}


def with_seed(text: str, seed: int) -> str:
    """``builtin:NAME?...`` with this seed, if it is one that is drawn and does not say its own."""
    name, _, query = text.removeprefix(PREFIX).partition("?")
    if not text.startswith(PREFIX) or "seed" not in parameters(name) or "seed=" in query:
        return text
    return f"{text}{'&' if query else '?'}seed={seed}"
