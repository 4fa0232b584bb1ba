"""Power against its corridor, whose edges people can move."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, ClassVar

import traitlets

from dask_hpc import InputError, Policy
from dask_hpc.model.units import read_moment
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class PowerDeeds:
    """What people do about power, for every view that lets them."""

    _manager: Any
    _awaited: Any

    async def do_bound(self, asked: Mapping[str, Any]) -> str:
        """Move one bound to so many watts; None takes it away."""
        which = asked.get("which")
        if which not in ("lower", "upper"):
            raise InputError("bound", f"found {which!r}", "lower, upper")
        power = await self._power()
        watts = _watts(asked.get("watts"))
        if power.schedule is None:
            nothing = {"lower": "0 W", "upper": "none"}
            await self._awaited.set(**{f"power.{which}": nothing[which] if watts == "none" else watts})
        else:
            now = self._manager.watch.course.head["time"]
            steps = [_written(step) for step in power.schedule.steps]
            holds = max((i for i, (time, _, _) in enumerate(power.schedule.steps) if time <= now), default=0)
            steps[holds][which] = watts
            await self._awaited.set(**{"power.schedule": steps})
        return f"{which} bound {watts}"

    async def do_later(self, asked: Mapping[str, Any]) -> str:
        """Other bounds from a later time on, which is said as people do."""
        power, head = await self._power(), self._manager.watch.course.head
        try:
            at = read_moment(asked.get("at"), head["time"], head.get("epoch"))
        except InputError as error:
            raise InputError("at", error.found, error.allowed) from None
        if not at > head["time"]:
            raise InputError("at", f"found {asked.get('at')!r}", f"later than now, {head['time']:.0f} s")
        at = round(at, 3)
        bounds = {key: str(asked.get(key) or "none") for key in ("lower", "upper")}
        steps = {step[0]: _written(step) for step in power.corridor.steps}
        steps[at] = {"at": f"{at!r} s", **bounds}
        schedule = [steps[time] for time in sorted(steps)]
        await self._awaited.set(**{"power.lower": "0 W", "power.upper": "none", "power.schedule": schedule})
        return f"from {at:.6g} s on {bounds['lower']} to {bounds['upper']}"

    async def do_unschedule(self, asked: Mapping[str, Any]) -> str:
        """Take a change for later back: what holds before it goes on."""
        power, at = await self._power(), asked.get("at")
        if not isinstance(at, int | float) or isinstance(at, bool):
            raise InputError("at", f"found {at!r}", "seconds on the clock of the cluster")
        steps = power.corridor.without(at).steps
        if len(steps) > 1:
            await self._awaited.set(**{"power.schedule": [_written(step) for step in steps]})
        else:
            _, lower, upper = steps[0]
            asked = {"power.schedule": "none", "power.lower": _watts(lower), "power.upper": _watts(upper)}
            await self._awaited.set(**asked)
        return f"the change at {at:.6g} s is taken back"

    async def _power(self) -> Any:
        in_force = await self._awaited.set()
        power = Policy.parse(in_force["policy"], name=in_force["name"]).power
        if power is None:
            found = f"{in_force['name']} has no power strategy"
            raise InputError("corridor", found, "a policy that has, such as power-corridor")
        if power.follow:
            raise InputError("corridor", f"the bounds come from {power.follow}", "power.follow: none")
        return power


class CorridorChart(PowerDeeds, View):
    """Power over time with the corridor's band, what is forecast, and when power was outside.

    Drag an edge of the band, or move it with the arrow keys, to change that bound of the policy in force; a
    change for later is put on the time axis to the right of now, or written below it: "in 10 min", "11:45".
    What was changed can be undone. Where power is not watched, a line says what turns it on.
    """

    _esm = module("corridor_chart")
    _css = style()
    parts: ClassVar[tuple[str, ...]] = ("power",)
    draws = frozenset({"samples", "marks", "corridor", "power_now"})

    height = traitlets.Int(240, help="pixels").tag(sync=True)

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """Power now and its bounds."""
        if not whole["samples"]:
            yield "power is not watched"
            return
        _, watts, lower, upper, *_ = whole["samples"][-1]
        yield f"{watts:.0f} W; corridor {lower:.0f} W to {'any' if upper is None else f'{upper:.0f} W'}"


def _watts(found: Any) -> str:
    if found is None or found == inf:
        return "none"
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise InputError("bound", f"found {found!r}", "watts")
    return f"{found:.6g} W"


def _written(step: tuple[float, float, float]) -> dict[str, str]:
    """A step of a corridor as a policy file says it."""
    time, lower, upper = step
    return {"at": f"{time!r} s", "lower": _watts(lower), "upper": _watts(upper)}
