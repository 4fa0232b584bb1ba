"""Quantities as people write them ("30s", "4 GiB", "2.5 kW") and as floats inside.

The brain may not import Dask, so this is not ``dask.utils.parse_timedelta``; it also reads
Slurm's ``[[days-]hours:]minutes:seconds`` and ``days-hours[:minutes]``, and writes back
exactly what it would read.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from dask_hpc.model.errors import InputError, shown

# No "w" for weeks: it would make five watts a duration.
_SECONDS: Mapping[str, float] = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e-3, "us": 1e-6,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0, "week": 604800.0, "weeks": 604800.0,
    "y": 31557600.0, "year": 31557600.0, "years": 31557600.0,
}  # fmt: skip
_BYTES: Mapping[str, float] = {
    "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40, "pib": 2.0**50,
}  # fmt: skip
_RATES: Mapping[str, float] = {
    **{f"{word}/s": size for word, size in _BYTES.items()},
    "bit/s": 0.125, "kbit/s": 125.0, "mbit/s": 125e3, "gbit/s": 125e6, "tbit/s": 125e9,
}  # fmt: skip
_WATTS: Mapping[str, float] = {"w": 1.0, "mw": 1e-3, "kw": 1e3}

#: unit symbol of a parameter -> the words it may be written with
UNITS: Mapping[str, Mapping[str, float]] = {"s": _SECONDS, "B": _BYTES, "B/s": _RATES, "W": _WATTS}
#: what to write: the largest of these that keeps the number exact and short
_WRITTEN: Mapping[str, tuple[str, ...]] = {
    "s": ("d", "h", "min", "s"),
    "B": ("TiB", "GiB", "MiB", "KiB", "B"),
    "B/s": ("TB/s", "GB/s", "MB/s", "kB/s", "B/s"),
    "W": ("kW", "W"),
}
_EXAMPLE: Mapping[str, str] = {"s": '"30s" or "2 h"', "B": '"4 GiB"', "B/s": '"10 GB/s"', "W": '"2.5 kW"'}
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\W\d_]*(?:/s)?)")
_NUMERAL = r"(\d+(?:\.\d+)?)"
_CLOCK = re.compile(rf"(?:(?:(\d+)-)?(\d+):)?(\d+):{_NUMERAL}")
_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?")


def parse_quantity(value: object, unit: str, where: str = "") -> float:
    """Read a quantity of ``unit`` ("s", "B", "B/s" or "W"); a bare number is taken in that unit.
    What is wrong is said of ``where``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(where, f"found {shown(value)}", f"a quantity such as {_EXAMPLE[unit]}")
    if not isinstance(value, str):
        try:
            return float(value)
        except OverflowError:
            raise InputError(where, f"found {shown(value)}", "a finite number") from None
    text = value.strip()
    if text.lower() in ("inf", "infinity", "unlimited", ".inf"):
        return math.inf
    if text.lower() == "-inf":
        return -math.inf
    match = _NUMBER.fullmatch(text) if text.isascii() else None
    if match:
        number, word = float(match[1]), match[2].lower()
        words = UNITS[unit]
        if not word:
            return number
        # "MW" is a megawatt and "mW" a milliwatt: the only pair that case tells apart.
        if match[2] in ("MW", "Mw") and unit == "W":
            return number * 1e6
        if unit == "B/s" and match[2].endswith("b/s") and word in words:
            raise InputError(where, f"found the unit {shown(match[2])}", "GB/s for bytes, Gbit/s for bits")
        if word in words:
            return number * words[word]
        known = ", ".join(sorted(set(_WRITTEN[unit]), key=lambda w: words[w.lower()]))
        raise InputError(where, f"found the unit {shown(match[2])} in {shown(value)}", f"units {known}")
    if unit == "s" and text.isascii() and (clock := _CLOCK.fullmatch(text) or _DAYS.fullmatch(text)):
        scales = (86400.0, 3600.0, 60.0, 1.0)  # days, hours, minutes, seconds
        return sum(float(part or 0) * scale for part, scale in zip(clock.groups(), scales, strict=False))
    raise InputError(where, f"found {shown(value)}", f"a quantity such as {_EXAMPLE[unit]}")


def parse_duration(value: object) -> float:
    """Seconds from ``30``, ``"30s"``, ``"10 min"``, ``"1-02:00:00"`` or ``"inf"``."""
    return parse_quantity(value, "s")


def read_moment(text: object, now: float, epoch: float | None) -> float:
    """A time on the clock of a cluster, as people say it: "now", "in 10 min" or "+10 min", "11:45" (the next
    time that it is so late here; where ``epoch`` is None nobody knows), or "600", so many seconds on that
    clock itself. ``epoch`` are the wall-clock seconds at its time 0."""
    found = text.strip().lower() if isinstance(text, str) else text
    if found == "now":
        return now
    if isinstance(found, str):
        if (later := found.removeprefix("in ").removeprefix("+")) != found:
            seconds = _of_moment(later, text)
            if seconds < 0:
                raise InputError("", f"found {shown(text)}", _MOMENT)
            return now + seconds
        if day := _OF_DAY.fullmatch(found):
            return _next(day, text, now, epoch)
    return _of_moment(found, text)


_OF_DAY = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
_MOMENT = '"in 10 min", "+30 s", "11:45" or seconds on the clock of the cluster'


def _of_moment(words: object, text: object) -> float:
    try:
        seconds = parse_quantity(words, "s")
    except InputError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise InputError("", f"found {shown(text)}", _MOMENT)
    return seconds


def _next(day: re.Match[str], text: object, now: float, epoch: float | None) -> float:
    if epoch is None:
        raise InputError(
            "", f"found {shown(text)}, and this clock is not the wall's", '"in 10 min" or "+30 s"'
        )
    here = datetime.fromtimestamp(epoch + now)
    hour, minute, second = (int(part or 0) for part in day.groups())
    try:
        then = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        raise InputError("", f"found {shown(text)}", "00:00 to 23:59") from None
    if then < here:
        then += timedelta(days=1)
    return then.timestamp() - epoch


def write_quantity(value: float, unit: str) -> str:
    """The shortest human form of ``value`` that reads back to exactly the same float."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    for word in _WRITTEN[unit]:
        scaled = value / UNITS[unit][word.lower()]
        text = f"{scaled:.12g}"
        if abs(scaled) >= 1 and len(text) <= 6 and parse_quantity(f"{text} {word}", unit) == value:
            return f"{text} {word}"
    return f"{int(value) if float(value).is_integer() and abs(value) < 1e15 else value!r} {unit}"


def show_duration(seconds: float) -> str:
    """Three or so significant digits for a person: "47 s", "3.5 min", "2.1 h", "4.0 d"."""
    if not math.isfinite(seconds):
        return "-" if math.isnan(seconds) else "unlimited"
    size = abs(seconds)
    if size < 100:
        return f"{seconds:.3g} s"
    for limit, scale, word in ((6000, 60, "min"), (172800, 3600, "h"), (math.inf, 86400, "d")):
        if size < limit:
            return f"{seconds / scale:.1f} {word}"
    raise AssertionError(seconds)


def show_large(value: float, unit: str) -> str:
    """A large number with a prefix for a person: "3.2 GJ", "12.5 TB"."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 1000 or prefix == "P":
            break
        value /= 1000
    return f"{value:.3g} {prefix}{unit}"


def show_bytes(value: float) -> str:
    """Bytes for a person: as they were probably written ("64 GiB"), or to three digits ("68.7 GB")."""
    text = write_quantity(value, "B")
    return text if len(text) <= 9 else show_large(value, "B")


def show_bounds(lower: float, upper: float, unit: str) -> str:
    """Two bounds for a person: "1.7 kW to 2.5 kW", "at most 2.5 kW"; no lower one is 0."""
    if lower <= 0:
        return "no bounds" if upper == math.inf else f"at most {show_large(upper, unit)}"
    if upper == math.inf:
        return f"at least {show_large(lower, unit)}"
    return f"{show_large(lower, unit)} to {show_large(upper, unit)}"


@lru_cache(4096)  # every start of a long trace says it
def count_nodes(nodes: int, kind: str = "") -> str:
    """A number of nodes for a person: "1 node", "4 idle nodes"."""
    return counted(nodes, f"{kind} node" if kind else "node")


def counted(number: int, word: str) -> str:
    """So many of something for a person: "1 task", "2 tasks"."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def finite(found: Any) -> Any:
    """JSON knows no infinity and no nan: None stands for them."""
    if isinstance(found, dict):
        return {key: finite(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [finite(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found
