"""What the commits of a program were and cost, as plain data that people can read."""

from dataclasses import asdict, dataclass, field
from typing import Any

from dask_hpc.model.units import show_duration, show_large


@dataclass(frozen=True)
class CommitStats:
    """``stall`` is what the program waited for its commits (seconds in all, and at worst), ``seconds`` what
    copies took in the background; ``moved`` and ``unchanged`` are bytes. ``versions`` has the newest
    iteration on each level. ``superseded`` versions made room for newer ones: commits were slower than
    iterations."""

    name: str
    step: int
    commits: int
    seconds: float
    stall: float
    worst_stall: float
    next_due: str
    versions: dict[str, int]
    failed: int = 0
    superseded: int = 0
    moved: int = 0
    unchanged: int = 0
    #: what is wrong with the store, if anything is
    problem: str = ""
    #: by level, when the next commit is due, and why so
    due: dict[str, str] = field(default_factory=dict)
    why: str = ""
    #: why versions go to the store past the agents, if they do
    direct: str = ""
    #: what else a person should know: levels that there are not
    notes: list[str] = field(default_factory=list)

    def as_plain(self) -> dict[str, Any]:
        """As a dictionary."""
        return asdict(self)

    def __repr__(self) -> str:
        mean = self.seconds / self.commits if self.commits else 0.0
        there = ", ".join(f"{level} at {step}" for level, step in self.versions.items())
        lines = [
            f"{self.name} at iteration {self.step}: {self.commits} commits, {show_duration(mean)} each",
            f"  moved {show_large(self.moved, 'B')}, unchanged {show_large(self.unchanged, 'B')}",
            f"  the program waited {show_duration(self.stall)}, {show_duration(self.worst_stall)} at worst",
            f"  newest versions: {there or 'none'}; next due {self.next_due}",
        ]
        if self.due:
            lines.append("  next due " + ", ".join(f"to {level} {at}" for level, at in self.due.items()))
        if self.why:
            lines.append(f"  {self.why}")
        lines += [f"  {note}" for note in self.notes]
        if self.direct:
            lines.append(f"  versions go to the store directly: {self.direct}")
        if self.superseded:
            lines.append(f"  {self.superseded} made room for newer ones: commits are slower than iterations")
        if self.failed:
            lines.append(f"  {self.failed} failed")
        if self.problem:
            lines.append(f"  the store cannot be used: {self.problem}")
        return "\n".join(lines)
