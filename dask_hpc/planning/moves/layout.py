"""How the blocks of an array lie on nodes.

A layout divides dimensions into parts; each part lies on one node, and a dimension that is not divided is
whole on every one of them. It says nothing of which node has which part: that is for a plan to choose.

The meanings follow the document's schemes (000, 7.4.1), in whole chunks where it does not give a width, since
an array of Dask is cut already and every further cut costs a copy:

* ``block``: runs of whole chunks, as even as whole chunks allow if that is near enough, else cut;
* ``block:w``: runs of ``w`` elements, cut exactly there (its BLOCK with a width);
* ``cyclic``: whole chunks in turn; ``block-cyclic:w``: ``w`` elements in turn (its CYCLIC with a width);
* sizes, as a list: runs of so many elements, which need not be even (its PREDEFINED, by dimension);
* grids by number of nodes, as ``{8: (2, 4), 16: (4, 4)}``: runs along several dimensions, in the grid that
  was given for the nodes that there are (its PREDEFINED, with a mapping of process counts);
* ``replicated``: not divided; every node has all of it;
* a function, which gets all of the data and the nodes and says where each chunk goes (its MANUAL).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, prod
from typing import Any, Literal

from dask_hpc.model.errors import InputError, shown

Kind = Literal["block", "cyclic", "block-cyclic", "sizes", "replicated"]
#: layouts that need no number
_WORDS: tuple[Kind, ...] = ("block", "cyclic", "replicated")
_ALLOWED = "block, block:WIDTH, cyclic, block-cyclic:WIDTH, replicated, or a list of sizes"
_GRIDS = "for a number of nodes the parts of each dimension: {8: (2, 4)}, or by names {8: {'x': 2, 'y': 4}}"
#: of an even share: a chunk's edge so near to where a part should end is taken instead, and nothing is cut
_NEAR = 0.1


@dataclass(frozen=True, slots=True)
class DimLayout:
    """How one dimension is divided."""

    kind: Kind
    #: elements, of ``block`` and ``block-cyclic``; 0: none was given
    width: int = 0
    sizes: tuple[int, ...] = ()

    @classmethod
    def read(cls, found: Any, where: str) -> "DimLayout":
        """From what a person writes."""
        if isinstance(found, DimLayout):
            return found
        if isinstance(found, str):
            kind, colon, width = found.partition(":")
            if kind in ("block", "block-cyclic") and colon:
                if width.isdecimal() and int(width) > 0:
                    return cls("block" if kind == "block" else "block-cyclic", int(width))
                raise InputError(where, f"found the width {shown(width)}", "a whole number, 1 or more")
            for word in _WORDS:
                if found == word:
                    return cls(word)
        elif isinstance(found, Sequence) and found and all(type(size) is int and size >= 0 for size in found):
            return cls("sizes", sizes=tuple(found))
        raise InputError(where, f"found {shown(found)}", _ALLOWED)

    def parts_of(self, edges: Sequence[int], parts: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """New edges of chunks, and the part of each new chunk. ``edges`` are those of the chunks there are,
        from 0 to the length of the dimension."""
        length = edges[-1]
        if self.kind == "cyclic":
            return tuple(edges), tuple(number % parts for number in range(len(edges) - 1))
        if self.kind == "block-cyclic":
            new = (*range(0, length, self.width), length) if length else (0, 0)
            return new, tuple(number % parts for number in range(len(new) - 1))
        ends = self._ends(edges, parts)
        new = tuple(sorted({*edges, *ends})) if length else (0, 0)
        owners, part = [], 0
        for _, end in pairwise(new):
            while part < parts - 1 and end > ends[part]:
                part += 1
            owners.append(part)
        return new, tuple(owners)

    def _ends(self, edges: Sequence[int], parts: int) -> list[int]:
        """Where each part ends."""
        length = edges[-1]
        if self.kind == "sizes":
            if len(self.sizes) != parts or sum(self.sizes) != length:
                found = f"found {len(self.sizes)} sizes of {sum(self.sizes)} elements"
                raise InputError("layout", found, f"{parts} sizes of {length} elements in all")
            return [*accumulate(self.sizes)]
        if self.width:
            if self.width * parts < length:
                least = f"a width of at least {ceil(length / parts)} for {length} elements"
                raise InputError("layout", f"found {parts} parts of {self.width} elements", least)
            return [min(length, self.width * (part + 1)) for part in range(parts)]
        ends = []
        for part in range(1, parts + 1):
            even = part * length / parts
            nearest = min(edges, key=lambda edge: abs(edge - even))
            ends.append(nearest if abs(nearest - even) <= _NEAR * length / parts else round(even))
        return ends


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array is divided: a dimension without a layout of its own is whole in every part."""

    #: by name of the dimension, or its place; "" stands for the one with the most chunks
    dims: tuple[tuple[str | int, DimLayout], ...] = ()
    #: every node has everything
    is_replicated: bool = False
    #: for a number of nodes, the parts of each dimension in ``dims``
    grids: tuple[tuple[int, tuple[int, ...]], ...] = ()
    #: from the data and the names of nodes to the number of the node of each chunk (see ``read_places``)
    by_hand: Callable[[Any, tuple[str, ...]], Any] | None = None

    @classmethod
    def read(cls, found: Any, grids: Mapping[int, Sequence[int]] | None = None) -> "Layout":
        """From what a person writes: one word for the dimension with the most chunks, a mapping of
        dimensions, one of grids by the number of nodes, or a function."""
        if isinstance(found, Layout):
            return found
        if callable(found):
            return cls(by_hand=found)
        if isinstance(found, Mapping) and any(type(key) is int for key in found):
            return _predefined(found)
        if found == "replicated":
            return cls(is_replicated=True)
        if isinstance(found, Mapping):
            if not all(isinstance(name, str) for name in found):
                raise InputError("layout", f"found {shown(found)}", "names of dimensions, and their layouts")
            dims = tuple(
                (name, DimLayout.read(one, f"layout of {shown(name)}")) for name, one in found.items()
            )
            divided = tuple((name, dim) for name, dim in dims if dim.kind != "replicated")
            return cls(divided, not divided, _read_grids(grids, len(divided)))
        return cls((("", DimLayout.read(found, "layout")),), grids=_read_grids(grids, 1))

    def divided(
        self, dims: Sequence[str], edges: Sequence[Sequence[int]]
    ) -> tuple[tuple[int, DimLayout], ...]:
        """The divided dimensions of an array, by their place."""
        found = []
        for name, dim in self.dims:
            if isinstance(name, int):
                if name >= len(dims):
                    unfit = f"found a grid of {len(self.dims)} dimensions"
                    raise InputError("layout", unfit, f"at most {len(dims)}, as the array has")
                place = name
            elif name == "":
                place = max(range(len(dims)), key=lambda place: (len(edges[place]), -place), default=-1)
            elif name in dims:
                place = list(dims).index(name)
            else:
                known = ", ".join(map(str, dims)) or "no dimension"
                raise InputError("layout", f"found the dimension {shown(name)}", known)
            if place >= 0:
                found.append((place, dim))
        return tuple(found)

    def grids_for(self, nodes: int, dims: Sequence[DimLayout]) -> list[tuple[int, ...]]:
        """In how many parts each divided dimension may be cut for so many nodes; any of them will do."""
        if given := dict(self.grids):
            if nodes not in given:
                known = ", ".join(map(str, given))
                raise InputError("layout", f"no grid was given for {nodes} nodes", f"nodes: {known}")
            return [given[nodes]]
        fixed = [(place, len(dim.sizes)) for place, dim in enumerate(dims) if dim.kind == "sizes"]
        return [one for one in _factors(nodes, len(dims)) if all(one[place] == n for place, n in fixed)]


def _predefined(found: Mapping[Any, Any]) -> Layout:
    """Grids for numbers of nodes, all of the same dimensions: given by names, or the first ones."""
    dims: tuple[str | int, ...] = ()
    grids = {}
    for nodes, grid in found.items():
        is_named = isinstance(grid, Mapping)
        fine = is_named or (isinstance(grid, Sequence) and not isinstance(grid, str))
        if type(nodes) is not int or nodes < 1 or not fine or not len(grid):
            raise InputError("layout", f"found {shown(grid)} for {shown(nodes)} nodes", _GRIDS)
        own = tuple(grid) if is_named else tuple(range(len(grid)))
        dims = dims or own
        if set(own) != set(dims):
            raise InputError(
                "layout", f"found grids of {shown(dims)} and of {shown(own)}", "the same dimensions"
            )
        grids[nodes] = [grid[dim] for dim in dims]
    if not all(isinstance(dim, str) for dim in dims) and dims != tuple(range(len(dims))):
        raise InputError("layout", f"found grids of {shown(dims)}", _GRIDS)
    block = DimLayout("block")
    return Layout(tuple((dim, block) for dim in dims), grids=_read_grids(grids, len(dims)))


def _read_grids(
    found: Mapping[int, Sequence[int]] | None, dims: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    grids = []
    for nodes, grid in (found or {}).items():
        are_parts = len(grid) == dims and all(type(parts) is int and parts >= 1 for parts in grid)
        if not are_parts or prod(grid) != nodes:
            unfit = f"found the grid {shown(tuple(grid))} for {nodes} nodes"
            raise InputError("layout", unfit, f"{dims} whole numbers that make {nodes}")
        grids.append((nodes, tuple(grid)))
    return tuple(grids)


def _factors(number: int, dims: int) -> list[tuple[int, ...]]:
    """All ways to write it as a product of so many factors."""
    if dims <= 1:
        return [(number,)] if dims else [()]
    return [
        (first, *rest)
        for first in range(1, number + 1)
        if number % first == 0
        for rest in _factors(number // first, dims - 1)
    ]
