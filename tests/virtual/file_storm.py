"""Scratch files on a virtual cluster to which everything happens; a dictionary says what has to be in them.

    PYTHONHASHSEED=0 python tests/virtual/file_storm.py 7 100    # seed 7, 100 runs: one line of JSON
    ... 7 100 shrink    # and the fewest steps that still fail, which takes minutes

Of what happens, Hypothesis draws all: it finds the fewest steps that still fail.
"""

import asyncio
import hashlib
import json
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from unittest import mock

import dask
import virtual_cluster
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

import dask_hpc
from dask_hpc.cluster.scheduler.service import Guard
from dask_hpc.memory_files.client.ports import routed
from dask_hpc.memory_files.scheduler.plugin import NAME
from dask_hpc.memory_files.worker.proxy import FilesProxy

BLOCK = 4096
FEWEST, MOST = 3, 6  # workers
CONFIG = {"hpc.drain": "5s", "hpc.max-errors": 1000}
PATIENCE = 60.0  # virtual seconds until what was lost is on two agents again
PATHS = ("a", "b", "d/x", "d/y", "d/e/z")
FOLDERS = ("d", "d/e", "f")
COMMAND = "PYTHONHASHSEED=0 python tests/virtual/file_storm.py"


class File:
    """What others see of a file; ``writer`` is who has it open."""

    def __init__(self, data=b""):
        self.data = data
        self.writer = None


class Writer:
    """A file that is open: what it is for whoever writes it."""

    def __init__(self, handle, path, file, is_new):
        self.handle, self.path, self.file, self.is_new = handle, path, file, is_new
        self.data = bytearray() if is_new else bytearray(file.data)
        self.is_there = not is_new
        self.is_exclusive = False

    def write(self, at, data):
        self.data += bytes(max(0, at - len(self.data)))
        self.data[at : at + len(data)] = data

    def cut(self, size):
        del self.data[size:]
        self.data += bytes(size - len(self.data))


class Storm:
    """One run. ``copies`` of blocks beside the first; ``managed``: dask_hpc has control of the cluster;
    ``is_deadly``: workers die also without copies."""

    def __init__(self, cluster, random, copies, managed, is_deadly):
        self.cluster, self.random = cluster, random
        self.copies, self.managed, self.is_deadly = copies, managed, is_deadly
        self.files = {}
        self.folders = set()
        self.writers = []
        self.under_way = set()
        self.leaving = set()
        self.log, self.errors = [], []
        self.numbers = 0
        self.deaths = self.moves = self.losses = 0

    def say(self, *words):
        self.log.append(f"{self.cluster.time():8.3f} " + " ".join(map(str, words)))

    def hear_of_errors(self):
        """Errors of ours, in whatever part, with where they come from."""
        counts = Guard.count_error

        def count_error(guard, where, error):
            self.errors.append("".join([f"{where}: ", *traceback.format_exception(error)]))
            counts(guard, where, error)

        return mock.patch.object(Guard, "count_error", count_error)

    async def run(self, steps):
        with self.hear_of_errors():
            await self._run(steps)
        assert not self.errors, self.errors[0]

    async def _run(self, steps):
        self.client = await self.cluster.client()
        manager = await dask_hpc.manage(self.client) if self.managed else None
        how = self.random.choice(("round-robin", "round-robin", "hash", "rendezvous"))
        batch = self.random.choice((0, 2 * BLOCK, 2**20))
        self.memory = await dask_hpc.MemoryFiles(
            "scratch", client=self.client, block=BLOCK, copies=self.copies, dealing=how, batch=batch
        )
        self.say("copies", self.copies, "managed", self.managed, "deadly", self.is_deadly, how, batch)
        self.port = routed(self.client).direct
        things = {
            self.write: 5, self.patch: 4, self.append: 2, self.read: 2, self.open: 2, self.write_on: 5,
            self.flush: 2, self.close: 2, self.discard: 1, self.rename: 2, self.rename_folder: 1,
            self.remove: 1, self.remove_folder: 1, self.resize: 3, self.join: 1, self.leave: 2, self.late: 1,
            self.die: 2, self.wait: 1,
        }  # fmt: skip
        for _ in range(steps):
            thing = self.random.choice([one for one, often in things.items() for _ in range(often)])
            await thing()
            await self.read()
        for name in list(self.cluster.network.late):
            self.cluster.delay(name, 0)
        while self.writers:
            await self.close()
        await asyncio.gather(*self.under_way)
        await self.check()
        self.check_books()
        await self.memory.close()
        if manager is not None:
            await manager.close()

    def path(self, name):
        return f"scratch/{name}"

    def bytes(self, most=5 * BLOCK):
        self.numbers += 1
        size = self.random.choice(
            (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, self.random.randint(0, most))
        )
        some = hashlib.sha256(f"{self.numbers}".encode()).digest()
        return (some * (size // 32 + 1))[:size]

    def somewhere(self, size):
        return self.random.choice((0, size, BLOCK, self.random.randint(0, size + BLOCK)))

    # what holds

    @property
    def plugin(self):
        return self.cluster.scheduler.plugins[NAME]

    @property
    def system(self):
        return self.plugin.systems["scratch"]

    async def check(self):
        """Every byte of every file."""
        fs = self.port
        (found,) = await fs.do([{"do": "below", "fs": "scratch", "path": ""}])
        there = {one["name"]: one["size"] for one in found if one["type"] == "file"}
        assert there == {path: len(file.data) for path, file in self.files.items()}
        folders = {one["name"] for one in found if one["type"] == "directory"} - {""}
        assert folders == self.folders
        for path, file in self.files.items():
            same(await fs.read(self.path(path)), file.data, path)

    def check_books(self):
        """Agents have all blocks of all files; and nothing else, unless they were told too late."""
        table = self.system.table
        files = [block for file in table.files.values() for block in file.blocks if block is not None]
        contents = self.plugin._controller().catalogue.contents
        assert set(contents) == {block.content for block in files}
        assert all(contents[block.content].where for block in files)
        assert not table.sessions

    async def safe(self):
        """Until every block is on two agents that stay."""
        until = self.cluster.time() + PATIENCE
        while any(file._tasks for file in self.port.handles()):
            await asyncio.sleep(0.01)
        while True:
            system = self.system
            contents = list(system.table._of)
            contents += [one.content for s in system.table.sessions.values() for one in s.put.values()]
            blocks = system._blocks
            few = [one for one in contents if len(set(blocks.where(one)) - self.leaving) <= self.copies]
            if not few:
                return
            assert self.cluster.time() < until, f"{len(few)} blocks are still on too few agents"
            await asyncio.sleep(0.1)

    # whole files

    def may_be_file(self, path):
        parts = path.split("/")
        return path not in self.folders and not any(
            "/".join(parts[:i]) in self.files for i in range(1, len(parts))
        )

    def enter(self, path, file):
        self.files[path] = file
        parts = path.split("/")
        self.folders.update("/".join(parts[:number]) for number in range(1, len(parts)))

    def below(self, folder):
        return [path for path in self.files if path.startswith(f"{folder}/")]

    def some_file(self, free=False):
        found = [path for path, file in self.files.items() if not (free and file.writer)]
        return self.random.choice(found) if found else None

    async def write(self):
        path = self.random.choice(PATHS)
        if self.may_be_file(path):
            data = self.bytes()
            self.say("write", path, len(data))
            await self.port.write(self.path(path), data)
            self.enter(path, File(data))

    async def read(self):
        path = self.some_file()
        if path is None:
            return
        data = self.files[path].data
        begin, end = sorted(self.somewhere(len(data)) for _ in range(2))
        end = self.random.choice((None, end))
        same(await self.port.read_sent(self.path(path), begin, end), data[begin:end], path)

    async def patch(self):
        if (path := self.some_file(free=True)) is None:
            return
        writer = await self._begin(path, "change")
        for _ in range(self.random.randint(1, 4)):
            await self._do_some(writer)
        await self._close(writer)

    async def append(self):
        path = self.random.choice(PATHS)
        if not self.may_be_file(path) or (path in self.files and self.files[path].writer):
            return
        data = self.bytes()
        writer = await self._begin(path, "append")
        self.say("append", path, len(data))
        at = len(writer.data)
        await self.port.write_at(writer.handle, at, data)
        if data:
            writer.write(at, data)
        await self._close(writer)

    # files that are open while other things happen

    async def _begin(self, path, how):
        is_new = how in ("new", "only-new") or path not in self.files
        handle, size, _ = await self.port.open(self.path(path), how)
        writer = Writer(handle, path, File() if is_new else self.files[path], is_new)
        writer.file.writer, writer.is_exclusive = writer, how == "only-new"
        assert size == len(writer.data)
        self.writers.append(writer)
        self.say("open", handle, path, how)
        return writer

    async def _write_on(self, writer):
        """A file that somebody removed cannot be read any more."""
        is_gone = writer.is_there and writer.file not in self.files.values()
        try:
            await self._do_some(writer)
        except FileNotFoundError:
            if not is_gone:
                raise
            await self._discard(writer)

    async def _do_some(self, writer):
        handle, data = writer.handle, writer.data
        match self.random.choice(("write", "write", "write", "cut", "read", "flush")):
            case "write":
                at, some = self.somewhere(len(data)), self.bytes(2 * BLOCK)
                self.say("write at", handle, at, len(some))
                await self.port.write_at(handle, at, some)
                if some:
                    writer.write(at, some)
            case "cut":
                size = self.somewhere(len(data))
                self.say("cut", handle, size)
                await self.port.cut(handle, size)
                writer.cut(size)
            case "flush":
                await self._flush(writer)
        begin, end = sorted(self.somewhere(len(data)) for _ in range(2))
        same(await self.port.read_back(handle, begin, end), writer.data[begin:end], f"handle {handle}")

    def _is_shown(self, writer):
        """Whoever writes says what is there from now on."""
        file = writer.file
        file.data = bytes(writer.data)
        if not writer.is_there:
            self.enter(writer.path, file)
            writer.is_there = True

    def _may_be_shown(self, writer):
        is_first = not (writer.is_exclusive and writer.path in self.files)
        return writer.is_there or (is_first and self.may_be_file(writer.path))

    async def _flush(self, writer):
        if self._may_be_shown(writer):
            self.say("flush", writer.handle)
            await self.port.flush(writer.handle)
            self._is_shown(writer)

    async def _close(self, writer):
        if not self._may_be_shown(writer):
            await self._discard(writer)
            return
        self.writers.remove(writer)
        writer.file.writer = None
        self.say("close", writer.handle)
        await self.port.close(writer.handle)
        self._is_shown(writer)

    async def open(self):
        path = self.random.choice(PATHS)
        how = self.random.choice(("new", "only-new", "change", "append"))
        is_known = path in self.files
        fine = self.may_be_file(path) and not (how == "only-new" and is_known)
        fine = fine and not (how == "change" and not is_known)
        if len(self.writers) < 3 and fine and not (is_known and self.files[path].writer):
            await self._begin(path, how)

    async def write_on(self):
        if self.writers:
            await self._write_on(self.random.choice(self.writers))

    async def flush(self):
        if self.writers:
            await self._flush(self.random.choice(self.writers))

    async def close(self):
        if self.writers:
            await self._close(self.random.choice(self.writers))

    async def discard(self):
        if self.writers:
            await self._discard(self.random.choice(self.writers))

    async def _discard(self, writer):
        self.say("discard", writer.handle)
        self.writers.remove(writer)
        writer.file.writer = None
        await self.port.discard(writer.handle)

    # names

    async def rename(self):
        path, to = self.some_file(), self.random.choice(PATHS)
        if path is not None and self.may_be_file(to):
            self.say("rename", path, to)
            await self.port.do([{"do": "rename", "fs": "scratch", "path": path, "to": to}])
            self.enter(to, self.files.pop(path))

    async def rename_folder(self):
        folder, to = self.random.choice(FOLDERS), self.random.choice(FOLDERS)
        is_inside = f"{to}/".startswith(f"{folder}/")
        is_empty = not any(one.startswith(f"{to}/") for one in [*self.folders, *self.files])
        if folder in self.folders and not is_inside and is_empty:
            self.say("rename", folder, to)
            await self.port.do([{"do": "rename", "fs": "scratch", "path": folder, "to": to}])
            for path in self.below(folder):
                self.enter(to + path[len(folder) :], self.files.pop(path))
            for one in [one for one in self.folders if f"{one}/".startswith(f"{folder}/")]:
                self.folders.remove(one)
                self.folders.add(to + one[len(folder) :])
            self.folders.update({to, *(to.split("/")[:1])})

    async def remove(self):
        if (path := self.some_file()) is not None:
            self.say("remove", path)
            await self.port.do([{"do": "remove", "fs": "scratch", "path": path, "recursive": False}])
            del self.files[path]

    async def remove_folder(self):
        folder = self.random.choice(FOLDERS)
        if folder in self.folders:
            self.say("remove", folder)
            await self.port.do([{"do": "remove", "fs": "scratch", "path": folder, "recursive": True}])
            for path in self.below(folder):
                del self.files[path]
            self.folders -= {one for one in self.folders if f"{one}/".startswith(f"{folder}/")}

    # nodes

    def beside(self, work):
        """It goes on while other things happen."""
        task = asyncio.ensure_future(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    def _some_worker(self):
        """One that may go, or none."""
        staying = [n for n, one in self.cluster.workers.items() if one.address not in self.leaving]
        return self.random.choice(staying) if len(staying) > FEWEST else None

    async def resize(self):
        nodes = self.random.choice((None, 1, 2, 3, 4))
        self.say("resize", nodes)
        self.moves += 1
        work = self.memory.resize(nodes)
        if self.random.choice((True, False)):
            await work
        else:
            self.beside(work)

    async def join(self):
        if len(self.cluster.workers) < MOST:
            self.say("joins", await self.cluster.add_worker())

    async def late(self):
        """Messages of somebody take longer."""
        name = self.random.choice([*self.cluster.workers])
        seconds = self.random.choice((0, 0.01, 0.1))
        self.say("late", name, seconds)
        self.cluster.delay(name, seconds)

    async def leave(self):
        if (name := self._some_worker()) is None:
            return
        address = self.cluster.workers[name].address
        self.say("leaves", name, address)
        self.moves += 1
        self.leaving.add(address)

        async def retired():
            await self.client.retire_workers([address], close_workers=True, remove=True)
            self.cluster.workers.pop(name, None)
            self.leaving.discard(address)

        self.beside(retired())

    async def die(self):
        """With copies nothing is lost; without, what was there and nothing else."""
        if not (self.copies or self.is_deadly):
            return
        await asyncio.gather(*self.under_way)
        if self.copies:
            await self.safe()
        else:
            while self.writers:
                await self.close()
        if (name := self._some_worker()) is None:
            return
        address = self.cluster.workers[name].address
        self.say("dies", name, address)
        self.deaths += 1
        held = self.system._blocks
        there = {one for one in held.on(address) if set(held.where(one)) == {address}}
        blocks = {path: file.blocks for path, file in self.system.table.files.items()}
        self.cluster.kill(name)
        for path in list(self.files) if not self.copies else ():
            lost = [one is not None and one.content in there for one in blocks[path]]
            if await self._is_lost(path, lost, f"{name} ({address})"):
                self.say("lost", path, lost)
                self.losses += 1
                await self.port.do([{"do": "remove", "fs": "scratch", "path": path, "recursive": False}])
                del self.files[path]

    async def _is_lost(self, path, lost, dead):
        """Whether some of a file is. Blocks that are not dealt in turn may be on their way to who dies."""
        data, found = self.files[path].data, False
        is_moving = self.system.table.settings.dealing != "round-robin"
        for number, is_lost in enumerate(lost):
            begin, end = number * BLOCK, min(len(data), (number + 1) * BLOCK)
            try:
                same(await self.port.read_sent(self.path(path), begin, end), data[begin:end], path)
                assert not is_lost, f"block {number} of {path} is back from the dead"
            except FileNotFoundError as error:
                found = True
                assert is_lost or is_moving, error
                assert f"block {number} was lost with {dead}," in str(error), error
                assert error.filename == f"hpcmemory://{self.path(path)}"
        return found

    async def wait(self):
        await asyncio.sleep(self.random.choice((0.001, 0.01, 0.1, 1.0)))


def same(found, wanted, what):
    """Bytes are those that were written."""
    if hashlib.sha256(found).digest() != hashlib.sha256(wanted).digest():
        at = next((i for i, (f, w) in enumerate(zip(found, wanted, strict=False)) if f != w), None)
        raise AssertionError(f"{what}: {len(found)} bytes, not {len(wanted)}; they differ at {at}")


@contextmanager
def without_sockets():
    """A virtual cluster has none, so workers are no proxies; and there is a place for their files."""

    async def stand_by(plugin):
        pass

    with (
        mock.patch.object(FilesProxy, "_stand_by", stand_by),
        tempfile.TemporaryDirectory() as disk,
        dask.config.set({"hpc.checkpoint.disk": disk}),
    ):
        yield


def storm(random, steps=25):
    """One run on a cluster. Within a virtual machine."""
    state = {}
    how = random.choice(
        (
            (0, True, False),
            (0, True, False),
            (0, True, True),
            (0, False, True),
            (1, True, True),
            (1, False, True),
        )
    )

    async def main(cluster):
        state["storm"] = found = Storm(cluster, random, *how)
        await found.run(steps)
        return found

    try:
        with without_sockets():
            workers = random.randint(3, 5)
            return virtual_cluster.run(main, random.randint(0, 99), workers=workers, config=CONFIG)
    except BaseException as error:
        if "storm" in state:
            error.add_note("\n".join(state["storm"].log))
        raise


#: what is drawn for a run: one seed; or each step, for who wants the fewest
RANDOMS, STEPS = st.randoms(use_true_random=True), st.randoms(use_true_random=False)


def main(number, count, shrinks=""):
    began = time.monotonic()
    runs = {"runs": 0, "deaths": 0, "losses": 0, "moves": 0, "seconds": 0.0}
    phases = [Phase.generate, *([Phase.shrink] if shrinks else [])]

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, phases=phases)
    @given(STEPS if shrinks else RANDOMS)
    def one_after_the_other(random):
        found = storm(random)
        runs["runs"] += 1
        runs["deaths"] += found.deaths
        runs["losses"] += found.losses
        runs["moves"] += found.moves
        runs["seconds"] += found.cluster.time()

    problem = ""
    with virtual_cluster.virtual_machine():
        try:
            one_after_the_other()
        except Exception as error:
            problem = "".join(traceback.format_exception(error))
            print(problem, file=sys.stderr)
    print(json.dumps({"seed": number, **runs, "took": time.monotonic() - began, "problem": problem}))
    return bool(problem)


if __name__ == "__main__":
    if sys.flags.hash_randomization:
        sys.exit(f"strings have to hash alike: {COMMAND} {' '.join(sys.argv[1:])}")
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
