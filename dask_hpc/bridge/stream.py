"""What the scheduler knows of one stream: where its blocks are, who brings them, and which will not come."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from secrets import token_hex
from typing import Any

from dask_hpc.bridge.grid import Asked, StreamGrid

_KEPT = 1000  # steps whose blocks are known: those before the newest are over


class Producer:
    """A process that brings blocks, connected or not."""

    def __init__(self, rank: Any) -> None:
        self.rank = rank
        #: the way to it, while it is connected
        self.comm: Any = None
        #: it has said that it brings no more
        self.has_ended = False
        #: it went without a word, and did not return for too long
        self.is_lost = False

    @property
    def is_connected(self) -> bool:
        """Whether it can be asked for something."""
        return self.comm is not None


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
        #: by step, by variable and index: the worker that has the block; None if it was consumed and is gone
        self.where: OrderedDict[int, dict[tuple[str, tuple[int, ...]], str | None]] = OrderedDict()
        #: steps that were given up, and why
        self.over: OrderedDict[int, str] = OrderedDict()
        #: blocks that a worker has in files, until there is room in its memory
        self.in_files: set[Asked] = set()
        #: by step: the blocks that consumers have had
        self.had: dict[int, set[tuple[str, tuple[int, ...]]]] = {}
        #: who brought blocks of that index last
        self.brings: dict[tuple[int, ...], Any] = {}
        self.newest = -1
        #: what the scheduler heard of it, by kind
        self.messages: dict[str, int] = {}
        #: all producers have ended, and all that they brought is known
        self.is_complete = False
        #: from a step on, only every so many steps come: pairs of both
        self.strides: list[tuple[int, int]] = []

    def count(self, kind: str) -> None:
        """One more message was heard."""
        self.messages[kind] = self.messages.get(kind, 0) + 1

    @property
    def is_used(self) -> bool:
        """Whether anybody is connected."""
        return bool(self.consumers) or any(one.is_connected for one in self.producers.values())

    @property
    def stride(self) -> int:
        """Every so many steps come now."""
        return self.strides[-1][1] if self.strides else 1

    def come(
        self, worker: str, variable: str, step: int, blocks: Iterable[tuple[Any, Any, bool]]
    ) -> list[Asked]:
        """A worker has these blocks, each with the rank that brought it, and whether it is in a file. Those
        that can be had."""
        there = self.where.setdefault(step, {})
        found = []
        for index, rank, is_in_file in blocks:
            there[variable, index] = worker
            self.brings[index] = rank
            asked = Asked(self.id, variable, step, index)
            if is_in_file:
                self.in_files.add(asked)
            else:
                self.in_files.discard(asked)
                found.append(asked)
        self.newest = max(self.newest, step)
        while len(self.where) > _KEPT:
            oldest = min(self.where)
            del self.where[oldest]
            self.had.pop(oldest, None)
        return found

    def is_had(self, asked: Asked) -> bool:
        """Whether consumers have had a block."""
        return (asked.variable, asked.block) in self.had.get(asked.step, ())

    def has_had(self, asked: Asked) -> None:
        """Consumers have had a block."""
        if asked.step in self.where:
            self.had.setdefault(asked.step, set()).add((asked.variable, asked.block))

    def gone(self, worker: str, steps: Iterable[int]) -> None:
        """A worker has thrown away what it had of these steps: it was consumed."""
        for step in steps:
            there = self.where.get(step, {})
            there.update({block: None for block, holder in there.items() if holder == worker})

    def lose(self, worker: str, is_needed: Callable[[Asked], bool]) -> Iterator[Asked]:
        """A worker is dead. The blocks that were there and are needed again: those that consumers have not
        had, or that are to be had once more."""
        for step, there in self.where.items():
            for variable, index in [block for block, holder in there.items() if holder == worker]:
                asked = Asked(self.id, variable, step, index)
                self.in_files.discard(asked)
                if self.is_had(asked) and not is_needed(asked):
                    there[variable, index] = None
                else:
                    del there[variable, index]
                    yield asked

    def give_up(self, step: int, why: str) -> bool:
        """No blocks of this step are kept or taken in any more. Whether that is new."""
        if step in self.over:
            return False
        self.over[step] = why
        self.where.pop(step, None)
        self.had.pop(step, None)
        self.in_files = {asked for asked in self.in_files if asked.step != step}
        self.newest = max(self.newest, step)
        while len(self.over) > _KEPT:
            self.over.popitem(last=False)
        return True

    def thin_out(self, step: int) -> bool:
        """After this step only half as many come. Whether that is new: one slow moment counts once."""
        if self.strides and step <= self.strides[-1][0] + self.stride:
            return False
        self.strides.append((step, 2 * self.stride))
        return True

    def holder(self, asked: Asked) -> str | None:
        """The worker that has a block in memory."""
        if asked in self.in_files:
            return None
        return self.where.get(asked.step, {}).get((asked.variable, asked.block))

    def why_not(self, asked: Asked) -> str:
        """Why a block that is nowhere will not come; nothing if it may."""
        step = asked.step
        if asked in self.in_files:
            return ""
        if step in self.over:
            return self.over[step]
        if (asked.variable, asked.block) in self.where.get(step, {}) or step <= self.newest - _KEPT:
            return "it has been consumed and its room was needed"
        every = next((stride for since, stride in reversed(self.strides) if since < step), 1)
        if step % every:
            return f"the consumers were slow, and only every {_nth(every)} step came"
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
        left_out = {}
        ends = [*(since for since, _ in self.strides[1:]), self.newest]
        for (since, every), until in zip(self.strides, ends, strict=False):
            for step in range(max(since, self.newest - _KEPT) + 1, until + 1):
                if step % every and step not in self.where:
                    left_out[step] = f"the consumers were slow, and only every {_nth(every)} step came"
        return dict(sorted((left_out | self.over).items()))

    def as_plain(self) -> dict[str, Any]:
        """For those who ask how it is."""
        return {
            "name": self.name,
            "id": self.id,
            "grid": self.grid.as_plain(),
            "workers": list(self.workers),
            "producers": {
                str(one.rank): "connected" if one.is_connected else "ended" if one.has_ended else "gone"
                for one in self.producers.values()
            },
            "consumers": len(self.consumers),
            "newest": self.newest,
            "messages": dict(self.messages),
            "skipped": [[step, why] for step, why in self.skipped().items()],
            "strides": [list(pair) for pair in self.strides],
        }


def _nth(every: int) -> str:
    return f"{every}{'nd' if every == 2 else 'th'}"
