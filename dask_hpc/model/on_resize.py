"""What becomes of a value that all nodes have when their number changes.

The attributes of replicated data of 000, 7.4.1: CONSTANT, SIZE, RANK, DEFAULT, DEFAULT with JOINING, and
VOLATILE. RECALC, which it only names, is left out.
"""

from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dask_hpc.model.errors import InputError, shown

Rule = Literal["constant", "size", "rank", "default", "joining", "volatile"]
_ALLOWED = "constant, size, rank, default:VALUE, joining:VALUE, or a function of the number of nodes"
_RULES: tuple[Rule, ...] = ("constant", "size", "rank")
_VALUED: tuple[Rule, ...] = ("default", "joining")


@dataclass(frozen=True, slots=True)
class OnResize:
    """What becomes of a value that all nodes have when their number changes."""

    rule: Rule = "constant"
    #: of ``default`` and ``joining``
    value: Any = None
    #: of ``volatile``: from the new number of nodes to the value
    call: Callable[[int], Any] | None = None

    @classmethod
    def read(cls, found: Any, where: str = "on_resize") -> "OnResize":
        """From what a person writes."""
        if isinstance(found, OnResize):
            return found
        if callable(found):
            return cls("volatile", call=found)
        if isinstance(found, str):
            word, colon, text = found.partition(":")
            for rule in _VALUED if colon else _RULES:
                if word == rule:
                    return cls(rule, _literal(text) if colon else None)
        raise InputError(where, f"found {shown(found)}", _ALLOWED)

    def values(self, stored: Any, before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
        """The value of each node that there is after, from the one that was stored."""
        match self.rule:
            case "size":
                return dict.fromkeys(after, len(after))
            case "rank":
                return {node: rank for rank, node in enumerate(after)}
            case "default":
                return dict.fromkeys(after, self.value)
            case "joining":
                stayed = set(before)
                return {node: stored if node in stayed else self.value for node in after}
            case "volatile":
                assert self.call is not None
                return dict.fromkeys(after, self.call(len(after)))
        return dict.fromkeys(after, stored)

    def value_of_all(self, stored: Any, before: Sequence[str], after: Sequence[str]) -> Any:
        """For a program that has one value for all nodes: that, or what each node has if they differ."""
        found = self.values(stored, before, after)
        if self.rule in ("rank", "joining") and set(before) != set(after):
            return found
        if self.rule == "rank":
            return stored
        return next(iter(found.values()), stored)


def _literal(text: str) -> Any:
    """A number, text in quotes or a container of these; other text is itself."""
    try:
        return literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
