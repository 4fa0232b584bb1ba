"""The window in which a program adapts itself to a change of its job's nodes.

A plan changes the size of a job whose program listens (``dask_hpc.job(on_resize=...)``). The program is told
which nodes stay, leave and join, and has so many seconds for what it has to do: before the nodes that leave
are emptied and given to others, and before tasks of the job start on those that join. The change goes on when
it says that it is done, when its time is over, or when its client is gone.

What no plan made is told as well, and nothing waits for the program: the job starts, loses a node, loses all
of them and waits again. So what a program was told always adds up to the nodes that its job has.

Windows of one job never nest (000, 2.2.2; 001, 3.1): a change that has begun keeps the policy from another
one, and the window is a part of it. Where the published programs stand still meanwhile, the tasks of a job
go on here, on the nodes that it keeps, or had before.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_hpc.cluster.request import LONGEST_WINDOW, check_word, window_topic
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Timer
from dask_hpc.model.errors import insist, is_number, one_line
from dask_hpc.model.units import count_nodes, show_duration

_MOST_PROBLEMS = 20  # that are told of one window
_LONGEST_NAME = 1_000


@dataclass(slots=True)
class ListeningProgram:
    """Who is told of the changes of one job, what it was told, and whether something waits for it."""

    client: str
    #: it wants so long, if it said so
    seconds: float | None
    timer: Timer
    #: the nodes that it knows of, with their workers
    knows: dict[str, list[str]] = field(default_factory=dict)
    #: of what it was told last
    number: int = 0
    #: what waits for it
    go_on: Callable[[], None] | None = None
    #: arrays that it has laid out itself
    placed: frozenset[str] = frozenset()


class AdaptationWindows:
    """The windows of all jobs whose programs listen; the others change as if there were none."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._programs: dict[str, ListeningProgram] = {}

    # what programs say

    def listen(self, job_id: object, client: object, seconds: object) -> None:
        """From now on the program of that job, which may be still to come, is told of its changes.
        ``seconds``: so long it may take; None: as long as running tasks may (``hpc.drain``)."""
        check_word("listen: job", job_id, may_be_empty=False, longest=200)
        is_known = isinstance(client, str) and client in self._context.scheduler.clients
        insist(is_known, "listen: client", client, "the id of a connected client")
        fine = seconds is None or is_number(seconds, 0, LONGEST_WINDOW)
        insist(fine, "listen: seconds", seconds, f"0 to {LONGEST_WINDOW:,.0f}")
        name = str(job_id)
        if name not in self._programs:
            # Its own word for that may come later than this one: they take different ways.
            self._context.scheduler.subscribe_topic(window_topic(str(client)), str(client))
            timer = Timer(self._context, "the end of a window", lambda: self._is_late(name))
            wanted = None if seconds is None else float(seconds)  # type: ignore[arg-type]
            self._programs[name] = ListeningProgram(str(client), wanted, timer)
            if job := self._context.jobs.get(name):
                self.changed(job)

    def adapted(self, job_id: object, number: object, problems: object, placed: object) -> None:
        """A program is done with what it was told under that number. ``placed`` are names of arrays that it
        has laid out as it wants them, for others to leave alone."""
        check_word("adapted: job", job_id, may_be_empty=False, longest=200)
        insist(type(number) is int, "adapted: number", number, "a whole number")
        for where, found in (("problems", problems), ("placed", placed)):
            fine = isinstance(found, list | tuple) and all(isinstance(one, str) for one in found)
            insist(fine, f"adapted: {where}", found, "a list of words")
        program = self._programs.get(str(job_id))
        if program is None:
            return
        for problem in list(problems)[:_MOST_PROBLEMS]:  # type: ignore[call-overload]
            self._tell(str(job_id), one_line(problem)[:_LONGEST_NAME])
        if number == program.number:  # else it was late
            program.placed = frozenset(placed)  # type: ignore[call-overload]
            self._close(program)

    def client_leaves(self, client: str) -> None:
        """A client is gone. Nothing waits for its programs any more."""
        for job_id, program in list(self._programs.items()):
            if program.client == client:
                del self._programs[job_id]
                self._close(program)

    # what happens to jobs

    def open(self, job: LiveJob, go_on: Callable[[], None]) -> None:
        """The job begins to change its size: ``go_on`` is called when its program is done, or has had its
        time; at once if nobody listens."""
        program = self._programs.get(job.id)
        seconds = 0.0 if program is None else self._seconds(program)
        if program is None or not seconds or self._context.is_dry:
            self.changed(job)
            go_on()
            return
        program.go_on = go_on
        program.timer.set(seconds)
        joining, leaving = self._say(job, program, seconds)
        change = f"it gets {count_nodes(joining)}" if joining else f"it gives {count_nodes(leaving)}"
        self._tell(job.id, f"its program has {show_duration(seconds)} before {change}")

    def changed(self, job: LiveJob) -> None:
        """The job may have other nodes than its program knows of."""
        program = self._programs.get(job.id)
        if program is None or program.go_on is not None or self._context.is_dry:
            return
        if set(program.knows) != set(self._nodes(job)):
            self._say(job, program, 0.0)

    def cancel(self, job: LiveJob) -> None:
        """The job does not change any more: it is over, or has lost all its nodes."""
        if program := self._programs.get(job.id):
            program.go_on = None
            program.timer.stop()
            self.changed(job)

    def over(self, job: LiveJob) -> None:
        """The job is over, and its program need not listen any more."""
        if program := self._programs.pop(job.id, None):
            program.timer.stop()
            self._send(program, {"job": job.id, "over": True})

    def close(self) -> None:
        """Nothing waits for anybody."""
        for job_id, program in self._programs.items():
            program.timer.stop()
            self._send(program, {"job": job_id, "over": True})
        self._programs.clear()

    def placed(self, job: LiveJob | None) -> Collection[str]:
        """The arrays of a job that its program has laid out itself."""
        program = self._programs.get(job.id) if job is not None else None
        return program.placed if program is not None else ()

    # inner workings

    def _seconds(self, program: ListeningProgram) -> float:
        return self._context.drain if program.seconds is None else program.seconds

    def _nodes(self, job: LiveJob) -> list[str]:
        """Those that it has, or is to have when what goes on is over."""
        running = self._context.indices.running.get(job.id)
        return list(running.nodes[: running.target]) if running is not None else []

    def _say(self, job: LiveJob, program: ListeningProgram, seconds: float) -> tuple[int, int]:
        """Tell the program what is new. How many nodes join, and leave."""
        before = program.knows
        after = {name: self._context.nodes.workers(name) for name in self._nodes(job)}
        program.knows = after
        program.number += 1
        joining = {name: workers for name, workers in after.items() if name not in before}
        leaving = {name: workers for name, workers in before.items() if name not in after}
        staying = {name: workers for name, workers in after.items() if name in before}
        self._send(
            program,
            {
                "job": job.id,
                "number": program.number,
                "seconds": seconds,
                "staying": staying,
                "leaving": leaving,
                "joining": joining,
            },
        )
        return len(joining), len(leaving)

    def _send(self, program: ListeningProgram, message: Mapping[str, Any]) -> None:
        self._context.scheduler.log_event(window_topic(program.client), dict(message))

    def _is_late(self, job_id: str) -> None:
        program = self._programs[job_id]
        words = f"its program was not done within {show_duration(self._seconds(program))}; the change goes on"
        self._tell(job_id, words)
        self._close(program)

    def _close(self, program: ListeningProgram) -> None:
        """What waits for the program goes on."""
        program.timer.stop()
        go_on, program.go_on = program.go_on, None
        if go_on is not None:
            self._context.look_at_the_clock()
            try:
                go_on()
            except Exception as error:
                self._context.count_error("the end of a window", error)
            self._context.wake()

    def _tell(self, job_id: str, reason: str) -> None:
        if job := self._context.jobs.get(job_id):
            self._context.tell_of("window", job, reason=reason)
