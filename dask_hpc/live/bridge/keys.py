"""The keys of the tasks that wait for blocks from outside."""

from typing import Any, NamedTuple

_PREFIX = "external-"


class Asked(NamedTuple):
    """A block that a task waits for."""

    stream: str
    variable: str
    step: int
    block: tuple[int, ...]


def layer_name(stream: str, variable: str, step: int) -> str:
    """The name of the array of one variable at one step; Dask calls the kind of its tasks "external"."""
    return f"{_PREFIX}{stream}/{variable}/{step}"


def key_of(asked: Asked) -> tuple[Any, ...]:
    """The key of the task that takes a block."""
    return (layer_name(asked.stream, asked.variable, asked.step), *asked.block)


def is_external(key: Any) -> bool:
    """Whether a task of that key takes a block that comes from outside."""
    return type(key) is tuple and type(key[0]) is str and key[0].startswith(_PREFIX)


def asked_by(key: Any) -> Asked | None:
    """The block that a task of that key takes, if it takes one."""
    if not is_external(key):
        return None
    parts = key[0].removeprefix(_PREFIX).rsplit("/", 2)
    if len(parts) != 3 or not parts[2].isdecimal() or not all(type(i) is int for i in key[1:]):
        return None
    return Asked(parts[0], parts[1], int(parts[2]), tuple(key[1:]))
