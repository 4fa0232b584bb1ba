"""Built-in workloads by name: ``built_in("esp", malleable=0.5)`` or ``"builtin:esp?malleable=0.5"``."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

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
    defaults = parameters(name)
    for key, value in values.items():
        if key not in defaults:
            known = ", ".join(defaults)
            raise InputError(f"{PREFIX}{name}: {key}", f"unknown parameter{nearest(key, defaults)}", known)
        _check_type(f"{PREFIX}{name}: {key}", value, defaults[key])
    with within(f"{PREFIX}{name}"):
        return make(**values)


def parse_built_in(text: str) -> Workload:
    """``builtin:NAME`` or ``builtin:NAME?parameter=value&parameter=value``."""
    name, _, query = text.removeprefix(PREFIX).partition("?")
    defaults = parameters(name)
    values: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        key, equals, value = part.partition("=")
        where = f"{PREFIX}{name}: {key if key.isidentifier() else shown(key)}"
        if not equals:
            raise InputError(where, "has no value", f"{PREFIX}{name}?parameter=value&parameter=value")
        if key in values:
            raise InputError(where, "is said twice")
        if key not in defaults:
            raise InputError(where, f"unknown parameter{nearest(key, defaults)}", ", ".join(defaults))
        values[key] = _read(where, value, defaults[key])
    return built_in(name, **values)


def _find(name: str) -> Callable[..., Workload]:
    if name not in BUILT_IN:
        raise InputError(f"{PREFIX}{shown(name)}", f"unknown workload{nearest(name, BUILT_IN)}",
                         ", ".join(BUILT_IN))  # fmt: skip
    return BUILT_IN[name]


def _read(where: str, text: str, default: Any) -> Any:
    """The text as a value of the same type as the default; text where the default could be either."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise InputError(where, f"found {shown(text)}", "true, false")
        return text.lower() in ("true", "yes", "1")
    if isinstance(default, str):
        return text
    try:
        return type(default)(text)
    except ValueError:
        if where.endswith("walltime"):
            return text
        raise InputError(where, f"found {shown(text)}", _ALLOWED[type(default)]) from None


_ALLOWED = {bool: "true, false", int: "a whole number", float: "a number", str: "text"}


def _check_type(where: str, value: Any, default: Any) -> None:
    """Only what a parameter's default could be; a walltime is a number or a text."""
    kinds: tuple[type, ...] = (int, float) if isinstance(default, float) else (type(default),)
    allowed = _ALLOWED[type(default)]
    if where.endswith("walltime"):
        kinds, allowed = (int, float, str), "a number or a time"
    is_flag = isinstance(value, bool) and bool not in kinds
    if is_flag or not isinstance(value, kinds) or value != value:
        raise InputError(where, f"found {shown(value)}", allowed)


def with_seed(text: str, seed: int) -> str:
    """``builtin:NAME?...`` with this seed, if it is one that is drawn and does not say its own."""
    name, _, query = text.removeprefix(PREFIX).partition("?")
    if not text.startswith(PREFIX) or "seed" not in parameters(name) or "seed=" in query:
        return text
    return f"{text}{'&' if query else '?'}seed={seed}"
