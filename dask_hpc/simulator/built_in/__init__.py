"""Built-in workloads by name: ``built_in("esp", malleable=0.5)`` or ``"builtin:esp?malleable=0.5"``.

What a parameter can be is what its annotation says: a type, with bounds if it is ``Annotated``.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.parameter import Declared, Parameter
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.built_in.applications import applications, power_swing
from dask_hpc.simulator.built_in.large_jobs import exascale
from dask_hpc.simulator.built_in.ours import (
    Walltime,
    bursts,
    commits,
    five_jobs,
    in_situ,
    node_stealing,
    readers,
    synthetic,
    ten_jobs,
)
from dask_hpc.simulator.built_in.production import production
from dask_hpc.simulator.built_in.published import esp, io_intensity, mebf, power_batch
from dask_hpc.simulator.workload import Workload

PREFIX = "builtin:"
BUILT_IN: Mapping[str, Callable[..., Workload]] = {
    "applications": applications,
    "bursts": bursts,
    "commits": commits,
    "esp": esp,
    "exascale": exascale,
    "five-jobs": five_jobs,
    "in-situ": in_situ,
    "io-intensity": io_intensity,
    "mebf": mebf,
    "node-stealing": node_stealing,
    "power-batch": power_batch,
    "power-swing": power_swing,
    "production": production,
    "readers": readers,
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
    known, read = _declared(name), {}
    for key, value in values.items():
        if key not in known:
            allowed = ", ".join(known)
            raise InputError(_where(name, key), f"unknown parameter{nearest(key, known)}", allowed)
        with within(_where(name, key)):
            if known[key].type is str and type(value) in (int, float):  # a walltime as a factor
                value = str(value)
            read[key] = known[key].read(value)
    with within(f"{PREFIX}{name}"):
        return _find(name)(**read)


def parse_built_in(text: str) -> Workload:
    """``builtin:NAME`` or ``builtin:NAME?parameter=value&parameter=value``."""
    name, _, query = text.removeprefix(PREFIX).partition("?")
    _find(name)
    values: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        key, equals, value = part.partition("=")
        if not equals:
            allowed = f"{PREFIX}{name}?parameter=value&parameter=value"
            raise InputError(_where(name, key), "has no value", allowed)
        if key in values:
            raise InputError(_where(name, key), "is said twice")
        is_switch = key in parameters(name) and isinstance(parameters(name)[key], bool)
        values[key] = {"1": "true", "0": "false"}.get(value, value) if is_switch else value
    return built_in(name, **values)


def _where(name: str, key: str) -> str:
    return f"{PREFIX}{name}: {key if key.isidentifier() else shown(key)}"


def _find(name: str) -> Callable[..., Workload]:
    if name not in BUILT_IN:
        found = f"unknown workload{nearest(name, BUILT_IN)}"
        raise InputError(f"{PREFIX}{shown(name)}", found, ", ".join(BUILT_IN))
    return BUILT_IN[name]


@cache
def _declared(name: str) -> dict[str, Declared]:
    """Its parameters, as if it were a strategy."""
    found = {}
    hints = get_type_hints(_find(name), include_extras=True)
    for key, default in parameters(name).items():
        is_bounded = get_origin(hints[key]) is Annotated
        kind, low, high = get_args(hints[key]) if is_bounded else (hints[key], -inf, inf)
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        kind = str if choices or kind == Walltime else kind
        found[key] = Declared(key, kind, choices, default, Parameter("", low=low, high=high))
    return found


def with_seed(text: str, seed: int) -> str:
    """``builtin:NAME?...`` with this seed, if it is one that is drawn and does not say its own."""
    name, _, query = text.removeprefix(PREFIX).partition("?")
    if not text.startswith(PREFIX) or "seed" not in parameters(name) or "seed=" in query:
        return text
    return f"{text}{'&' if query else '?'}seed={seed}"
