"""What is looked at in a process of its own, here or on another node; alone, with Python's library only.

``probe.py directory PATH``: do locks and atomic renames work there?
``probe.py node HOST PORT FILE ...``: can this node connect to the doctor, what time is it there, which of
these files does it see?
Each prints one line of JSON.
"""

import fcntl
import json
import os
import platform
import socket
import sys
import tempfile
import time
from collections.abc import Callable

_PATIENCE = 5.0


def directory(path: str) -> dict[str, str]:
    """Try it out in a directory of its own."""
    found = {"lock": "", "rename": "", "problem": ""}
    try:
        with tempfile.TemporaryDirectory(prefix=".dask-hpc-doctor-", dir=path) as place:
            found["lock"] = _lock(os.path.join(place, "lock"))
            found["rename"] = _rename(place)
    except OSError as error:
        found["problem"] = _words(error)
    return found


def _lock(path: str) -> str:
    with open(path, "ab") as first, open(path, "ab") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return _words(error)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        except OSError as error:
            return _words(error)
        return "two have the same one"


def _rename(place: str) -> str:
    old, new = os.path.join(place, "old"), os.path.join(place, "new")
    try:
        for path, text in ((old, "old"), (new, "new")):
            with open(path, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        with open(old) as reader:
            os.replace(new, old)
            if reader.read() != "old":
                return "who reads the old file finds the new one"
        with open(old) as file:
            return "" if file.read() == "new" else "the old file is still there"
    except OSError as error:
        return _words(error)


def node(host: str, port: str, *files: str) -> dict[str, object]:
    """Ask the doctor for the time, by which clocks are compared as NTP does."""
    found: dict[str, object] = {
        "name": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "python": platform.python_version(),
        "seen": [os.path.exists(path) for path in files],
        "problem": "",
    }
    try:
        best = min((_ask(host, int(port)) for _ in range(5)), key=lambda pair: pair[1])
        found["ahead"], found["within"] = best
    except (OSError, ValueError) as error:
        found["problem"] = _words(error) if isinstance(error, OSError) else "somebody else answered"
    return found


def _ask(host: str, port: int) -> tuple[float, float]:
    with socket.create_connection((host, port), _PATIENCE) as connection:
        began = time.time()
        connection.sendall(b"?")
        theirs = float(connection.recv(64))
        ended = time.time()
    return (began + ended) / 2 - theirs, (ended - began) / 2


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


if __name__ == "__main__":
    looks: dict[str, Callable[..., object]] = {"directory": directory, "node": node}
    print(json.dumps(looks[sys.argv[1]](*sys.argv[2:])))
