"""The files of one file system: a state machine without Dask, clock or network.

Blocks never change. Who writes says first which blocks it is about to give to which agents (``announce``),
then that they are there (``commit``); only then do they belong to the file, all at once. So a file is never
half written, and what was announced by somebody who died is nobody's. What the agents' books have to follow
comes out as instructions.

Work 002, 3.2: the servers of a file are dealt in turn, and a file that was there when servers came has
intervals; a writer is told of places only for blocks that it is about to give, so no two differ about them.
Deviation: nobody waits while a server goes. New blocks go to others, those that are there are moved, and who
reads one that has moved asks again.
"""

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, cast

from dask_hpc.memory_files.settings import FilesSettings
from dask_hpc.planning.moves.file_layout import Dealing, FileLayout

Info = dict[str, Any]
_LONGEST, _DEEPEST = 4096, 200  # characters of a path, and its parts


@dataclass(frozen=True, slots=True)
class Expect:
    """These agents are about to get a block."""

    file: int
    content: str
    nbytes: int
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Of the agents that were to get it, ``there`` have it."""

    expected: Expect
    there: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unneeded:
    """A file needs these contents no longer; all that it has, if none are named."""

    file: int
    contents: tuple[str, ...] | None = None


Instruction = Expect | Settle | Unneeded


@dataclass(frozen=True, slots=True)
class FileBlock:
    """``nbytes`` are those that an agent keeps: more than are in the file if it is encrypted."""

    content: str
    nbytes: int


@dataclass(slots=True, eq=False)
class ScratchFile:
    """``blocks`` has None for one that was never written: it reads as zeros."""

    number: int
    path: str
    layout: FileLayout
    created: float
    modified: float
    blocks: list[FileBlock | None] = field(default_factory=list)
    size: int = 0
    #: how often it changed; whether it is in the table, and whether it was
    version: int = 0
    is_there: bool = False
    is_gone: bool = False
    #: blocks before this one somebody was told the place of
    promised: int = 0
    #: the version that is in the store, if one is
    stored: int = -1

    def info(self) -> Info:
        return {
            "name": self.path,
            "type": "file",
            "size": self.size,
            "created": self.created,
            "modified": self.modified,
            "version": [self.number, self.version],
        }


@dataclass(slots=True, eq=False)
class WriteSession:
    """Somebody writes a file: a new one, or some blocks of one that is there."""

    number: int
    file: ScratchFile
    owner: str
    is_exclusive: bool
    expected: dict[int, Expect] = field(default_factory=dict)
    put: dict[int, FileBlock] = field(default_factory=dict)


class ServerRoom:
    """Bytes that agents have room for, as far as anybody knows; and what fails together with each."""

    def __init__(self, free: Mapping[str, float], domains: Mapping[str, str]) -> None:
        self.free = dict(free)
        self._domains = domains

    def find(
        self, first: str, servers: Sequence[str], nbytes: int, number: int, not_on: Collection[str]
    ) -> list[str]:
        """So many servers with room, each in another failure domain if there are as many; ``first`` is the
        first one if it has room, else the one with the most. None if nobody has room. Where servers are fewer
        than that, copies go to others."""
        able = [one for one in servers if self.free.get(one, -1.0) >= nbytes and one not in not_on]
        if not able:
            return []
        begin = able.index(first) if first in able else able.index(max(able, key=self.free.__getitem__))
        order = able[begin:] + able[:begin]
        if number > 1:
            others = (one for one in self.free if one not in servers and one not in not_on)
            order += sorted(
                (one for one in others if self.free[one] >= nbytes), key=lambda one: -self.free[one]
            )
        found, domains = [order[0]], {self._domains.get(order[0])}
        for is_choosy in (True, False):
            for one in order:
                is_apart = not is_choosy or self._domains.get(one) not in domains
                if len(found) < number and one not in found and is_apart:
                    found.append(one)
                    domains.add(self._domains.get(one))
        for one in found:
            self.free[one] -= nbytes
        return found


class FileTable:
    """``servers`` are the agents that keep new blocks, in the order in which they came."""

    def __init__(self, name: str, settings: FilesSettings, numbers: Iterator[int] | None = None) -> None:
        self.name = name
        self.settings = settings
        self.servers: tuple[str, ...] = ()
        #: what to do now, taken by whoever drives this
        self.out: list[Instruction] = []
        #: paths of files that have changed, came or went since somebody took them
        self.touched: dict[str, None] = {}
        #: what a person should know
        self.news: list[str] = []
        self.files: dict[str, ScratchFile] = {}
        self.sessions: dict[int, WriteSession] = {}
        self._numbers = numbers or count(1)
        #: by path, the names in it
        self._folders: dict[str, dict[str, None]] = {"": {}}
        #: by content, the file and the block that it is
        self._of: dict[str, tuple[ScratchFile, int]] = {}
        self._told_of: set[int] = set()

    def take(self) -> list[Instruction]:
        """The instructions since the last time."""
        found, self.out = self.out, []
        return found

    # names

    def info(self, path: str) -> Info:
        path = self._checked(path)
        if path in self.files:
            return self.files[path].info()
        if path in self._folders:
            return _folder_info(path)
        raise _error(errno.ENOENT, self._shown(path))

    def listing(self, path: str) -> list[Info]:
        """What is in a folder, or the one file."""
        path = self._checked(path)
        if path in self.files:
            return [self.files[path].info()]
        if path not in self._folders:
            raise _error(errno.ENOENT, self._shown(path))
        return [self.info(_joined(path, name)) for name in sorted(self._folders[path])]

    def below(self, path: str) -> list[Info]:
        """All that is below a folder, however deep, and itself; or the one file."""
        path = self._checked(path)
        found = [self.info(path)]
        for name in sorted(self._folders.get(path, ())):
            found += self.below(_joined(path, name))
        return found

    def make_folder(self, path: str, parents: bool = True, may_exist: bool = False) -> None:
        path = self._checked(path)
        if path in self.files or (path in self._folders and not may_exist):
            raise _error(errno.EEXIST, self._shown(path))
        above = path.rpartition("/")[0]
        if above not in self._folders and not parents:
            raise _error(errno.ENOENT, self._shown(above))
        self._make_folders(path)

    def remove_folder(self, path: str) -> None:
        path = self._checked(path)
        if path in self.files:
            raise _error(errno.ENOTDIR, self._shown(path))
        if path not in self._folders:
            raise _error(errno.ENOENT, self._shown(path))
        if self._folders[path] or not path:
            raise _error(errno.ENOTEMPTY, self._shown(path))
        del self._folders[path]
        self._leave_folder(path)

    def remove(self, path: str, recursive: bool = False) -> None:
        path = self._checked(path)
        if path in self.files:
            self._forget(self.files.pop(path))
            self._leave_folder(path)
        elif path not in self._folders:
            raise _error(errno.ENOENT, self._shown(path))
        elif not recursive:
            raise _error(errno.EISDIR, self._shown(path))
        else:
            for name in list(self._folders[path]):
                self.remove(_joined(path, name), recursive=True)
            if path:
                self.remove_folder(path)

    def rename(self, path: str, to: str) -> None:
        """At once. A file that is there by the new name is replaced."""
        path, to = self._checked(path), self._checked(to, is_file=True)
        if path == to:
            self.info(path)
            return
        if path in self.files:
            if to in self._folders:
                raise _error(errno.EISDIR, self._shown(to))
            self._make_folders(to.rpartition("/")[0])
            file = self.files.pop(path)
            self.touched[path] = None
            self._leave_folder(path)
            file.stored = -1
            self._enter(file, to)
            return
        if path not in self._folders:
            raise _error(errno.ENOENT, self._shown(path))
        if not path or f"{to}/".startswith(f"{path}/"):
            raise _error(errno.EINVAL, self._shown(to))
        if to in self.files:
            raise _error(errno.ENOTDIR, self._shown(to))
        if self._folders.get(to):
            raise _error(errno.ENOTEMPTY, self._shown(to))
        for one in self.below(path):  # all of it, or nothing
            self._checked(to + one["name"][len(path) :])
        self._make_folders(to)
        for name in list(self._folders[path]):
            self.rename(_joined(path, name), _joined(to, name))
        self.remove_folder(path)

    # contents

    def file(self, path: str) -> ScratchFile:
        path = self._checked(path, is_file=True)
        if path in self._folders:
            raise _error(errno.EISDIR, self._shown(path))
        if path not in self.files:
            raise _error(errno.ENOENT, self._shown(path))
        return self.files[path]

    def begin(
        self, path: str, how: Literal["new", "only-new", "change", "append"], owner: str, now: float
    ) -> WriteSession:
        """Somebody is about to write: a file that takes the place of one that is there; one that is not to be
        there; some of one that has to be there; or of one that is made if it is not."""
        path = self._checked(path, is_file=True)
        if path in self._folders:
            raise _error(errno.EISDIR, self._shown(path))
        self._above_files(path)
        known = self.files.get(path)
        if how == "only-new" and known is not None:
            raise _error(errno.EEXIST, self._shown(path))
        if how == "change" and known is None:
            raise _error(errno.ENOENT, self._shown(path))
        number = next(self._numbers)
        file = known
        if file is None or how in ("new", "only-new"):
            layout = FileLayout.on(self.servers or ("",), cast(Dealing, self.settings.dealing), number)
            file = ScratchFile(number, path, layout, now, now)
        elif file.number not in self._told_of and any(one.file is file for one in self.sessions.values()):
            self._told_of.add(file.number)
            self.news.append(
                f"{self._shown(path)} has two writers: of a block that both write the last one counts"
            )
        found = self.sessions[number] = WriteSession(number, file, owner, how == "only-new")
        return found

    def announce(
        self,
        session: WriteSession,
        blocks: Iterable[tuple[int, str, int]],
        room: ServerRoom,
        not_on: Collection[str] = (),
    ) -> list[tuple[str, ...]]:
        """These blocks (number, content, bytes) are about to be given. To whom; no space left, if nobody has
        room for one of them: then none of them is expected."""
        file, found = session.file, []
        wanted = list(blocks)
        self._follow_servers(file)
        for number, _, nbytes in wanted:
            first = file.layout.server(number)
            places = room.find(first, self.servers, nbytes, 1 + self.settings.copies, not_on)
            if not places:
                raise _error(errno.ENOSPC, self._shown(file.path))
            found.append(tuple(places))
        for (number, content, nbytes), agents in zip(wanted, found, strict=True):
            self._expected_no_longer(session, number)
            expected = Expect(file.number, content, nbytes, agents)
            session.expected[number] = expected
            self.out.append(expected)
            if agents[0] != file.layout.server(number):
                file.layout = replace(file.layout, moved=dict(file.layout.moved) | {number: agents[0]})
            file.promised = max(file.promised, number + 1)
        return found

    def put(self, session: WriteSession, blocks: Iterable[tuple[int, str, Sequence[str]]]) -> None:
        """These blocks (number, content) were given to those agents. Said again, it does nothing."""
        for number, content, there in blocks:
            expected = session.expected.get(number)
            if expected is not None and expected.content == content:
                del session.expected[number]
                self.out.append(Settle(expected, tuple(there)))
                session.put[number] = FileBlock(content, expected.nbytes)

    def commit(
        self, session: WriteSession, size: int, ends: bool, now: float, cuts: bool = False
    ) -> ScratchFile:
        """All that was put belongs to the file from now on, which has this size at least; exactly this one if
        that ``cuts`` it. ``ends``: nothing more comes."""
        file = session.file
        if not file.is_there and not file.is_gone:
            if file.path in self._folders:
                raise _error(errno.EISDIR, self._shown(file.path))
            self._above_files(file.path)
            if session.is_exclusive and file.path in self.files:
                raise _error(errno.EEXIST, self._shown(file.path))
            self._make_folders(file.path.rpartition("/")[0])
            self._enter(file, file.path)
        if file.is_gone:  # somebody removed it meanwhile; others may still write it, too
            self._give_up_put(session)
            if ends:
                self.abandon(session)
            return file
        for number, block in session.put.items():
            file.blocks += [None] * (number + 1 - len(file.blocks))
            self._set(file, number, block)
        session.put = {}
        file.size = size if cuts else max(size, file.size)
        needed = -(-file.size // self.settings.block)
        for number in range(needed, len(file.blocks)):
            self._set(file, number, None)
        file.blocks += [None] * (needed - len(file.blocks))
        del file.blocks[needed:]
        file.version += 1
        self.touched[file.path] = None
        file.modified = now
        if ends:
            self.abandon(session)
        return file

    def abandon(self, session: WriteSession) -> None:
        """Nothing more comes of it, and what was not committed is nobody's."""
        if self.sessions.pop(session.number, None) is None:
            return
        for number in list(session.expected):
            self._expected_no_longer(session, number)
        self._give_up_put(session)

    def owner_is_gone(self, owner: str) -> int:
        """Whoever that was writes no more. How many files it was writing."""
        theirs = [one for one in self.sessions.values() if one.owner == owner]
        for session in theirs:
            self.abandon(session)
        return len(theirs)

    # servers

    def leaves(self, server: str, contents: Collection[str], load: dict[str, int]) -> dict[str, str]:
        """A server goes that has these contents, of which ours go to others: by content, to whom. ``load``
        says how many blocks those have that stay; it is kept up to date."""
        load.pop(server, None)
        ours = {one: self._of[one] for one in contents if one in self._of}
        found: dict[str, str] = {}
        if not load:
            return found
        for file in dict.fromkeys(file for file, _ in ours.values()):
            file.layout, moves = file.layout.without(server, len(file.blocks), load)
            for move in moves:
                block = file.blocks[move.block]
                if block is not None and block.content in ours:
                    found[block.content] = move.target
                    load[move.target] += 1
        for content, (file, number) in ours.items():
            if content not in found:  # it lay elsewhere than the layout said
                target = min(load, key=lambda one: (load[one], one))
                load[target] += 1
                file.layout = replace(file.layout, moved=dict(file.layout.moved) | {number: target})
                found[content] = target
        return found

    def dealt_anew(self) -> dict[str, str]:
        """Servers came: what goes to which of them, if blocks are not dealt in turn."""
        found = {}
        for file in self.files.values():
            if (
                self.settings.dealing != "round-robin"
                and self.servers
                and file.layout.servers != self.servers
            ):
                file.layout, moves = file.layout.grown(self.servers, len(file.blocks), file.promised)
                for move in moves:
                    if (block := file.blocks[move.block]) is not None:
                        found[block.content] = move.target
        return found

    def whose(self, content: str) -> tuple[ScratchFile, int] | None:
        """The file and the number of a block."""
        return self._of.get(content)

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self.files.values())

    def _follow_servers(self, file: ScratchFile) -> None:
        if self.servers and file.layout.servers != self.servers:
            file.layout, _ = file.layout.grown(self.servers, len(file.blocks), file.promised)

    def _expected_no_longer(self, session: WriteSession, number: int) -> None:
        if (expected := session.expected.pop(number, None)) is not None:
            self.out += [Settle(expected, ()), Unneeded(expected.file, (expected.content,))]
        elif (block := session.put.pop(number, None)) is not None:
            self.out.append(Unneeded(session.file.number, (block.content,)))

    def _give_up_put(self, session: WriteSession) -> None:
        unused = tuple(block.content for block in session.put.values())
        session.put = {}
        if unused:
            self.out.append(Unneeded(session.file.number, unused))

    def _set(self, file: ScratchFile, number: int, block: FileBlock | None) -> None:
        before = file.blocks[number]
        if before is not None:
            self._of.pop(before.content, None)
            self.out.append(Unneeded(file.number, (before.content,)))
        file.blocks[number] = block
        if block is not None:
            self._of[block.content] = (file, number)

    def _enter(self, file: ScratchFile, path: str) -> None:
        if (before := self.files.get(path)) is not None:
            self._forget(before)
        file.path, file.is_there = path, True
        self.files[path] = file
        self.touched[path] = None
        above, _, name = path.rpartition("/")
        self._folders[above][name] = None

    def _forget(self, file: ScratchFile) -> None:
        file.is_there, file.is_gone = False, True
        self.touched[file.path] = None
        for block in file.blocks:
            if block is not None:
                self._of.pop(block.content, None)
        contents = tuple(block.content for block in file.blocks if block is not None)
        if contents:
            self.out.append(Unneeded(file.number, contents))
        file.blocks, file.size = [], 0

    def _make_folders(self, path: str) -> None:
        self._above_files(f"{path}/")
        above = ""
        for name in path.split("/") if path else ():
            self._folders[above].setdefault(name, None)
            above = _joined(above, name)
            self._folders.setdefault(above, {})

    def _leave_folder(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        self._folders[above].pop(name, None)

    def _above_files(self, path: str) -> None:
        """No part of the path above may be a file."""
        above = path.rpartition("/")[0]
        while above:
            if above in self.files:
                raise _error(errno.ENOTDIR, self._shown(above))
            above = above.rpartition("/")[0]

    def _checked(self, path: str, is_file: bool = False) -> str:
        parts = path.split("/") if path else []
        if len(path) > _LONGEST or len(parts) > _DEEPEST:
            raise _error(errno.ENAMETOOLONG, self._shown(path[:100]))
        if any(part in ("", ".", "..") for part in parts) or "\0" in path or (is_file and not path):
            raise _error(errno.EINVAL, self._shown(path))
        return path

    def _shown(self, path: str) -> str:
        return f"hpcmemory://{self.name}/{path}".rstrip("/")


def _folder_info(path: str) -> Info:
    return {"name": path, "type": "directory", "size": 0}


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
