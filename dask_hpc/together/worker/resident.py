"""How much memory this process has in RAM, and how much it had at most."""

import os
from contextlib import suppress

import psutil

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MOST, _NOW = b"VmHWM:", b"VmRSS:"


class Resident:
    """Looks whenever it is asked; what was between two looks it does not see. Works everywhere."""

    is_exact = False
    how = "looks at the process's memory now and then"

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._highest = 0

    def now(self) -> int:
        """Bytes."""
        found = self._look()
        self._highest = max(self._highest, found)
        return found

    def highest(self) -> int:
        """The most since this was asked last."""
        found = max(self._highest, self._look())
        self._highest = 0
        return found

    def look(self) -> tuple[int, int]:
        """Both: the most, and now."""
        return self.highest(), self.now()

    def close(self) -> None:
        """It is not asked any more."""

    def _look(self) -> int:
        return int(self._process.memory_info().rss)


class Statm(Resident):
    """The same on Linux, in a microsecond."""

    def __init__(self) -> None:
        super().__init__()
        self._file = os.open("/proc/self/statm", os.O_RDONLY)

    def close(self) -> None:
        os.close(self._file)

    def _look(self) -> int:
        return int(os.pread(self._file, 128, 0).split()[1]) * _PAGE


class HighWater(Statm):
    """Sees everything: Linux keeps the highest mark, and begins anew when it is told to. Whoever else in this
    process looks at that mark, or at ``ru_maxrss``, finds the highest since then. Raises ``OSError`` where
    the system does not let us."""

    is_exact = True
    how = "the system's own high-water mark"

    def __init__(self) -> None:
        super().__init__()
        try:
            self._status = os.open("/proc/self/status", os.O_RDONLY)
            try:
                self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY)
            except OSError:
                os.close(self._status)
                raise
        except OSError:
            super().close()
            raise
        try:
            self.highest()
        except (OSError, ValueError) as error:  # a kernel without such a mark
            self.close()
            raise OSError(f"no high-water mark: {error}") from error

    def now(self) -> int:
        return self._look()

    def highest(self) -> int:
        return self.look()[0]

    def look(self) -> tuple[int, int]:
        # few calls: each lets other threads of Python go first, for milliseconds if they compute
        text = os.pread(self._status, 8192, 0)
        os.write(self._reset, b"5")
        return _kilobytes(text, _MOST), _kilobytes(text, _NOW)

    def close(self) -> None:
        for file in (self._status, self._reset):
            os.close(file)
        super().close()


def _kilobytes(text: bytes, name: bytes) -> int:
    start = text.index(name) + len(name)
    return int(text[start : text.index(b"kB", start)]) * 1024


def resident_memory() -> Resident:
    """The best there is here."""
    for best in (HighWater, Statm):
        with suppress(OSError, ValueError, IndexError):
            return best()
    return Resident()
