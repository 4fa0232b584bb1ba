"""What one sensor says at one instant, and what every meter can do."""

from typing import Literal, NamedTuple, Protocol

#: what a sensor speaks of; nobody knows it of "other"
Covers = Literal["node", "processor", "memory", "gpu", "other"]


class Sensed(NamedTuple):
    """What one sensor says, or why it says nothing."""

    meter: str
    sensor: str
    covers: Covers
    #: None if it is not known now
    watts: float | None = None
    #: half-width of a 95 % interval
    uncertainty: float = 0.0
    #: why it is not known, or not to be believed
    problem: str = ""
    #: what a person can do about that
    fix: str = ""
    #: the sensor that counts this one's power as well
    within: str = ""


class Meter(Protocol):
    """A kind of sensor. Never raises; where it finds none it says why, in one row without watts. One that
    holds something has a method ``close`` as well.
    """

    def sense(self, now: float, use: float) -> list[Sensed]:
        """All of them now (seconds of a clock that only goes forward), the processors having been busy for
        this share of the time since the last look."""
        ...
