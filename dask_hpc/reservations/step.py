"""One batch job of a chain: it runs the program, and sees to it that somebody goes on."""

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, time
from typing import Protocol

from dask_hpc.checkpoint.client.reserved import VARIABLE, OwnReservation
from dask_hpc.history.runs import RunHistory, key_of
from dask_hpc.model.errors import InputError, insist, one_line
from dask_hpc.reservations.chain import (
    AskFor,
    ChainCancelled,
    ChainResumed,
    DropJobs,
    Event,
    Instruction,
    JobAsked,
    JobBegan,
    JobChain,
    JobRefused,
    KeepOut,
    LeaveJob,
    LowerLimit,
    NoteRun,
    ProgramEnded,
    ProgramRuns,
    RunProgram,
)
from dask_hpc.reservations.slurm import SlurmDesk, SlurmTrouble, comment_of
from dask_hpc.reservations.state import ChainFile

_FIRST, _LONGEST = 2.0, 60.0  # seconds between tries: the first pause, doubled up to the longest
_ENOUGH = 900.0  # seconds of trying when the program is over: control daemons restart in less


class StepProgram(Protocol):
    """What a step runs. ``is_told``: somebody asked it to end."""

    is_told: bool

    def run(self, environment: Mapping[str, str]) -> int:
        """Its exit code."""


class ChainKeeper:
    """Tells a chain what happens, and carries out what follows."""

    def __init__(
        self,
        file: ChainFile,
        chain_id: str,
        slurm: SlurmDesk,
        say: Callable[[str], None],
        history: Path | None,
    ) -> None:
        self._file = file
        self._id = chain_id
        self._slurm = slurm
        self._say = say
        self._history = history
        #: set when nobody has time to wait any more
        self.hurry = threading.Event()

    def follow(self, event: Event, patience: float = 0.0) -> list[Instruction]:
        """What is left to the caller: to run the program, and to leave. Raises ``InputError``."""
        left: list[Instruction] = []
        chain, instructions = self._file.follow(event, self._id)
        for one in instructions:
            match one:
                case RunProgram() | LeaveJob():
                    left.append(one)
                case AskFor():
                    self._ask_for(chain, one, patience)
                case LowerLimit():
                    self._try("the limit cannot be lowered", self._slurm.lower, one.job, one.length)
                case KeepOut():
                    self._try("the job may be requeued", self._slurm.keep_out, one.job)
                case DropJobs():
                    self._try("jobs cannot be cancelled", self._slurm.drop, one.jobs)
                case NoteRun():
                    self._note(chain, one)
        return left

    def cancel(self) -> int:
        """The chain is over, and none of its jobs is left. How many there were. Raises ``SlurmTrouble``."""
        _, instructions = self._file.follow(ChainCancelled(now=time()), self._id)
        jobs = [job for one in instructions if isinstance(one, DropJobs) for job in one.jobs]
        jobs = list(dict.fromkeys([*jobs, *self._left()]))
        if jobs:
            self._slurm.drop(jobs)
        return len(jobs)

    def resume(self, options: tuple[str, ...], longest: float | None) -> JobChain:
        """The chain goes on. Raises ``SlurmTrouble``, or ``InputError`` if a job of it is left."""
        left = self._left()
        insist(not left, "--resume", f"job {', '.join(left)}", "a chain of which no job is left")
        progress = self._file.progress_now()
        self.follow(ChainResumed(now=time(), progress=progress, options=options, longest=longest))
        return self._file.read()

    def _left(self) -> list[str]:
        """Jobs of the chain that run, or may."""
        ours = comment_of(self._id)
        return [job.id for job in self._slurm.queue() if job.is_alive and job.comment.startswith(ours)]

    def _ask_for(self, chain: JobChain, ask: AskFor, patience: float) -> None:
        """Until it is there, nobody has time, or the patience is over."""
        until, pause, is_again = monotonic() + patience, _FIRST, False
        while True:
            try:
                job = self._slurm.ask_for(chain, ask, self._file.path, is_again)
            except SlurmTrouble as error:
                is_over = monotonic() + pause > until
                is_final = is_over and not self.hurry.is_set()
                if not is_final:  # else the chain says it
                    self._say(f"step {ask.number} could not be asked for: {error}")
                self.follow(JobRefused(now=time(), number=ask.number, why=str(error), is_final=is_final))
                if is_over or self.hurry.wait(pause):
                    return
                pause, is_again = min(2 * pause, _LONGEST), True
            else:
                self.follow(JobAsked(now=time(), number=ask.number, job=job))
                return

    def _try(self, trouble: str, work: Callable[..., None], *given: object) -> None:
        try:
            work(*given)
        except SlurmTrouble as error:
            self._say(f"{trouble}: {error}")

    def _note(self, chain: JobChain, note: NoteRun) -> None:
        history = RunHistory(self._history)
        history.note(key_of(chain.name, chain.user), note.run)
        try:
            history.write()
        except OSError as error:
            self._say(f"{self._history}: cannot be written: {error.strerror}; the run is not remembered")


class ChainStep:
    """One link of a chain, in its batch job."""

    def __init__(
        self,
        file: ChainFile,
        chain_id: str,
        number: int,
        slurm: SlurmDesk,
        say: Callable[[str], None],
        history: Path | None,
    ) -> None:
        self._file = file
        self._number = number
        self._slurm = slurm
        self._say = say
        self._keeper = ChainKeeper(file, chain_id, slurm, say, history)

    def run(self, program: StepProgram) -> int:
        """The exit code of the batch job. Raises ``InputError``."""
        job = os.environ.get("SLURM_JOB_ID", "")
        insist(job.isdecimal(), "submit-step", job, "to be called in a batch job of Slurm")
        nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
        chain = self._file.read()
        before = chain.links[self._number - 2].job if 2 <= self._number <= len(chain.links) + 1 else ""
        began = JobBegan(
            now=time(),
            number=self._number,
            job=job,
            nodes=float(nodes) if nodes.isdecimal() else 1.0,
            progress=self._file.progress_now(),
            before=self._slurm.fate_of(before) if before else "",
        )
        for one in self._keeper.follow(began):
            if isinstance(one, RunProgram):
                return self._run(program, one)
            if isinstance(one, LeaveJob):
                self._say("nothing is to be done here; dask-hpc submit --status says why")
                return one.code
        return 0

    def _run(self, program: StepProgram, how: RunProgram) -> int:
        # An end that Slurm told before the limit was lowered is wrong now: it is asked anew.
        os.environ.pop("SLURM_JOB_END_TIME", None)
        told = OwnReservation(
            str(self._file.progress), self._number, time(), how.commits, how.seconds, how.care, how.restarts
        )
        ahead = threading.Thread(target=self._look_ahead, name="dask-hpc-ahead", daemon=True)
        ahead.start()
        code = program.run({VARIABLE: told.as_text()})
        self._keeper.hurry.set()
        ahead.join()
        self._keeper.hurry.clear()
        ended = ProgramEnded(
            now=time(),
            number=self._number,
            code=code,
            is_told=program.is_told,
            progress=self._file.progress_now(),
        )
        left = self._keeper.follow(ended, _ENOUGH)
        return next((one.code for one in left if isinstance(one, LeaveJob)), code)

    def _look_ahead(self) -> None:
        """Somebody is to go on, whatever becomes of this node. No trouble of ours ends the program."""
        try:
            self._keeper.follow(ProgramRuns(now=time(), number=self._number), float("inf"))
        except (InputError, OSError) as error:
            self._say(one_line(str(error)))
