"""Power from a counter of energy that only grows, wraps, may be set back, and may stand still.

The power of an interval is known only if no other number of wraps than the one we assume is plausible: with
``bound`` watts at most, an interval in which one wrap more would fit is *unknown*, never small.
"""

from typing import NamedTuple

_TOO_SOON = 0.01  # seconds; the counters themselves move every millisecond
_STEP = 1e-3  # joules; counters go in steps, of which the largest in use is smaller than this
_FROZEN = 3.0  # seconds without a change, and
_WORKING = 0.02  # of the processors at work, make a counter frozen


class Power(NamedTuple):
    """Watts since the look before, or why they are not known."""

    watts: float | None
    problem: str = ""


class EnergyCounter:
    """``span`` is how many joules the counter counts before it starts at 0 again; None if it never does."""

    def __init__(self, span: float | None, bound: float) -> None:
        self._span = span
        self._bound = bound
        self._then: float | None = None
        self._energy = 0.0
        self._unchanged = 0.0
        self._last = Power(None, "")

    def look(self, now: float, energy: float, use: float) -> Power:
        """What the counter says now, in joules. ``use`` (0 to 1) is how busy the processors were since the
        look before."""
        if self._then is None:
            self._then, self._energy = now, energy
            self._last = Power(None, "this is the first look, power needs two")
            return self._last
        seconds = now - self._then
        if seconds < _TOO_SOON:
            return self._last
        difference = energy - self._energy
        self._then, self._energy = now, energy
        self._last = self._judge(seconds, difference, use)
        return self._last

    def lose(self) -> None:
        """The counter was not there: the next look is a first one."""
        self._then = None
        self._unchanged = 0.0

    def _judge(self, seconds: float, difference: float, use: float) -> Power:
        most = self._bound * seconds
        if self._span is not None:
            if difference < 0:
                difference += self._span
            if difference + self._span <= most + _STEP:
                return Power(None, f"it may have wrapped more than once in {seconds:.3g} s")
        if difference == 0:
            self._unchanged += seconds
            if self._unchanged >= _FROZEN and use >= _WORKING:
                still = f"{self._unchanged:.3g} s while the processors worked"
                return Power(None, f"frozen: it has not changed for {still}")
            return Power(None, f"it has not changed for {self._unchanged:.3g} s")
        self._unchanged = 0.0
        if not 0 < difference <= most + _STEP:
            return Power(None, "it jumped: it was set back, or wrapped more than once")
        return Power(difference / seconds)
