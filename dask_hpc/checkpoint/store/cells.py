"""One block of an item as one file of a store, and back.

A chunk of an array becomes a cell of a Zarr array: its elements in C order, filled up with zeros to the size
of a whole cell. Text of any length and dates of other calendars are cells as Zarr and xarray know them. All
else is a described value (``value.encode``), with its description as the first frame.

A spec says what a block is to be, as plain data, since it travels to workers:

* ``file``: its path in the folder of the version, or how that begins;
* ``where``: what to call it in front of a person;
* ``form``: ``cell``; ``objects``, for elements that may be text or dates; ``value`` for all else;
* ``dtype``, ``shape``, ``cell``: of an array's chunk, the last one with the filling;
* ``compress``: ``always`` or ``never``, the same for all cells of an array, as Zarr's metadata says it once;
* ``old``: the same block in an older version, if there is one: its ``version`` and the fields of its
  ``StoredBlock``. If the contents are the same, its file gets a second name.

What is written is told as the fields of a ``StoredBlock``; its note also has the form that it really got, and
the type of what had to be pickled.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

import numpy as np

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.files import Files, Missing
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, WrongKey, pays, seal, unseal
from dask_hpc.checkpoint.store.value import Opaque, Unknown, decode, encode, is_opaque

#: forms of blocks
CELL, OBJECTS, TEXT, TIMES, VALUE = "cell", "objects", "text", "times", "value"
#: forms that Zarr can read
READABLE = (CELL, TEXT, TIMES)
EPOCH = "microseconds since 1970-01-01"

Spec = Mapping[str, Any]


def opened(
    body: Any, name: str, where: str, spec: Spec, note: Mapping[str, Any], key: Key | None, may_unpickle: bool
) -> Any:
    """The value in the bytes of a block."""
    try:
        return unframed(spec, note, unseal(body, name, dict(note), key), may_unpickle)
    except Damaged as error:
        detail = str(error).removeprefix(f"{name} ").removeprefix(f"{name}: ")
        raise Damaged(f"{where} {detail}") from None
    except Opaque as error:
        raise Opaque(f"{where} is a pickled {error}; unpickle=True allows it to run things") from None
    except WrongKey as error:
        raise WrongKey(f"{where}: {str(error).removeprefix(f'{name} ')}") from None
    except (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, MemoryError) as error:
        raise Damaged(f"{where} is not what was stored ({type(error).__name__}: {error})") from None


def folder_of(name: str, version: int) -> str:
    return f"{name}/{version:08}"


@dataclass(frozen=True)
class Writer:
    """Writes the blocks of one version: what is sent to the workers that have them."""

    root: str
    name: str
    version: int
    services: Services

    def __call__(self, spec: Spec, value: Any) -> dict[str, Any]:
        """The fields of a ``StoredBlock``: it is written, or keeps the file of an older version."""
        files, services, file = Files(self.root), self.services, spec["file"]
        frames, told = framed(spec, value)
        if services.key is None and spec["form"] != VALUE:
            services = replace(services, compress=spec.get("compress", "never"))
        content = services.name_of(frames)
        if told["form"] == VALUE or services.key is not None:
            # Written again by somebody else, the same value may have other bytes: that is another file then.
            file = f"{file}-{token_hex(4)}"
        target = f"{folder_of(self.name, self.version)}/{file}"
        old = spec.get("old")
        if old is not None and _is_same(old, content, told, services):
            with suppress(Missing):  # pruned meanwhile
                files.same(f"{folder_of(self.name, old['version'])}/{old['file']}", target)
                return {"file": file, **{key: old[key] for key in ("nbytes", "content", "note")}}
        sealed = seal(frames, f"{self.name}/{content}", services)
        files.write(target, sealed.frames)
        nbytes = sum(memoryview(frame).nbytes for frame in frames)
        return {"file": file, "nbytes": nbytes, "content": content, "note": sealed.note | told}


@dataclass(frozen=True)
class Sampler:
    """Says whether it pays to compress an array, by one of its chunks; one that did not change stays as it
    was stored."""

    services: Services

    def __call__(self, spec: Spec, value: Any) -> bool:
        frames, told = framed(spec, value)
        if told["form"] == VALUE:
            return False
        old = spec.get("old")
        was = None if old is None else "codec" in old["note"]
        if old is not None and old["content"] == self.services.name_of(frames):
            return bool(was)
        return pays(frames, self.services, was)


@dataclass(frozen=True)
class Reader:
    """Reads blocks of one version: what is sent to the workers that are to have them.

    What is wanted is either one block, ``{"spec": ..., "block": ...}``, or a chunk that is made of parts of
    several: ``{"shape": ..., "dtype": ..., "pieces": [(wanted, from where in it, to where), ...]}``. Ranges
    are pairs of numbers for each dimension.
    """

    root: str
    name: str
    version: int
    key: Key | None = None
    may_unpickle: bool = False

    def __call__(self, wanted: Mapping[str, Any]) -> Any:
        """Raises ``Missing``, ``Damaged``, ``WrongKey`` or ``Opaque``."""
        if "pieces" not in wanted:
            return self._block(wanted["spec"], wanted["block"])
        found: Any = None
        for one, source, target in wanted["pieces"]:
            part = self(one)[_slices(source)]
            if found is None:
                found = np.empty(wanted["shape"], part.dtype)
            found[_slices(target)] = part
        return found

    def _block(self, spec: Spec, block: Mapping[str, Any]) -> Any:
        reach("load-begun")
        where = f"{self.name} version {self.version}: {spec.get('where', 'a block')}"
        try:
            body = Files(self.root).load(f"{folder_of(self.name, self.version)}/{block['file']}")
        except Missing:
            raise Missing(2, f"{where} is missing") from None
        reach("load-read")
        name = f"{self.name}/{block['content']}"
        return opened(body, name, where, spec, block["note"], self.key, self.may_unpickle)

    def check(self, wanted: Mapping[str, Any]) -> str:
        """What is wrong with a block, or nothing."""
        try:
            self(wanted)
        except (Damaged, Missing) as error:
            return str(error)
        except Opaque:
            pass
        return ""


def _slices(ranges: Sequence[Sequence[int]]) -> tuple[slice, ...]:
    return tuple(slice(begin, end) for begin, end in ranges)


def framed(spec: Spec, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """A value as frames, and what else has to be noted."""
    array = _plain(value)
    if array is not None and spec["form"] == CELL:
        dtype = np.dtype(spec["dtype"])
        if array.dtype.newbyteorder("=") == dtype.newbyteorder("=") and array.shape == tuple(spec["shape"]):
            return [_flat(_filled(array.astype(dtype, copy=False), spec["cell"]))], {"form": CELL}
    elif array is not None and spec["form"] == OBJECTS and array.shape == tuple(spec["shape"]):
        found = _text(array, spec["cell"]) or _times(array, spec["cell"])
        if found:
            return found
    encoded = encode(value)
    told = {"form": VALUE} | ({"opaque": encoded.head["type"]} if is_opaque(encoded.head) else {})
    return [json.dumps(encoded.head).encode(), *encoded.frames], told


def unframed(spec: Spec, note: Mapping[str, Any], frames: Sequence[Any], may_unpickle: bool) -> Any:
    form = note["form"]
    if form == VALUE:
        head, *rest = frames
        return decode(json.loads(bytes(head)), rest, may_unpickle=may_unpickle)
    (frame,) = frames
    shape, cell = tuple(spec["shape"]), tuple(spec["cell"])
    if form == CELL:
        found = np.frombuffer(frame, np.dtype(spec["dtype"])).reshape(cell)
    elif form == TEXT:
        from numcodecs import VLenUTF8

        found = np.asarray(VLenUTF8().decode(bytes(frame)), object).reshape(cell)
    elif form == TIMES:
        found = _dates(np.frombuffer(frame, "<i8"), note).reshape(cell)
    else:
        raise Unknown(f"found the form {form!r}")
    if shape == cell:
        return found
    part = found[tuple(slice(length) for length in shape)]
    # Without what fills up the last cells: in most arrays rows at the end, which are not copied.
    return part if part.flags.c_contiguous else part.copy()


def _is_same(old: Mapping[str, Any], content: str, told: Mapping[str, Any], services: Services) -> bool:
    note = old["note"]
    if old["content"] != content or any(note.get(key) != told[key] for key in told):
        return False
    is_readable = services.key is None and told["form"] != VALUE
    return not is_readable or ("codec" in note) == (services.compress == "always")


def _plain(value: Any) -> Any:
    """As an array, if it is one with nothing else to it."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    return np.asarray(value) if type(value) in (np.ndarray, np.memmap) else None


def _filled(array: Any, cell: Sequence[int]) -> Any:
    """In C order, and filled up with zeros or empty text."""
    if array.shape == tuple(cell):
        return np.asarray(array, order="C")
    is_text = array.dtype == object
    found = np.full(tuple(cell), "", object) if is_text else np.zeros(tuple(cell), array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


def _flat(array: Any) -> Any:
    return memoryview(array.reshape(-1).view(np.uint8))


def _text(array: Any, cell: Sequence[int]) -> tuple[list[Any], dict[str, Any]] | None:
    if not all(type(one) is str for one in array.flat):
        return None
    try:
        from numcodecs import VLenUTF8

        return [VLenUTF8().encode(_filled(array, cell).reshape(-1))], {"form": TEXT}
    except (ImportError, UnicodeError):
        return None


def _times(array: Any, cell: Sequence[int]) -> tuple[list[Any], dict[str, Any]] | None:
    first: Any = next(iter(array.flat), None)
    calendar = getattr(first, "calendar", None)
    if type(first).__module__.partition(".")[0] != "cftime" or not calendar:
        return None
    told = {"form": TIMES, "calendar": calendar, "year zero": bool(first.has_year_zero)}
    if any(
        type(one) is not type(first)
        or one.calendar != calendar  # the base class may have any
        or one.has_year_zero != first.has_year_zero
        for one in array.flat
    ):
        return None
    import cftime

    numbers = cftime.date2num(array.reshape(-1), EPOCH, calendar, told["year zero"])
    whole = np.asarray(numbers, "<i8")
    if not np.array_equal(_dates(whole, told), array.reshape(-1)):
        return None
    return [_flat(_filled(whole.reshape(array.shape), cell))], told


def _dates(numbers: Any, note: Mapping[str, Any]) -> Any:
    import cftime

    calendar, zero = note["calendar"], note["year zero"]
    found = cftime.num2date(numbers, EPOCH, calendar, only_use_cftime_datetimes=True, has_year_zero=zero)
    return np.asarray(found, object)
