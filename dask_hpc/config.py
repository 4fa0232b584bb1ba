"""Our defaults in Dask's configuration, under ``hpc``; loaded by importing this module."""

from pathlib import Path
from typing import Any

import dask.config
import yaml

from dask_hpc.model.errors import InputError, shown

FILE = Path(__file__).with_name("hpc.yaml")
NODE_MODES = ("auto", "host", "worker")

# Puts a commented-out copy where people look for settings, as Dask's packages do; does nothing if it cannot.
dask.config.ensure_file(source=str(FILE), comment=True)
DEFAULTS: dict[str, Any] = yaml.safe_load(FILE.read_text())
dask.config.update_defaults(DEFAULTS)


def policy() -> str:
    """``hpc.policy``: which policy when none is named."""
    return _checked("policy", lambda v: isinstance(v, str) and v != "", "the name or path of a policy")


def node() -> str:
    """``hpc.node``: what one node is."""
    return _checked("node", lambda v: v in NODE_MODES, ", ".join(NODE_MODES))


def story_length() -> int:
    """``hpc.story-length``: how much is remembered."""
    return _checked("story-length", _is_count, "a whole number >= 1")


def max_errors() -> int:
    """``hpc.max-errors``: when to switch control off."""
    return _checked("max-errors", _is_count, "a whole number >= 1")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _checked(key: str, is_fine: Any, allowed: str) -> Any:
    # The default again: a program may have cleared Dask's configuration, as its own tests do.
    value = dask.config.get(f"hpc.{key}", default=DEFAULTS["hpc"][key])
    if not is_fine(value):
        raise InputError(f"configuration hpc.{key}", f"found {shown(value)}", allowed)
    return value
