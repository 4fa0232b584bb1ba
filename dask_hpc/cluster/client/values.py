"""``job.values``: what a program keeps while the number of its nodes changes, and what becomes of it then.

Two kinds, as in 000, 7.4.1. Plain values are replicated: each node has one, and a rule says what it is after
a change. Arrays are distributed: a layout says how they lie on the nodes that there are. Where the document
asks programs to commit right before a change, or old values are laid out (7.4.3), here the newest are: a
program sets them in each iteration, and what is set while an array is being laid out is laid out instead.
"""

import asyncio
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from dask import is_dask_collection
from distributed import Client

from dask_hpc import services
from dask_hpc.model.adaptation import Adaptation
from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.on_resize import OnResize
from dask_hpc.model.units import show_duration

_TRIES = 3  # to lay out an array that the program replaces meanwhile
#: rules by which nodes have different values
_BY_NODE = ("rank", "joining")


class JobValues(MutableMapping[str, Any]):
    """Values by label. They may be read and set on any thread."""

    def __init__(self, begin: Callable[[], None] = lambda: None) -> None:
        self._begin = begin
        self._values: dict[str, Any] = {}
        self._rules: dict[str, OnResize] = {}
        #: of arrays
        self._layouts: dict[str, Any] = {}
        #: the nodes of the job, if it has any
        self._nodes: tuple[str, ...] = ()
        self._is_new = True

    def __repr__(self) -> str:
        return f"<values of a job: {', '.join(self._values) or 'none'}>"

    def add(self, label: str, value: Any, on_resize: Any = "constant", layout: Any = None) -> Any:
        """Keep a value from now on; gives it back. Adding it again replaces it, and what was said of it.

        Of a plain value ``on_resize`` says what it is when the number of nodes changes:

        * ``"constant"``: what it was;
        * ``"size"``: the number of nodes;
        * ``"rank"``: by node, its place in the allotment: ``{"node-1": 0, "node-2": 1}``;
        * ``"default:VALUE"``: that value, after every change;
        * ``"joining:VALUE"``: by node, that value for nodes that join, and what they had for those that stay;
        * a function of the number of nodes: what it gives.

        ``size``, ``rank`` and the function count from the start of the job on.

        An array (dask or xarray, see ``redistribute``) is laid out on the job's nodes at every change, as
        ``layout`` says (default: "block"): ``values[label]`` is it as it lies now. What the policy takes
        nodes away for waits for that, up to half of the window.
        """
        fine = isinstance(label, str) and label.isprintable() and 0 < len(label) <= 200
        insist(fine, "label", label, "a word of at most 200 characters")
        rule = OnResize.read(on_resize, f"value {label}: on_resize")
        is_array = _is_array(value, layout, label)
        if is_array and rule.rule != "constant":
            raise InputError(f"value {label}: on_resize", f"found {shown(on_resize)} for an array", "layout")
        self._layouts.pop(label, None)
        if is_array:
            self._layouts[label] = "block" if layout is None else layout
        self._rules[label] = rule
        self._values[label] = value
        if self._nodes and not is_array:
            self._values[label] = _next(rule, value, (), self._nodes, is_new=True)
        self._begin()
        return self._values[label]

    def __getitem__(self, label: str) -> Any:
        return self._values[label]

    def __setitem__(self, label: str, value: Any) -> None:
        """Another value, of which holds what was said of the first. All nodes have it."""
        if label in self._rules:
            self._values[label] = value
        else:
            self.add(label, value)

    def __delitem__(self, label: str) -> None:
        del self._values[label], self._rules[label]
        self._layouts.pop(label, None)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)

    # what the job does

    def renew(self) -> None:
        """Another job begins."""
        self._nodes, self._is_new = (), True

    def follow(self, change: Adaptation) -> list[str]:
        """Plain values are as they have to be from now on. Gives what went wrong, in words."""
        problems = []
        if not change.nodes:
            self._nodes = ()
            return []
        for label, rule in list(self._rules.items()):
            if label in self._layouts:
                continue
            try:
                old = self._values[label]
                self._values[label] = _next(rule, old, tuple(change.staying), change.nodes, self._is_new)
            except Exception as error:  # of a function of the user's
                problems.append(f"{label} stays as it was: {type(error).__name__}: {error}")
        self._nodes, self._is_new = change.nodes, False
        return problems

    async def lay_out(
        self, change: Adaptation, seconds: float | None, placed: list[str], client: Client
    ) -> list[str]:
        """Arrays lie as they have to from now on, if that takes no longer. Gives what went wrong, in words;
        ``placed`` gets the names of the arrays that lie so."""
        problems = []
        room = services.redistribution()
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        for label, layout in list(self._layouts.items()) if change.nodes else []:
            try:
                async with asyncio.timeout_at(until):
                    for _ in range(_TRIES):
                        old = self._values[label]
                        new, names = await room.lay_out_on(old, change.workers, layout, client)
                        if self._values[label] is old:
                            self._values[label] = new
                            placed += names
                            break
            except TimeoutError:
                took = show_duration(seconds or 0.0)
                problems.append(f"{label} is not laid out in half of the window, {took}")
            except Exception as error:  # no grid for that many nodes, results that are lost ...
                problems.append(f"{label} stays as it lies: {error}")
        return problems


def _is_array(value: Any, layout: Any, label: str) -> bool:
    """Whether a value is to be laid out. Raises ``InputError`` if it cannot, and somebody wants it."""
    if layout is None and not is_dask_collection(value):
        return False
    room = services.redistribution()
    if room is None:
        insist(layout is None, f"value {label}: layout", layout, "none, without the package that lays out")
        return False
    try:
        room.check(value)
    except InputError as error:
        if layout is not None:
            raise error.at(f"value {label}") from None
        return False
    room.read_layout(layout if layout is not None else "block", f"value {label}")
    return True


def _next(rule: OnResize, value: Any, staying: tuple[str, ...], nodes: tuple[str, ...], is_new: bool) -> Any:
    """What a value is on these nodes. ``is_new``: they are the first that it has."""
    if is_new and rule.rule in ("default", "joining"):
        found = dict.fromkeys(nodes, value)
    else:
        found = rule.values(value, staying, nodes)
    if rule.rule == "joining" and isinstance(value, dict):  # those that stay have what they had, each its own
        found |= {node: value[node] for node in staying if node in value}
    return found if rule.rule in _BY_NODE else next(iter(found.values()))
