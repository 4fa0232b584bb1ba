"""The recipe of a protected result: load a copy from an agent that has one, or from the store.

Copies on this worker's node are tried first. A copy that is damaged or gone is told, so nobody tries it
again; an agent that does not answer is tried again, as it may be busy, or about to be found dead. If no copy
can be had, the scheduler puts the task's own recipe back and it is computed. Scattered data has none: it is
lost then, and the task says so.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Reschedule, get_worker
from distributed.utils import sync

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.cells import Reader
from dask_hpc.checkpoint.store.seal import Key
from dask_hpc.checkpoint.worker.agent import NAME as AGENT
from dask_hpc.checkpoint.worker.transfer import fetch

#: seconds to wait before agents that did not answer are tried again
_PAUSES = (0.1, 0.5, 2.0, 5.0)
_PATIENCE = 5.0


class Lost(RuntimeError):
    """A result is gone, with all its copies."""


class _NoCopy(Exception):
    """Nobody has a copy, or none can be had."""


@dataclass(frozen=True)
class CopyLoader:
    """Called with a key, in a task's thread."""

    def __call__(self, key: Any) -> Any:
        worker = get_worker()
        try:
            found = sync(worker.loop, _fetch, worker, key)
            return _stored(found) if isinstance(found, dict) else found.value()
        except _NoCopy as error:
            why = str(error)
        # None: the scheduler knows nothing of us any more, and of this task it knows what it was before.
        if sync(worker.loop, worker.scheduler.hpc_checkpoint_no_copy, key=key, why=why) is False:
            raise Lost(f"{key!r} is lost with all its copies, and nothing can compute it: {why}")
        raise Reschedule from None


@dataclass(frozen=True)
class MissingRecipe:
    """The recipe of what needs something of which nobody knows any more how it was computed."""

    def __call__(self, key: Any) -> Any:
        raise Lost(
            f"{key!r} is lost with all its copies, and cannot be computed: what it needs was forgotten long "
            "ago, or is called like something else now"
        )


def _stored(where: dict[str, Any]) -> Any:
    """A result from the store, checked; pickles are read if the user allowed that."""
    key = Key(where["secret"]) if where["secret"] else None
    reader = Reader(where["root"], where["name"], where["version"], key, where["unpickle"])
    try:
        return reader({"spec": where["spec"], "block": json.loads(where["block"])})
    except Exception as error:  # of the store, of a block that is damaged, or of what unpickles it
        raise _NoCopy(f"the store: {type(error).__name__}: {error}") from None


async def _fetch(worker: Any, key: Any) -> Any:
    """A block from an agent, or where in the store it is."""
    reach("fetch-begun")
    why = "nobody has a copy"
    for pause in (*_PAUSES, None):
        said = await worker.scheduler.hpc_checkpoint_where(key=key, worker=worker.address)
        if said is None:
            break
        content, silent = said["content"], False
        for address in said["where"]:
            try:
                block = await _from(worker, address, content)
            except (LookupError, ValueError) as error:  # it is not there, or damaged
                why = f"{address}: {type(error).__name__}: {error}"
                await worker.scheduler.hpc_checkpoint_bad(content=content, agent=address, why=why)
                with suppress(OSError, TimeoutError):  # it need not keep one that is damaged
                    async with asyncio.timeout(_PATIENCE):
                        await worker.rpc(address).hpc_agent_check(contents=[content])
            except (OSError, TimeoutError) as error:
                why = f"{address}: {type(error).__name__}: {error}"
                silent = True
            else:
                reach("fetch-come")
                return block
        if said.get("stored"):
            return said["stored"]
        if not silent:
            break
        if pause is not None:
            await asyncio.sleep(pause)
    raise _NoCopy(why)


async def _from(worker: Any, address: str, content: str) -> Any:
    if address != worker.address:
        return await fetch(worker.rpc(address), {"content": content})
    # in memory of its own: the result may be changed in place
    return await asyncio.to_thread(worker.plugins[AGENT].kept.intact, content)
