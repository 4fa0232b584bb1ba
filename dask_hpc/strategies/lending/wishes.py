"""Which of the services that ask for nodes is next."""

from dask_hpc.model.node import NodeWish
from dask_hpc.model.snapshot import Snapshot


def wish_for(snapshot: Snapshot, is_urgent: bool, remember: float) -> tuple[str, NodeWish] | None:
    """The oldest wish of that kind that is no older than so many seconds, and whose it is."""
    found = [
        (known.wish.at, service, known.wish)
        for service, known in snapshot.borrowers.items()
        if known.wish is not None
        and known.wish.is_urgent == is_urgent
        and snapshot.now - known.wish.at <= remember
    ]
    if not found:
        return None
    _, service, wish = min(found, key=lambda one: one[:2])
    return service, wish
