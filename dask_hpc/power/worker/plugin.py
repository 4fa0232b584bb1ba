"""The worker's half of the power meter: read this node's sensors, and tell with every heartbeat.

While there is a ``CapPlugin`` as well, the node's packages are capped to what that says, if they can be.

Sampling has a thread of its own: some sensors answer late, and the worker's event loop must not wait for
them. Nothing that goes wrong here reaches the user.
"""

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from distributed import WorkerPlugin

from dask_hpc.model.errors import InputError, is_number, one_line, shown
from dask_hpc.model.power import SOURCES, Source
from dask_hpc.power.worker.caps import NAME as CAP
from dask_hpc.power.worker.caps import NodeCap
from dask_hpc.power.worker.node_meter import NodePower, ThisNode
from dask_hpc.power.worker.sensors import Busy

KEY = "hpc_power"  # among a worker's metrics
MOST = 1e7  # watts of one host that are believed


class Heartbeat(NamedTuple):
    """What a worker tells, as the scheduler reads it."""

    host: str
    pid: int
    sequence: int
    age: float
    watts: float
    uncertainty: float
    source: Source
    idle: float
    use: float
    share: float
    meters: list[str]
    problem: str
    cap: list[float] | None = None
    capped: float | None = None

    @classmethod
    def read(cls, value: Any) -> "Heartbeat":
        """From what came over the wire."""
        if not isinstance(value, Mapping):
            raise InputError(KEY, f"found {shown(value)}", "a dict")
        for name, (allowed, is_fine) in _FIELDS.items():
            if not is_fine(value.get(name)):
                raise InputError(f"{KEY}: {name}", f"found {shown(value.get(name))}", allowed)
        found: dict[str, Any] = {name: value.get(name) for name in _FIELDS}
        # On the way a list may become a tuple.
        found["meters"] = list(found["meters"])
        found["cap"] = None if found["cap"] is None else list(found["cap"])
        return cls(**found)


def of_each(told: Mapping[str, Heartbeat]) -> dict[str, tuple[float, float]]:
    """Watts and uncertainty of each of the workers of *one* host, where each of them is a node.

    They share the idle power equally, and each has that part of the rest that it has of the processors'
    work. What other programs of the host use is nobody's.
    """
    found = {}
    for worker, one in told.items():
        idle = min(one.idle, one.watts)
        part = idle / len(told) + (one.watts - idle) * one.share
        found[worker] = (part, one.uncertainty * (part / one.watts if one.watts else 1 / len(told)))
    return found


def _watts(value: Any) -> bool:
    return is_number(value, 0, MOST) and not isinstance(value, bool)


def _pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_watts, value))


def _text(value: Any) -> bool:
    return isinstance(value, str) and value == one_line(value)


def _share(value: Any) -> bool:
    return is_number(value, 0, 1)


#: in the order of ``Heartbeat``
_FIELDS = {
    "host": ("a name", lambda value: _text(value) and value != ""),
    "pid": ("a whole number", lambda value: type(value) is int),
    "sequence": ("a whole number >= 1", lambda value: type(value) is int and value >= 1),
    "age": ("seconds", lambda value: is_number(value, 0, inf)),
    "watts": ("watts", _watts),
    "uncertainty": ("watts", _watts),
    "source": (", ".join(SOURCES), lambda value: isinstance(value, str) and value in SOURCES),
    "idle": ("watts", _watts),
    "use": ("0 to 1", _share),
    "share": ("0 to 1", _share),
    "meters": ("a list of names", lambda value: isinstance(value, list | tuple) and all(map(_text, value))),
    "problem": ("one line of text", _text),
    "cap": ("two watts, or None", lambda value: value is None or _pair(value)),
    "capped": ("watts, or None", lambda value: value is None or _watts(value)),
}  # fmt: skip


NAME = "dask-hpc-power"
_SOON = 0.1  # seconds until the first sample: counters need two looks


class PowerPlugin(WorkerPlugin):
    """Samples every ``interval`` seconds. ``measured`` calibrates the model: pairs of use (0 to 1) and watts
    of a node. ``root`` is where the file tree of the sensors begins; without ``sensors`` there is only the
    model.
    """

    name = NAME

    def __init__(
        self,
        interval: float = 1.0,
        measured: Sequence[tuple[float, float]] = (),
        sensors: bool = True,
        root: str = "/",
    ) -> None:
        self._interval = interval
        self._measured = tuple(measured)
        self._sensors = sensors
        self._root = root
        #: when the last sample was taken, and what it says
        self._latest: tuple[float, dict[str, Any]] | None = None

    async def setup(self, worker: Any) -> None:
        """Tasks of this worker start when this is over, so nothing here waits."""
        self._worker = worker
        self._host = _host()
        self._over = threading.Event()
        threading.Thread(target=self._run, name=NAME, daemon=True).start()
        # Kept: a method is another object each time that it is asked for.
        self._metric = worker.metrics[KEY] = self._tell

    async def teardown(self, worker: Any) -> None:
        self._over.set()  # the thread ends as soon as no sensor keeps it
        if worker.metrics.get(KEY) is self._metric:  # else another plugin has taken our place
            del worker.metrics[KEY]

    def _tell(self, worker: Any) -> dict[str, Any] | None:
        latest = self._latest
        return latest and latest[1] | {"age": max(0.0, monotonic() - latest[0])}

    # in the thread

    def _run(self) -> None:
        with (
            closing(ThisNode(self._root, self._measured, self._sensors)) as node,
            closing(NodeCap(self._root)) as cap,
        ):
            pause, sequence = min(_SOON, self._interval), 0
            with suppress(Exception):
                node.sample(monotonic())
            while not self._over.wait(pause):
                pause = self._interval
                with suppress(Exception):  # a sequence that stands still tells the scheduler
                    busy, power = node.sample(monotonic())
                    wanted = self._worker.plugins.get(CAP)
                    cap.follow(None if wanted is None else wanted.watts, power)
                    sequence += 1
                    self._latest = (power.time, self._words(sequence, busy, power, cap))

    def _words(self, sequence: int, busy: Busy, power: NodePower, cap: NodeCap) -> dict[str, Any]:
        # The processor time of a process says nothing of single workers in it: they get equal parts.
        here = sum(thread.name == NAME for thread in threading.enumerate())
        return Heartbeat(
            host=self._host,
            pid=os.getpid(),
            sequence=sequence,
            age=0.0,
            watts=power.watts,
            uncertainty=power.uncertainty,
            source=power.source,
            idle=power.idle,
            use=busy.use,
            share=busy.share / max(1, here),
            meters=list(power.used),
            problem=" ".join(power.problem.split()),
            cap=None if cap.bounds is None else list(cap.bounds),
            capped=cap.watts,
        )._asdict()


def _host() -> str:
    """The same for all processes of one machine, whatever name a container gives it."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return socket.gethostname()
