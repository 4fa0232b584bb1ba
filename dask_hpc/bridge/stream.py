"""What the scheduler knows of one stream: where its blocks are, who brings them, and which will not come."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from dask_hpc.bridge.grid import Asked, StreamGrid, stride_before
from dask_hpc.cluster.scheduler.service import Timer

_KEPT = 1000  # steps whose blocks are known: those before the newest are over


@dataclass(eq=False)
class Producer:
    """A process that brings blocks, connected or not."""

    rank: Any
    #: runs while it is gone without a word and may return
    late: Timer
    #: the way to it, while it is connected
    comm: Any = None
    #: it has said that it brings no more
    has_ended: bool = False
    #: it went without a word, and did not return for too long
    is_lost: bool = False


@dataclass(slots=True)
class StreamBlock:
    """Where a block is that a worker once had."""

    #: the worker that has it; empty if none has
    worker: str = ""
    #: it lies in a file there, until there is room in the worker's memory
    is_in_file: bool = False
    #: consumers have had it
    is_had: bool = False
    #: it was consumed, and is nowhere any more
    is_gone: bool = False


class BridgeStream:
    """One name, one declaration. ``size`` is how many producers there will be, if that is known."""

    def __init__(self, name: str, grid: StreamGrid) -> None:
        self.name = name
        self.grid = grid
        #: of this stream and none that had its name before
        self.id = f"{name}.{token_hex(4)}"
        self.size = 0
        self.producers: dict[Any, Producer] = {}
        #: the ids of the clients that have opened it, as often as they have
        self.consumers: list[str] = []
        #: the workers that blocks are sent to, neighbours beside each other
        self.workers: tuple[str, ...] = ()
        #: by step, by variable and index
        self.steps: dict[int, dict[tuple[str, tuple[int, ...]], StreamBlock]] = {}
        #: steps that were given up, and why
        self.over: dict[int, str] = {}
        #: who brought blocks of that index last
        self.brings: dict[tuple[int, ...], Any] = {}
        self.newest = -1
        #: what the scheduler heard of it, by kind
        self.messages: Counter[str] = Counter()
        #: all producers have ended, and all that they brought is known
        self.is_complete = False
        #: from a step on, only every so many steps come: pairs of both
        self.strides: list[tuple[int, int]] = []

    @property
    def is_used(self) -> bool:
        return bool(self.consumers) or any(one.comm is not None for one in self.producers.values())

    @property
    def stride(self) -> int:
        return self.strides[-1][1] if self.strides else 1

    def come(
        self, worker: str, variable: str, step: int, blocks: Iterable[tuple[Any, Any, bool]]
    ) -> list[Asked]:
        """A worker has these blocks, each with the rank that brought it, and whether it is in a file. Those
        that can be had."""
        there = self.steps.setdefault(step, {})
        found = []
        for index, rank, is_in_file in blocks:
            block = there.setdefault((variable, index), StreamBlock())
            block.worker, block.is_in_file, block.is_gone = worker, is_in_file, False
            self.brings[index] = rank
            if not is_in_file:
                found.append(Asked(self.id, variable, step, index))
        self.newest = max(self.newest, step)
        while len(self.steps) > _KEPT:
            del self.steps[min(self.steps)]
        return found

    def block(self, asked: Asked) -> StreamBlock:
        found = self.steps.get(asked.step, {}).get((asked.variable, asked.block))
        return StreamBlock() if found is None else found

    def gone(self, worker: str, steps: Iterable[int]) -> None:
        """A worker has thrown away what it had of these steps: it was consumed."""
        for step in steps:
            for block in self.steps.get(step, {}).values():
                if block.worker == worker:
                    block.worker, block.is_gone = "", True

    def lose(self, worker: str) -> list[tuple[Asked, StreamBlock]]:
        """A worker is dead. The blocks that were there."""
        lost = [
            (Asked(self.id, variable, step, index), block)
            for step, there in self.steps.items()
            for (variable, index), block in there.items()
            if block.worker == worker
        ]
        for _, block in lost:
            block.worker, block.is_in_file = "", False
        return lost

    def give_up(self, step: int, why: str) -> bool:
        """No blocks of this step are kept or taken in any more. Whether that is new."""
        if step in self.over:
            return False
        self.over[step] = why
        self.steps.pop(step, None)
        self.newest = max(self.newest, step)
        while len(self.over) > _KEPT:
            del self.over[next(iter(self.over))]
        return True

    def thin_out(self, step: int) -> bool:
        """After this step only half as many come. Whether that is new: one slow moment counts once."""
        if self.strides and step <= self.strides[-1][0] + self.stride:
            return False
        self.strides.append((step, 2 * self.stride))
        return True

    def why_not(self, asked: Asked) -> str:
        """Why a block that is in no worker's memory will not come; nothing if it may."""
        step, block = asked.step, self.block(asked)
        if block.is_in_file:
            return ""
        if step in self.over:
            return self.over[step]
        if block.is_gone or step <= self.newest - _KEPT:
            return "it has been consumed and its room was needed"
        if left_out := self._leaves_out(step):
            return left_out
        if self.is_complete:
            return f"the producers have ended; the last step was {self.newest}"
        rank = self.brings.get(asked.block)
        lost = [one.rank for one in self.producers.values() if one.is_lost]
        if rank in lost or (lost and len(lost) == len(self.producers)):
            after = self.grid.lost_after
            return f"producer {rank if rank in lost else lost[0]} has gone and did not return in {after:g} s"
        return ""

    @property
    def has_ended(self) -> bool:
        """Whether all producers have said that they bring no more."""
        ended = sum(one.has_ended for one in self.producers.values())
        return bool(ended) and ended == max(self.size, len(self.producers))

    def skipped(self) -> dict[int, str]:
        """Steps that were given up, or left out since others were, and why."""
        steps = range(max(0, self.newest + 1 - _KEPT), self.newest + 1)
        left_out = {step: self._leaves_out(step) for step in steps if step not in self.steps}
        return dict(sorted(({step: why for step, why in left_out.items() if why} | self.over).items()))

    def _leaves_out(self, step: int) -> str:
        every = stride_before(step, self.strides)
        nth = f"{every}{'nd' if every == 2 else 'th'}"
        return f"the consumers were slow, and only every {nth} step came" if step % every else ""

    def as_plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "id": self.id,
            "grid": self.grid.as_plain(),
            "workers": list(self.workers),
            "producers": {
                str(one.rank): "connected" if one.comm is not None else "ended" if one.has_ended else "gone"
                for one in self.producers.values()
            },
            "consumers": len(self.consumers),
            "newest": self.newest,
            "messages": dict(self.messages),
            "skipped": [[step, why] for step, why in self.skipped().items()],
            "strides": [list(pair) for pair in self.strides],
        }
