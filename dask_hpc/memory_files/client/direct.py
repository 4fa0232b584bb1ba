"""Scratch files for a process that is part of Dask: it asks the scheduler for places, and gives blocks to
agents and takes them from there itself.

Many things that are asked in the same moment go in one message, and so do small blocks for the same agent
(``batch`` of 0: each goes alone).
"""

import asyncio
import errno
import os
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf
from secrets import token_hex
from time import monotonic, perf_counter
from typing import Any

import fsspec

from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, seal, unseal
from dask_hpc.checkpoint.worker.agent import Agent
from dask_hpc.checkpoint.worker.block import QUICK, Block
from dask_hpc.checkpoint.worker.transfer import Window, pause
from dask_hpc.memory_files.client.messages import LARGE, BlockLetters, BlockRequests, Reach
from dask_hpc.memory_files.client.open_file import OpenFile
from dask_hpc.memory_files.port import How, split, unpack
from dask_hpc.memory_files.settings import FilesSettings

_TRIES = 6  # at reading what moves, and at finding room
_AT_ONCE = 64  # files that are written on their own
#: small files that are written together, and how many such sets at once: while agents take the blocks of one,
#: the next is announced
_FILES, _SETS = 256, 2
_PIECE = 8 * 2**20  # bytes that are on their way to a store at once
_WINDOW = 64 * 2**20  # bytes of a file on their way
_GATHER = 2**18
_RATES = 64
_FRESH = 1.0  # seconds for which settings are taken to be as they were


@dataclass(slots=True)
class _Out:
    """Steps of several callers that go in one message."""

    steps: list[Mapping[str, Any]] = field(default_factory=list)
    waiting: list[tuple[int, int, "asyncio.Future[list[Any]]"]] = field(default_factory=list)


class DirectFiles:
    """All of one process, whatever file system they are in. See ``FilesPort``."""

    def __init__(self, reach: Reach, key: str | None = None) -> None:
        self._reach = reach
        self.loop = reach.loop
        self._key_source = key
        self._out: _Out | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._letters: dict[str, BlockLetters] = {}
        self._requests: dict[str, BlockRequests] = {}
        self._window = Window(_WINDOW)
        self._handles: dict[int, OpenFile] = {}
        self._numbers = count(1)
        self._settings: dict[str, FilesSettings] = {}
        self._known_at: dict[str, float] = {}
        #: the id of the cluster, once something was heard of it
        self.run = ""
        self._rates: dict[str, list[float]] = {}
        self._nonce = token_hex(8)

    # the scheduler

    async def do(self, steps: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What the scheduler says of names. Raises the first error, when all is done."""
        return [unpack(one) for one in await self.ask(steps)]

    async def ask(self, steps: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The same, each answer as it came."""
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if self._out is None:
            self._out = _Out()
            asyncio.get_running_loop().call_soon(self._send_steps)
        begin = len(self._out.steps)
        self._out.steps += steps
        self._out.waiting.append((begin, begin + len(steps), answer))
        name = steps[0].get("fs", "") if steps else ""
        if (settings := self._settings.get(name)) is not None and not settings.batch:
            self._send_steps()
        found = await answer
        for handle in self._handles.values():
            if handle.is_shown:
                found = [_with_open(handle, *one) for one in zip(steps, found, strict=True)]
        return found

    def _send_steps(self) -> None:
        out, self._out = self._out, None
        if out is not None:
            task = asyncio.ensure_future(self._send_out(out))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_out(self, out: _Out) -> None:
        said: Any = None
        rates = [{"do": "did", "fs": name, "rates": some} for name, some in self._rates.items() if some]
        self._rates.clear()
        wrong: BaseException | None = None
        try:
            said = await self._reach.ask("hpc_files_do", owner=self._reach.me, steps=[*out.steps, *rates])
            if said is None:
                wrong = FileNotFoundError(errno.ENOENT, "this cluster has no scratch files", "hpcmemory://")
        except (OSError, TimeoutError) as error:
            wrong = OSError(errno.EIO, f"the scheduler does not answer: {error}", "hpcmemory://")
        except BaseException as error:
            wrong = error
        for begin, end, answer in out.waiting:
            if answer.done():
                continue
            if wrong is not None:
                answer.set_exception(wrong)
            else:
                answer.set_result(said[begin:end])

    async def settings(self, name: str) -> FilesSettings:
        """Those of a file system, as of now."""
        (found,) = await self.do([{"do": "settings", "fs": name}])
        return self.know(name, found)

    def know(self, name: str, plain: Mapping[str, Any]) -> FilesSettings:
        """They are these from now on."""
        found = self._settings[name] = FilesSettings.read(plain)
        self.run = plain.get("run", self.run)
        self._known_at[name] = monotonic()
        for handle in self._handles.values():
            if handle.name == name:
                handle.set(found)
        return found

    async def known(self, name: str) -> FilesSettings:
        """The same, or those of a moment ago."""
        if monotonic() - self._known_at.get(name, -inf) > _FRESH:
            return await self.settings(name)
        return self._settings[name]

    # blocks

    def made(self, data: Any, settings: FilesSettings) -> Block:
        """Bytes as a block that is like no other."""
        name = f"{self._nonce}{next(self._numbers):x}"
        head: dict[str, Any] = {"is": "scratch", "of": name}
        frames = [memoryview(data).cast("B")]
        if settings.encrypt:
            frames, head["note"] = seal(frames, name, Services(compress="never", key=self._key()))
        return Block.of_frames(head, frames)

    def _bytes_of(self, block: Block) -> memoryview:
        """Those of the file: in the memory in which they came, if they are in one piece there."""
        pieces = list(block.part(0, block.nbytes))
        frame: Any = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if isinstance(block.head, dict) and "note" in block.head:
            (frame,) = unseal(frame, block.head["of"], block.head["note"], self._key())
        return memoryview(frame).cast("B")

    def _key(self) -> Key:
        if self._key_source is None:
            raise PermissionError(errno.EACCES, "encryption needs hpc.checkpoint.key", "hpcmemory://")
        return Key.read(self._key_source)

    async def _put(
        self, block: Block, agents: Sequence[str], is_alone: bool
    ) -> tuple[list[str], set[str], set[str], str]:
        """Give a block to agents. Who has it, who is full, who does not answer, and why."""
        letters = [self._letters.setdefault(one, BlockLetters(self._reach, one)) for one in agents]
        async with self._window.room(block.nbytes):
            said = await asyncio.gather(*(one.put(block, is_alone) for one in letters))
        there = [one for one, answer in zip(agents, said, strict=True) if "content" in answer]
        why = next((str(one.get("full") or one.get("error")) for one in said if "content" not in one), "")
        full = {one for one, answer in zip(agents, said, strict=True) if "full" in answer}
        return there, full, set(agents) - set(there) - full, why

    async def send(
        self, name: str, session: int, blocks: Mapping[int, Block], places: Mapping[int, Sequence[str]]
    ) -> list[Any]:
        """Give announced blocks to where they belong, or elsewhere if there is no room or no answer. For each
        who has it."""
        settings = self._settings[name]
        there: dict[int, list[str]] = {}
        left = dict(places)
        full: set[str] = set()
        silent: set[str] = set()
        for tried in range(1, _TRIES + 1):
            said = await asyncio.gather(
                *(self._put(blocks[one], left[one], not settings.batch) for one in left)
            )
            again = []
            for number, (have, refuse, do_not_answer, _) in zip(list(left), said, strict=True):
                full |= refuse
                silent |= do_not_answer
                if have:  # where copies are missing, they are made later
                    there[number] = have
                else:
                    again.append(number)
            if not again:
                return [[one, blocks[one].content, there[one]] for one in sorted(there)]
            step = {
                "do": "announce", "fs": name, "session": session,
                "full": sorted(full), "not_on": sorted(full | silent),
                "blocks": [[one, blocks[one].content, blocks[one].nbytes] for one in again],
                "put": [[one, blocks[one].content, have] for one, have in there.items()],
            }  # fmt: skip
            left = dict(zip(again, await self._elsewhere(step, tried if silent else _TRIES), strict=True))
        raise OSError(errno.EIO, f"no agent took it: {said[0][3]}", f"hpcmemory://{name}")

    async def _elsewhere(self, step: Mapping[str, Any], tried: int) -> list[Any]:
        """Who takes blocks that were not taken. If nobody is left, who did not answer is asked once more; if
        it has died, others take its place when the scheduler hears of it."""
        while True:
            try:
                (found,) = await self.do([step])
                return list(found)
            except OSError as error:
                if error.errno != errno.ENOSPC or tried >= _TRIES:
                    raise
            await asyncio.sleep(pause(tried))
            step, tried = {**step, "not_on": step["full"]}, tried + 1

    async def announce(
        self, name: str, session: int, blocks: Mapping[int, Block], put: Sequence[Any]
    ) -> dict[int, Sequence[str]]:
        """Where these are to go. ``put``: what is known of earlier ones."""
        (found,) = await self.do(
            [
                {
                    "do": "announce", "fs": name, "session": session, "put": put,
                    "blocks": [[number, one.content, one.nbytes] for number, one in blocks.items()],
                }
            ]
        )  # fmt: skip
        return dict(zip(blocks, found, strict=True))

    async def commit(
        self, name: str, session: int, size: int, put: Sequence[Any], ends: bool, cuts: bool
    ) -> None:
        """What was given belongs to the file from now on."""
        await self.do(
            [
                {
                    "do": "commit", "fs": name, "session": session, "size": size, "put": put,
                    "ends": ends, "cuts": cuts,
                }
            ]
        )  # fmt: skip

    async def fetch(self, content: str, agents: Sequence[str]) -> bytes:
        """One block again that was given."""
        found: dict[int, memoryview] = {}
        try:
            await self._from(agents[0], [(0, content)], found)
        except _Moved as error:
            raise OSError(errno.EIO, str(error), "hpcmemory://") from None
        return bytes(found[0])

    # whole files

    async def write(self, path: str, data: Any, how: How = "new") -> None:
        """A whole file at once."""
        began, (name, rest) = perf_counter(), split(path)
        view = memoryview(data).cast("B")
        settings = await self.known(name)
        size = settings.block
        numbers = range(-(-view.nbytes // size))
        if view.nbytes > QUICK:
            blocks = await asyncio.to_thread(self._many, view, numbers, settings)
        else:
            blocks = self._many(view, numbers, settings)
        step = {
            "do": "begin", "fs": name, "path": rest, "how": how,
            "blocks": [[number, one.content, one.nbytes] for number, one in blocks.items()],
        }  # fmt: skip
        (begun,) = await self.do([step])
        session = begun["session"]
        try:
            put = []
            if blocks:
                put = await self.send(name, session, blocks, dict(zip(numbers, begun["places"], strict=True)))
            await self.commit(name, session, view.nbytes, put, ends=True, cuts=True)
        except BaseException:
            await self._abandon(name, session)
            raise
        self._took(name, view.nbytes, perf_counter() - began)

    async def write_many(self, files: Mapping[str, Any], how: How = "new") -> None:
        """Many whole files: small ones together, in few messages. Each is there or not; what was wrong with
        the first one that is not is raised when all others are."""
        together: dict[str, memoryview] = {}
        alone = []
        for path, data in files.items():
            view = memoryview(data).cast("B")
            if view.nbytes <= LARGE and (await self.known(split(path)[0])).batch:
                together[path] = view
            else:
                alone.append((path, data))
        lanes, sets = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_SETS)

        async def some(paths: Sequence[str]) -> None:
            async with sets:
                await self._write_some({path: together[path] for path in paths}, how)

        async def one(path: str, data: Any) -> None:
            async with lanes:
                await self.write(path, data, how)

        paths = list(together)
        works = [some(paths[at : at + _FILES]) for at in range(0, len(paths), _FILES)]
        await together_or_wrong([*works, *(one(*each) for each in alone)])

    async def _write_some(self, files: Mapping[str, memoryview], how: How) -> None:
        began, made, begins = perf_counter(), [], []
        for path, view in files.items():
            settings = await self.known(split(path)[0])
            blocks = self._many(view, range(-(-view.nbytes // settings.block)), settings)
            name, rest = split(path)
            made.append(blocks)
            begins.append({
                "do": "begin", "fs": name, "path": rest, "how": how,
                "blocks": [[number, one.content, one.nbytes] for number, one in blocks.items()],
            })  # fmt: skip
        answers = await self.ask(begins)
        for_agent: dict[str, list[tuple[int, int]]] = {}
        for place, answer in enumerate(answers):
            for number, agents in enumerate(answer["ok"].get("places", ()) if "ok" in answer else ()):
                for agent in agents:
                    for_agent.setdefault(agent, []).append((place, number))
        there: dict[tuple[int, int], list[str]] = {}

        async def give(agent: str, wanted: Sequence[tuple[int, int]]) -> None:
            letters = self._letters.setdefault(agent, BlockLetters(self._reach, agent))
            said = await letters.put_many([made[place][number] for place, number in wanted])
            for one, answer in zip(wanted, said, strict=True):
                if "content" in answer:
                    there.setdefault(one, []).append(agent)

        await asyncio.gather(*(give(*one) for one in for_agent.items()))
        ends, wrong = [], None
        for place, (path, answer) in enumerate(zip(files, answers, strict=True)):
            try:
                begun, blocks, name = unpack(answer), made[place], split(path)[0]
                put = [[one, block.content, there.get((place, one), [])] for one, block in blocks.items()]
                if not all(have for _, _, have in put):  # others may take what these did not
                    put = await self.send(name, begun["session"], blocks, dict(enumerate(begun["places"])))
                ends.append({
                    "do": "commit", "fs": name, "session": begun["session"],
                    "size": files[path].nbytes, "put": put, "ends": True, "cuts": True,
                })  # fmt: skip
            except OSError as error:
                wrong = wrong or error
                if "ok" in answer:
                    await self._abandon(name, answer["ok"]["session"])
        for answer, end in zip(await self.ask(ends) if ends else (), ends, strict=True):
            try:
                unpack(answer)
            except OSError as error:
                wrong = wrong or error
                await self._abandon(end["fs"], end["session"])
        if wrong is not None:
            raise wrong
        self._took(split(path)[0], sum(view.nbytes for view in files.values()), perf_counter() - began)

    def _many(self, view: memoryview, numbers: Iterable[int], settings: FilesSettings) -> dict[int, Block]:
        size = settings.block
        return {one: self.made(view[one * size : (one + 1) * size], settings) for one in numbers}

    async def _abandon(self, name: str, session: int) -> None:
        with suppress(OSError):
            await self.do([{"do": "abandon", "fs": name, "session": session}])

    def _took(self, name: str, nbytes: int, seconds: float) -> None:
        if nbytes:
            rates = self._rates.setdefault(name, [])
            if len(rates) < _RATES:
                rates.append(nbytes / max(seconds, 1e-9))

    async def read(
        self, path: str, begin: int = 0, end: int | None = None, number: int | None = None
    ) -> bytes:
        """Bytes of a file, all of the same version of it; of one that is written here with what is not yet
        sent."""
        for handle in self._handles.values():
            if handle.path == path and handle.is_shown:
                return await handle.read_back(begin, end)
        return await self.read_sent(path, begin, end, number)

    async def read_many(self, wanted: Sequence[tuple[str, int, int | None]]) -> list[bytes | BaseException]:
        """Of many files, or parts of them; where something is wrong, that."""
        shown = {handle.path for handle in self._handles.values() if handle.is_shown}
        steps = [
            {"do": "places", "fs": split(path)[0], "path": split(path)[1], "begin": begin, "end": end}
            for path, begin, end in wanted
        ]
        answers = await self.ask(steps) if steps else []
        coming: list[dict[int, asyncio.Future[Any]] | None] = []
        for (path, *_), answer in zip(wanted, answers, strict=True):
            some: dict[int, asyncio.Future[Any]] | None = {}
            if (
                path in shown
                or "ok" not in answer
                or not all(where for _, _, where, _ in answer["ok"]["blocks"])
            ):
                some = None
            for number, content, where, _ in answer["ok"]["blocks"] if some is not None else ():
                agent = where[number % len(where)]
                if some is not None and self._reach.own_agent(agent) is None:
                    some[number] = self._asked(agent).get(content)
                else:
                    some = None
            coming.append(some)
        found: list[bytes | BaseException] = []
        for (path, begin, end), answer, some in zip(wanted, answers, coming, strict=True):
            try:
                found.append(await self._whole(path, begin, end, answer, some))
            except Exception as error:
                found.append(error)
        return found

    async def _whole(
        self,
        path: str,
        begin: int,
        end: int | None,
        answer: Mapping[str, Any],
        coming: Mapping[int, asyncio.Future[Any]] | None,
    ) -> bytes:
        """One of several that were asked for at once; if that went wrong, or is not so simple, once more."""
        if coming is not None:
            blocks = {number: await one for number, one in coming.items()}
            if all(isinstance(one, Block) for one in blocks.values()):
                places = answer["ok"]
                stop = places["size"] if end is None else min(end, places["size"])
                views = {number: self._bytes_of(one) for number, one in blocks.items()}
                return b"".join(_cut(views, places, places["block"], begin, stop))
        return await self.read(path, begin, end)

    async def read_sent(
        self, path: str, begin: int = 0, end: int | None = None, number: int | None = None
    ) -> bytes:
        """What all see of it."""
        step = {"do": "places", "fs": split(path)[0], "path": split(path)[1], "begin": begin, "end": end}
        return await self._read(path, step, number)

    async def read_of(self, path: str, session: int, begin: int, end: int, put: Sequence[Any]) -> bytes:
        """What whoever writes it has, as far as it was sent: by whatever path it is now."""
        step = {
            "do": "places", "fs": split(path)[0], "path": split(path)[1], "begin": begin, "end": end,
            "session": session, "put": put,
        }  # fmt: skip
        return await self._read(path, step)

    async def _read(self, path: str, step: Mapping[str, Any], number: int | None = None) -> bytes:
        began, name, begin, end = perf_counter(), step["fs"], step["begin"], step["end"]
        for tried in range(1, _TRIES + 1):
            (places,) = await self.do([step])
            if number not in (None, places["version"][0]):
                raise OSError(errno.ESTALE, "another file has this name now", f"hpcmemory://{path}")
            size, stop = places["block"], places["size"]
            stop = stop if end is None else min(end, stop)
            try:
                found = await self._fetch(places, path, tried - 1)
            except _Moved as error:
                if tried == _TRIES:
                    raise OSError(errno.EIO, str(error), f"hpcmemory://{path}") from None
                await asyncio.sleep(pause(tried))
                continue
            self._took(name, max(0, stop - begin), perf_counter() - began)
            views = _cut(found, places, size, begin, stop)
            return await asyncio.to_thread(b"".join, views) if stop - begin > QUICK else b"".join(views)
        raise AssertionError("unreachable")

    async def _fetch(self, places: Mapping[str, Any], path: str, turn: int) -> dict[int, memoryview]:
        """The bytes of blocks by number, in each turn from another agent that has them. Raises ``_Moved`` if
        some are not where they were."""
        by_agent: dict[str, list[tuple[int, str]]] = {}
        found: dict[int, memoryview] = {}
        for number, content, where, lost in places["blocks"]:
            if content and not where and places["stored"]:
                begin, end = number * places["block"], min(places["size"], (number + 1) * places["block"])
                piece = await asyncio.to_thread(_from_store, places["stored"], begin, end)
                found[number] = memoryview(piece)
                continue
            if content and not where:
                text = f"block {number} was lost with {lost}, and had no copy (copies=1 keeps one more)"
                raise FileNotFoundError(errno.ENOENT, text, f"hpcmemory://{path}")
            if content:
                is_here = not turn and self._reach.me in where
                agent = self._reach.me if is_here else where[(number + turn) % len(where)]
                by_agent.setdefault(agent, []).append((number, content))
        await asyncio.gather(*(self._from(agent, some, found) for agent, some in by_agent.items()))
        return found

    async def _from(self, agent: str, some: list[tuple[int, str]], into: dict[int, memoryview]) -> None:
        if (own := self._reach.own_agent(agent)) is not None:
            for number, content in some:
                into[number] = await self._own(own, content)
            return
        known = self._asked(agent)
        came = await asyncio.gather(*(known.get(content) for _, content in some))
        for (number, _), what in zip(some, came, strict=True):
            if not isinstance(what, Block):
                raise _Moved(f"{agent}: {what}")
            is_long = "note" in what.head and what.nbytes > QUICK
            into[number] = await asyncio.to_thread(self._bytes_of, what) if is_long else self._bytes_of(what)

    def _asked(self, agent: str) -> BlockRequests:
        known = self._requests.get(agent)
        if known is None:
            known = self._requests[agent] = BlockRequests(self._reach, agent, self._window)
        return known

    async def _own(self, agent: Agent, content: str) -> memoryview:
        """The bytes of a block of this very worker."""
        try:
            block = agent.kept.get(content)
            if block.in_memory and "note" not in block.head:
                return self._bytes_of(block)
            return await asyncio.to_thread(lambda: self._bytes_of(agent.kept.intact(content)))
        except (KeyError, Damaged, Trouble) as error:
            raise _Moved(f"{self._reach.me}: {error}") from None

    async def stage(self, path: str, to: str) -> tuple[int, list[int]]:
        """Write one version of a file to a store: whole, or not at all. How many bytes, and which version."""
        fs, target = fsspec.core.url_to_fs(to)
        beside = f"{target}.{token_hex(4)}.part"

        def make() -> Any:
            fs.makedirs(fs._parent(target), exist_ok=True)
            return fs.open(beside, "wb")

        for _ in range(_TRIES):
            found = await self._info(path)
            file = await asyncio.to_thread(make)
            try:
                for at in range(0, found["size"], _PIECE):
                    piece = await self.read_sent(path, at, min(found["size"], at + _PIECE))
                    await asyncio.to_thread(file.write, piece)
                await asyncio.to_thread(file.close)
                if (await self._info(path))["version"] == found["version"]:
                    await asyncio.to_thread(fs.mv, beside, target)
                    return found["size"], found["version"]
            except BaseException:
                with suppress(OSError):
                    await asyncio.to_thread(fs.rm, beside)
                raise
            await asyncio.to_thread(fs.rm, beside)
        raise OSError(errno.EBUSY, "it changes all the time", f"hpcmemory://{path}")

    async def _info(self, path: str) -> dict[str, Any]:
        name, rest = split(path)
        (found,) = await self.do([{"do": "info", "fs": name, "path": rest}])
        if found["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"hpcmemory://{path}")
        return dict(found)

    # open files

    async def open(self, path: str, how: How) -> tuple[int, int, int]:
        """Begin to write: a handle, the size that the file has, and how many bytes may be gathered before
        they are said to be written."""
        name, rest = split(path)
        begun, plain = await self.do(
            [{"do": "begin", "fs": name, "path": rest, "how": how}, {"do": "settings", "fs": name}]
        )
        settings = self.know(name, plain)
        is_new = how in ("new", "only-new")
        handle = next(self._numbers)
        size = 0 if is_new else begun["size"]
        self._handles[handle] = OpenFile(self, path, begun["session"], size, is_new, settings)
        return handle, size, 0 if settings.write_back else min(_GATHER, settings.batch)

    async def write_at(self, handle: int, at: int, data: Any) -> None:
        """Bytes to a place."""
        await self._handle(handle).write(at, data)

    async def cut(self, handle: int, size: int) -> None:
        """The file has this size from now on."""
        await self._handle(handle).cut(size)

    async def read_back(self, handle: int, begin: int, end: int | None) -> bytes:
        """What is there, and was written here."""
        return await self._handle(handle).read_back(begin, end)

    async def flush(self, handle: int) -> None:
        """Others see what was written so far."""
        await self._handle(handle).flush()

    async def close(self, handle: int) -> None:
        """The same, and nothing more comes."""
        try:
            await self._handle(handle).flush(ends=True)
        except BaseException:
            await self.discard(handle)
            raise
        self._handles.pop(handle, None)

    async def discard(self, handle: int) -> None:
        """What was not flushed is nobody's."""
        if (found := self._handles.pop(handle, None)) is not None:
            await self._abandon(found.name, found.session)

    def _handle(self, number: int) -> OpenFile:
        if (found := self._handles.get(number)) is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "hpcmemory://")
        return found

    def handles(self) -> Iterator[OpenFile]:
        """Files that are written here."""
        return iter(self._handles.values())


def _with_open(file: OpenFile, step: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer about names, with a file that has not left yet."""
    name, path = split(file.path)
    if step.get("fs") != name:
        return answer
    if step["do"] == "info" and step["path"] == path:
        known = answer.get("ok", {"name": path, "type": "file"})
        return {"ok": {**known, "size": file.size}}
    if step["do"] == "list" and step["path"] == path.rpartition("/")[0] and "ok" in answer:
        rest = [one for one in answer["ok"] if one["name"] != path]
        return {"ok": [*rest, {"name": path, "type": "file", "size": file.size}]}
    return answer


def _from_store(url: str, begin: int, end: int) -> bytes:
    fs, path = fsspec.core.url_to_fs(url)
    return bytes(fs.cat_file(path, start=begin, end=end))


def unstage(url: str) -> None:
    """A file is no longer in a store."""
    fs, path = fsspec.core.url_to_fs(url)
    with suppress(FileNotFoundError):
        fs.rm_file(path)


async def together_or_wrong(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All of it, whatever goes wrong with some; then the first error is raised."""
    for one in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one


class _Moved(Exception):
    """A block is no longer where it was."""


def _cut(
    found: Mapping[int, memoryview], places: Mapping[str, Any], size: int, begin: int, stop: int
) -> Iterator[Any]:
    """The bytes between two places; zeros where nothing was written."""
    for number, *_ in places["blocks"]:
        first, last = max(0, begin - number * size), min(size, stop - number * size)
        if last <= first:
            continue
        view = found.get(number)
        piece = b"" if view is None else view[first:last]
        yield piece
        missing = last - first - len(piece)
        if missing:
            yield bytes(missing)
