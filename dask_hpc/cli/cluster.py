"""``--cluster``: a client of the Dask cluster that simulations run on."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dask_hpc.model.errors import InputError, shown

_PATIENCE = 5.0  # seconds until the scheduler answers


@contextmanager
def cluster_client(cluster: str | None) -> Iterator[Any]:
    """A client of ``local`` or an address; None without one: simulate right here."""
    if cluster is None:
        yield None
        return
    from distributed import Client

    address = None if cluster == "local" else cluster
    try:
        if address is not None:
            asyncio.run(_reach(address))
        own = {"dashboard_address": ":0"} if address is None else {}
        client = Client(address, timeout=_PATIENCE, **own)
    except (OSError, ValueError, TypeError) as error:  # TypeError: TLS without certificates
        raise InputError(
            "--cluster", f"found {shown(cluster)}: {error}", "local, or the address of a scheduler"
        ) from None
    with client:
        yield client


async def _reach(address: str) -> None:
    """Fail if nobody answers. A client that cannot connect could not be closed, and would remain the
    client of whatever runs next."""
    from distributed import Security, rpc

    async with rpc(
        address, timeout=_PATIENCE, connection_args=Security().get_connection_args("client")
    ) as scheduler:
        await scheduler.identity()
