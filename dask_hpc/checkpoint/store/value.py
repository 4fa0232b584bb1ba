"""Any value as a description and plain bytes, and back.

What can be said in words and bytes is: numbers, text, dates, containers of these, numpy arrays, and tables if
pyarrow is there. Reading that never runs anything. What cannot is pickled; whoever reads it has to say that
it may be unpickled, since that runs what it says.

Arrays are not copied on their way in, and their bytes are those of the array on their way out: read into
memory that may be written, they are again arrays that may be written.
"""

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any

import numpy as np
from distributed.protocol import pickle

_OPAQUE = "opaque"
_PLAIN = (type(None), bool, str)
_STEADY = ("DatetimeIndex", "TimedeltaIndex")  # pandas' indexes that may know their step
_DEEPEST = 100  # containers within containers; deeper ones are pickled


class Opaque(ValueError):
    """A value is pickled, and nobody said that it may be unpickled."""


class Unknown(ValueError):
    """A description that no version of this file has written."""


@dataclass(frozen=True)
class Encoded:
    """``head`` can be written as JSON; ``frames`` are bytes in memory that the value may still own."""

    head: Any
    frames: list[memoryview] = field(default_factory=list)


def encode(value: Any) -> Encoded:
    frames: list[memoryview] = []
    try:
        return Encoded(_Writer(frames).described(value), frames)
    except _Pickle:
        frames = []
        buffers: list[Any] = []
        body = pickle.dumps(value, buffer_callback=buffers.append)
        frames += [_flat(memoryview(body)), *(_flat(buffer.raw()) for buffer in buffers)]
        return Encoded({"is": _OPAQUE, "type": type(value).__qualname__}, frames)


def decode(head: Any, frames: Sequence[Any], *, may_unpickle: bool = False) -> Any:
    """The value again. Raises ``Opaque`` or ``Unknown``."""
    if is_opaque(head):
        if not may_unpickle:
            raise Opaque(str(head.get("type", "an object")))
        body, *buffers = frames
        return pickle.loads(bytes(body), buffers=[_writable(one) for one in buffers])
    try:
        return _Reader(frames).value(head)
    except Unknown:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unknown(f"{type(error).__name__}: {error}") from None


def is_opaque(head: Any) -> bool:
    """Whether reading this has to unpickle."""
    return isinstance(head, dict) and head.get("is") == _OPAQUE


def pack(value: Any) -> dict[str, Any]:
    """A small value as something that can be written as JSON as a whole."""
    encoded = encode(value)
    found = {"head": encoded.head}
    if encoded.frames:
        found["frames"] = [b64encode(frame).decode() for frame in encoded.frames]
    return found


def unpack(found: Any, *, may_unpickle: bool = False) -> Any:
    """What was packed. Raises ``Opaque`` or ``Unknown``."""
    try:
        head, frames = found["head"], [bytearray(b64decode(one)) for one in found.get("frames", ())]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Unknown(f"{type(error).__name__}: {error}") from None
    return decode(head, frames, may_unpickle=may_unpickle)


class _Pickle(Exception):
    """The value cannot be described."""


#: what consists of other values: its parts, and how it is made of them again
_PARTS: dict[type, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    complex: (lambda value: (value.real, value.imag), lambda parts: complex(*parts)),
    timedelta: (
        lambda value: (value.days, value.seconds, value.microseconds),
        lambda parts: timedelta(*parts),
    ),
    **{kind: (iter, kind) for kind in (list, tuple, set, frozenset)},
    **{
        kind: (lambda value: (value.start, value.stop, value.step), lambda parts, kind=kind: kind(*parts))
        for kind in (range, slice)
    },
}
#: what a text says
_TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    int: (hex, lambda text: int(text, 16)),
    float: (repr, float),
    **{kind: (kind.isoformat, kind.fromisoformat) for kind in (datetime, date, time)},
}
_PARTS_OF = {kind.__name__: made for kind, (_, made) in _PARTS.items()}
_TEXTS_OF = {kind.__name__: made for kind, (_, made) in _TEXTS.items()}


class _Writer:
    def __init__(self, frames: list[memoryview]) -> None:
        self._frames = frames
        self._depth = 0

    def described(self, value: Any) -> Any:
        kind, name = type(value), type(value).__name__
        # JSON's readers elsewhere may know 64 bits only; a long integer is no problem here
        is_short = kind is int and abs(value) < 2**53
        if kind in _PLAIN or is_short or (kind is float and math.isfinite(value)):
            return value
        if kind in _TEXTS:
            if getattr(value, "tzinfo", None) is not None or getattr(value, "fold", None):
                raise _Pickle
            return {"is": name, "of": _TEXTS[kind][0](value)}
        if kind in _PARTS:
            return {"is": name, "of": self._inside(_PARTS[kind][0](value))}
        if kind in (bytes, bytearray):
            return {"is": name, "frame": self._frame(memoryview(value))}
        if kind is dict:
            return {"is": "dict", "keys": self._inside(value), "values": self._inside(value.values())}
        if kind is np.ndarray:
            return self._array(value)
        if isinstance(value, np.dtype) and not value.hasobject and value.metadata is None:
            return {"is": "dtype", "of": _described_dtype(value)}
        if isinstance(value, np.generic) and kind.__module__ == "numpy" and not value.dtype.hasobject:
            return {"is": "scalar", "of": self._array(np.asarray(value))}
        if kind.__module__.partition(".")[0] == "pandas" and name == "DataFrame":
            return {"is": "table"} | self._table(value)
        if kind.__module__.partition(".")[0] == "pandas" and name == "Series" and not value.attrs:
            return {"is": "series", "name": self.described(value.name)} | self._table(
                value.to_frame("values")
            )
        raise _Pickle

    def _inside(self, values: Any) -> list[Any]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Pickle
        found = [self.described(value) for value in values]
        self._depth -= 1
        return found

    def _array(self, array: np.ndarray) -> Any:
        dtype = array.dtype
        if dtype.metadata or (dtype.fields and any(one[0].metadata for one in dtype.fields.values())):
            raise _Pickle
        if dtype.kind in "OT":
            # of text, mostly; what is not plain makes the whole array opaque
            of = self._inside(array.ravel().tolist())
            text = {"dtype": _text_dtype(dtype)} if dtype.kind == "T" else {}
            return {"is": "objects", "shape": list(array.shape), "of": of} | text
        if dtype.hasobject:
            raise _Pickle
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        flat = array.T if order == "F" else np.ascontiguousarray(array)
        raw = flat.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
        head = {"is": "array", "dtype": _described_dtype(dtype), "shape": list(array.shape)}
        return head | {"order": order, "frame": self._frame(raw)}

    def _table(self, frame: Any) -> dict[str, Any]:
        texts = _texts(frame)
        text = {"text": texts} if texts else {}
        return {"frame": self._frame(_table(frame, texts))} | _frequency(frame.index) | text

    def _frame(self, raw: memoryview) -> int:
        self._frames.append(_flat(raw))
        return len(self._frames) - 1


class _Reader:
    def __init__(self, frames: Sequence[Any]) -> None:
        self._frames = frames

    def value(self, head: Any) -> Any:
        if isinstance(head, (int, float, *_PLAIN)):
            return head
        kind = head["is"]
        if kind in _TEXTS_OF:
            return _TEXTS_OF[kind](head["of"])
        if kind in _PARTS_OF:
            return _PARTS_OF[kind](map(self.value, head["of"]))
        match kind:
            case "bytes":
                return bytes(self._frames[head["frame"]])
            case "bytearray":
                return bytearray(self._frames[head["frame"]])
            case "dict":
                return dict(zip(map(self.value, head["keys"]), map(self.value, head["values"]), strict=True))
            case "array":
                return self._array(head)
            case "dtype":
                return _read_dtype(head["of"])
            case "scalar":
                return self._array(head["of"])[()]
            case "objects":
                return self._objects(head)
            case "table":
                return self._table(head)
            case "series":
                return self._table(head)["values"].rename(self.value(head["name"]))
        raise Unknown(f"found {kind!r}")

    def _array(self, head: Any) -> np.ndarray:
        dtype = _read_dtype(head["dtype"])
        flat = np.frombuffer(_writable(self._frames[head["frame"]]), np.uint8)
        return np.ndarray(tuple(head["shape"]), dtype, buffer=flat, order=head["order"])

    def _table(self, head: Any) -> Any:
        """Of Arrow's, which do not say that times follow each other evenly."""
        import pyarrow as pa

        raw = pa.py_buffer(self._frames[head["frame"]])
        found = _to_pandas(pa.ipc.open_file(pa.BufferReader(raw)).read_all(), head.get("text", ()))
        if "frequency" in head:
            found.index.freq = head["frequency"]
        return found

    def _objects(self, head: Any) -> np.ndarray:
        found = np.empty(len(head["of"]), object)
        found[:] = [self.value(one) for one in head["of"]]
        found = found.reshape(head["shape"])
        if "dtype" not in head:
            return found
        # numpy's strings of any length; where text may be missing, nan says so
        missing: Any = {"na_object": math.nan} if head["dtype"].get("missing") else {}
        return found.astype(np.dtypes.StringDType(**missing))


def _text_dtype(dtype: Any) -> dict[str, Any]:
    found = getattr(dtype, "na_object", None)
    is_missing = isinstance(found, float) and math.isnan(found)
    if hasattr(dtype, "na_object") and not is_missing:
        raise _Pickle
    return {"missing": is_missing}


def _described_dtype(dtype: np.dtype[Any]) -> Any:
    found = np.lib.format.dtype_to_descr(dtype)
    if _read_dtype(_listed(found)) != dtype:
        raise _Pickle
    return _listed(found)


def _listed(found: Any) -> Any:
    return [_listed(one) for one in found] if isinstance(found, list | tuple) else found


def _read_dtype(head: Any) -> np.dtype[Any]:
    dtype = np.dtype(head) if isinstance(head, str) else np.lib.format.descr_to_dtype(_fields(head))
    if dtype.hasobject:
        raise Unknown("an array of objects")
    return dtype


def _fields(head: Any) -> Any:
    """JSON has no tuples; numpy wants them."""
    found = []
    for name, kind, *shape in head:
        named = tuple(name) if isinstance(name, list) else name
        inner = _fields(kind) if isinstance(kind, list) else kind
        found.append((named, inner, *(tuple(one) for one in shape)))
    return found


def _table(frame: Any, texts: Sequence[Any]) -> memoryview:
    """As Arrow's file, if that is the same table when it is read again."""
    try:
        import pyarrow as pa

        if frame.attrs:
            raise _Pickle
        table = pa.Table.from_pandas(frame)
        empty = _to_pandas(table.slice(0, 0), texts)
        if not (
            empty.dtypes.equals(frame.dtypes)
            and type(empty.index) is type(frame.index)
            and empty.index.dtype == frame.index.dtype
            and empty.columns.equals(frame.columns)
            and (getattr(frame.index, "freq", None) is None or type(frame.index).__name__ in _STEADY)
            and all(map(_is_text, _parts(frame)))
        ):
            raise _Pickle
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return memoryview(sink.getvalue())
    except (ImportError, TypeError, ValueError, KeyError, NotImplementedError):
        # pyarrow's own errors are some of these
        raise _Pickle from None


def _texts(frame: Any) -> list[tuple[int, str]]:
    """Columns of text in which pandas' own NA says what is missing, and how each is kept, which Arrow does
    not note. Before pandas 3, Dask makes such ones of all text."""
    import pandas as pd

    return [
        (number, str(kind.storage))
        for number, kind in enumerate(frame.dtypes)
        if isinstance(kind, pd.StringDtype) and kind.na_value is pd.NA
    ]


def _to_pandas(table: Any, texts: Iterable[Any]) -> Any:
    import pandas as pd

    found = table.to_pandas()
    for number, storage in texts:
        found.isetitem(number, found.iloc[:, number].astype(pd.StringDtype(storage)))
    return found


def _parts(frame: Any) -> list[Any]:
    """What its index consists of, and its columns."""
    return [*getattr(frame.index, "levels", [frame.index]), *(column for _, column in frame.items())]


def _is_text(values: Any) -> bool:
    """Whether there are no objects in a column or index, or objects that are text, as before pandas 3."""
    return values.dtype != object or all(one is None or type(one) is str for one in values)


def _frequency(index: Any) -> dict[str, str]:
    found = index.freqstr if type(index).__name__ in _STEADY else None
    return {"frequency": found} if found else {}


def _flat(raw: memoryview) -> memoryview:
    return raw if raw.format == "B" and raw.ndim == 1 else raw.cast("B")


def _writable(raw: Any) -> Any:
    view = memoryview(raw)
    return view if not view.readonly else bytearray(view)
