"""Without agents checkpoints go to the store directly, which is slower: when it pays to try agents again.

The document says what trying costs (000, 6.5, equations 6.13 and 6.14) and advises to go back only if enough
checkpoints are left; it gives neither a number of retries nor how long to wait. Deviations: what it calls the
frequency of checkpoints is a period, which is its own unit; a program that never comes back to agents pays
for each try and never for new agents, the other way round than its second equation; and the wait grows with
each failed try, so that few of them are made in vain.
"""

from dataclasses import dataclass, replace
from math import inf

#: seconds before agents that did not answer are tried again, at first and at most
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0


def overhead_published(
    probe: float, new_agents: float, elapsed: float, slow: float, fast: float, period: float
) -> float:
    """Seconds that a failure costs, as equations 6.13 (``elapsed``: tries times waits) and 6.14 (``elapsed``:
    to the end of the program) have it. ``slow`` and ``fast`` are a checkpoint with and without the store."""
    return probe + new_agents + elapsed * (slow - fast) / period


def overhead(
    probe: float, tries: int, elapsed: float, slow: float, fast: float, period: float, new_agents: float = 0.0
) -> float:
    """Seconds that a failure costs: so many tries, ``new_agents`` if the last one succeeds, and the
    checkpoints that meanwhile took the slow way, one each ``period``."""
    return tries * probe + new_agents + max(0.0, slow - fast) * elapsed / period


def pays(probe: float, new_agents: float, slow: float, fast: float, commits_left: float) -> bool:
    """Whether to try agents again: the commits that are left make up for it."""
    gained = max(0.0, slow - fast)
    return gained > 0 and (commits_left == inf or gained * commits_left > probe + new_agents)


@dataclass(frozen=True, slots=True)
class Direct:
    """What is remembered of the time without agents: the tries since, and when to try again."""

    since: float
    tries: int
    again_at: float


def failed(known: Direct | None, now: float) -> Direct:
    """No agent could be reached: everything goes to the store directly for a while, each time for longer."""
    if known is None:
        return Direct(now, 0, now + FIRST_WAIT)
    tries = known.tries + 1
    return replace(known, tries=tries, again_at=now + min(FIRST_WAIT * 2.0**tries, LONGEST_WAIT))
