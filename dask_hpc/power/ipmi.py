"""The whole node's power from its management controller, asked with ``ipmitool`` (DCMI)."""

import os
import re
import shutil
import subprocess

from dask_hpc.power.one_process import OneProcess
from dask_hpc.power.sensed import Sensed

_COMMAND = ("dcmi", "power", "reading")
_ANSWER = re.compile(r"Instantaneous power reading:\s*(\d+)\s*Watts")
_EVERY = 10.0  # seconds between questions: an answer costs a process, and the controller is slow
_AGAIN = 300.0  # seconds until the next question after one that failed
_DOUBT = 0.05  # of the watts
_DEVICES = ("dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0")


class Ipmi:
    """Asks every ten seconds, and answers the same in between; blocks while it asks, for ``patience``
    seconds at most.
    """

    def __init__(
        self,
        root: str = "/",
        command: str = "ipmitool",
        one: str = "dask-hpc-ipmi",
        patience: float = 5.0,
    ) -> None:
        self._patience = patience
        self._root = root
        self._command = command
        self._one = OneProcess(one)  # it is a slow controller
        self._next = float("-inf")
        self._last = Sensed("ipmi", "", "node")

    def sense(self, now: float, use: float) -> list[Sensed]:
        """What the controller said last."""
        if now >= self._next:
            self._last = self._ask()
            self._next = now + (_AGAIN if self._last.watts is None else _EVERY)
        return [self._last]

    def _ask(self) -> Sensed:
        row = Sensed("ipmi", "dcmi", "node")
        path = shutil.which(self._command)
        if path is None:
            return row._replace(problem=f"no command {self._command}", fix=f"install {self._command}")
        devices = [os.path.join(self._root, one) for one in _DEVICES]
        device = next(filter(os.path.exists, devices), None)
        if device is None:
            return row._replace(problem=f"no {devices[0]}", fix="modprobe ipmi_devintf ipmi_si")
        if not os.access(device, os.R_OK | os.W_OK):
            return row._replace(problem=f"permission denied: {device}", fix=f"as root: chmod a+rw {device}")
        if not self._one.take():
            return row._replace(problem="another process of this machine asks already")
        try:
            told = subprocess.run(
                [path, *_COMMAND],
                capture_output=True,
                text=True,
                timeout=self._patience,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return row._replace(problem=f"no answer in {self._patience:g} s")
        except (OSError, subprocess.SubprocessError) as error:
            return row._replace(problem=f"{self._command}: {error}")
        found = _ANSWER.search(told.stdout)
        watts = float(found[1]) if found else 0.0
        if watts <= 0:
            words = (told.stderr or told.stdout).strip().splitlines() or ["it says nothing"]
            return row._replace(problem=f"{self._command}: {words[0]}")
        return row._replace(watts=watts, uncertainty=_DOUBT * watts)

    def close(self) -> None:
        """Let another process ask."""
        self._one.release()
