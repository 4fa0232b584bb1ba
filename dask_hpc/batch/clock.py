"""Dates as batch systems write them, in the time of this machine: ISO, or "Wed Apr 14 23:34:17 2021"."""

from datetime import datetime
from email.utils import parsedate


def read_local_time(found: object) -> float | None:
    """Seconds of the system's clock; None for what is no date."""
    if not isinstance(found, str) or len(found) > 100:
        return None
    text = found.strip()
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        parts = parsedate(text)  # English names, whatever the locale
        return None if parts is None else datetime(*parts[:6]).timestamp()
    except (ValueError, OverflowError, OSError, TypeError, IndexError):
        return None
