"""The client's side of a remote call to a managed cluster."""

import asyncio
from typing import Any

from distributed import Client

from dask_hpc.model.errors import InputError

NAME = "dask-hpc"  # of our plugin, among those of a scheduler
_ON_ITS_WAY = 2.0  # seconds for a graph that was submitted just before we ask about its job
_LOOK = 0.05


async def is_managed(client: Client) -> bool:
    """Whether somebody there answers ``ask``: nobody does on a scheduler that does not know our package."""
    try:
        return bool(await client.run_on_scheduler(_has_plugin))
    except Exception:
        return False


def _has_plugin(dask_scheduler: Any) -> bool:
    return NAME in dask_scheduler.plugins


async def ask(client: Client, call: str, **given: Any) -> Any:
    """The answer to one of the calls ``hpc_*``, as plain data."""
    found = await getattr(client.scheduler, call)(**given)
    if found is None:  # what a scheduler answers to a call it does not know
        raise RuntimeError("this cluster is not managed (any more)")
    return _with_lists(found)


async def ask_of_job(client: Client, call: str, job_id: str, **given: Any) -> Any:
    """The answer to a call that concerns one job. A graph and a question travel on ways of their own, so
    a job that is not known yet may be so in a moment."""
    clock = asyncio.get_running_loop().time
    limit = clock() + _ON_ITS_WAY
    while True:
        try:
            return await ask(client, call, id=job_id, **given)
        except InputError as error:
            if error.where != "job" or clock() > limit:
                raise
        await asyncio.sleep(_LOOK)


def _with_lists(found: Any) -> Any:
    """Lists come out of Dask's messages as tuples; plain data has lists."""
    if isinstance(found, dict):
        return {key: _with_lists(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_with_lists(value) for value in found]
    return found
