"""Results that are kept in memory for us, as if a client wanted them."""

from collections.abc import Iterable
from typing import Any


def pin(scheduler: Any, keys: Iterable[Any], owner: str) -> None:
    """Let Dask keep these results for this owner."""
    scheduler.client_desires_keys(keys=list(keys), client=owner)


def unpin(scheduler: Any, keys: Iterable[Any], owner: str) -> None:
    """They need not be kept for it any longer."""
    if owner in scheduler.clients:
        scheduler.client_releases_keys(keys=list(keys), client=owner, stimulus_id="hpc-unpin")


def unpin_all_of(scheduler: Any, beginning: str) -> None:
    """All owners whose names begin so are gone."""
    for owner in [name for name in scheduler.clients if name.startswith(beginning)]:
        unpin_all(scheduler, owner)


def unpin_all(scheduler: Any, owner: str) -> None:
    """The owner is gone."""
    client = scheduler.clients.get(owner)
    if client is not None:
        unpin(scheduler, [task.key for task in client.wants_what], owner)
        scheduler.clients.pop(owner, None)
