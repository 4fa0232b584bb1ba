"""Points at which tests kill us: everything that must survive a crash is done in steps, and each has a name.

A process whose environment says ``DASK_HPC_FAULT=POINT`` dies by SIGKILL when it gets there, ``POINT:3`` at
the third time; ``POINT!ERRNO`` raises that error there instead, as a disk that is full would. Elsewhere this
costs the look at a variable. Tests go through ``POINTS``, so a step without a name is a step without a test.
"""

import errno
import os
import signal

VARIABLE = "DASK_HPC_FAULT"

#: in the order in which a commit reaches them
COMMIT_POINTS = (
    "claimed",  # a folder for the new version is ours, and empty
    "block-begun",  # a file of a block is open, and empty
    "block-written",  # its bytes are there, under another name
    "block-named",  # it has its name; the folder may not know it yet
    "metadata-begun",  # what plain Zarr needs to read the blocks
    "metadata-written",
    "metadata-named",
    "manifest-begun",
    "manifest-written",
    "manifest-named",  # from here on the version is there
    "prune-begun",  # a version that is not kept any longer is about to lose its manifest
    "prune-hidden",  # it has lost it; its blocks are still there
)
#: and a restore
RESTORE_POINTS = (
    "load-begun",  # a block is about to be read
    "load-read",  # its bytes are in memory, and not checked yet
)
POINTS = (*COMMIT_POINTS, *RESTORE_POINTS)

#: in the order in which a copy reaches them, the first two on the worker that has the result
COPY_POINTS = (
    "give",  # a worker is about to answer who asks for blocks
    "give-part",  # and for bytes of a large one
    "take-begun",  # an agent is about to ask for blocks
    "take-part",  # bytes of a large one have come
    "take-arrived",  # all of it has come, and its sum is right
    "take-kept",  # it is kept, and nobody has heard of it yet
)
#: and on a worker that has an agent fetch blocks: it is about to say so
SEND_POINTS = ("send-begun",)
#: and one that goes to disk
SHELF_POINTS = (
    "copy-begun",  # the file is open, and empty
    "copy-written",
    "copy-named",  # it is there; the copy in memory is, too
)
#: and who loads one
LOAD_POINTS = (
    "fetch-begun",  # a worker is about to ask where copies are
    "fetch-come",  # one has come
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
    _reached[armed] = _reached.get(armed, 0) + 1
    if _reached[armed] != int(times or 1):
        return
    if error:
        raise OSError(getattr(errno, error), os.strerror(getattr(errno, error)))
    os.kill(os.getpid(), signal.SIGKILL)
