"""Whether a sensor can be trusted. A sensor is in doubt when

1. it is silent: no new reading for as long as three readings take;
2. it says what cannot be: less than nothing, more than any node draws, no number;
3. it says zero: a machine that answers draws something, most of all one that works;
4. it is frozen: for three readings it says exactly what it said before the load changed.

It is trusted again when it has been right ``_AGAIN`` times in a row.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any

from dask_hpc.live.power.meters import Sensed
from dask_hpc.model.units import show_duration

MOST = 50_000.0  # watts of one machine that are believed; the largest nodes one can buy draw about 15,000
_ZERO = 0.1  # watts
_MOVED = 0.25  # of its threads; a load that changes so much shows in the power
_LATE = 2.75  # readings that may fail to come; with that a look every reading finds it within three
_FROZEN = 3  # readings
_AGAIN = 3
_PATIENCE = 10.0  # seconds that a new machine has to say something: its worker plugin must get there


class Trust:
    """In one sensor. ``doubt`` says why there is none; it is empty while all is well."""

    def __init__(self, now: float) -> None:
        self.doubt = ""
        self._heard_at = now
        self._number: Any = None
        self._watts: float | None = None
        self._load = 0.0
        self._stood_still = 0
        self._right = 0

    def look(self, now: float, sensed: Sensed | None, interval: float) -> None:
        """What the sensor says now, if it has ever said anything; ``interval`` is from one reading to the
        next."""
        if sensed is not None and sensed.number != self._number:
            self._heard_at, self._number = now, sensed.number
            self._judge(sensed)
        else:
            patience = _LATE * interval if self._number is not None else max(_PATIENCE, _LATE * interval)
            if now - self._heard_at > patience:
                self._distrust(f"no new reading for {show_duration(now - self._heard_at)}")

    def _judge(self, sensed: Sensed) -> None:
        problem = sensed.problem or _impossible(sensed.watts) or self._frozen(sensed)
        if problem:
            self._distrust(problem)
        elif self.doubt:
            self._right += 1
            if self._right >= _AGAIN:
                self.doubt = ""

    def _frozen(self, sensed: Sensed) -> str:
        if sensed.watts != self._watts:
            self._watts, self._load, self._stood_still = sensed.watts, sensed.load, 0
            return ""
        # Counted from the reading after the change: power follows load with some delay.
        self._stood_still += abs(sensed.load - self._load) >= _MOVED
        if self._stood_still < _FROZEN:
            return ""
        return f"it says {sensed.watts:g} W whatever the load is"

    def _distrust(self, problem: str) -> None:
        if not self.doubt or not problem.startswith("no new"):
            self.doubt = problem
        self._right = 0


def _impossible(watts: float) -> str:
    if not isfinite(watts) or watts < 0 or watts > MOST:
        return f"it says {watts:g} W, which cannot be"
    return f"it says {watts:g} W for a machine that is on" if watts < _ZERO else ""


class TrustedSensors:
    """Which sensor speaks of which node, and whether it is trusted. ``tell`` adds to the story: once when a
    sensor is in doubt, and once when it is trusted again."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._trust: dict[str, Trust] = {}
        #: the sensor that speaks of a node, and spoke of it last if it does no more
        self._sensor_of: dict[str, str] = {}

    def look(
        self, now: float, sensed: Mapping[str, Sensed], nodes: Iterable[str], interval: float
    ) -> dict[str, str]:
        """Why the sensor of each of these nodes is in doubt; empty of one that is trusted."""
        for sensor, one in sensed.items():
            self._sensor_of |= dict.fromkeys(one.parts, sensor)
        here = {name: self._sensor_of.get(name, f"node {name}") for name in nodes}
        for name in self._sensor_of.keys() - here.keys():
            del self._sensor_of[name]
        for sensor in self._trust.keys() - set(here.values()):
            del self._trust[sensor]
        for sensor in dict.fromkeys(here.values()):
            trust = self._trust.setdefault(sensor, Trust(now))
            before = trust.doubt
            trust.look(now, sensed.get(sensor), interval)
            if bool(before) != bool(trust.doubt):
                self._tell_of([name for name in here if here[name] == sensor], before, trust.doubt)
        return {name: self._trust[sensor].doubt for name, sensor in here.items()}

    def _tell_of(self, nodes: list[str], before: str, doubt: str) -> None:
        where = f"node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
        if doubt:
            self._tell("power-doubt", f"{where}: {doubt}; the model stands in for it")
        else:
            self._tell("power-trust", f"{where}: the sensor is trusted again; before: {before}")
