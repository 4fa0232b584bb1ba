"""An analysis as the user declares it: a function of the whole state, or of each block with a combine."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypedDict, Unpack

import xarray as xr

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.in_situ.back_pressure import SlowWish, read_wish
from dask_hpc.planning.in_situ.partition import Analysis


@dataclass(frozen=True)
class InSituAnalysis:
    """What is done with iterations of a state. Made by ``InSituPipeline.whole`` and ``.per_block``."""

    function: Callable[[xr.Dataset], Any]
    per_block: bool = False
    #: of the results of all blocks, in order; None: their list is the result
    combine: Callable[[list[Any]], Any] | None = None
    #: all that it sees, and all that is moved for it; None: everything
    variables: tuple[Hashable, ...] | None = None
    #: of so many iterations, one is analysed
    every: int = 1
    #: the result stays on the cluster: a future
    keep: bool = False
    #: what is done when it does not keep up
    slow: SlowWish = field(default_factory=SlowWish)
    #: seconds on one core and bytes at its peak, until they are measured; 0: not known
    time: float = 0.0
    memory: float = 0.0

    def declared(self, name: str) -> Analysis:
        """As the planner knows it before it was measured: what sees the whole state does not spread."""
        is_serial = self.time > 0 and not self.per_block
        return Analysis(name=name, time=self.time, memory=self.memory, serial=float(is_serial))


class AnalysisWishes(TypedDict, total=False):
    """What may be said of an analysis: see ``InSituPipeline.whole``."""

    variables: Any
    every: int
    keep: bool
    when_slow: str | None
    stall: float | str | None
    time: float | str | None
    memory: float | str | None


def make_analysis(
    function: Any, *, per_block: bool = False, combine: Any = None, **wishes: Unpack[AnalysisWishes]
) -> InSituAnalysis:
    """A declaration, checked as far as it can be without a state. Raises ``InputError``."""
    if unknown := wishes.keys() - AnalysisWishes.__annotations__.keys():
        raise TypeError(f"an analysis has no {', '.join(sorted(unknown))}")
    if not callable(function):
        raise InputError("analysis", f"found {shown(function)}", "a function of a Dataset")
    if combine is not None and not callable(combine):
        raise InputError("combine", f"found {shown(combine)}", "a function of the list of results by block")
    every, variables = wishes.get("every", 1), wishes.get("variables")
    if type(every) is not int or every < 1:
        raise InputError("every", f"found {shown(every)}", "a whole number from 1")
    if variables is not None:
        if not isinstance(variables, Iterable):
            raise InputError("variables", f"found {shown(variables)}", "a list of names")
        variables = {variables} if isinstance(variables, str) else set(variables)
        variables = tuple(sorted(variables, key=str))
    return InSituAnalysis(
        function,
        per_block,
        combine,
        variables,
        every,
        keep=bool(wishes.get("keep")),
        slow=read_wish(wishes.get("when_slow"), wishes.get("stall")),
        time=_cost("time", wishes.get("time"), "s", "20 ms"),
        memory=_cost("memory", wishes.get("memory"), "B", "2 GiB"),
    )


def _cost(name: str, given: Any, unit: str, example: str) -> float:
    if given is None:
        return 0.0
    try:
        found = parse_quantity(given, unit)
    except InputError as error:
        raise error.at(name) from None
    if not 0 <= found < inf:
        raise InputError(name, f"found {shown(given)}", f'0 or more, such as "{example}"')
    return found


def read_analyses(given: Any, state: xr.Dataset) -> dict[str, InSituAnalysis]:
    """The analyses of a pipeline by name. Raises ``InputError``."""
    if not isinstance(given, Mapping):
        raise InputError("analyses", f"found {shown(given)}", "functions by name")
    found = {}
    for name, one in given.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise InputError("analyses", f"found the name {shown(name)}", "words")
        try:
            one = one if isinstance(one, InSituAnalysis) else make_analysis(one)
        except InputError as error:
            raise error.at(f"analyses: {name}") from None
        for variable in one.variables or ():
            if variable not in state.variables:
                known = ", ".join(map(str, state.variables))
                raise InputError(f"analyses: {name}: variables", f"found {shown(variable)}", known)
        found[name] = one
    return found
