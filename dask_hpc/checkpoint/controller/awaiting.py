"""Results that a commit waits for: all of them, or the first reason why one will not come."""

import asyncio
from collections.abc import Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dask_hpc.live import compat

_LOOK, _LOOKS = 5.0, 6  # seconds between looks whether a result that does not come is lost, and how many


@dataclass(eq=False)
class _Wait:
    missing: set[Hashable]
    event: asyncio.Event = field(default_factory=asyncio.Event)


class Awaiting:
    """All that somebody waits for. Hears of every task's moves, so a look here costs next to nothing."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._waits: dict[Hashable, list[_Wait]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._waits

    def moves(self, key: Hashable, finish: str) -> None:
        """A task changed its state."""
        for wait in self._waits.get(key, ()):
            if finish == "memory":
                wait.missing.discard(key)
                if not wait.missing:
                    wait.event.set()
            elif finish in ("erred", "forgotten"):
                wait.event.set()

    async def problem(self, keys: Collection[Hashable]) -> str:
        """Until all are in memory: nothing. Or why they will not be."""
        wait = _Wait({key for key in keys if not self._is_there(key)})
        awaited = list(wait.missing)
        for key in awaited:
            self._waits.setdefault(key, []).append(wait)
        looks = dict.fromkeys(awaited, 0)
        try:
            while wait.missing:
                gone = []
                for key in wait.missing:
                    task = compat.find_task(self._scheduler, key)
                    if task is not None and compat.state(task) == "erred":
                        return f"{key!r} failed"
                    if task is None or (compat.state(task) == "released" and not compat.has_recipe(task)):
                        gone.append(key)
                wait.event.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await wait.event.wait()
                        continue
                for key in gone:  # its graph may come after the commit does, but not that late
                    looks[key] += 1
                    if looks[key] >= _LOOKS:
                        return f"{key!r} is lost"
        finally:
            for key in awaited:
                self._waits[key].remove(wait)
                if not self._waits[key]:
                    del self._waits[key]
        return ""

    def _is_there(self, key: Hashable) -> bool:
        task = compat.find_task(self._scheduler, key)
        return task is not None and bool(compat.holders(task))
