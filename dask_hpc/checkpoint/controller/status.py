"""What the checkpoint service looks like, as plain data: what is protected, where the copies are, what
happened."""

from collections import Counter
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_hpc.live import compat

if TYPE_CHECKING:
    from dask_hpc.checkpoint.controller.controller import Controller

#: a look at all copies that takes the scheduler at most so many seconds is made each time somebody asks; a
#: longer one as seldom as keeps it below this share of all time
_QUICK, _SHARE = 0.005, 0.01


class Look:
    """How the controller and all agents are now."""

    def __init__(self, controller: "Controller", scheduler: Any) -> None:
        self._controller = controller
        self._scheduler = scheduler
        self._seen: dict[str, Any] = {}
        self._again = 0.0

    def status(self) -> dict[str, Any]:
        """``protected``: by name how much of it is copied, its last commit, when the next is due.
        ``nodes``: what of it each holds, and of which nodes it keeps copies, in bytes. ``exposed``: results
        whose copies are all on the node that has them, too. ``levels``: copies and bytes
        of each; those on disk are some of all that partners have.
        ``agents``: what each said last. ``versions``: the newest of each checkpoint, with the levels that
        have it. ``store``: bytes on their way there, and what is wrong with it. ``counts``: see
        ``Diary.as_plain``. Times are seconds ago, and from now."""
        controller = self._controller
        return {
            "protected": [self._protected(name) for name in controller.protected],
            **self._places(),
            "agents": self._agents(),
            "versions": [row for one in controller.commits.as_plain() for row in _versions(one)],
            "store": controller.flushing.as_plain(),
            **controller.diary.as_plain(),
            "errors": controller.errors,
        }

    def _protected(self, name: str) -> dict[str, Any]:
        controller = self._controller
        last = controller.diary.commits.get(name)
        found = controller.protected[name].as_plain(controller.catalogue)
        return {"next_due": None, **found, "last_commit": None if last is None else last.as_plain()}

    def _agents(self) -> list[dict[str, Any]]:
        node_of = self._controller.nodes.node_of
        agents = self._controller.agents.facts().items()
        return [{"address": address, "node": node_of(address), **facts} for address, facts in agents]

    def _places(self) -> dict[str, Any]:
        began = monotonic()
        if began >= self._again:
            self._seen = self._look_at_copies()
            took = monotonic() - began
            self._again = began + (took / _SHARE if took > _QUICK else 0.0)
        return self._seen

    def _look_at_copies(self) -> dict[str, Any]:
        """Passes over all protected results and all copies."""
        controller, nodes = self._controller, self._controller.nodes
        own: Counter[str] = Counter()
        home: dict[Any, str] = {}  # of a result: a node that holds it
        protected = (key for one in controller.protected.values() for key in one.keys)
        for key in {*protected, *controller.catalogue.content_of}:
            task = compat.find_task(self._scheduler, key)
            for address in compat.holders(task)[:1] if task is not None else ():
                home[key] = nodes.node_of(address)
                own[home[key]] += compat.size(task)
        kept: dict[str, Counter[str]] = {}
        copies, total, exposed = 0, 0, 0
        agents = controller.agents.facts().values()
        for one, found in controller.catalogue.contents.items():
            copies, total = copies + len(found.where), total + found.nbytes * len(found.where)
            homes = [home[key] for key in controller.catalogue.keys_of(one) if key in home]
            there = [nodes.node_of(address) for address in found.where]
            exposed += sum({of} == {*there} for of in homes)
            for node in there:
                kept.setdefault(node, Counter())[homes[0] if homes else ""] += found.nbytes
        return {
            "nodes": [_node(node, own[node], kept.get(node, {})) for node in sorted(nodes)],
            "exposed": exposed,
            "levels": {
                "partner": {"copies": copies, "nbytes": total},
                "disk": {
                    name: sum(agent.get(f"disk_{said}", 0) for agent in agents)
                    for name, said in (("copies", "copies"), ("nbytes", "used"))
                },
            },
        }


def _node(name: str, own: int, kept: Mapping[str, int]) -> dict[str, Any]:
    """``kept`` is by the nodes that hold the results now; "" for what nobody holds: of older versions, or
    lost a moment ago."""
    return {"name": name, "own": own, "kept": dict(kept)}


def _versions(series: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of one checkpoint, the oldest first."""
    levels: dict[int, list[str]] = {}
    for level, step in series["versions"].items():
        levels.setdefault(step, []).append(level)
    complete = series["complete"]
    for step in sorted(levels):
        nbytes = complete["nbytes"] if complete is not None and complete["step"] == step else None
        yield {"name": series["name"], "version": step, "nbytes": nbytes, "levels": levels[step]}
