"""A Dask preload module: a nanny, or a worker without one, is told to end when its standard input does.

Whoever started it holds the other end of a pipe, which ``srun`` extends to other nodes. However that program
ends, also by SIGKILL, the kernel closes the pipe: no worker is left behind, and a worker that is ended so has
the same farewell as after SIGTERM.
"""

import os
import signal
import sys
import threading
from typing import Any


def dask_setup(server: Any) -> None:
    """In the process of the nanny or worker."""
    threading.Thread(target=_wait, name="dask-hpc-stdin", daemon=True).start()


def _wait() -> None:
    try:
        while os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 4096):
            pass
    except OSError:
        pass  # closed, which is an end as well
    os.kill(os.getpid(), signal.SIGTERM)
