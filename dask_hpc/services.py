"""The services that join a managed cluster, where their packages are installed."""

import logging
from importlib import import_module
from typing import Any

logger = logging.getLogger(__name__)

#: modules that have a class ``SERVICE``, in the order in which services hear of things
_MODULES = (
    "dask_hpc.bridge.scheduler",
    "dask_hpc.lanes.scheduler",
    "dask_hpc.together.scheduler.service",
    "dask_hpc.tail.scheduler",
    "dask_hpc.network.scheduler",
    "dask_hpc.power.scheduler.levers",
    "dask_hpc.power.service",
    "dask_hpc.checkpoint.scheduler.service",
    "dask_hpc.memory_files.scheduler.service",
    "dask_hpc.in_situ.scheduler",
    "dask_hpc.history.scheduler",
    "dask_hpc.view.service",
)


def kinds() -> list[Any]:
    """Their classes, without those of packages that are not there."""
    found = []
    for name in _MODULES:
        try:
            found.append(import_module(name).SERVICE)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("dask_hpc"):  # not a package that was left out
                logger.warning("dask-hpc: goes without %s: %s", name, error)
    return found


def redistribution() -> Any:
    """The module that lays arrays out anew, or None where its package is not there."""
    return _module("dask_hpc.redistribution.client")


def reservations() -> Any:
    """The module that says how long units are asked for, or None where its package is not there."""
    return _module("dask_hpc.reservations.units")


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("dask_hpc"):
            raise
        return None
