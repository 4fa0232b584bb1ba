"""A program that runs beside Dask on nodes of the same allocation, and how it says that it wants more.

The program is started anew for each chunk of its iterations, on the nodes that it has then; or it lives on,
and tells by two files in a directory that all nodes share: it writes how many nodes it wants to ``wish`` (at
the border of an iteration, when it has left those that it can miss: the last of the list), and reads in
``nodes`` which it has, one per line.
"""

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from dask_hpc.cluster.client import tied
from dask_hpc.model.errors import one_line

logger = logging.getLogger(__name__)

_STOP = 15.0  # seconds that a program has to end before it is killed
_LOOK = 0.05  # seconds between looks at whether it has


class WishFiles:
    """The two files of one program."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._wish.unlink(missing_ok=True)

    @property
    def _wish(self) -> Path:
        return self._directory / "wish"

    def variables(self) -> dict[str, str]:
        """Where the program finds them."""
        return {"DASK_HPC_WISH": str(self._wish), "DASK_HPC_NODES_FILE": str(self._directory / "nodes")}

    def wish(self) -> int | None:
        """How many nodes the program wants; None if it has not said, or nothing that makes sense."""
        with suppress(OSError, ValueError):
            found = int(self._wish.read_text(encoding="utf-8")[:20])
            return found if found >= 1 else None
        return None

    def tell(self, nodes: Sequence[str]) -> None:
        """These it has now: the file is as before, or whole."""
        part = self._directory / "nodes.part"
        part.write_text("".join(f"{name}\n" for name in nodes), encoding="utf-8")
        part.replace(self._directory / "nodes")


class Beside:
    """A program that runs beside Dask. As a context manager it is over at the end: waited for, or stopped if
    something was raised."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        nodes: Sequence[str],
        when_over: Callable[["Beside"], None],
        files: WishFiles | None = None,
        **how: Any,
    ) -> None:
        #: those that it was started on
        self.nodes = tuple(nodes)
        self.files = files
        self._when_over = when_over
        if files is not None:
            files.tell(nodes)
            environment = {**environment, **files.variables()}
        if shutil.which(words[0], path=environment.get("PATH", os.defpath)) is None:
            raise FileNotFoundError(f"beside: there is no program {one_line(words[0])}")
        command = [sys.executable, "-I", tied.__file__, *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, env=dict(environment), **how)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as a shell has it, when it has ended."""
        code = self.process.wait(timeout)
        self._close()
        return code

    def stop(self, patience: float = _STOP) -> int:
        """End it: SIGTERM, and some seconds later SIGKILL. Its exit code."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._close()
        return code

    async def end(self) -> None:
        """The same on an event loop. Without a thread: a script that ends has none left."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        until = monotonic() + _STOP
        while self.process.poll() is None and monotonic() < until:
            await asyncio.sleep(_LOOK)
        self.stop(0.0)

    def _close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._when_over(self)

    def __enter__(self) -> "Beside":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.wait()
        else:
            self.stop()
