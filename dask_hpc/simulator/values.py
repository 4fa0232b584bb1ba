"""Reading what strangers wrote: bounded, no key said twice, every complaint one line with file and key.

Mappings are read by tables: key -> how its value is read. Null is nothing.
"""

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from dask_hpc.model.errors import InputError, insist, one_line, shown, within
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import show_bytes

Readers = Mapping[str, Callable[[Any], Any]]


def read_values(
    found: Any, readers: Readers, where: str = "", *, needed: Iterable[str] = (), also: Iterable[str] = ()
) -> dict[str, Any]:
    """The values of a mapping's keys; the keys ``also`` are read elsewhere. Complaints name the key."""
    if not isinstance(found, dict) or not found.keys() <= {*readers, *also}:
        check_keys(found, (*readers, *also), where)
    front = f"{where}." if where else ""
    for key in needed:
        if found.get(key) is None:
            raise InputError(front + key, "is missing")
    values = {}
    key = ""
    try:  # once for all keys: whoever reads many jobs is here all the time
        for key, read in readers.items():
            value = found.get(key)
            if value is not None:
                values[key] = read(value)
    except InputError as error:
        raise error.at(front + key) from None
    return values


class Notes(dict[str, None]):
    """What was left out or guessed, each line once, in order."""

    def add(self, line: str) -> None:
        """One more."""
        self[line] = None


def list_of(
    read: Callable[[Any], Any], allowed: str, least: int = 0, most: float = inf
) -> Callable[[Any], tuple[Any, ...]]:
    """Every entry of a list; complaints name its place."""

    def read_list(found: Any) -> tuple[Any, ...]:
        insist(isinstance(found, list) and least <= len(found) <= most, "", found, allowed)
        values = []
        for at, one in enumerate(found):
            with within(f"[{at}]"):
                values.append(read(one))
        return tuple(values)

    return read_list


def as_it_is(value: Any) -> Any:
    """Whoever is made of it complains."""
    return value


def whole(low: int, high: int = 2**31 - 1) -> Callable[[Any], int]:
    """A whole number within bounds."""
    allowed = f"a whole number, {low} or more" if high >= 2**31 - 1 else f"a whole number, {low} to {high:,}"

    def read(value: Any) -> int:
        insist(type(value) is int and low <= value <= high, "", value, allowed)
        return int(value)

    return read


def flag(value: Any) -> bool:
    """Yes or no."""
    insist(isinstance(value, bool), "", value, "true, false")
    return bool(value)


def number(value: Any) -> float:
    """Any finite number."""
    insist(isinstance(value, int | float) and not isinstance(value, bool), "", value, "a number")
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
    insist(isinstance(value, str | int) and not isinstance(value, bool) and value != "", "", value, "a name")
    return str(value)


def read_file(path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes of it."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("", f"cannot be read: {reason}") from None
    if len(data) > limit:
        raise InputError("", f"more than {show_bytes(limit)}", "a smaller file")
    return data


@contextmanager
def uncollected() -> Iterator[None]:
    """What is read is no garbage: not looking through it again and again saves a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_LIMIT = 200_000_000  # bytes


def read_json(path: Path) -> Any:
    """Plain data, or an ``InputError`` that names the file and the line."""
    with within(one_line(str(path))):
        try:
            text = read_file(path, _LIMIT).decode("utf-8-sig")
            return json.loads(text, object_pairs_hook=_no_twins, parse_constant=_no_constant)
        except UnicodeDecodeError as error:
            raise InputError("", f"not text: byte {error.start} is not UTF-8") from None
        except json.JSONDecodeError as error:
            raise InputError("", f"line {error.lineno}: not JSON: {error.msg}") from None
        except RecursionError:
            raise InputError("", "nested too deeply") from None
        except InputError:
            raise
        except ValueError as error:  # a number of many thousand digits
            raise InputError("", f"not JSON: {one_line(str(error))[:80]}") from None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twin, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InputError("", f"the key {shown(twin)} is said twice")
    return found


def _no_constant(word: str) -> NoReturn:
    raise InputError("", f"found {word}", "finite numbers")
