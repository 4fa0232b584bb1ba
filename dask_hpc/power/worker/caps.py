"""A cap on the power of a node's packages, through ``constraint_0_power_limit_uw`` of RAPL.

Nothing is written until a cap is asked for. What was there before is written back by ``close``, and when the
interpreter exits; only a process that is killed leaves its cap behind.
"""

import atexit
import os
from contextlib import suppress

from distributed import WorkerPlugin

from dask_hpc.model.errors import InputError, shown
from dask_hpc.power.worker.meters import POWERCAP
from dask_hpc.power.worker.node_meter import NodePower
from dask_hpc.power.worker.sensors import OneProcess, read_text, why_not

_LIMIT = "constraint_0_power_limit_uw"
_LEAST_SHARE = 0.3  # of what a package may use: below this, processors hardly run


class CannotCap(Exception):
    """There is no cap here, and this is why."""


class PackageCaps:
    """Caps all packages of this node alike. One process of a machine at a time can."""

    def __init__(self, root: str = "/", one: str = "dask-hpc-cap") -> None:
        self._place = os.path.join(root, POWERCAP)
        self._one = OneProcess(one)
        #: by file, as they were before us
        self._before: dict[str, str] = {}

    def why_not(self) -> str:
        """Why no cap can be set here; empty if one can."""
        try:
            self._limits(check=True)
        except CannotCap as error:
            return str(error)
        return ""

    def bounds(self) -> tuple[float, float]:
        """The least and the most watts that ``set`` takes, of all packages together."""
        limits = {path: float(text) / 1e6 for path, text in self._limits().items()}
        least = [max(_LEAST_SHARE * watts, self._lowest(path)) for path, watts in limits.items()]
        return sum(least), sum(limits.values())

    def set(self, watts: float) -> None:
        """Let all packages together use so many watts, each the same share of what it may. All are set, or
        none is. ``InputError`` if the watts are not within ``bounds``."""
        if not self._one.take():
            raise CannotCap("another process of this machine caps its packages already")
        try:  # after the one before us has put back what was there
            limits = self._limits(check=True)
            least, most = self.bounds()
            if not least <= watts <= most:
                allowed = f"{least:g} W to {most:g} W for the packages"
                raise InputError("cap", f"found {shown(watts)} W", allowed)
        except BaseException:
            if not self._before:
                self._one.release()
            raise
        if not self._before:
            self._before = limits
            atexit.register(self.close)
        try:
            for path, text in limits.items():
                write_text(path, str(round(float(text) * watts / most)))
        except OSError as error:
            self.close()
            raise CannotCap(f"the cap was not taken: {why_not(error, path)}") from None

    def close(self) -> None:
        """What was there before is there again."""
        before, self._before = self._before, {}
        for path, text in before.items():
            with suppress(OSError):  # it has gone
                write_text(path, text)
        self._one.release()
        atexit.unregister(self.close)

    def _limits(self, check: bool = False) -> dict[str, str]:
        """What each package may use without us, in microwatts, by the file that says so."""
        if self._before:
            return self._before
        try:
            names = sorted(os.listdir(self._place))
        except OSError as error:
            raise CannotCap(why_not(error, self._place)) from None
        found = {}
        for name in names:
            folder = os.path.join(self._place, name)
            path = os.path.join(folder, _LIMIT)
            if name.count(":") != 1 or "mmio" in name or not os.path.exists(path):
                continue
            try:
                if read_text(os.path.join(folder, "name")).strip() == "psys":
                    continue
                text = read_text(path).strip()
                if float(text) > 0:
                    found[path] = text
                if check and not os.access(path, os.W_OK):
                    raise PermissionError(13, "permission denied (caps need root)")
            except (OSError, ValueError) as error:
                raise CannotCap(why_not(error, path)) from None
        if not found:
            raise CannotCap(f"no package with a limit in {self._place}")
        return found

    def _lowest(self, path: str) -> float:
        with suppress(OSError, ValueError):
            return float(read_text(path.replace("power_limit", "min_power"))) / 1e6
        return 0.0


def write_text(path: str, text: str) -> None:
    """Into a file of the kernel's that is there."""
    file = os.open(path, os.O_WRONLY | os.O_TRUNC)  # never made anew
    try:
        os.write(file, text.encode("ascii"))
    finally:
        os.close(file)


_STEP = 0.01  # of what the packages may use: smaller changes are not worth setting


class NodeCap:
    """``follow`` it with every sample."""

    def __init__(self, root: str = "/", caps: PackageCaps | None = None) -> None:
        self._caps = caps or PackageCaps(root)
        self._set: float | None = None
        #: the watts a node can be capped to now, the least and the most; None if it cannot be
        self.bounds: tuple[float, float] | None = None
        #: the watts it is capped to; None if it is not
        self.watts: float | None = None

    def follow(self, wanted: float | None, power: NodePower) -> None:
        """From now on so many watts, or as many as can be; None is no cap."""
        if wanted is None:
            self.close()
        self.bounds = None
        packages = [row for row in power.rows if row.covers == "processor" and not row.within]
        if not packages or any(row.watts is None for row in packages):
            return  # what the rest draws is not known; a cap that is set stays
        rest = max(0.0, power.watts - sum(row.watts or 0.0 for row in packages))
        try:
            if self._caps.why_not():
                return
            least, most = self._caps.bounds()
            self.bounds = (least + rest, most + rest)
            if wanted is not None:
                target = min(max(wanted - rest, least), most)
                if self._set is None or abs(target - self._set) > _STEP * most:
                    self._caps.set(target)
                    self._set = target
                self.watts = self._set + rest
        except (CannotCap, InputError, OSError):  # the packages are not ours to cap any more
            self.bounds = self.watts = self._set = None

    def close(self) -> None:
        if self._set is not None:
            self._caps.close()
        self.watts = self._set = None


NAME = "dask-hpc-cap"


class CapPlugin(WorkerPlugin):
    """While it is there, the node is to draw at most so many ``watts``."""

    name = NAME

    def __init__(self, watts: float) -> None:
        self.watts = watts
