"""A Dask preload module for workers: Ctrl-C on the terminal is for the script, not for its workers."""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """In the main thread of the worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
