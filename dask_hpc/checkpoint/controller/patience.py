"""Calls that may hang, as those of a file system may for ever: given up after a while, and not repeated as
long as one hangs."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dask_hpc.checkpoint.store.files import Trouble


class Patience:
    """Of one store. Its threads keep neither the process alive nor other work from its threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._hanging = 0

    async def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """What it gives. Raises ``Trouble`` if it takes too long, or others hang already."""
        if self._hanging:
            raise Trouble(5, "it hangs")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def tell(setter: Callable[[Any], None], found: Any) -> None:
            if done.done():
                self._hanging -= 1
            else:
                setter(found)

        def run() -> None:
            try:
                setter, found = done.set_result, work(*args)
            except BaseException as error:
                setter, found = done.set_exception, error
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, setter, found)

        threading.Thread(target=run, name="dask-hpc-store", daemon=True).start()
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(done)
        except TimeoutError:
            if not done.done():
                done.cancel()
                self._hanging += 1
                raise Trouble(5, f"it did not answer within {self._seconds:g} s") from None
            raise
