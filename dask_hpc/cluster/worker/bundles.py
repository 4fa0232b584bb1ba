"""A worker's half of moving many small results: it fetches them together, and tells of them in one message.

Dask's ``acquire-replicas`` treats each result by itself: packed alone, moved through three states, and told
in a message of its own. Where ``moves`` asks for many small ones that another worker has, one call brings
them, one event enters them into this worker's state, and one message tells the scheduler. All else is left
to Dask:

1. What is large, or few; all if this worker takes nothing now.
2. What this worker knows already: it is there, or a task here needs it, so Dask fetches it anyway.
3. What does not come: the other worker has it no more, has not heard of bundles, or is gone.
"""

import asyncio
import logging
from collections.abc import Collection, Hashable, Mapping
from typing import Any

from distributed import Status, WorkerPlugin

from dask_hpc import dask as compat

logger = logging.getLogger(__name__)

#: what requests call themselves that may be served so
MOVE = "hpc-move"
#: bytes of the largest result that travels in a bundle
SMALL = 16 * 2**10
_FEW = 5  # results that are no bundle yet


class BundlePlugin(WorkerPlugin):
    """Serves requests for many small results. ``small``: how many bytes such a one has at most."""

    name = "dask-hpc-bundles"

    def __init__(self, small: int) -> None:
        self._small = small

    def setup(self, worker: Any) -> None:
        """From now on."""
        self._worker = worker
        self._on_their_way: set[Hashable] = set()
        self._fetching: set[asyncio.Task[None]] = set()
        self._theirs = worker.stream_handlers["acquire-replicas"]
        self._put_back = compat.put(worker.stream_handlers, "acquire-replicas", self.acquire)
        self._calls = {"hpc_bundle": self.give}
        compat.add_calls(worker, self._calls)

    def teardown(self, worker: Any) -> None:
        """The worker closes, and gives what it has for as long as it can; or this plugin is removed."""
        self._put_back()
        for fetching in self._fetching:
            fetching.cancel()
        if worker.status != Status.closing:
            compat.remove_calls(worker, self._calls)

    async def give(self, keys: Collection[Hashable]) -> bytes:
        """Those of these results that are here, for another worker."""
        return compat.pack_results(self._worker, keys)

    def acquire(
        self, who_has: Mapping[Hashable, Collection[str]], nbytes: Mapping[Hashable, int], stimulus_id: str
    ) -> None:
        """The scheduler wants copies to be here."""
        left, bundles = dict(who_has), dict[str, list[Hashable]]()
        if stimulus_id == MOVE and self._worker.status == Status.running:
            for key, (source, *_) in who_has.items():
                if key in self._on_their_way:
                    del left[key]
                elif nbytes[key] <= self._small and not compat.is_known_here(self._worker, key):
                    bundles.setdefault(source, []).append(key)
        for source, keys in bundles.items():
            if len(keys) > _FEW:
                wanted = {key: left.pop(key) for key in keys}
                fetching = asyncio.ensure_future(self._fetch(source, wanted, nbytes))
                self._fetching.add(fetching)
                fetching.add_done_callback(self._fetching.discard)
        self._leave_to_dask(left, nbytes, stimulus_id)

    async def _fetch(
        self, source: str, wanted: dict[Hashable, Collection[str]], nbytes: Mapping[Hashable, int]
    ) -> None:
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
        # One that has come to be known meanwhile is Dask's already: a request for what runs here would make
        # its end pass unheard.
        left = {key: wanted[key] for key in wanted if not compat.is_known_here(self._worker, key)}
        self._leave_to_dask(left, nbytes, MOVE)

    def _leave_to_dask(
        self, who_has: Mapping[Hashable, Collection[str]], nbytes: Mapping[Hashable, int], stimulus_id: str
    ) -> None:
        if who_has and self._worker.status != Status.closing:
            sizes = {key: nbytes[key] for key in who_has}
            self._theirs(who_has=who_has, nbytes=sizes, stimulus_id=stimulus_id)
