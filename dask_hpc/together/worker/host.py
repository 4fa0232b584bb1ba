"""The processor of this host, as Linux describes it."""

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

from dask.system import CPU_COUNT

_CPUS = Path("/sys/devices/system/cpu")
_ABOUT = Path("/proc/cpuinfo")
_NAMES = ("model name", "cpu model", "uarch", "cpu", "machine")  # as the kinds of processors have it


def physical_cores(cpus: Path = _CPUS) -> int:
    """How many cores there are, each with all its hyper-threads counted once; 0 if nobody says."""
    cores = set()
    for cpu in cpus.glob("cpu[0-9]*"):
        with suppress(OSError):  # one that is switched off
            siblings = (cpu / "topology" / "thread_siblings_list").read_text(encoding="ascii").strip()
            cores.add(siblings)
    return len(cores)


def cpu_model(about: Path = _ABOUT) -> str:
    """Its name."""
    lines: dict[str, str] = {}
    with suppress(OSError):
        for line in about.read_text(encoding="utf-8", errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if colon and value.strip():
                lines.setdefault(name.strip().lower(), value.strip())
    found = next((lines[name] for name in _NAMES if name in lines), "")
    return " ".join((found or platform.processor() or platform.machine() or "unknown").split())


@cache
def this_host() -> tuple[str, int]:
    """Name of the processor, and physical cores: not more than this process may use."""
    return cpu_model(), min(physical_cores() or CPU_COUNT, CPU_COUNT)
