"""The client's side of a remote call to a managed cluster."""

from typing import Any

from distributed import Client


async def ask(client: Client, call: str, **given: Any) -> Any:
    """The answer to one of the calls ``hpc_*``, as plain data."""
    found = await getattr(client.scheduler, call)(**given)
    if found is None:  # what a scheduler answers to a call it does not know
        raise RuntimeError("this cluster is not managed (any more)")
    return _with_lists(found)


def _with_lists(found: Any) -> Any:
    """Lists come out of Dask's messages as tuples; plain data has lists."""
    if isinstance(found, dict):
        return {key: _with_lists(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_with_lists(value) for value in found]
    return found
