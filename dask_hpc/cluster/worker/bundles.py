"""A worker's half of moving many small results: it fetches them together, and tells of them in one message.

Dask treats each result by itself: asked for with who has it and how large it is, packed alone, moved through
three states, and told in a message of its own. Where ``moves`` wants many small ones of one worker on
another, it calls that one: one call more brings them, one event enters them into the worker's state, and one
message tells the scheduler. The answer says what is left to Dask:

1. All, if this worker takes nothing now; and where this plugin is not, the call fails.
2. What this worker knows already: it is there, or a task here needs it, so Dask fetches it anyway.
3. What does not come: the other worker has it no more, has not heard of bundles, or is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable
from typing import Any

from distributed import Status, WorkerPlugin

from dask_hpc import dask as compat

logger = logging.getLogger(__name__)

#: what requests for results call themselves
MOVE = "hpc-move"


class BundlePlugin(WorkerPlugin):
    """Gives many small results at once, and fetches them."""

    name = "dask-hpc-bundles"

    def setup(self, worker: Any) -> None:
        """From now on."""
        self._worker = worker
        self._on_their_way: set[Hashable] = set()
        self._fetching: set[asyncio.Task[None]] = set()
        self._calls: dict[str, Callable[..., Any]] = {"hpc_bundle": self.give, "hpc_fetch": self.fetch}
        compat.add_calls(worker, self._calls)

    def teardown(self, worker: Any) -> None:
        """The worker closes, and gives what it has for as long as it can; or this plugin is removed."""
        for fetching in self._fetching:
            fetching.cancel()
        if worker.status != Status.closing:
            compat.remove_calls(worker, self._calls)

    async def give(self, keys: Collection[Hashable]) -> bytes:
        """Those of these results that are here, for another worker."""
        return compat.pack_results(self._worker, keys)

    async def fetch(self, source: str, keys: Collection[Hashable]) -> list[Hashable]:
        """The scheduler wants copies of these to be here. Gives those that Dask has to fetch."""
        if self._worker.status != Status.running:
            return list(keys)
        wanted = dict.fromkeys(key for key in keys if key not in self._on_their_way)
        known = [key for key in wanted if compat.is_known_here(self._worker, key)]
        for key in known:
            del wanted[key]
        if wanted:
            fetching = asyncio.ensure_future(self._fetch(source, wanted))
            self._fetching.add(fetching)
            fetching.add_done_callback(self._fetching.discard)
            await asyncio.wait([fetching])
        return [*known, *wanted]

    async def _fetch(self, source: str, wanted: dict[Hashable, None]) -> None:
        """Of these there remain those that have not come."""
        keys = list(wanted)
        self._on_their_way.update(keys)
        try:
            bundle = await self._worker.rpc(source).hpc_bundle(keys=keys)
            if self._worker.status != Status.closing:
                for key in compat.enter_results(self._worker, bundle, MOVE):
                    del wanted[key]
        except Exception as error:
            logger.debug("dask-hpc: %d results of %s come one by one: %r", len(keys), source, error)
        finally:
            self._on_their_way.difference_update(keys)
