"""When whoever keeps copies asks for nodes of its own: seed 000, section 7.3.1.2, Algorithm 8.

Whether it needs one is ``AgentRule.more_nodes``; this is how it asks. What is urgent is asked for at once.
For what is not, it first asks whether any node is idle, and asks for one only when that was so. Deviations:
the document repeats an urgent request at every look; here one is out at a time, until it is granted or not
needed any more, and is repeated only if nothing has come for ``AGAIN`` seconds, as bodies forget. What is
crowded but not urgent is asked for without a query there; as idle nodes alone are given for it, the query
loses nothing. Whoever needs no node any longer says so.
"""

from dataclasses import dataclass, replace
from math import inf

from dask_hpc.model.lending import FromService, NodeQuery, NodeRequest
from dask_hpc.model.node import NodeWish
from dask_hpc.strategies.checkpoint.agents import MoreNodes

AGAIN = 30.0  # seconds after which a request or a query is made again


@dataclass(frozen=True, slots=True)
class Scaling:
    """What is remembered of it: what was asked for last and when, and how many nodes were idle then."""

    asked: MoreNodes | None = None
    at: float = -inf
    is_query: bool = False
    idle: int | None = None

    def heard(self, idle: int) -> "Scaling":
        """So many nodes are idle."""
        return replace(self, idle=idle)

    def granted(self) -> "Scaling":
        """There is one more."""
        return Scaling()


def scale(
    known: Scaling, service: str, more: MoreNodes | None, now: float
) -> tuple[FromService | None, Scaling]:
    """What to say now, and what to remember."""
    if more is None:
        if known.asked is None or known.is_query:
            return None, Scaling()
        return NodeRequest(service, NodeWish(0, False, "it needs no more nodes")), Scaling()
    request = NodeRequest(service, NodeWish(1, more.is_urgent, more.reason))
    is_pending = known.asked is not None and now - known.at < AGAIN
    if more.is_urgent:
        is_same = is_pending and not known.is_query and known.asked is not None and known.asked.is_urgent
        return (None, known) if is_same else (request, Scaling(more, now))
    if is_pending and not known.is_query:
        return None, known
    if known.is_query and known.idle:
        return request, Scaling(more, now)
    if is_pending and known.idle is None:  # it will be answered
        return None, known
    return NodeQuery(service), Scaling(more, now, is_query=True)
