"""Only one process of a machine at a time does a thing: it holds an abstract socket of that name.

The kernel takes the name back when the process ends, however it ends, and no file is left.
"""

import socket


class OneProcess:
    """Whether we are the one."""

    def __init__(self, name: str) -> None:
        self._name = f"\0{name}"
        self._held: socket.socket | None = None

    def take(self) -> bool:
        """Become the one; False if somebody else is."""
        if self._held is None:
            held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                held.bind(self._name)
            except OSError:
                held.close()
                return False
            self._held = held
        return True

    def release(self) -> None:
        """Let another one be it."""
        if self._held is not None:
            self._held.close()
            self._held = None
