"""Which unit is where in an allocation: a pure account of nodes, their parts, and who may use them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple

from dask_hpc.model.errors import InputError
from dask_hpc.model.units import count_nodes, show_duration
from dask_hpc.planning.allocation import AllocatedNode

#: Dask's; nothing new starts there, as it is about to be lent; the other program's; no more used
Use = Literal["dask", "leaving", "beside", "out"]

_PROVEN = 30.0  # seconds after which a unit that ends is no sign of a bad node
_FIRST_REST, _LONGEST_REST = 2.0, 600.0  # seconds that a node is left alone after a failure
_HOPELESS = 4  # failures in a row after which it is not used again


class UnitPlace(NamedTuple):
    """A part of a node."""

    node: AllocatedNode
    part: int


@dataclass
class _Node:
    node: AllocatedNode
    use: Use = "dask"
    taken: dict[int, Any] = field(default_factory=dict)
    failures: int = 0
    rests_until: float = -inf
    why: str = ""


class UnitPlaces:
    """The nodes of an allocation, each of so many ``parts``; a unit takes one part. The last ``keep`` nodes
    are for a program that runs beside. Times are of any clock that only goes forward."""

    def __init__(self, nodes: Iterable[AllocatedNode], parts: int = 1, keep: int = 0) -> None:
        self._parts = parts
        self._nodes = {node.name: _Node(node) for node in nodes}
        for name in list(self._nodes)[len(self._nodes) - keep :]:
            self._nodes[name].use = "beside"

    def names(self, *uses: Use) -> list[str]:
        """Names of the nodes that are used so, in the order of the allocation."""
        return [name for name, one in self._nodes.items() if one.use in uses]

    def node(self, name: str) -> AllocatedNode:
        """What a node gives."""
        return self._nodes[name].node

    def units(self, name: str) -> list[Any]:
        """Who is on a node."""
        return list(self._nodes[name].taken.values())

    def why_out(self) -> dict[str, str]:
        """The nodes that are not used any more, and why."""
        return {name: one.why for name, one in self._nodes.items() if one.use == "out"}

    @property
    def size(self) -> int:
        """How many units have a place on Dask's nodes."""
        return self._parts * len(self.names("dask"))

    def table(self) -> list[tuple[str, str, str]]:
        """For a person: node, use, who is there or why nobody is."""
        words = {"dask": "Dask", "leaving": "Dask, leaving", "beside": "beside", "out": "not used"}
        return [
            (name, words[one.use], one.why or ", ".join(map(str, one.taken.values())))
            for name, one in self._nodes.items()
        ]

    # units

    def take(self, who: Any, now: float) -> UnitPlace | None:
        """A place for this unit, on the node of Dask's with the fewest units; None if all are taken."""
        fit = [
            one
            for one in self._nodes.values()
            if one.use == "dask" and one.rests_until <= now and len(one.taken) < self._parts
        ]
        if not fit:
            return None
        one = min(fit, key=lambda one: (one.failures > 0, len(one.taken)))
        part = next(part for part in range(self._parts) if part not in one.taken)
        one.taken[part] = who
        return UnitPlace(one.node, part)

    def give(self, who: Any) -> None:
        """This unit has left its place."""
        for one in self._nodes.values():
            one.taken = {part: unit for part, unit in one.taken.items() if unit != who}

    def why_none(self, now: float) -> str:
        """Why there is no place, in words."""
        dask = [one for one in self._nodes.values() if one.use == "dask"]
        if not dask:
            out = self.why_out()
            told = "; ".join(f"{name}: {why}" for name, why in out.items())
            return f"no node is left: {told}" if out else "all nodes are lent"
        if resting := [one for one in dask if one.rests_until > now]:
            longest = min(one.rests_until for one in resting) - now
            return f"{count_nodes(len(resting))} failed and is tried again in {show_duration(longest)}"
        return "every node has its units"

    def ended(self, name: str, lived: float, now: float, why: str) -> str:
        """A unit there ended unasked after so many seconds. Says what that means for the node, if anything:
        it rests, each time twice as long, and is given up when units there die again and again."""
        one = self._nodes[name]
        if lived >= _PROVEN:
            one.failures = 0
            return ""
        one.failures += 1
        if one.failures >= _HOPELESS:
            return self.lose(name, f"{one.failures} units in a row have died there, the last one: {why}")
        rest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (one.failures - 1))
        one.rests_until = now + rest
        return f"{name} rests for {show_duration(rest)}"

    # nodes

    def add(self, nodes: Iterable[AllocatedNode]) -> list[str]:
        """More nodes for Dask. Those that are new."""
        new = {node.name: _Node(node) for node in nodes if node.name not in self._nodes}
        self._nodes |= new
        return list(new)

    def lose(self, name: str, why: str) -> str:
        """This node is not used again. In words."""
        one = self._nodes[name]
        one.use, one.why = "out", why
        return f"{name} is not used any more: {why}"

    def hold(self, name: str) -> None:
        """Nothing new starts there: its units are to leave."""
        self._change(name, "dask", "leaving")

    def settle(self, name: str) -> bool:
        """Whether all units have left a node that was held, which is then the other program's; else it is
        Dask's again."""
        is_empty = not self._nodes[name].taken
        self._change(name, "leaving", "beside" if is_empty else "dask")
        return is_empty

    def regain(self, name: str) -> None:
        """The other program gave it back."""
        self._change(name, "beside", "dask")

    def _change(self, name: str, before: Use, after: Use) -> None:
        one = self._nodes[name]
        if one.use == "out":  # it was lost meanwhile
            return
        if one.use != before:
            raise InputError(name, f"it is {one.use}", before)
        one.use = after
