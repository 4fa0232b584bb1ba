"""``dask_hpc.Checkpoint``: an iterating program that goes on where it was when it is run again.

    with dask_hpc.Checkpoint("run-17", store="/shared/ckpt") as ck:
        u = ck.add("u", u)              # what was stored, if the program was here before; else u
        for i in ck.loop(range(1000)):  # without the iterations that are done
            u = step(u).persist()
            ck.update(u=u)

Results of Dask never change, so what is current at the end of an iteration is a consistent state whatever
the workers are doing: a commit keeps it, and the program goes on meanwhile.
"""

import asyncio
import copy
import json
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from itertools import islice
from time import monotonic
from typing import Any

from dask.base import tokenize

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.checkpoint.client.loop import CommitStats, Due, Ending, Found, end_of_job, newest
from dask_hpc.checkpoint.client.protect import possible_levels, read_aim
from dask_hpc.checkpoint.client.reserved import Reserved
from dask_hpc.checkpoint.client.restore import active_client, read_key, store_settings
from dask_hpc.checkpoint.scheduler.controller import ask
from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.items import HeldItem, Plain, describe
from dask_hpc.checkpoint.store.manifest import check_label, check_name
from dask_hpc.checkpoint.store.seal import Key, Services
from dask_hpc.checkpoint.store.versions import rule_text, save
from dask_hpc.checkpoint.version import STORE, read_levels
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.on_resize import OnResize
from dask_hpc.strategies.checkpoint.when import AUTO

_TOLD_TWICE = 5.0  # seconds in which a job of a chain may be told to end by two
#: references to a value that only ``Checkpoint`` has: its own, and that of the call that counts them
_OURS = 2
#: values that nobody can change
_FIXED = (type(None), bool, int, float, complex, str, bytes)


@dataclass
class Cut:
    """``items`` is what there is to know, by label, and can be written as JSON; ``blocks`` has label, place
    and key of each."""

    items: dict[str, Any] = field(default_factory=dict)
    blocks: list[list[Any]] = field(default_factory=list)
    #: labels of what was not persisted before
    lazy: list[str] = field(default_factory=list)
    #: keeps results until the scheduler does
    kept: list[Any] = field(default_factory=list, repr=False)


async def take(client: Any, values: Mapping[str, Any], rules: Mapping[str, OnResize]) -> Cut:
    from distributed import futures_of

    cut = Cut()
    plain: list[tuple[str, str, Any]] = []
    for label, value in values.items():
        described = describe(value, label)
        if described.collection:
            if not all(map(futures_of, described.collection)):
                cut.lazy.append(label)
            cut.kept.append(client.persist(list(described.collection)))
            described = described.after(cut.kept[-1])
        cut.items[label] = {
            "kind": described.kind,
            "meta": described.meta,
            "on_resize": rule_text(rules[label]),
            "plain": [place for place, one in described.sources.items() if isinstance(one, Plain)],
        }
        for place, source in described.sources.items():
            if isinstance(source, HeldItem):
                cut.blocks.append([label, place, source.key])
            else:  # the program could change it while it is being committed
                own = source.value if isinstance(source.value, _FIXED) else copy.deepcopy(source.value)
                plain.append((label, place, own))
    if plain:
        # By their contents: what did not change has the same key, and is not copied again.
        futures = await client.scatter([value for _, _, value in plain], hash=True)
        cut.blocks += [[label, place, one.key] for (label, place, _), one in zip(plain, futures, strict=True)]
        cut.kept.append(futures)
    return cut


class Checkpoint:
    """The versions of a program's state under a name.

    ``every`` is how often ``loop`` commits: a whole number of iterations or a duration, each time to all
    levels; durations by level; or ``auto`` (``young``, ``daly``), which weighs for each level what commits
    cost against how often it is needed, and against how long a loop that has an end goes on: a short one goes
    to the store at its end alone. ``levels`` are ``partner`` (memory of another node), ``disk`` (of
    that node, too) and ``store``; as configured if they are not given. ``levels="auto"`` chooses among those
    that there are, again and again as ``protect`` does: it may be none, as long as computing again is less
    dear. ``objective`` is what commits, restores and work that is done again are to take least of: ``time``,
    or ``energy``, if the cluster knows what its nodes draw. ``token``
    says which program and input this is (anything that ``dask.base.tokenize`` takes): versions of another are
    refused. ``keep`` versions stay in the store; ``key`` (``file:PATH`` or ``env:NAME``) encrypts them;
    ``unpickle`` allows to restore objects that had to be pickled. ``walltime`` is when this process is ended:
    ``auto`` asks Slurm; SIGTERM is noticed in any case. In a job of ``dask-hpc submit`` its plan says whether
    to commit before that, and the program ends when nothing more would be kept.

    What is not given comes from the configuration ``hpc.checkpoint``; without a store, versions are only in
    the memory of the cluster.

    With an asynchronous client every call gives an awaitable, and ``async with`` and ``async for`` are to be
    used. Without any client plain values are written to the store, while the program waits.
    """

    def __init__(
        self,
        name: str,
        store: str | None = None,
        *,
        every: Any = AUTO,
        levels: Any = None,
        objective: str = "time",
        keep: int | None = None,
        key: str | Key | None = None,
        compress: str | None = None,
        unpickle: bool = False,
        token: Any = None,
        walltime: Any = "auto",
        client: Any = None,
    ) -> None:
        self.name = check_name(name)
        settings = config.checkpoint()
        root = settings["store"] if store is None else store
        aim = read_aim(levels, every, objective)
        if levels == AUTO:
            self.levels = possible_levels(settings, root is not None)
        else:
            self.levels = read_levels(settings["levels"] if levels is None else levels, root is not None)
        if store is not None and STORE not in self.levels:
            if levels is not None and levels != AUTO:
                allowed = "store among them, or no store"
                raise InputError("levels", f"found {shown(levels)}, and a store", allowed)
            self.levels = (*self.levels, STORE)
        self.store = Files(root).root if root is not None and STORE in self.levels else None
        self.due = Due(every)
        self.walltime = walltime
        self.step = 0  # iterations that are done
        self.is_asked = False  # whether the program asked for a commit in the midst of an iteration
        self._keep: int = settings["keep"] if keep is None else keep
        secret = read_key(settings["key"] if key is None else key)
        self._services = Services(compress or settings["compress"], key=secret)
        self._unpickle = unpickle is True
        self._token = "" if token is None else tokenize(token)
        self._client = client if client is not None else active_client()
        if self._client is None and self.store is None:
            raise InputError("Checkpoint: store", "found none", "a store, or a client of a cluster")
        if self._client is None:
            self.levels, aim = (STORE,), None
        self._aim, self.due.asks = aim, aim is not None
        self._rules: dict[str, OnResize] = {}
        self._values: dict[str, Any] = {}
        #: what was added, where something that was stored has taken its place
        self._replaced: dict[str, weakref.ref[Any]] = {}
        self._found: Found | None = None
        self._nodes: list[str] = []
        #: the loop; an error in its body leaves it open, and with it the handler of SIGTERM
        self._turns: Generator[Any, None, None] | None = None
        self._is_looping = self._has_looped = self._is_over = False
        self._committed = self._stored = -1
        self._number = 0
        #: what waits for the cluster to answer to the newest commit
        self._hearing: asyncio.Task[None] | None = None
        #: the statistics, when it is closed
        self._last: dict[str, Any] | None = None
        self._told: set[str] = set()
        self._stalls: list[float] = []
        #: what is remembered of this run of the loop, and when it began
        self._run: dict[str, Any] = {}
        self._began = monotonic()
        #: the batch job of a chain that this runs in, if it does
        self._reserved = Reserved.of_environment(self._warn)
        if self._reserved is not None:
            self.due.reserve(self._reserved.told)
        #: whether no other commit may come before the end
        self.is_last = False
        self._is_open = False
        if not self._is_asynchronous:
            self.call(self._open)

    def add(self, label: str, value: Any, on_resize: Any = "constant") -> Any:
        """Make a value part of the state. Gives what was stored of it, if there is a version to go on from,
        or the value itself: ``u = ck.add("u", u)``.

        ``on_resize`` says what becomes of a plain value if the version is of another number of nodes:
        ``constant``, ``size``, ``rank``, ``default:VALUE``, ``joining:VALUE``, or a function of the number.
        """
        label = check_label(label)
        rule = OnResize.read(on_resize)
        if self._is_looping or self._has_looped:
            raise InputError("add", f"{label} comes in the loop or after it", "all values before the loop")
        return self.call(self._add, label, value, rule)

    def update(self, values: Mapping[str, Any] | None = None, **named: Any) -> None:
        new = {**(values or {}), **named}
        for label in new:
            self._check_added("update", label)
        self._values |= new

    def __getitem__(self, label: str) -> Any:
        self._check_added("label", label)
        self._replaced.pop(label, None)
        return self._values[label]

    def loop(self, iterable: Iterable[Any]) -> "Loop":
        """Iterate, without what is done already, and commit when it is due and at the end. Give it the same
        items whenever the program is run; only their number matters for where to go on.

        A program that is told to end (SIGTERM), or whose walltime comes near, commits at the end of an
        iteration and waits until that is safe.
        """
        return Loop(self, iterable)

    def commit(self, wait: bool = False) -> Any:
        """Commit now; in a loop, when the iteration is over. The program goes on as soon as the cluster is
        being told; if that cannot keep it, it is said later, and the next commit tries anew. With ``wait``,
        until all of it is as safe as it can be."""
        if self._is_looping:
            self.is_asked = True
            return self.call(_nothing)
        return self.call(self.commit_now, wait)

    def stats(self) -> Any:
        """What commits there were, what they cost, and where the newest versions are."""
        return self.call(self._stats)

    def close(self) -> Any:
        """Wait for what is on its way. If the loop was over, workers need keep nothing any longer."""
        if self._is_asynchronous:
            return self.__aexit__()
        self.__exit__()
        return None

    def __enter__(self) -> "Checkpoint":
        if self._is_asynchronous:
            raise InputError("Checkpoint", "the client is asynchronous", "async with")
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.call(self._close)
        finally:
            self._end_turns()

    async def __aenter__(self) -> "Checkpoint":
        await self._open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._close()
        finally:
            self._end_turns()

    def _end_turns(self) -> None:
        if self._turns is not None:
            self._turns.close()

    def __await__(self) -> Any:
        return self.__aenter__().__await__()

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name}: {self._labels() or 'nothing'} at iteration {self.step}>"

    def call(self, work: Any, *args: Any) -> Any:
        """Run a coroutine function, or give its coroutine to an asynchronous program."""
        if self._is_asynchronous:
            return work(*args)
        if self._client is not None:
            return self._client.sync(work, *args)
        # A notebook has a loop of its own in this thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(work(*args))).result()

    def loop_begins(self, turns: Generator[Any, None, None]) -> None:
        """Raises ``InputError`` if it must not."""
        if self._is_looping or self._has_looped:
            found = "a loop in a loop" if self._is_looping else "a second loop"
            raise InputError("Checkpoint.loop", found, "one loop of one Checkpoint")
        for label, given in self._replaced.items():
            # The program still has what it gave, and nobody but us what it got.
            if given() is not None and sys.getrefcount(self._values[label]) <= _OURS:
                idiom = f"{label} = ck.add({label!r}, ...), or ck[{label!r}]"
                self._warn(
                    f"{label} of iteration {self.step} was restored, and nobody seems to take it: {idiom}"
                )
        self._replaced.clear()
        if self._found is not None and (left := sorted(self._found.values.keys() - self._rules.keys())):
            self._warn(f"what was stored as {', '.join(left)} was not added, and will not be in new versions")
        self._found = None
        if self._reserved is not None:
            self._reserved.loop_begins(self.name, self.step)
        self._turns = turns
        self._began = monotonic()
        self._is_looping = True

    def loop_ends(self, is_over: bool) -> None:
        self._is_looping, self._has_looped, self._is_over = False, True, is_over
        self._note_run("done" if is_over else "killed")

    def _note_run(self, ended: str) -> None:
        self._run |= {"seconds": monotonic() - self._began, "ended": ended}

    async def commit_now(self, wait: bool) -> None:
        """Commit what there is. Our trouble is told, and the program goes on."""
        self.is_asked = False
        if not self._values:
            return
        begun = monotonic()
        await self._heard()
        self._note_commit()
        try:
            if self._client is None:
                if self._committed < self.step:
                    await asyncio.to_thread(self._save_here)
                self.due.took(monotonic() - begun)
                self._note_stored(self.step, monotonic() - begun)
            else:
                if self._committed < self.step:
                    await self._commit_there()
                stall = monotonic() - begun
                if wait:
                    await self._heard()
                if wait and self._committed == self.step and self._number:
                    settled = self._client.scheduler.hpc_checkpoint_settled
                    version = await settled(name=self.name, number=self._number)
                    self._tell_of(version)
                    self.due.took(monotonic() - begun)
                    if STORE in version["levels"]:
                        self._note_stored(self.step, monotonic() - begun)
                begun = monotonic() - stall
        except InputError:
            raise
        except Exception as error:  # whatever it is, the program can go on
            self._warn(f"iteration {self.step} could not be committed: {one_line(str(error))}")
        finally:
            cost = monotonic() - begun
            self._stalls.append(cost)
            is_to_hear = self._hearing is not None and not self._hearing.done()
            self.due.committed(self.step, monotonic(), cost, is_to_hear)

    async def ask(self) -> None:
        """How often to commit to which levels from now on."""
        try:
            told = await self._client.scheduler.hpc_checkpoint_look(
                name=self.name,
                levels=list(self.levels),
                every=self.due.rule,
                aim=self._aim,
                nbytes=float(sum(getattr(one, "nbytes", 0) for one in self._values.values())),
                seconds_left=self.due.seconds_left(self.step),
                patience=self.due.patience,
            )
            if told["every"] is not None:
                self.due.plan(told["every"], told["why"])
        except Exception as error:  # whatever it is, the program can go on
            self._warn(f"nobody says how often to commit: {one_line(str(error))}")

    @property
    def patience(self) -> float:
        """Seconds in which a second SIGTERM says no more than the first."""
        return 0.0 if self._reserved is None else _TOLD_TWICE

    @property
    def is_safe(self) -> bool:
        """Whether the store has this iteration, as far as the chain of batch jobs knows that this runs in."""
        return self._reserved is not None and self._stored >= self.step

    def _note_commit(self) -> None:
        """The chain hears that this iteration is to be kept."""
        if self._reserved is not None:
            self._reserved.commits(self.name, self.step, self.due.slowest)
            if self.is_last:
                self._reserved.commits_at_end(is_safe=False)

    def _note_stored(self, step: int, seconds: float | None = None) -> None:
        """The chain hears that the store has that iteration."""
        if self._reserved is not None:
            self._stored = max(self._stored, step)
            self._reserved.stored(self.name, step, seconds)
            if self.is_last and step >= self.step:
                self._reserved.commits_at_end(is_safe=True)

    @property
    def _is_asynchronous(self) -> bool:
        return self._client is not None and bool(self._client.asynchronous)

    def _labels(self) -> str:
        return ", ".join(self._rules)

    def _check_added(self, where: str, label: str) -> None:
        if label not in self._rules:
            raise InputError(where, f"found {shown(label)}", f"labels that were added: {self._labels()}")

    async def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        if self._reserved is not None:
            self._reserved.opened(has_store=self.store is not None)
        memory = None
        if self._client is not None:
            told = await ask(self._client, "hpc_checkpoint_open", name=self.name, client=self._client.id)
            self._nodes = list(told["nodes"])
            memory = told["version"]
        key = self._services.key
        begun = monotonic()
        found, told = await newest(self.name, self._client, memory, self.store, key, self._unpickle)
        if found is not None and found.nbytes:
            self._run["restore"] = [monotonic() - begun, found.nbytes]
        for one in told:
            self._warn(one)
        self._found = found
        if found is None:
            return
        if found.token != self._token:
            other = (
                "another token" if self._token and found.token else "a token" if found.token else "no token"
            )
            raise InputError(
                "Checkpoint", f"{self.name} at iteration {found.step} is of a program with {other}",
                "the token that it was made with, or another name",
            )  # fmt: skip
        self.step = self._committed = found.step

    async def _add(self, label: str, value: Any, rule: OnResize) -> Any:
        described = describe(value, label)
        if rule.rule != "constant" and described.kind != "value":
            raise InputError(f"add({label!r}, on_resize=...)", f"a {described.kind}", "plain values only")
        self._rules[label] = rule
        self._values[label] = value
        found = self._found
        if found is None:
            return value
        if label not in found.values:
            self._warn(f"the version in the {found.where} has no {label}: it is as it was added")
            return value
        found.check(label, described.kind, described.meta)
        restored = found.values.pop(label)
        if self._nodes and len(self._nodes) != len(found.nodes):
            restored = rule.value_of_all(restored, found.nodes, self._nodes)
        self._values[label] = restored
        with suppress(TypeError):  # a number, a list: nobody knows who has it
            self._replaced[label] = weakref.ref(value)
        return restored

    async def _commit_there(self) -> None:
        cut = await take(self._client, self._values, self._rules)
        if cut.lazy:
            labels = ", ".join(cut.lazy)
            self._warn(
                f"{labels} not persisted: each commit computes it, and so does whoever uses it then. "
                f"Better is {cut.lazy[0]} = {cut.lazy[0]}.persist() in each iteration"
            )
        services = self._services
        answer = await compat.posted(
            self._client,
            "hpc_checkpoint_commit",
            name=self.name,
            step=self.step,
            token=self._token,
            items=json.dumps(cut.items),
            blocks=cut.blocks,
            levels=list(self.levels),
            every=self.due.rule,
            seconds_left=self.due.seconds_left(self.step),
            commits_left=self.due.commits_left(self.step),
            aim=self._aim,
            store=self.store
            and store_settings(self.store, self._keep, services.compress, services.key, self._unpickle),
        )
        before, self._committed = self._committed, self.step
        kept = [*cut.kept, *self._values.values()]
        self._hearing = asyncio.ensure_future(self._hear(answer, before, kept, monotonic() - self._began))

    async def _heard(self) -> None:
        """Until the cluster has answered to the newest commit."""
        if self._hearing is not None:
            await self._hearing

    async def _hear(self, answer: Awaitable[Any], before: int, kept: list[Any], seconds: float) -> None:
        """The cluster answers to a commit, so many seconds after the loop began, when nothing can take away
        its results any more: they are ``kept`` here until then. If it cannot, that iteration is not
        committed, and the next commit tries anew."""
        step, is_kept = self._committed, False
        try:
            told = await answer
            self._number, is_kept = told["number"], True
            self._run["saved_seconds"] = max(0.0, seconds)
            self._learn(told["stats"])
        except Exception as error:  # whatever it is, the program can go on
            self._committed = step if is_kept else before
            self._warn(f"iteration {step} could not be committed: {one_line(str(error))}")
        finally:
            kept.clear()
            self.due.plan_alone()

    def _learn(self, told: Mapping[str, Any]) -> None:
        """What the cluster says of commits when it answers to one."""
        if (every := told["every"]) is not None:
            self.due.plan(every, told["why"])
        if (last := told["complete"]) is not None:
            self.due.took(last["seconds"])
        if told["problem"]:
            self._warn(f"the store cannot be used, commits stay in memory: {told['problem']}")
        if (stored := told["versions"].get(STORE)) is not None:
            self._note_stored(stored)

    def _save_here(self) -> None:
        save(
            str(self.store),
            self.name,
            self._values,
            step=self.step,
            token=self._token,
            on_resize=self._rules,
            services=self._services,
            keep=self._keep,
        )
        self._committed = self.step

    def _tell_of(self, version: Mapping[str, Any]) -> None:
        """What became of a version that was waited for."""
        levels = version["levels"]
        if not levels:
            self._warn(f"iteration {self.step} could not be committed: {version['problem']}")
        elif self.store is not None and STORE not in levels:
            self._warn(f"iteration {self.step} is in memory only: {version['problem']}")

    async def _stats(self) -> CommitStats:
        now, notes, stalls = monotonic(), [], self._stalls
        told = self._last
        if self._client is None:
            stored = {STORE: self._committed} if self._committed >= 0 else {}
            told = {"commits": len(stalls), "seconds": sum(stalls), "versions": stored}
        elif told is None:
            await self._heard()
            told = await self._client.scheduler.hpc_checkpoint_stats(name=self.name)
        if STORE not in self.levels:
            notes.append("no store: versions end with the cluster")
        if told.get("disk_problem"):
            notes.append(f"not all copies are on disk: {told['disk_problem']}")
        names = {one.name for one in fields(CommitStats)}
        known = {name: value for name, value in told.items() if name in names}
        more: dict[str, Any] = {
            "name": self.name,
            "step": self.step,
            "stall": sum(stalls),
            "worst_stall": max(stalls, default=0.0),
            "next_due": self.due.next(now),
            "due": self.due.by_level(now, self.levels, told.get("due_in", {})),
            "why": told.get("why") or self.due.why,
            "notes": notes,
        }
        return CommitStats(**known | more)

    async def _close(self) -> None:
        if self._client is not None and self._last is None:
            await self._heard()
            with suppress(OSError):  # the cluster has gone before
                close = self._client.scheduler.hpc_checkpoint_close
                if self._is_looping:  # an error has left it open
                    self._note_run("killed")
                # Of a chain it is only a part, and the chain knows how long all of it took.
                run = self._run if "ended" in self._run and self._reserved is None else None
                self._last = await close(name=self.name, forget=self._is_over, run=run)

    def _warn(self, text: str) -> None:
        """Once for each kind of trouble."""
        kind = text.partition(":")[0].translate(_NO_DIGITS)
        if kind not in self._told:
            self._told.add(kind)
            warnings.warn(f"checkpoint {self.name}: {text}", stacklevel=2)


_NO_DIGITS = str.maketrans("", "", "0123456789")


async def _nothing() -> None:
    pass


_ASK = "ask"


class Loop:
    """To be iterated once, with ``for`` or with ``async for``."""

    def __init__(self, checkpoint: Checkpoint, iterable: Iterable[Any]) -> None:
        self._checkpoint = checkpoint
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        with closing(self._turns()) as turns:
            self._checkpoint.loop_begins(turns)
            for item, wait in turns:
                if wait is None:
                    yield item
                elif wait == _ASK:
                    self._checkpoint.call(self._checkpoint.ask)
                else:
                    self._checkpoint.call(self._checkpoint.commit_now, wait)

    async def __aiter__(self) -> AsyncIterator[Any]:
        with closing(self._turns()) as turns:
            self._checkpoint.loop_begins(turns)
            for item, wait in turns:
                if wait is None:
                    yield item
                elif wait == _ASK:
                    await self._checkpoint.ask()
                else:
                    await self._checkpoint.commit_now(wait)

    def _turns(self) -> Generator[tuple[Any, Any], None, None]:
        """Items, and between them what to do: commit and go on, or commit and wait until it is safe, or ask
        how often to."""
        checkpoint, due, items = self._checkpoint, self._checkpoint.due, self._iterable
        is_over = False
        with Ending(end_of_job(checkpoint.walltime), checkpoint.patience) as ending:
            try:
                due.begin(checkpoint.step, monotonic())
                due.goes_over(items)
                done = checkpoint.step
                for item in items[done:] if isinstance(items, range) else islice(items, done, None):
                    begun = monotonic()
                    yield item, None
                    now = monotonic()
                    checkpoint.step += 1
                    due.iterated(now - begun, ending.left())
                    if due.is_to_ask(now):
                        yield None, _ASK
                    if ending.is_told or due.is_last_chance(ending.left()):
                        checkpoint.is_last = True
                        yield None, True
                        if checkpoint.is_safe and due.is_over(ending.left()):
                            ending.ask()
                    elif checkpoint.is_asked or due.is_due(checkpoint.step, now):
                        yield None, False
                    if ending.is_told:
                        ending.close()  # what SIGTERM does to this process happens here
                # What is only in memory is freed at the end anyway.
                if checkpoint.store is not None or not due.keeps_nothing:
                    yield None, True
                is_over = True
            finally:
                checkpoint.loop_ends(is_over)
