"""Reading what strangers wrote: bounded, no key said twice, every complaint one line with file and key.

Mappings are read by tables: key -> how its value is read. Null is nothing.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

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


class Notes(dict[str, None]):
    """What was left out or guessed, each line once, in order."""

    def add(self, line: str) -> None:
        """One more."""
        self[line] = None


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


_LIMIT = 200_000_000  # bytes


def read_json(path: Path) -> Any:
    """Plain data, or an ``InputError`` that names the file and the line."""
    try:
        text = read_file(path, _LIMIT).decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InputError(one_line(str(path)), f"not text: byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(one_line(str(path)), f"line {error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(one_line(str(path)), "nested too deeply") from None
    except InputError as error:
        raise error if error.where == one_line(str(path)) else error.at(one_line(str(path))) from None
    except ValueError as error:  # a number of many thousand digits
        raise InputError(one_line(str(path)), f"not JSON: {one_line(str(error))[:80]}") from None


def beside(path: Path, name: Any, where: str) -> Path:
    """The file that is called ``name`` in the file ``path``.

    ElastiSim takes names from the folder in which it is run, which is usually the file's own or one above.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise InputError(where, f"found {shown(name)}", "the name of a file")
    for folder in path.absolute().parents:
        try:
            if (folder / name).is_file():
                return folder / name
        except OSError:  # a name that is too long
            break
    raise InputError(where, f"there is no file {shown(name)} in {one_line(str(path.parent))} or above it")


def need(found: Any, known: tuple[str, ...], needed: tuple[str, ...], where: str) -> None:
    """Insist on a mapping with known keys only, and with those that are needed (null is nothing)."""
    check_keys(found, known, where)
    for key in needed:
        if found.get(key) is None:
            raise InputError(f"{where}.{key}" if where else key, "is missing")


def json_number(value: Any, where: str, low: float = 0.0, high: float = 1e300) -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        allowed = f"a number, {low:g} or more" if high == 1e300 else f"a number from {low:g} to {high:g}"
        raise InputError(where, f"found {shown(value)}", allowed)
    return float(value)


def json_flag(value: Any, where: str, default: bool) -> bool:
    """True, false, or the default for nothing."""
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(where, f"found {shown(value)}", "true, false")
    return value


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError("", f"the key {shown(key)} is said twice")
            seen.add(key)
    return found


def _no_constant(word: str) -> NoReturn:
    raise InputError("", f"found {word}", "finite numbers")
