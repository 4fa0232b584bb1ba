"""Counts what the processor did for each task: instructions, and accesses and misses of the last cache.

Linux counts events of a thread where it is let (``perf_event_open``; no library is needed). Each of a
worker's threads opens its counters at its first task and reads them when a task begins and when it ends, in
one call each. What threads that the task starts itself do (those of a BLAS) is not counted. Where it cannot
be, ``why_not`` says so in words, and bytes a second have to do.

1. A processor has few counters. If others want them, Linux shares them out in time; what was counted is
   then scaled to all the time. What was never counted while a task ran is not known (None).
2. Counters have 64 bits and begin anew at 0.
3. A counter that cannot be read any more, or that stands still (it is of a thread that had this one's number
   before), is closed, and opened once more by the next task.
"""

import ctypes
import errno
import logging
import os
import platform
import struct
import sys
import threading
from collections.abc import Hashable
from contextlib import suppress
from time import sleep
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

_CALLS = {"x86_64": 298, "aarch64": 241, "arm64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _SOFTWARE = 0, 1
_TIMES_AND_GROUP = 0b1011  # time enabled, time running, one read for all
_USER_ONLY = (1 << 5) | (1 << 6)  # not the kernel's part, nor the hypervisor's: ordinary users may not
_ATTRIBUTES = 112  # bytes of perf_event_attr that we give; the kernel takes the rest as 0
_CLOSE_ON_EXEC = 8
#: seconds, once: some kernels count only the first of a group until its thread has been off its processor
_GIVE_WAY = 1e-4
_WRAP = 1 << 64
_MOST = 2000  # tasks whose counts are kept until somebody asks


class CpuEvent(NamedTuple):
    """Something that Linux counts."""

    name: str
    type: int
    config: int


#: last-level-cache misses, its accesses, and instructions
CACHE = (
    CpuEvent("misses", _HARDWARE, 3),
    CpuEvent("accesses", _HARDWARE, 2),
    CpuEvent("instructions", _HARDWARE, 1),
)
#: what any Linux counts, in virtual machines as well: nanoseconds of a thread, and its page faults
SOFTWARE = (CpuEvent("nanoseconds", _SOFTWARE, 1), CpuEvent("faults", _SOFTWARE, 2))

#: one reading: time enabled, time running, and the counts
Reading = tuple[int, ...]


def counted(before: Reading, after: Reading) -> tuple[float, ...] | None:
    """What was counted between two readings, scaled to all the time; None if nothing was."""
    enabled, running, *counts = ((new - old) % _WRAP for old, new in zip(before, after, strict=True))
    if not running or running > enabled or max(counts) >= _WRAP // 2:
        return None
    return tuple(count * enabled / running for count in counts)


class CounterGroup:
    """The counters of the thread that makes it. Raises ``OSError`` where there are none for us."""

    def __init__(self, events: tuple[CpuEvent, ...]) -> None:
        self.files: list[int] = []
        self._layout = struct.Struct(f"={3 + len(events)}Q")
        try:
            for event in events:
                self.files.append(_open(event, self.files[0] if self.files else -1))
        except OSError:
            self.close()
            raise
        sleep(_GIVE_WAY)

    def read(self) -> Reading:
        """Now. Raises ``OSError`` if it cannot be read any more."""
        text = os.read(self.files[0], self._layout.size) if self.files else b""
        if len(text) != self._layout.size:
            raise OSError(errno.EBADF, "no counter")
        _, *found = self._layout.unpack(text)
        return tuple(found)

    def close(self) -> None:
        """No more."""
        files, self.files = self.files, []
        for file in files:
            with suppress(OSError):
                os.close(file)


def _open(event: CpuEvent, leader: int) -> int:
    number = _CALLS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        raise OSError(errno.ENOSYS, "no perf_event_open")
    attributes = bytearray(_ATTRIBUTES)
    struct.pack_into("=IIQQQQQ", attributes, 0, event.type, _ATTRIBUTES, event.config, 0, 0, _TIMES_AND_GROUP,
                     _USER_ONLY)  # fmt: skip
    text = (ctypes.c_char * _ATTRIBUTES).from_buffer(attributes)
    file = int(_libc().syscall(number, text, 0, -1, leader, _CLOSE_ON_EXEC))
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return file


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def why_not(events: tuple[CpuEvent, ...] = CACHE) -> str:
    """Why this process cannot count, in words; empty if it can."""
    try:
        group = CounterGroup(events)
    except OSError as error:
        return _in_words(error)
    try:
        before = group.read()
        sum(range(1000))
        if counted(before, group.read()) is None:
            return "the processor's counters do not run (others use them all?)"
    except OSError as error:
        return _in_words(error)
    finally:
        group.close()
    return ""


def _in_words(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        level = "not to be read"
        with suppress(OSError), open("/proc/sys/kernel/perf_event_paranoid", encoding="ascii") as file:
            level = file.read().strip()
        return (
            f"counters are not allowed here (kernel.perf_event_paranoid is {level}, or a container forbids)"
        )
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this machine shows no counters of its processor (a virtual machine?)"
    if error.errno == errno.ENOSYS:
        return "this system has no perf_event_open"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many files are open"
    return f"counters cannot be opened: {error.strerror}"


class Counters:
    """Of the tasks of one worker: called in its threads, read from anywhere."""

    def __init__(self, events: tuple[CpuEvent, ...] = CACHE) -> None:
        self.events = events
        #: empty if they count
        self.why_not = why_not(events)
        self._lock = threading.Lock()
        self._groups: dict[int, CounterGroup] = {}
        self._began: dict[int, tuple[Hashable, Reading]] = {}
        self._done: dict[Hashable, tuple[float, ...] | None] = {}
        self._is_over = bool(self.why_not)

    def begins(self, key: Hashable) -> None:
        """A task begins in this thread."""
        if self._is_over:
            return
        thread = threading.get_ident()
        with self._lock:
            self._began.pop(thread, None)
            reading = self._read(thread, may_open=True)
            if reading is not None:
                self._began[thread] = key, reading

    def ends(self, key: Hashable) -> None:
        """It has ended."""
        if self._is_over:
            return
        thread = threading.get_ident()
        with self._lock:
            began = self._began.pop(thread, None)
            reading = self._read(thread, may_open=False)
            if began is None or reading is None or began[0] != key:
                return
            counts = self._done[key] = counted(began[1], reading)
            if counts is None and thread in self._groups:
                self._groups.pop(thread).close()
            if len(self._done) > _MOST:
                del self._done[next(iter(self._done))]

    def take(self, key: Hashable) -> tuple[float, ...] | None:
        """What was counted for a task that has ended, once; None if that is not known."""
        with self._lock:
            return self._done.pop(key, None)

    def forget_threads(self) -> None:
        """Those that are no more."""
        with self._lock:
            for thread in self._groups.keys() - {one.ident for one in threading.enumerate()}:
                self._groups.pop(thread).close()
                self._began.pop(thread, None)

    def close(self) -> None:
        """No more."""
        with self._lock:
            self._is_over = True
            for group in self._groups.values():
                group.close()
            self._groups.clear()
            self._began.clear()
            self._done.clear()

    def _read(self, thread: int, may_open: bool) -> Reading | None:
        if self._is_over:
            return None
        group = self._groups.get(thread)
        try:
            if group is None:
                if not may_open:
                    return None
                group = self._groups[thread] = CounterGroup(self.events)
            return group.read()
        except OSError as error:
            if group is None:  # no more can be opened
                self._is_over, self.why_not = True, _in_words(error)
            else:
                self._groups.pop(thread).close()
            return None
