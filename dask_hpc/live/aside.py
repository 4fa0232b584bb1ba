"""Work that may block (a file system that stalls, somebody else's code), beside the scheduler's loop."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def aside(loop: Any, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
    """Call ``work`` in a thread that keeps no process alive, then ``done`` on the loop with what it answered,
    or with its error."""

    def run() -> None:
        found, problem = None, None
        try:
            found = work()
        except Exception as error:
            problem = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.add_callback(done, found, problem)

    threading.Thread(target=run, name="dask-hpc-aside", daemon=True).start()
