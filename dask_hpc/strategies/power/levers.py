"""What else can be done about power than sizes and starts: hold nodes, use fewer threads, cap, release.

Holding is the quickest: it keeps room for work outside of jobs that may come at any moment, because what runs
cannot be interrupted. Threads and caps are finer than a node; like releases they come last, when no
sizes are inside. What was pulled is given back when there is room again, one dwell later at the earliest.
"""

from dataclasses import dataclass
from math import ceil, floor, inf

from dask_hpc.model.plan import Cap, Hold, Release
from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.strategies.power.balance import TINY, Balance, PowerBounds

_STEPS = 16  # shares of a node's threads that are told apart
_FEWEST = 2  # of them stay
_HIGHER = 1.02  # a cap is raised if it is to be so many times higher


@dataclass(slots=True)
class Levers:
    """One decision's."""

    now: float
    balance: Balance
    bounds: PowerBounds
    hysteresis: float
    dwell: float
    #: when each was last pulled
    pulled: dict[str, float]
    #: watts kept for a job that waits for work outside of jobs to make room
    reserve: float = 0.0

    def _has(self, lever: str) -> bool:
        return lever in self.balance.view.levers

    def _rests(self, lever: str, undoing: bool = False) -> bool:
        """Whether it was pulled a moment ago, or changed at all, for who wants to undo it: figures take a
        while to show what it did. Without bounds nothing has to be waited for."""
        if self.bounds.is_open:
            return False
        keys = (lever, f"{lever} undone") if undoing else (lever,)
        return any(self.now - self.pulled.get(key, -inf) <= self.dwell for key in keys)

    def tighten_hold(self) -> None:
        """Of the nodes that no job holds only so many may work as fit, before anything else is decided."""
        balance, bounds = self.balance, self.bounds
        if not self._has("hold"):
            return
        may_work = max(0, balance.free - balance.held)
        if balance.with_outside(may_work) > bounds.upper - self.reserve + TINY:
            allowed = self._allowed(bounds.ceiling - self.reserve)
            if allowed < may_work:
                balance.held = balance.free - allowed
                self.pulled["hold"] = self.now

    def hold(self) -> Hold | None:
        """Keep so many nodes that no job holds from working that all others may."""
        balance, view, bounds = self.balance, self.balance.view, self.bounds
        self.tighten_hold()
        if balance.held > view.held:
            allowed, watts = balance.free - balance.held, show_large(bounds.upper, "W")
            reason = f"power: more than {count_nodes(allowed)} at work outside of jobs would exceed {watts}"
            return Hold(balance.held, reason)
        may_work = max(0, balance.free - balance.held)
        is_wanted = view.outside_wanted > may_work or bounds.is_open
        if not self._has("hold") or not balance.held or not is_wanted or self._rests("hold"):
            return None
        allowed = self._allowed(bounds.ceiling - self.reserve - self.hysteresis)
        if allowed <= may_work and balance.free:
            return None
        balance.held = balance.free - allowed
        return Hold(balance.held, f"power: there is room for {count_nodes(allowed)} outside of jobs")

    def _allowed(self, ceiling: float) -> int:
        """Nodes that may work outside of jobs: at least those that cannot be held, and one if there is any
        such work."""
        balance, view = self.balance, self.balance.view
        step = balance.outside_power.most - view.idle
        if step <= 0 or ceiling == inf:
            return balance.free
        room = floor((ceiling - balance.with_outside(0) + TINY) / step)
        least = max(balance.restless, 1 if view.outside_wanted or view.outside_nodes else 0)
        return max(min(least, balance.free), min(room, balance.free))

    def cap(self, is_broken: bool) -> Cap | None:
        """Fewer threads, or a cap of each node's power, when no sizes are inside; more when there is room."""
        view = self.balance.view
        share, watts = view.threads, view.cap
        if self._has("threads"):
            share = self._threads(is_broken)
        if self._has("cap"):
            watts = self._watts(is_broken)
        if (share, watts) == (view.threads, view.cap):
            return None
        upper = show_large(self.bounds.upper, "W")
        if share < view.threads or (watts is not None and watts < (view.cap or inf)):
            self.pulled["cap"] = self.now
            return Cap(share, watts, f"power: no sizes alone stay below {upper}")
        self.pulled["cap undone"] = self.now
        return Cap(share, watts, f"power: there is room again below {upper}")

    def _threads(self, is_broken: bool) -> float:
        """The share of the threads with which power is inside, in steps."""
        balance, now = self.balance, self.balance.view.threads
        if self._rests("cap", undoing=not is_broken) or (not is_broken and now >= 1.0):
            return now
        active = balance.active
        if active <= TINY:
            return 1.0 if not is_broken else now
        ceiling = self.bounds.ceiling - (0.0 if is_broken else self.hysteresis)
        share = min(1.0, (ceiling - (balance.planned.most - active)) / active * now)
        share = max(_FEWEST, floor(share * _STEPS + TINY)) / _STEPS
        if is_broken != (share < now) or share == now:
            return now
        balance.cut += active * (1.0 - share / now)
        return share

    def _watts(self, is_broken: bool) -> float | None:
        """The cap of each node with which power is inside, also while larger sizes are still at work."""
        balance, now = self.balance, self.balance.view.cap
        is_over = is_broken or balance.peak > self.bounds.upper + TINY
        nodes = balance.working
        if not nodes or (not is_over and (now is None or self._rests("cap", undoing=True))):
            return now
        ceiling = self.bounds.ceiling - (0.0 if is_over else self.hysteresis)
        if ceiling == inf:
            return None
        watts = float(max(floor((ceiling - balance.resting) / nodes), ceil(balance.view.idle)))
        if not is_over:  # what they would draw without a cap is not known: it stays, as high as can be
            return watts if now is not None and watts > _HIGHER * now else now
        if watts >= (now or inf):
            return now
        balance.cut += max(0.0, balance.planned.most - balance.resting - nodes * watts)
        return watts

    def release(self, is_broken: bool) -> Release | None:
        """Do without idle nodes when even those draw too much."""
        balance, view = self.balance, self.balance.view
        if not self._has("release") or view.idle <= 0:
            return None
        room = self.bounds.ceiling - balance.planned.most
        if is_broken and room < -TINY:
            more = min(ceil(-room / view.idle - TINY), view.releasable, balance.free - balance.outside)
            if more <= 0 or self._rests("release"):
                return None
            self.pulled["release"] = self.now
            balance.cut += more * view.idle
            reason = f"power: idle nodes alone take too much of {show_large(self.bounds.upper, 'W')}"
            return Release(view.released + more, reason)
        if not view.released or is_broken or self._rests("release", undoing=True):
            return None
        room -= self.hysteresis
        back = view.released if room == inf else min(view.released, floor((room + TINY) / view.idle))
        if back <= 0:
            return None
        self.pulled["release undone"] = self.now
        return Release(view.released - back, f"power: there is room for {count_nodes(back, 'idle')} again")
