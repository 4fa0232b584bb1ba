"""Reading JSON files of strangers: bounded, no key said twice, every complaint one line with the file."""

import json
from pathlib import Path
from typing import Any, NoReturn

from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.simulator.readers.values import read_file

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


def number(value: Any, where: str, low: float = 0.0, high: float = 1e300) -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        allowed = f"a number, {low:g} or more" if high == 1e300 else f"a number from {low:g} to {high:g}"
        raise InputError(where, f"found {shown(value)}", allowed)
    return float(value)


def flag(value: Any, where: str, default: bool) -> bool:
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
