"""What producers and consumers of a stream have agreed on: its blocks, and what slow consumers mean."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from math import inf, prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity

#: what may be done with a step for which there is no room: see ``Bridge``
WHEN_SLOW = ("wait", "skip", "subsample", "spill")
MOST_STEPS = 10_000
_MOST_BLOCKS = 10_000_000
_LONGEST = 100  # characters of a name


@dataclass(frozen=True)
class StreamGrid:
    """The declaration of a stream. All its variables have this shape. Plain data in every field, so it can be
    sent and compared."""

    shape: tuple[int, ...]
    chunks: tuple[tuple[int, ...], ...]
    dtype: str
    dims: tuple[str, ...]
    most_steps: int
    when_slow: str
    lost_after: float
    job: str

    @classmethod
    def declare(
        cls,
        shape: Any,
        chunks: Any,
        dtype: Any = "float64",
        dims: Any = None,
        most_steps: Any = 2,
        when_slow: Any = "wait",
        lost_after: Any = "60s",
        job: Any = "",
    ) -> "StreamGrid":
        """From what a person may write. Raises ``InputError``."""
        given, shape = shape, _integers(shape)
        if not shape or min(shape) < 1:
            _refuse("shape", given, "whole numbers >= 1, one for each axis")
        names = tuple(f"dim_{i}" for i in range(len(shape))) if dims is None else dims
        is_fine = isinstance(names, Sequence) and not isinstance(names, str)
        if not is_fine or {type(one) for one in names} != {str} or len(set(names)) != len(shape):
            _refuse("dims", dims, f"{len(shape)} different names")
        if type(most_steps) is not int or not 1 <= most_steps <= MOST_STEPS:
            _refuse("most_steps", most_steps, f"a whole number from 1 to {MOST_STEPS:,}")
        if not isinstance(when_slow, str) or when_slow not in WHEN_SLOW:
            _refuse("when_slow", when_slow, ", ".join(WHEN_SLOW))
        if job:
            check_name("bridge: job", job)
        late = seconds("lost_after", lost_after)
        chunks, dtype = _chunks(shape, chunks), _dtype(dtype)
        return cls(shape, chunks, dtype, tuple(names), most_steps, when_slow, late, job or "")

    @classmethod
    def read(cls, plain: object) -> "StreamGrid":
        """From what came over the wire. Raises ``InputError``."""
        known = {field.name for field in fields(cls)}
        if not isinstance(plain, Mapping) or set(plain) != known:
            raise InputError("bridge", f"found {shown(plain)}", "what dask_hpc.Bridge makes")
        return cls.declare(**plain)

    def as_plain(self) -> dict[str, Any]:
        return asdict(self)

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        return tuple(len(sizes) for sizes in self.chunks)

    def __len__(self) -> int:
        return prod(self.blocks)

    def indices(self) -> Iterator[tuple[int, ...]]:
        """The index of every block, neighbours along the last axis beside each other."""
        return product(*(range(count) for count in self.blocks))

    def block_shape(self, index: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sizes[i] for sizes, i in zip(self.chunks, index, strict=True))

    def read_index(self, index: Any) -> tuple[int, ...]:
        """The index of a block; a bare number if there is one axis. Raises ``InputError``."""
        read = _integers(index)
        if len(read) != len(self.blocks) or not all(map(range.__contains__, map(range, self.blocks), read)):
            _refuse("index", index, f"the index of a block of {self.blocks}")
        return read

    def place(self, index: tuple[int, ...], workers: Sequence[str]) -> str:
        """The worker that a block goes to: neighbours together, all workers equally used, and the same
        worker at every step while the workers are the same."""
        position = int(np.ravel_multi_index(index, self.blocks)) if self.blocks else 0
        return workers[position * len(workers) // len(self)]

    def expected(self, workers: Sequence[str]) -> dict[str, int]:
        """How many blocks of one variable and step go to each worker."""
        # The first position of worker w is the smallest p with p * W // N == w.
        many, count = len(workers), len(self)
        starts = [-(-w * count // many) for w in range(many + 1)]
        return {worker: starts[w + 1] - starts[w] for w, worker in enumerate(workers)}


def check_name(where: str, name: object) -> str:
    """The name of a stream, a variable or a job. Raises ``InputError``."""
    if not isinstance(name, str) or not name or len(name) > _LONGEST or "/" in name or not name.isprintable():
        raise InputError(where, f"found {shown(name)}", f"1 to {_LONGEST} printable characters without /")
    return name


def check_step(step: object) -> int:
    """The number of a step. Raises ``InputError``."""
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step < 2**53:
        _refuse("step", step, "a whole number >= 0")
    return int(step)


def seconds(name: str, value: Any) -> float:
    """A time a person wrote; "none" is for ever. Raises ``InputError``."""
    if isinstance(value, str) and value.strip().lower() == "none":
        return inf
    try:
        found = parse_quantity(value, "s")
    except InputError as error:
        raise error.at(f"bridge: {name}") from None
    if not found >= 0:
        _refuse(name, value, 'a time >= 0 s, or "none"')
    return found


def _refuse(what: str, given: object, allowed: str) -> NoReturn:
    raise InputError(f"bridge: {what}", f"found {shown(given)}", allowed)


def _integers(given: Any) -> tuple[int, ...]:
    """Several, or a single one; none if that is anything else."""
    found = (given,) if isinstance(given, int | np.integer) else given
    try:
        read = tuple(map(int, found))
        return read if all(a == b for a, b in zip(read, found, strict=True)) else ()
    except (TypeError, ValueError):
        return ()


def _chunks(shape: tuple[int, ...], given: Any) -> tuple[tuple[int, ...], ...]:
    """The sizes of the blocks along each axis: one size for all, or each."""
    found = (given,) * len(shape) if isinstance(given, int | np.integer) else given
    allowed = f"for each axis of {shape} the size of its blocks, or their sizes with the right sum"
    if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != len(shape):
        _refuse("chunks", given, allowed)
    chunks = []
    for length, sizes in zip(shape, found, strict=True):
        read = _integers(sizes)
        if len(read) == 1 and 0 < read[0] < length:
            whole, rest = divmod(length, read[0])
            read = () if whole > _MOST_BLOCKS else (read[0],) * whole + ((rest,) if rest else ())
        if sum(read) != length or min(read) < 1:
            _refuse("chunks", given, allowed)
        chunks.append(read)
    if prod(map(len, chunks)) > _MOST_BLOCKS:
        _refuse("chunks", given, f"at most {_MOST_BLOCKS:,} blocks")
    return tuple(chunks)


def _dtype(given: Any) -> str:
    try:
        found = np.dtype(given)
    except TypeError:
        found = None
    if found is None or found.hasobject or found.fields or found.subdtype:
        _refuse("dtype", given, "a NumPy dtype of plain numbers")
    return str(found.str)


def stride_before(step: int, strides: Iterable[Sequence[int]]) -> int:
    """Around this step, every so many steps come. ``strides``: after which step, every how many."""
    return next((stride for since, stride in reversed([*strides]) if since < step), 1)


_PREFIX = "external-"


class Asked(NamedTuple):
    """A block that a task waits for."""

    stream: str
    variable: str
    step: int
    block: tuple[int, ...]


def layer_name(stream: str, variable: str, step: int) -> str:
    """The name of the array of one variable at one step; Dask calls the kind of its tasks "external"."""
    return f"{_PREFIX}{stream}/{variable}/{step}"


def key_of(asked: Asked) -> tuple[Any, ...]:
    return (layer_name(asked.stream, asked.variable, asked.step), *asked.block)


def is_external(key: Any) -> bool:
    """Whether a task of that key takes a block that comes from outside."""
    return type(key) is tuple and type(key[0]) is str and key[0].startswith(_PREFIX)


def asked_by(key: Any) -> Asked | None:
    """The block that a task of that key takes, if it takes one."""
    if not is_external(key):
        return None
    parts = key[0].removeprefix(_PREFIX).rsplit("/", 2)
    if len(parts) != 3 or not parts[2].isdecimal() or not all(type(i) is int for i in key[1:]):
        return None
    return Asked(parts[0], parts[1], int(parts[2]), tuple(key[1:]))
