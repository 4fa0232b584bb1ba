"""Points at which tests kill us: everything that must survive a crash is done in steps, and each has a name.

A process whose environment says ``DASK_HPC_FAULT=POINT`` dies by SIGKILL when it gets there, ``POINT:3`` at
the third time; ``POINT!ERRNO`` raises that error there instead, as a disk that is full would. Elsewhere this
costs the look at a variable. Tests go through ``POINTS``, so a step without a name is a step without a test.

Workers get this module by value: it imports nothing of ours.
"""

import errno
import os
import signal

VARIABLE = "DASK_HPC_FAULT"

#: in the order in which a commit and a restore reach them
POINTS = (
    "block-begun",  # a file of a block is open, and empty
    "block-written",  # its bytes are there, under another name
    "block-named",  # it has its name; the folder may not know it yet
    "manifest-begun",
    "manifest-written",
    "manifest-named",  # from here on the version is there
    "prune-begun",  # a version that is not kept any longer is about to lose its manifest
    "prune-hidden",  # it has lost it; its blocks are still there
)

_reached: dict[str, int] = {}


def reach(point: str) -> None:
    """We are here."""
    armed = os.environ.get(VARIABLE)
    if armed is None:
        return
    where, _, error = armed.partition("!")
    name, _, times = where.partition(":")
    if name != point:
        return
    _reached[point] = _reached.get(point, 0) + 1
    if _reached[point] != int(times or 1):
        return
    if error:
        raise OSError(getattr(errno, error), os.strerror(getattr(errno, error)))
    os.kill(os.getpid(), signal.SIGKILL)
