"""One batch job, as its batch system sees it, and what that system was heard to say."""

from dataclasses import dataclass, replace
from math import inf

from dask_hpc.model.cluster_view import UnitState
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import parse_duration


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of one job. ``None`` and infinity stand for what its system does not say."""

    state: UnitState = "unknown"
    #: why it is gone, held or unknown, or what it waits for
    why: str = ""
    running_for: float | None = None
    #: seconds until its system ends it
    left: float = inf
    #: seconds until its system expects to start it
    starts_in: float | None = None
    #: how often it was put back into the queue
    restarts: int | None = None
    #: the id under which it goes on, if that is another
    now_id: str = ""

    def later(self, seconds: float) -> "JobState":
        """The same, as it must be some time after it was asked for."""
        return replace(
            self,
            running_for=None if self.running_for is None else self.running_for + seconds,
            left=self.left - seconds,
            starts_in=None if self.starts_in is None else max(0.0, self.starts_in - seconds),
        )


UNKNOWN = JobState()


@dataclass(frozen=True, slots=True)
class Heard:
    """What a command printed, and how it ended."""

    out: str = ""
    error: str = ""
    code: int = 0


def seconds_in(text: object) -> float | None:
    """A duration as batch systems write it ("3600", "1:05", "1-02:00:00"), or None for what is none, such as
    UNLIMITED."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        found = parse_duration(text.strip() if isinstance(text, str) else text)
    except (InputError, ValueError, OverflowError):
        return None
    return found if 0 <= found < inf else None


def limit_in(text: object) -> float:
    """The same; what is no duration is no limit."""
    found = seconds_in(text)
    return inf if found is None else found


def number_in(found: object) -> float | None:
    """A finite number, whether given as one or as text."""
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return None
    try:
        value = float(found)
    except (ValueError, OverflowError):
        return None
    return value if abs(value) < inf else None


def count_in(found: object) -> int | None:
    """A whole number from 0, whether given as one or as text."""
    value = number_in(found)
    return int(value) if value is not None and value >= 0 else None
