"""Agents go to all workers, and are taken away from them."""

import asyncio
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import dask_hpc.checkpoint
from dask_hpc.checkpoint.agent.agent import NAME, Agent
from dask_hpc.live import compat

_PATIENCE = 5.0  # seconds that workers have to give back their agents
#: by scheduler, what takes agents away
_ENDING: WeakKeyDictionary[Any, "asyncio.Future[None]"] = WeakKeyDictionary()


async def send_agents(scheduler: Any, share: float, disk: str = "") -> None:
    """To all workers, now and later; those that are just being taken away are away first."""
    while (ending := _ENDING.get(scheduler)) is not None:
        await asyncio.wait([ending])
    agent = Agent(share, disk, run=compat.scheduler_id(scheduler))
    portable = compat.by_value(agent, dask_hpc.checkpoint, compat.worker_calls)
    await compat.add_worker_plugin(scheduler, NAME, portable)


def take_agents_away(scheduler: Any) -> None:
    """A moment later they are gone, with all they keep."""
    ending = _ENDING[scheduler] = asyncio.ensure_future(_take_away(scheduler))
    ending.add_done_callback(lambda _: _ENDING.pop(scheduler, None))


async def _take_away(scheduler: Any) -> None:
    with suppress(TimeoutError, OSError):  # a worker that does not answer, or has gone
        async with asyncio.timeout(_PATIENCE):
            await compat.remove_worker_plugin(scheduler, NAME)
