"""What a demo has seen of its cluster: status and story, with names that a reader knows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live

from dask_hpc.view.page import Held


class Seen:
    """Brought up to date by ``look``; times are seconds since ``zero``."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.story: list[dict[str, Any]] = []
        #: every node there ever was, in order of appearance
        self.nodes: list[str] = []
        #: the node of every worker there ever was
        self.places: dict[str, str] = {}
        #: the cluster's clock when the first job was submitted
        self.zero = 0.0

    def look(self, manager: Any) -> None:
        """Look at the cluster."""
        self.story = manager.story()
        self.status = manager.status()  # after the story: it knows all jobs that are told of
        for node in self.status["nodes"]:
            if node["name"] not in self.nodes:
                self.nodes.append(node["name"])
            self.places.update(dict.fromkeys(node["workers"], node["name"]))

    @property
    def now(self) -> float:
        """Seconds since the first job was submitted."""
        return float(self.status.get("time", self.zero)) - self.zero

    @property
    def names(self) -> dict[str, str]:
        """Of jobs, by id."""
        return {job["id"]: job["name"] for job in self.status.get("jobs", ())}

    @property
    def held(self) -> list[Held]:
        """Who held which nodes when."""
        return list(self._spans())

    def named(self, text: str) -> str:
        """Text with the names of jobs for their ids, and nodes for the addresses of workers."""
        for job, name in self.names.items():  # no name is there twice in a demo
            text = text.replace(job, name)
        for address, node in self.places.items():
            text = text.replace(f"worker {address}", f"node {self.nodes.index(node)}")
        return text

    def count(self, *decisions: str) -> int:
        """How often that is in the story."""
        return sum(row["decision"] in decisions for row in self.story)

    def lines(self) -> list[tuple[str, ...]]:
        """Time, what, job, nodes, why: for everything in the story since the first job came."""
        names = self.names
        return [
            (
                f"{row['time'] - self.zero:.1f} s",
                row["decision"],
                names.get(row["job"], "-"),
                str(len(row["nodes"])) if row["nodes"] else "-",
                self.named(row["reason"]),
            )
            for row in self.story
            if row["time"] > self.zero
        ]

    def _spans(self) -> Iterator[Held]:
        """From the story: each change of a job's size ends one span and begins another."""
        names = self.names
        since: dict[str, dict[str, Any]] = {}
        for row in self.story:
            changed = row["decision"] in ("start", "grow", "shrink")
            if not changed and row["decision"] not in ("end", "requeue", "cancel"):
                continue
            if (before := since.pop(row["job"], None)) is not None:
                yield self._span(names[row["job"]], before, row["time"])
            if changed and row["job"] in names:
                since[row["job"]] = row
        for job, before in since.items():
            yield self._span(names[job], before, self.status["time"])

    def _span(self, name: str, row: dict[str, Any], end: float) -> Held:
        return Held(name, row["nodes"], row["time"] - self.zero, end - self.zero, self.named(row["reason"]))


@contextmanager
def live_picture(console: Console, picture: Callable[[], Any], seen: Seen) -> Iterator[Callable[[], None]]:
    """A picture that changes on a terminal; elsewhere a line for each thing that happens."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda: live.update(picture())
        return
    told = 0

    def tell() -> None:
        nonlocal told
        lines = seen.lines()
        for line in lines[told:]:
            console.print("  ".join(line), soft_wrap=True, highlight=False)
        told = len(lines)

    yield tell
