"""What is asked of a batch system, whichever it is, and which one a batch job of dask-jobqueue belongs to."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dask_hpc.batch.job_state import Heard, JobState

Command = tuple[str, ...]


class BatchSystem(ABC):
    """One kind of batch system. A reader is right about what it says, and silent about the rest.

    Ids are those that dask-jobqueue has of its jobs.
    """

    name: ClassVar[str]
    #: programs by which jobs are submitted
    submits: ClassVar[tuple[str, ...]]
    #: what this system cannot say of a job, or not do to it, in words for people; empty: nothing
    silent: ClassVar[str] = ""

    @abstractmethod
    def question(self, ids: Sequence[str]) -> Command:
        """The one command that asks about all of these jobs. Others of the user may be in the answer."""

    def question_of_all(self) -> Command | None:
        """The same about everybody's jobs; None if only ours can be asked for. ``read`` reads the answer."""
        return None

    @abstractmethod
    def read(self, heard: Heard, now: float) -> Mapping[str, JobState] | None:
        """The jobs of an answer, by id, at this time of the system's clock; None if it is no answer. Never
        raises: what makes no sense is left out. Who is not in an answer is not known any more."""

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> Command:
        """End these jobs, or take them back from the queue."""

    def requeue(self, ids: Sequence[str]) -> Command | None:
        """Put running jobs back into the queue; None if that cannot be done."""
        return None

    def options(self, submit: Sequence[str]) -> Command:
        """Of the words of a submit command those that a question needs as well: where to ask."""
        return ()


def program_of(command: Any) -> str:
    """The name of the program that a command of dask-jobqueue starts."""
    words = str(command or "").split()
    return words[0].split("/")[-1] if words else ""


def refusal_in(text: str) -> str:
    """What a batch system said when it refused a job, from dask-jobqueue's account of it: one line."""
    after = text.rpartition("stderr:")[2] if "stderr:" in text else text
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    if not lines:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
