"""A command that is run once as a child of ours, and gets the signals that we get."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ASK_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A command to run once. Before it runs a signal to end ends us; when it is over, nothing may disturb
    the clean-up."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        #: as a shell would report it
        self.code = 0
        self.seconds = 0.0
        #: whether somebody asked it to end while it ran
        self.is_told = False

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals inside."""
        before = {number: signal.signal(number, self._receive) for number in _PASSED_ON}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, environment: Mapping[str, str]) -> int:
        """Start it, and wait for its end."""
        began = monotonic()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._process = subprocess.Popen(self._command, env={**os.environ, **environment})
        try:
            code = self._process.wait()
        except BaseException:
            self._process.kill()  # whatever it is: the script does not outlive its cluster
            raise
        self.seconds = monotonic() - began
        self.code = 128 - code if code < 0 else code
        return self.code

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            if number in _ASK_TO_END:
                sys.exit(128 + number)
        elif self._process.returncode is None and not (number == signal.SIGINT and _whole_group_got_it()):
            self.is_told |= number in _ASK_TO_END
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


def _whole_group_got_it() -> bool:
    """Whether Ctrl-C on our terminal reaches the script anyway."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
