"""What tasks of each kind needed of a worker's memory, remembered between programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dask_hpc.data_file import DataFile, keep_newest
from dask_hpc.history.runs import path_of
from dask_hpc.model.errors import is_number

_FORMAT = "dask-hpc kinds of tasks 1"
_MOST = 1000  # kinds: the newest
_LONGEST = 500  # characters of a name; longer ones are not remembered


@dataclass(frozen=True, slots=True)
class PastKind:
    """Bytes that a task of it needed above what its worker had, at most; and when that was last seen, by the
    system's clock."""

    peak: float
    when: float

    def __post_init__(self) -> None:
        if not is_number(self.peak, 0, 1e18) or not is_number(self.when, 0, 1e12):
            raise ValueError(f"no kind: {self}")


class KindHistory:
    """Beside the history of runs. ``read`` and ``add`` may block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, setting: str | None) -> "KindHistory | None":
        """Beside the history that a setting names; None if nothing is remembered."""
        path = path_of(setting)
        return None if path is None else cls(path.with_suffix(".kinds.json"))

    def read(self) -> dict[str, PastKind]:
        """What the file says; nothing if there is none. Raises ``InputError`` if it makes no sense."""
        return DataFile(self.path, _checked).read() or {}

    def add(self, kinds: Mapping[str, PastKind]) -> None:
        """These were seen: what was known of them before counts no more. Raises ``OSError``."""
        short = {kind: found for kind, found in kinds.items() if len(kind) <= _LONGEST}

        def text(before: dict[str, PastKind] | None) -> str:
            found = {**(before or {}), **short}
            keep_newest(found, _MOST, lambda kind: kind.when)
            return json.dumps(
                {"format": _FORMAT, "kinds": {name: asdict(one) for name, one in found.items()}}
            )

        DataFile(self.path, _checked).update(text)


def _checked(found: Any) -> dict[str, PastKind]:
    if found["format"] != _FORMAT:
        raise ValueError
    return {str(kind): PastKind(**row) for kind, row in found["kinds"].items()}
