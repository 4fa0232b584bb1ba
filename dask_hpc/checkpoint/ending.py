"""The end of this process, as far as it can be known: SIGTERM, and the walltime of its batch job."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from datetime import datetime
from time import time
from types import FrameType
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity

_ASK_SLURM = 10.0  # seconds that scontrol may take


class Ending:
    """While this is open, SIGTERM does not end the process but is noted; ``close`` lets it happen. Where
    signals cannot be caught (in threads), they do what they did."""

    def __init__(self, end: float | None) -> None:
        #: by the system's clock, if it is known
        self.end = end
        self.is_told = False
        self._before: Any = None
        self._catches = False

    def __enter__(self) -> "Ending":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._told)
            self._catches = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def left(self) -> float | None:
        """Seconds until the walltime is over, if it is known."""
        return None if self.end is None else self.end - time()

    def close(self) -> None:
        """Signals do again what they did; one that was noted does it now."""
        if not self._catches:
            return
        self._catches = False
        if signal.getsignal(signal.SIGTERM) == self._told:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        if self.is_told:
            self.is_told = False
            os.kill(os.getpid(), signal.SIGTERM)

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.is_told:  # somebody insists
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
            os.kill(os.getpid(), signal.SIGTERM)
        self.is_told = True


def end_of_job(walltime: Any, ask: Callable[[str], str] | None = None) -> float | None:
    """When this process will be ended, by the system's clock. ``walltime`` is ``auto`` (Slurm is asked),
    seconds from now, or None."""
    if walltime is None:
        return None
    if walltime != "auto":
        seconds = parse_quantity(walltime, "s")
        if not 0 < seconds < 1e9:
            raise InputError("walltime", f"found {shown(walltime)}", "auto, a duration, or None")
        return time() + seconds
    told = os.environ.get("SLURM_JOB_END_TIME", "")
    if told.isdecimal():
        return float(told)
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        return None
    try:
        words = dict(word.partition("=")[::2] for word in (ask or _asked)(job).split())
        return datetime.fromisoformat(words["EndTime"]).timestamp()
    except (OSError, subprocess.SubprocessError, KeyError, ValueError):
        return None  # no such command, no answer, or no end ("Unknown")


def _asked(job: str) -> str:
    return subprocess.run(
        ["scontrol", "show", "job", "-o", job], capture_output=True, text=True, timeout=_ASK_SLURM
    ).stdout
