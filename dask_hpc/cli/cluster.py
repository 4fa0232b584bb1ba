"""``--cluster``: a client of the Dask cluster that simulations run on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dask_hpc.model.errors import InputError, shown


@contextmanager
def cluster_client(cluster: str | None) -> Iterator[Any]:
    """A client of ``local`` or an address; None without one: simulate right here."""
    if cluster is None:
        yield None
        return
    from distributed import Client

    address = None if cluster == "local" else cluster
    try:
        # Not the default: one that cannot connect would remain the client of whatever runs next.
        own = {"dashboard_address": ":0"} if address is None else {}
        client = Client(address, timeout="5s", set_as_default=False, **own)
    except (OSError, ValueError, TypeError) as error:  # TypeError: TLS without certificates
        raise InputError(
            "--cluster", f"found {shown(cluster)}: {error}", "local, or the address of a scheduler"
        ) from None
    with client:
        yield client
