"""Run a command that ends when standard input does: ``python -I tied.py COMMAND ...``.

A program that runs beside Dask is started so. However the script that wants it ends, the pipe is closed, and
the program with all it has started gets SIGTERM, and SIGKILL some seconds later. Signals and the exit code
are passed on.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from types import FrameType

_PATIENCE = 10.0  # seconds between SIGTERM and SIGKILL


def main(command: list[str]) -> int:
    """Gives the exit code, as a shell would report it."""
    tie = _Tie()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, tie.hear)
    try:
        process = tie.start(command)
    except OSError as error:
        print(f"dask-hpc: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=tie.end_with_input, daemon=True).start()
    code = process.wait()
    tie.pass_on(signal.SIGKILL)  # to what it has left behind
    return 128 - code if code < 0 else code


class _Tie:
    """Between us and the command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """Start it, and tell it what it should have heard meanwhile."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._process = process
        for number in self._early:
            self.pass_on(number)
        return process

    def hear(self, number: int, frame: FrameType | None) -> None:
        """A signal is for the command."""
        if self._process is None:
            self._early.append(number)
        self.pass_on(number)

    def pass_on(self, number: int) -> None:
        """To the command and all that it has started, as long as there is any of it."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def end_with_input(self) -> None:
        """Waits for the end of standard input; then for the command, though not for long."""
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        self.pass_on(signal.SIGTERM)
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
            return
        self.pass_on(signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
