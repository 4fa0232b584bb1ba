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
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"dask-hpc: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    stop = _Stop(process)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, stop.pass_on)
    threading.Thread(target=stop.when_input_ends, daemon=True).start()
    code = process.wait()
    with suppress(ProcessLookupError, PermissionError):  # what it has left behind
        os.killpg(process.pid, signal.SIGKILL)
    return 128 - code if code < 0 else code


class _Stop:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def when_input_ends(self) -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        self.pass_on(signal.SIGTERM, None)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
            return
        self.pass_on(signal.SIGKILL, None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
