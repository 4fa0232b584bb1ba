"""What a managed cluster asks of the checkpoint service, if there is one on its scheduler."""

import logging
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger(__name__)
#: of its scheduler plugin
_NAME = "dask-hpc-checkpoint"


def status_of_checkpoint(scheduler: Any) -> dict[str, Any] | None:
    """What is protected, where the copies are, and what happened, if anything was ever protected. An error
    of that service is none of the cluster's."""
    service = scheduler.plugins.get(_NAME)
    try:
        return None if service is None else service.status()
    except Exception as error:
        logger.warning("dask-hpc: no status of checkpoints: %s: %s", type(error).__name__, error)
        return None


def not_protected(scheduler: Any, keys: Iterable[Any]) -> list[Any]:
    """Those that are not loaded from a copy if they are lost."""
    service = scheduler.plugins.get(_NAME)
    return [key for key in keys if service is None or not service.is_safe(key)]
