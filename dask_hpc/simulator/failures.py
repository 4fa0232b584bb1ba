"""When nodes fail and for how long: exponential, Weibull, or as a trace says."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import gamma, inf, log

from dask_hpc.model.errors import InputError, shown


@dataclass(frozen=True, slots=True)
class Failures:
    """Node failures. ``mtbf`` is of one node, in seconds; ``shape`` 1 is exponential, below 1 failures
    come in clusters. With a ``trace`` of ``(time, node index)`` nothing is drawn. A node is back after
    ``repair``. A job that loses a node starts again from its last checkpoint: the last commit of its own, if
    it says what it commits, else one every ``checkpoint`` seconds of work that costs nothing (0: from
    scratch).
    """

    mtbf: float = inf
    shape: float = 1.0
    repair: float = 0.0
    checkpoint: float = 0.0
    trace: tuple[tuple[float, int], ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("mtbf", "shape"):
            if not getattr(self, name) > 0:
                raise InputError(f"failures.{name}", f"found {shown(getattr(self, name))}", "more than 0")
        for name in ("repair", "checkpoint"):
            if not getattr(self, name) >= 0:
                raise InputError(f"failures.{name}", f"found {shown(getattr(self, name))}", "0 s or more")

    def times(self, nodes: int) -> Iterator[tuple[float, int]]:
        """``(time, node index)`` of failures, in order of time, without end."""
        if self.trace:
            yield from sorted(self.trace)
        if self.trace or self.mtbf == inf:
            return
        draw = random.Random(self.seed)
        if self.shape == 1.0:  # memoryless: the machine as a whole is one exponential clock
            time = 0.0
            while True:
                time += draw.expovariate(nodes / self.mtbf)
                yield time, draw.randrange(nodes)
        scale = self.mtbf / gamma(1 + 1 / self.shape)
        lives = [(self._life(draw, scale), node) for node in range(nodes)]
        heapify(lives)
        while True:
            time, node = lives[0]
            heapreplace(lives, (time + self.repair + self._life(draw, scale), node))
            yield time, node

    def _life(self, draw: random.Random, scale: float) -> float:
        return float(scale * (-log(1.0 - draw.random())) ** (1 / self.shape))
