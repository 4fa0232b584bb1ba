"""How many agents an item has: more of them as long as its commits get faster by it.

``by_sign`` is the document's rule (000, 7.1.1, algorithm 5). It looks at whether the last commit was faster
than the one before, not at what had been changed between them: after fewer agents turned out to be better it
takes more again, and so for ever. ``climb`` multiplies the direction of the last step by the sign of what it
brought, takes noise for what it is, and stops where a step brought nothing, as the document says in prose.

A change costs time, so there must be enough commits left to make up for it. The document's break-even (its
equation 6.12) is right only if the new agents are exactly twice as fast; ``break_even`` is for any.
"""

from dataclasses import dataclass, replace
from math import inf

#: commits that differ by less, as a share, took equally long
BAND = 0.05
#: a settled number is looked at again once commits take so much longer or less
_DRIFT = 0.25


def break_even(change: float, before: float, after: float) -> float:
    """After how many commits a change that took ``change`` seconds has paid off."""
    return change / (before - after) if after < before else inf


def break_even_published(change: float, before: float, after: float) -> float:
    """As the document's equations 6.11 and 6.12 have it."""
    missed = (change + after) / before - 1
    return missed * before / after + 1


def by_sign(agents: int, seconds: float, before: float, factor: int, most: int) -> int:
    """The next number of agents, by the last two commits alone; ``before`` is inf at first."""
    if seconds > before:
        return max(1, agents // factor)
    if seconds < before:
        return max(1, min(agents * factor, most))
    return agents


@dataclass(frozen=True, slots=True)
class Climb:
    """What is remembered of the search for one item. ``agents`` and ``seconds`` are the best so far."""

    agents: int
    seconds: float
    #: the number that is tried; the best one otherwise
    trying: int
    up: bool = True
    #: directions in which a step brought nothing
    tried_up: bool = False
    tried_down: bool = False


def climb(
    known: Climb | None,
    agents: int,
    seconds: float,
    *,
    most: int,
    factor: float = 2.0,
    change: float = 0.0,
    commits_left: float = inf,
) -> Climb:
    """One step after a commit that took ``seconds`` with so many agents: ``trying`` is the next number."""
    if known is None or agents != known.trying or known.agents > most:
        known = Climb(agents, seconds, agents)
    elif agents == known.agents:
        if abs(seconds - known.seconds) > _DRIFT * known.seconds:  # it is another load now
            known = Climb(agents, seconds, agents, known.up)
    elif seconds < known.seconds * (1 - BAND):
        # what was better than this one lies behind us
        behind = {"tried_down" if known.up else "tried_up": True}
        known = replace(known, agents=agents, seconds=seconds, **behind)
    else:
        known = replace(known, trying=known.agents, **{"tried_up" if known.up else "tried_down": True})
    for up in (known.up, not known.up):
        if known.tried_up if up else known.tried_down:
            continue
        if up:
            step = min(most, max(known.agents + 1, round(known.agents * factor)))
            hoped = known.seconds * known.agents / step
        else:
            step = max(1, min(known.agents - 1, round(known.agents / factor)))
            hoped = known.seconds * (1 - 2 * BAND)
        if step != known.agents and commits_left > break_even(change, known.seconds, hoped):
            return replace(known, trying=step, up=up)
    return replace(known, trying=known.agents)
