"""Folders of a node for the copies of its agents: each has one of its own, for as long as it lives.

They lie in a folder of the user, whom alone it belongs to, one for each scheduler. Whoever has a folder holds
a lock on it, which its death frees; the next agent of the same scheduler on this node then takes over the
files that it left. Folders of other schedulers go when nobody has held them for a while.

Workers get this module by value: it imports nothing of ours.
"""

import fcntl
import os
import re
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

_LOCK = ".lock"
_OLD = 3600.0  # seconds since the last change of a folder that nobody holds
_TRIES = 20  # at making a folder, while others tidy up around it


class Scratch:
    """The folder of one agent. Raises ``OSError`` if there can be none."""

    def __init__(self, root: str, run: str) -> None:
        user = Path(root, f"dask-hpc-{os.geteuid()}")
        user.parent.mkdir(parents=True, exist_ok=True)
        self._run = user / (re.sub(r"[^A-Za-z0-9_.-]", "-", run).lstrip(".") or "run")
        for _ in range(_TRIES):
            # Agents of other clusters remove folders that are empty, and ours is until its lock is there.
            with suppress(FileNotFoundError, FileExistsError):
                _own(user)
                _remove_old(user, self._run.name)
                _own(self._run)
                self.path = self._run / f"agent-{token_hex(8)}"
                self.path.mkdir(mode=0o700)
                if (lock := _lock(self.path)) is not None:
                    self._held = lock
                    return
        raise BlockingIOError(11, "others remove every folder that is made", str(self._run))

    def take_over(self) -> None:
        """Have the files of agents that died here."""
        for folder in _in(self._run):
            if folder == self.path or (lock := _lock(folder, make=False)) is None:
                continue
            try:
                for file in _in(folder):
                    if file.name != _LOCK:
                        with suppress(OSError):
                            os.replace(file, self.path / file.name)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)

    def leave(self, keep: bool) -> None:
        """To the next agent here, or to nobody."""
        if not keep:
            shutil.rmtree(self.path, ignore_errors=True)
            for folder in (self._run, self._run.parent):
                with suppress(OSError):  # others are in it
                    folder.rmdir()
        os.close(self._held)


def _own(folder: Path) -> None:
    """It is ours, and nobody else may look into it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(13, "it belongs to somebody else", str(folder))
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(13, "others may look into it", str(folder))


def _lock(folder: Path, make: bool = True) -> int | None:
    """Hold a folder, if nobody does."""
    try:
        file = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if make else 0), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _remove_old(user: Path, ours: str) -> None:
    for run in _in(user):
        if run.name == ours or not run.is_dir():
            continue
        for folder in _in(run):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > _OLD and (lock := _lock(folder)) is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)
        with suppress(OSError):
            run.rmdir()


def _in(folder: Path) -> list[Path]:
    """What is in it; nothing if others have just removed it."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
