"""A note on the store of the newest version in memory: what there was, and who had it.

It says neither what the state consists of nor any of its values.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dask_hpc.checkpoint.store.files import Files, Missing
from dask_hpc.checkpoint.store.manifest import check_name

FILE = "journal.json"
_FORMAT = "dask-hpc journal 1"


def note(root: str, name: str, version: Mapping[str, Any], where: Sequence[str]) -> None:
    """Leave it; ``where`` are the agents. May raise ``Trouble``."""
    told = {"format": _FORMAT, "name": name, "where": list(where)}
    told |= {key: version[key] for key in ("step", "time", "nbytes", "levels")}
    Files(root).write(f"{check_name(name)}/{FILE}", [json.dumps(told).encode()], "journal")


def read(root: str, name: str) -> dict[str, Any] | None:
    """What it says, if there is one that can be read. May raise ``Trouble``."""
    try:
        told = json.loads(Files(root).read(f"{check_name(name)}/{FILE}"))
        if told["format"] != _FORMAT or told["name"] != name:
            return None
        return {
            "step": int(told["step"]),
            "time": float(told["time"]),
            "nbytes": int(told["nbytes"]),
            "where": [str(one) for one in told["where"]],
        }
    except Missing:
        return None
    except (ValueError, LookupError, TypeError):
        return None
