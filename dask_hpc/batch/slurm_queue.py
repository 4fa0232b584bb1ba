"""The whole queue of Slurm, as anybody may see it: nodes, partitions, everybody's jobs, reservations, QOS.

From three programs that need no rights: ``squeue``, which is asked about our own jobs anyway; ``scontrol``
for what hardly changes, in one go; and ``sacctmgr``, which some sites do not have. What of the nodes is free
follows from who runs. Readers never raise: what makes no sense is left out. What could not be found out is
said in ``QueueView.unknown``.
"""

import asyncio
import getpass
import grp
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import floor, inf
from time import time

from dask_hpc.batch.clock import read_local_time
from dask_hpc.batch.command import hear
from dask_hpc.batch.job_state import Heard
from dask_hpc.batch.slurm import Slurm, rows_of
from dask_hpc.batch.system import Command
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import counted, parse_duration
from dask_hpc.planning.asks.queue import (
    Maintenance,
    PendingAsk,
    QueueNode,
    QueuePartition,
    QueueQos,
    QueueView,
    RunningAsk,
    in_order,
)

SITE = ("scontrol", "-a", "-o")
#: what ``SITE`` is told: one call, as ``sinfo`` is, and it says more
SITE_WORDS = "show node\nshow partition\nshow reservation\n"
QOS = ("sacctmgr", "-nP", "show", "qos", "format=Name,Priority,MaxWall,MaxTRES,MaxJobsPU,MaxTRESPU")
_SITE_LASTS, _QOS_LASTS = 600.0, 3600.0  # seconds; they hardly change
_SITE_AGAIN = 120.0  # seconds after which it is tried again
_MOST_NODES = 100_000
_MOST_OF_ARRAY = 50  # tasks of one waiting array that are counted
_WORD = re.compile(r"(?:^| )([A-Za-z][A-Za-z0-9_/:]*)=")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
#: a job waits for nodes, and for nothing else
_IN_LINE = frozenset(
    {"None", "Resources", "Priority", "BeginTime", "Nodes", "NodeDown", "Cleaning", "Prolog"}
)
_DOWN = re.compile(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|UNKNOWN|FUTURE|POWERED_DOWN|POWERING_DOWN|REBOOT|\*$")
_HOLDS = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
_ROUNDING = 1e-6  # of a core
_RELEASES = 60.0  # seconds after a job's end in which its nodes may still be taken
_SCALES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def expand_nodes(text: str) -> list[str]:
    """Names of nodes from a list as Slurm writes it: ``n[1-3,07],gpu1``. Nonsense is left out."""
    return list(islice(_expand(text), _MOST_NODES))


def _expand(text: str) -> Iterator[str]:
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        if part in ("(null)", "None", "N/A", "ALL"):
            continue
        yield from _of_brackets(part)


def _of_brackets(part: str) -> Iterator[str]:
    head, bracket, rest = part.partition("[")
    inside, _, tail = rest.partition("]")
    if not bracket:
        yield part
        return
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            continue
        first, last = match[1], match[2] or match[1]
        if len(last) > 9 or int(last) - int(first) >= _MOST_NODES:
            continue
        for number in range(int(first), int(last) + 1):
            for end in _of_brackets(tail) if tail else ("",):
                yield f"{head}{number:0{len(first)}d}{end}"


def read_words(line: str) -> dict[str, str]:
    """The ``Key=value`` words of one line of ``scontrol -o``. A value may have blanks in it."""
    found = list(_WORD.finditer(line))
    ends = [*(one.start() for one in found[1:]), len(line)]
    return {one[1]: line[one.end() : end].strip() for one, end in zip(found, ends, strict=False)}


def read_nodes(text: str) -> dict[str, QueueNode]:
    """The nodes in the answer of ``SITE``, and what of them is free at that moment."""
    nodes = {}
    for line in text.splitlines():
        words = read_words(line)
        name, cores = words.get("NodeName", ""), _count(words.get("CPUEfctv") or words.get("CPUTot"))
        if not name or cores is None:
            continue
        memory = _count(words.get("RealMemory"))
        has = inf if not memory else memory * 2.0**20
        free = has - (_count(words.get("AllocMem")) or 0) * 2.0**20
        is_up = _DOWN.search((words.get("State") or "UNKNOWN").upper()) is None
        spare = max(0, cores - (_count(words.get("CPUAlloc")) or 0))
        nodes[name] = QueueNode(name, cores, has, spare, max(free, 0.0), is_up)
    return nodes


def read_partitions(text: str, groups: Collection[str] = (), account: str = "") -> dict[str, QueuePartition]:
    """The partitions in the answer of ``SITE``, for a user of these groups."""
    partitions = {}
    for line in text.splitlines():
        words = read_words(line)
        name = words.get("PartitionName", "")
        if not name or "ReservationName" in words:
            continue
        qos = words.get("AllowQos", "ALL")
        partitions[name] = QueuePartition(
            name,
            tuple(expand_nodes(words.get("Nodes", ""))),
            max_time=_seconds(words.get("MaxTime"), inf),
            min_nodes=max(1, _count(words.get("MinNodes")) or 1),
            max_nodes=_limit(words.get("MaxNodes")),
            tier=_count(words.get("PriorityTier")) or 1,
            is_up=words.get("State", "UP").upper() == "UP",
            is_default=words.get("Default") == "YES",
            is_open=_is_open(words, groups, account),
            is_exclusive=words.get("OverSubscribe", "").upper().startswith("EXCLUSIVE"),
            qos=() if qos in ("ALL", "(null)", "") else tuple(qos.split(",")),
        )
    return partitions


def _is_open(words: Mapping[str, str], groups: Collection[str], account: str) -> bool:
    allowed = words.get("AllowGroups", "ALL")
    by_group = allowed in ("ALL", "(null)", "") or not set(allowed.split(",")).isdisjoint(groups)
    accounts = words.get("AllowAccounts", "ALL")
    by_account = accounts in ("ALL", "(null)", "") or account in accounts.split(",")
    denied = account and account in words.get("DenyAccounts", "").split(",")
    return by_group and by_account and not denied and words.get("RootOnly", "NO") != "YES"


@dataclass(frozen=True, slots=True)
class AllJobs:
    """Everybody's jobs, in no order: who runs, who waits, and who did run a moment ago (its ``limit`` is as
    long as it ran)."""

    running: tuple[RunningAsk, ...] = ()
    pending: tuple[PendingAsk, ...] = ()
    ended: tuple[RunningAsk, ...] = ()


def read_jobs(text: str) -> AllJobs:
    """The answer of ``squeue`` about everybody."""
    running, pending, ended = [], [], []
    for row in rows_of(text):
        size, limit, since = (
            _count(row.get("NumNodes")),
            _seconds(row["TimeLimit"], inf),
            _moment(row["StartTime"]),
        )
        if not size or limit <= 0:
            continue
        job, state, reason, names = row["JobID"], row["State"], row["Reason"], row["Partition"]
        has = dict(word.split("=", 1) for word in row["tres-alloc"].split(",") if "=" in word)
        cores, memory = _count(has.get("cpu")) or 0, read_bytes(has.get("mem", "")) / size
        submitted, user = _moment(row["SubmitTime"], -inf) or -inf, row["UserName"]
        if state == "PENDING":
            asks = PendingAsk(
                job,
                tuple(name for name in names.split(",") if name),
                size,
                limit,
                cores=cores,
                memory=memory,
                priority=_number(row["PriorityLong"]),
                submitted=submitted,
                not_before=since if reason == "BeginTime" and since is not None else -inf,
                user=user,
                qos=row["QOS"],
                is_exclusive=row["OverSubscribe"] == "NO",
                is_held=not _is_in_line(reason),
            )
            tasks = _tasks(row["ArrayTaskID"])
            pending += [asks, *(replace(asks, id=f"{job}+{at}") for at in range(1, tasks))]
        elif since is not None and (held := expand_nodes(row["NodeList"])):
            one = RunningAsk(job, tuple(held), since, limit, cores, user, names, submitted, memory)
            if state in _HOLDS:
                running.append(one)
            elif (end := _moment(row["EndTime"])) is not None:
                ended.append(replace(one, limit=end - since))
    return AllJobs(tuple(running), tuple(pending), tuple(ended))


def _is_in_line(reason: str) -> bool:
    return reason in _IN_LINE or reason.startswith("ReqNodeNotAvail")


def _tasks(array: str) -> int:
    """How many tasks of a waiting array may run at once."""
    tasks, _, most = array.partition("%")
    count = 0
    for piece in tasks.strip("[]").split(","):
        match = _RANGE.match(piece)
        if match is None:
            return 1
        count += int((match[2] or match[1])[:9]) - int(match[1][:9]) + 1
    return max(1, min(count, _count(most) or count, _MOST_OF_ARRAY))


def read_reservations(text: str) -> list[Maintenance]:
    """The reservations in the answer of ``SITE``. All are for others: nobody has told us which are for us."""
    found = []
    for line in text.splitlines():
        words = read_words(line)
        start, end = _moment(words.get("StartTime")), _moment(words.get("EndTime"))
        nodes = tuple(expand_nodes(words.get("Nodes", "")))
        if start is not None and end is not None and start < end and nodes:
            found.append(Maintenance(words.get("ReservationName", "a reservation"), start, end, nodes))
    return found


def read_qos(text: str) -> dict[str, QueueQos]:
    """The answer of ``QOS``."""
    rows = [line.split("|") for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 6 and row[0]]
    found = {}
    for name, priority, wall, per_job, jobs, per_user in rows:
        found[name] = QueueQos(
            name,
            priority=_number(priority),
            max_time=_seconds(wall, inf),
            max_nodes=_of_tres(per_job, "node"),
            user_jobs=_limit(jobs),
            user_nodes=_of_tres(per_user, "node"),
        )
    return found


def _of_tres(text: str, kind: str) -> float:
    words = dict(word.split("=", 1) for word in text.split(",") if "=" in word)
    return _limit(words.get(kind))


def _count(text: str | None) -> int | None:
    """A whole number, as ``2-4`` the first; None for anything else."""
    match = re.match(r"\d{1,12}(?!\d)", text or "", re.ASCII)
    return int(match[0]) if match else None


def _limit(text: str | None) -> float:
    found = _count(text)
    return inf if found is None else float(found)


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if abs(found) < inf else 0.0


def _seconds(text: str | None, otherwise: float) -> float:
    """Slurm's durations; ``UNLIMITED`` and the like are ``otherwise``. A bare number is in minutes."""
    if not text:
        return otherwise
    try:
        found = parse_duration(text)
    except InputError:
        return otherwise
    return found * 60 if text.isdecimal() else found


def _moment(text: str | None, otherwise: float | None = None) -> float | None:
    if text and text.isascii() and text.isdecimal() and len(text) < 13:
        return float(text)
    found = read_local_time(text)
    return otherwise if found is None else found


def read_limit(text: str | None) -> float:
    """Seconds of a walltime as it is asked for; infinity if there is none."""
    return _seconds(text, inf)


def read_bytes(text: str) -> float:
    """Bytes of an amount of memory such as 4000M; 0 if it makes no sense."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([KMGT]?)[nc]?", text, re.ASCII)
    return float(match[1]) * _SCALES.get(match[2] or "M", 2**20) if match else 0.0


class KnownQueue:
    """What is known of the whole queue, from answers as they come in. Times are seconds of one clock, and
    ``moment`` those of the system's."""

    def __init__(self) -> None:
        #: when was asked about jobs, and whether the last answers were none
        self.asked = -inf
        self.is_silent = False
        self._moment = -inf
        self._jobs = AllJobs()
        self._site: str | None = None
        self._site_asked = self._qos_asked = -inf
        self._qos: str | None = None
        self._nodes: dict[str, QueueNode] = {}
        #: what of the nodes (cores, memory) was taken by nobody whom we see, when they were asked about
        self._hidden: dict[str, tuple[float, float]] = {}
        self._site_moment = -inf

    def overdue(self, now: float) -> tuple[Command, str] | None:
        """What is to be asked beside jobs, and what that program is to be told; None while all is fresh."""
        if now - self._site_asked >= (_SITE_AGAIN if self._site is None else _SITE_LASTS):
            return SITE, SITE_WORDS
        return (QOS, "") if now - self._qos_asked >= _QOS_LASTS else None

    def is_fresh(self, now: float, age: float) -> bool:
        """Whether all was asked, and about jobs so many seconds ago at most."""
        return self._site_asked > -inf and now - self.asked <= age

    def hear(self, program: str, heard: Heard | None, now: float, moment: float) -> None:
        """What one of these programs said."""
        said = heard.out if heard is not None and heard.code == 0 else None
        if program == QOS[0]:
            self._qos, self._qos_asked = said, now
        elif program == SITE[0]:
            self._nodes, self._hidden = read_nodes(said or ""), {}
            self._site = said if self._nodes and read_partitions(said or "") else None
            self._site_asked, self._site_moment = now, moment
            self.is_silent = self._site is None
            self._find_hidden()
        elif said is None:
            self.is_silent = True
        else:
            self.is_silent = self._site is None and self._site_asked > -inf
            self._jobs, self.asked, self._moment = read_jobs(said), now, moment
            self._find_hidden()

    def view(self, account: str = "") -> QueueView | None:
        """The queue for who pays from that account. None if too little is known: without nodes, partitions
        and jobs nothing can be predicted."""
        site, jobs = self._site, self._jobs
        if site is None or self.asked == -inf:
            return None
        partitions = read_partitions(site, _groups(), account)
        nodes, taken = {}, self._held_by(jobs.running)
        for name, node in self._nodes.items():
            cores, memory = (
                held + unseen for held, unseen in zip(taken[name], self._hidden[name], strict=True)
            )
            free = max(0, floor(node.cores - cores + _ROUNDING))
            nodes[name] = replace(node, free_cores=free, free_memory=max(0.0, node.memory - memory))
        unknown, unseen = [], [name for name, (cores, _) in self._hidden.items() if cores > _ROUNDING]
        if unseen:
            unknown.append(f"who holds {counted(len(unseen), 'busy node')} ({unseen[0]}): taken never to end")
        is_told = "ReservationName=" in site or "No reservations" in site
        unknown += ["reservations: scontrol does not tell"] * (not is_told)
        unknown += ["limits of the qualities of service: sacctmgr does not tell"] * (self._qos is None)
        reserved, qos = tuple(read_reservations(site)), read_qos(self._qos or "")
        return in_order(
            QueueView(
                self._moment, nodes, partitions, jobs.running, jobs.pending, reserved, qos, _user(),
                tuple(unknown),
            )
        )  # fmt: skip

    def _held_by(self, jobs: Iterable[RunningAsk]) -> dict[str, tuple[float, float]]:
        """Cores and memory of each node that these jobs hold, each the same on all its nodes."""
        held = dict.fromkeys(self._nodes, (0.0, 0.0))
        for job in jobs:
            for name in held.keys() & job.nodes:
                cores, memory = held[name]
                share = job.cores / len(job.nodes) or self._nodes[name].cores
                held[name] = cores + share, memory + job.memory
        return held

    def _find_hidden(self) -> None:
        """Nodes and jobs are not asked about at one time: of what was taken of a node, that is hidden which
        no answer about jobs explains, neither before nor after."""
        at = self._site_moment
        there = [job for job in self._jobs.running if job.started <= at]
        there += [job for job in self._jobs.ended if job.started <= at <= job.ends + _RELEASES]
        seen = self._held_by(there)
        for name, node in self._nodes.items():
            cores, memory = node.cores - node.free_cores, node.memory - node.free_memory
            if node.memory == inf:
                memory = 0.0
            most = self._hidden.get(name, (inf, inf))
            self._hidden[name] = (
                min(most[0], max(0.0, cores - seen[name][0])),
                min(most[1], max(0.0, memory - seen[name][1])),
            )


async def look_once(account: str = "") -> QueueView | None:
    """The queue as it is now, for somebody who looks once; None if Slurm does not show it."""
    known, questions = KnownQueue(), ((SITE, SITE_WORDS), (QOS, ""), (Slurm().question_of_all(), ""))
    answers = await asyncio.gather(*(hear(command, "", words) for command, words in questions))
    for (command, _), heard in zip(questions, answers, strict=True):
        known.hear(command[0], heard, 0.0, time())
    return known.view(account)


def _user() -> str:
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""


def _groups() -> frozenset[str]:
    found = set()
    for number in {os.getgid(), *os.getgroups()}:
        with suppress(KeyError):
            found.add(grp.getgrgid(number).gr_name)
    return frozenset(found)
