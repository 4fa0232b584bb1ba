"""Reading what strangers wrote by tables: key -> how its value is read. Null is nothing."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, one_line, shown, within
from dask_hpc.model.safe_yaml import check_keys

Readers = Mapping[str, Callable[[Any], Any]]


def read_values(
    found: Any, readers: Readers, where: str = "", *, needed: Iterable[str] = (), also: Iterable[str] = ()
) -> dict[str, Any]:
    """The values of a mapping's keys; the keys ``also`` are read elsewhere. Complaints name the key."""
    check_keys(found, (*readers, *also), where)
    for key in needed:
        if found.get(key) is None:
            raise InputError(path_to(where, key), "is missing")
    values = {}
    for key, read in readers.items():
        if found.get(key) is not None:
            with within(path_to(where, key)):
                values[key] = read(found[key])
    return values


def path_to(where: str, key: str) -> str:
    """A key in something that may have no name of its own."""
    return f"{where}.{key}" if where else key


def read_list(
    found: Any,
    read: Callable[[Any], Any],
    where: str = "",
    *,
    allowed: str,
    least: int = 0,
    most: int = 10**7,
) -> tuple[Any, ...]:
    """Every entry of a list; complaints name its place."""
    if not isinstance(found, list) or not least <= len(found) <= most:
        raise InputError("", f"found {shown(found)}", allowed)
    values = []
    for at, one in enumerate(found):
        with within(f"[{at}]"):
            values.append(read(one))
    return tuple(values)


def read_file(path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes of it."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(one_line(str(path)), f"cannot be read: {reason}") from None
    if len(data) > limit:
        raise InputError(one_line(str(path)), f"more than {limit:,} bytes", "a smaller file")
    return data


def as_it_is(value: Any) -> Any:
    """Whoever is made of it complains."""
    return value


def whole(low: int, high: int = 2**31 - 1) -> Callable[[Any], int]:
    """A whole number within bounds."""
    allowed = f"a whole number >= {low}" if high >= 2**31 - 1 else f"a whole number, {low} to {high:,}"

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise InputError("", f"found {shown(value)}", allowed)
        return value

    return read


def flag(value: Any) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise InputError("", f"found {shown(value)}", "true, false")
    return value


def number(value: Any) -> float:
    """Any finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("", f"found {shown(value)}", "a number")
    try:
        return float(value)
    except OverflowError:
        raise InputError("", f"found {shown(value)}", "a finite number") from None


def share(value: Any) -> float:
    """``3 %`` or 0.03."""
    if isinstance(value, str) and value.isascii() and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100.0
        except ValueError:
            raise InputError("", f"found {shown(value)}", '"3 %" or 0.03') from None
    return number(value)


def text(value: Any) -> str:
    """A name, which may look like a number."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError("", f"found {shown(value)}", "a name")
    return str(value)
