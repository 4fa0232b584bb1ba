"""Amounts that depend on the number of nodes, and the named arguments they are written with.

Everything here is a small frozen object that can be called, compared and pickled, so that workloads can
be sent to other processes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.application import Amount
from dask_hpc.simulator.expression import Expression

#: named arguments of one job
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same amount on any number of nodes."""

    value: float

    def __call__(self, nodes: int) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Split:
    """A total, shared evenly by the nodes."""

    total: float

    def __call__(self, nodes: int) -> float:
        return self.total / nodes


@dataclass(frozen=True, slots=True)
class BySize:
    """An expression in the number of nodes, evaluated once per size."""

    expression: Expression
    size: str
    constants: tuple[tuple[str, float], ...] = ()
    #: arguments that themselves depend on the size, each after those it needs
    varying: tuple[tuple[str, Expression], ...] = ()
    _known: dict[int, float] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __call__(self, nodes: int) -> float:
        known = self._known.get(nodes)
        if known is not None:
            return known
        values: dict[str, float] = {**dict(self.constants), self.size: nodes}
        for name, expression in self.varying:
            values[name] = expression.at(values)
        result = self._known[nodes] = self.expression.at(values)
        return result


class Arguments:
    """Named numbers and expressions that may use each other and ``size``, the number of nodes."""

    __slots__ = ("_constants", "_needs", "_varying", "size")

    def __init__(self, found: Mapping[str, Expression], size: str) -> None:
        self.size = size
        if len(found) > _MOST:
            raise InputError("", f"{len(found):,} arguments", f"at most {_MOST:,}")
        if size in found:
            raise InputError(size, "is the number of nodes and cannot be defined", "another name")
        for name, expression in found.items():
            self._check(expression, {*found, size}, name)
        self._constants: dict[str, float] = {}
        self._varying: dict[str, Expression] = {}
        self._needs: dict[str, frozenset[str]] = {}
        for name in _in_order(found):
            expression = found[name]
            needs = frozenset().union(expression.names, *(self._needs.get(n, ()) for n in expression.names))
            self._needs[name] = needs
            if size in needs:
                self._varying[name] = expression
            else:
                self._constants[name] = _about(name, expression, self._constants)

    def bind(self, expression: Expression, *, sizes: bool = True) -> Amount:
        """The expression with these arguments; without ``sizes`` it must not depend on the nodes."""
        known = {*self._needs, self.size} if sizes else set(self._constants)
        self._check(expression, known, "")
        needs = frozenset().union(expression.names, *(self._needs.get(n, ()) for n in expression.names))
        if self.size not in needs:
            return Fixed(expression.at(self._constants))
        constants = tuple((name, value) for name, value in self._constants.items() if name in needs)
        varying = tuple((name, other) for name, other in self._varying.items() if name in needs)
        return BySize(expression, self.size, constants, varying)

    def _check(self, expression: Expression, known: Collection[str], where: str) -> None:
        for name in sorted(expression.names):
            if name not in known:
                raise InputError(
                    where,
                    f"unknown name {shown(name)} in {shown(expression.text)}{nearest(name, known)}",
                    ", ".join(sorted(known)) or "numbers only",
                )


def _about(name: str, expression: Expression, values: Mapping[str, float]) -> float:
    try:
        return expression.at(values)
    except InputError as error:
        raise error.at(name) from None


def _in_order(found: Mapping[str, Expression]) -> Iterable[str]:
    """Each name after those it needs; a definition that needs itself is named. Chains may be long, so this
    does not recurse."""
    done: dict[str, None] = {}
    for start in found:
        path: dict[str, Any] = {}
        if start in done:
            continue
        path[start] = iter(sorted(found[start].names))
        while path:
            name, needs = next(reversed(path.items()))
            need = next(needs, None)
            if need is None:
                done[name] = None
                del path[name]
            elif need in path:
                names = [*path]
                circle = " -> ".join([*names[names.index(need) :], need])
                raise InputError(need, f"is defined by itself: {circle}", "no circles")
            elif need in found and need not in done:
                path[need] = iter(sorted(found[need].names))
    return done
