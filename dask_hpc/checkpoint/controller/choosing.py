"""Which agents an item (what is protected under a name) has, as the policy in force says, from what its
commits have taken so far."""

from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import islice
from math import inf
from typing import Any

from dask_hpc.checkpoint.controller.agents import Agents
from dask_hpc.checkpoint.controller.copying import Made
from dask_hpc.checkpoint.controller.dealing import Dealing
from dask_hpc.live import compat
from dask_hpc.model.agents import ItemAgents
from dask_hpc.strategies.agents.rule import AgentRule

_SAMPLE = 2000  # keys that say on which nodes an item's data is
_LEAST = 2**20  # bytes; what takes the time of a smaller commit is not the agents


class Choosing:
    """``tell`` is told when an item has another number of agents."""

    def __init__(
        self,
        scheduler: Any,
        agents: Agents,
        keys_of: Callable[[str], Iterable[Hashable]],
        tell: Callable[[str, str], None],
    ) -> None:
        self._scheduler = scheduler
        self._agents = agents
        self._keys_of = keys_of
        self._tell = tell
        #: by name: how many agents it has; how many it had in its last commit; bytes that stand for one
        self.known: dict[str, ItemAgents] = {}
        self._had: dict[str, int] = {}
        self._usual: dict[str, float] = {}

    @property
    def rule(self) -> Any:
        """The strategy in force: that of the policy, if the cluster is managed and it has one."""
        return getattr(self._policy, "checkpoint", None) or _DEFAULT

    def dealing(self, item: str) -> Dealing:
        """How blocks of an item are dealt now; those of no item go to all agents by turns."""
        able = self._agents.able(self._watts())
        nodes = self.rule.order(able)
        if not item or not able:
            return Dealing(nodes)
        keys = list(islice(self._keys_of(item), _SAMPLE))
        domains, nbytes = self._data(keys)
        known = self.known.get(item)
        size = self._size(keys, domains)
        now = self.rule.first(size, len(able)) if known is None else self.rule.resized(known, size)
        if known is not None and now.agents != known.agents:
            self._tell("agents", f"{item}: {now.agents} agents, as its data is on {size} nodes now")
        self.known[item] = now
        count = max(1, min(now.agents, len(able)))
        slots = self.rule.slots(count, able, nbytes / count, domains)
        self._had[item] = count
        return Dealing(nodes, slots)

    def committed(self, item: str, made: Made) -> None:
        """A commit of an item is over."""
        known = self.known.get(item)
        if known is None or made.moved < _LEAST or not made.copies or made.failed:
            return
        usual = self._usual.setdefault(item, float(made.moved))
        seconds = made.seconds * usual / made.moved
        most = max(1, len(self._agents.able()))
        now = self.rule.committed(known, self._had[item], seconds, most, self._commits_left(item, made))
        self.known[item] = now
        if now.agents != known.agents:
            self._tell(
                "agents",
                f"{item}: {now.agents} agents instead of {known.agents}: "
                f"{made.moved / 1e6:.3g} MB took {made.seconds:.3g} s",
            )

    def forget(self, item: str) -> None:
        """It is protected no longer."""
        for known in (self.known, self._had, self._usual):
            known.pop(item, None)

    def _commits_left(self, item: str, made: Made) -> float:
        return inf

    def _data(self, keys: Collection[Hashable]) -> tuple[set[str], float]:
        """The failure domains in which these results are, and their bytes."""
        domains: set[str] = set()
        nbytes = 0
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if task is not None:
                nbytes += compat.size(task)
                domains.update(map(self._agents.domain_of, compat.holders(task)))
        return domains, float(nbytes)

    def _size(self, keys: Iterable[Hashable], domains: Collection[str]) -> int:
        """On how many nodes an item is: those of its job, if it is one's, else those that hold it."""
        owner = getattr(getattr(self._control, "gate", None), "owner", {})
        job = next((owner[key] for key in keys if key in owner), None)
        return len(getattr(job, "nodes", ())) or len(domains) or 1

    def _watts(self) -> dict[str, float]:
        """By node, if somebody reads it and the rule wants to know."""
        if getattr(self.rule, "rank", "") != "power" or self._control is None:
            return {}
        return {node: reading.watts for node, reading in self._control.power.readings().items()}

    @property
    def _control(self) -> Any:
        return getattr(self._scheduler.plugins.get("dask-hpc"), "control", None)

    @property
    def _policy(self) -> Any:
        return getattr(self._control, "policy", None)


_DEFAULT = AgentRule()
