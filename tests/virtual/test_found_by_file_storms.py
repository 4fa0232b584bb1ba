"""What storms of scratch files found (see ``file_storm``), each in the fewest steps."""

import asyncio
import random

import file_storm
import pytest
from file_storm import BLOCK, CONFIG, without_sockets

import dask_hpc
from dask_hpc.memory_files.client.ports import routed
from dask_hpc.memory_files.scheduler.plugin import NAME

WHOLE = bytes(range(256)) * (3 * BLOCK // 256)


@pytest.fixture
def storm(virtual_cluster):
    """Called with an ``async def main(cluster, files, port)``: four managed workers with a file system."""

    def run(main, seed=0, workers=4, **settings):
        async def prepared(cluster):
            client = await cluster.client()
            async with (
                await dask_hpc.manage(client),
                dask_hpc.MemoryFiles("scratch", client=client, block=BLOCK, **settings) as files,
            ):
                port = routed(client).direct
                await asyncio.wait_for(main(cluster, files, port), 300)
                plugin = cluster.scheduler.plugins[NAME]
                assert not plugin.errors and not plugin._controller().errors

        with without_sockets():
            virtual_cluster(prepared, seed=seed, workers=workers, config=CONFIG)

    return run


def system(cluster):
    return cluster.scheduler.plugins[NAME].systems["scratch"]


def leaving(cluster, name):
    """A worker is retired, beside everything else."""
    client = cluster.clients["client0"]
    work = client.retire_workers([cluster.workers[name].address], close_workers=True, remove=True)
    return asyncio.ensure_future(work)


def name_of(cluster, address):
    return next(name for name, worker in cluster.workers.items() if worker.address == address)


def blocks_of(cluster, path):
    """Who has which of its blocks."""
    found = system(cluster)
    return [sorted(found._blocks.where(one.content)) for one in found.table.file(path).blocks]


def test_a_worker_leaves_that_had_nothing_yet(storm):
    """It was asked for nothing, and then given something."""

    async def main(cluster, files, port):
        cluster.delay("client0", 0.01)
        left = [leaving(cluster, name) for name in ("w0", "w1", "w2")]
        await asyncio.sleep(0.001)
        await port.write("scratch/a", WHOLE)
        await asyncio.gather(*left)
        assert await port.read("scratch/a") == WHOLE

    storm(main)


def test_a_block_comes_when_its_worker_has_been_emptied(storm):
    """It was announced before, and the message was late."""

    async def main(cluster, files, port):
        await port.write("scratch/old", WHOLE * 4)
        cluster.delay("client0", 0.2)
        writing = asyncio.ensure_future(port.write("scratch/a", WHOLE * 4))
        while not any(one.expected for one in system(cluster).table.sessions.values()):
            await asyncio.sleep(0.001)
        left = [leaving(cluster, name) for name in ("w0", "w1")]
        await writing
        await asyncio.gather(*left)
        assert await port.read("scratch/a") == WHOLE * 4 == await port.read("scratch/old")

    storm(main)


def test_a_file_system_shrinks_onto_a_worker_that_leaves(storm):
    async def main(cluster, files, port):
        await files.resize(3)
        await port.write("scratch/a", WHOLE * 4)
        for name in ("w0", "w1"):
            cluster.delay(name, 0.1)
        shrinking = asyncio.ensure_future(files.resize(2))
        await asyncio.sleep(0.05)
        left = leaving(cluster, "w0")
        await asyncio.gather(shrinking, left)
        assert await port.read("scratch/a") == WHOLE * 4

    storm(main)


def test_the_worker_leaves_that_was_to_stay(storm):
    """Then another one keeps what is written meanwhile, though there are to be fewer."""

    async def main(cluster, files, port):
        await port.write("scratch/a", WHOLE * 4)
        for name in cluster.workers:
            cluster.delay(name, 0.2)
        shrinking = asyncio.ensure_future(files.resize(1))
        while not system(cluster).is_shrinking:
            await asyncio.sleep(0.001)
        (stays,) = system(cluster).table.servers
        left = leaving(cluster, name_of(cluster, stays))
        while stays in system(cluster).table.servers:
            await asyncio.sleep(0.001)
        await port.write("scratch/b", WHOLE)
        await asyncio.gather(shrinking, left)
        assert len((await files.status())["nodes"]) == 1
        assert await port.read("scratch/a") == WHOLE * 4 and await port.read("scratch/b") == WHOLE

    storm(main)


def test_a_block_that_was_sent_has_moved_when_it_is_changed(storm):
    """Nobody but who writes it has seen it yet; its worker has left since."""

    async def main(cluster, files, port):
        handle, _, _ = await port.open("scratch/a", "new")
        await port.write_at(handle, 0, WHOLE)
        await port.write_at(handle, 0, b"x")
        for name in ("w0", "w1", "w2"):
            await leaving(cluster, name)
        await port.write_at(handle, BLOCK + 1, b"y")
        found = b"x" + WHOLE[1 : BLOCK + 1] + b"y" + WHOLE[BLOCK + 2 :]
        assert await port.read_back(handle, 0, None) == found
        await port.close(handle)
        assert await port.read("scratch/a") == found

    storm(main, batch=0)


def test_another_file_has_its_name_when_it_is_changed(storm):
    async def main(cluster, files, port):
        await port.write("scratch/a", WHOLE)
        handle, _, _ = await port.open("scratch/a", "change")
        await files.fs._mv("scratch/a", "scratch/b")
        await port.write("scratch/a", b"another")
        await port.write_at(handle, BLOCK + 1, b"y")
        await port.close(handle)
        assert await port.read("scratch/a") == b"another"
        assert await port.read("scratch/b") == WHOLE[: BLOCK + 1] + b"y" + WHOLE[BLOCK + 2 :]

    storm(main)


def test_a_file_that_somebody_removed_cannot_be_changed(storm):
    """What would be kept of it is gone. A new one has nothing to do with that."""

    async def main(cluster, files, port):
        await port.write("scratch/a", WHOLE)
        handle, _, _ = await port.open("scratch/a", "change")
        await files.fs._rm_file("scratch/a")
        with pytest.raises(FileNotFoundError, match=r"somebody removed it: .*scratch/a"):
            await port.write_at(handle, 1, b"y")
        await port.close(handle)
        with pytest.raises(FileNotFoundError):
            await port.read("scratch/a")

    storm(main)


@pytest.mark.parametrize("batch", [0, 2**20])
def test_what_was_cut_off_is_zeros_when_the_file_grows_again(storm, batch):
    async def main(cluster, files, port):
        await port.write("scratch/a", WHOLE)
        for begin in (0, 10):
            handle, _, _ = await port.open("scratch/a", "change")
            await port.write_at(handle, 0, WHOLE[::-1])
            await port.cut(handle, begin)
            await port.write_at(handle, 2 * BLOCK + 1, b"x")
            found = WHOLE[::-1][:begin] + bytes(2 * BLOCK + 1 - begin) + b"x"
            assert await port.read_back(handle, 0, None) == found
            await port.close(handle)
            assert await port.read("scratch/a") == found

    storm(main, batch=batch)


def test_nothing_makes_no_file_larger(storm):
    async def main(cluster, files, port):
        handle, _, _ = await port.open("scratch/a", "new")
        await port.write_at(handle, 100, b"")
        assert await port.read_back(handle, 0, None) == b""
        await port.close(handle)
        assert await port.read("scratch/a") == b""

    storm(main)


def test_what_was_given_is_not_forgotten_when_the_scheduler_does_not_answer(storm):
    async def main(cluster, files, port):
        handle, _, _ = await port.open("scratch/a", "new")
        await port.write_at(handle, 0, WHOLE)
        ask = port._reach.ask

        async def no_answer(call, **what):
            raise OSError("no answer")

        port._reach.ask = no_answer
        with pytest.raises(OSError, match="the scheduler does not answer"):
            await port.flush(handle)
        port._reach.ask = ask
        await port.close(handle)
        assert await port.read("scratch/a") == WHOLE

    storm(main, batch=0)


def test_the_only_server_dies_while_somebody_writes(storm):
    """Nobody knows it yet, so there is no other one."""

    async def main(cluster, files, port):
        await files.resize(1)
        (address,) = system(cluster).table.servers
        await port.write("scratch/b", WHOLE)
        cluster.delay(name_of(cluster, address), 0.1)
        cluster.kill(name_of(cluster, address))
        await port.write("scratch/a", WHOLE)
        assert await port.read("scratch/a") == WHOLE

    storm(main, seed=3)


def test_who_did_not_answer_once_is_not_full(storm):
    async def main(cluster, files, port):
        await files.resize(1)
        (address,) = system(cluster).table.servers
        reach = port._reach
        agent, failed = reach.agent, []

        def fails_once(to):
            if not failed:
                failed.append(to)
                raise OSError("a connection broke")
            return agent(to)

        reach.agent = fails_once
        await port.write("scratch/a", WHOLE)
        assert failed == [address]
        await asyncio.sleep(5)  # heartbeats
        assert all(free > 0 for free in system(cluster).room().free.values())
        await port.write("scratch/b", WHOLE)
        assert blocks_of(cluster, "b") == [[address]] * 3

    storm(main)


def test_nobody_waits_long_for_one_that_died(storm):
    async def main(cluster, files, port):
        await port.write("scratch/a", WHOLE * 4)
        for _ in range(2):
            while any(len(agents) < 2 for agents in blocks_of(cluster, "a")):
                await asyncio.sleep(0.1)
            (address, *_) = blocks_of(cluster, "a")[0]
            cluster.kill(name_of(cluster, address))
            began = cluster.time()
            assert await port.read("scratch/a") == WHOLE * 4
            await port.write("scratch/b", WHOLE * 4)
            assert cluster.time() - began < 5
        assert await port.read("scratch/b") == WHOLE * 4

    storm(main, workers=5, copies=1)


def test_who_died_is_known_of_blocks_that_were_only_given(storm):
    """Its death comes before its writer says that they are there, or that they are the file's."""

    async def main(cluster, files, port):
        await files.resize(1)
        (address,) = system(cluster).table.servers
        handles = [(await port.open(f"scratch/{name}", "new"))[0] for name in "ab"]
        await port.write_at(handles[0], 0, WHOLE)
        await port.write_at(handles[0], 0, WHOLE)  # now it is known that the first ones are there
        await port.write_at(handles[1], 0, WHOLE)
        dead = name_of(cluster, address)
        cluster.kill(dead)
        while address in system(cluster).table.servers:
            await asyncio.sleep(0.01)
        for name, handle in zip("ab", handles, strict=True):
            await port.close(handle)
            with pytest.raises(FileNotFoundError) as error:
                await port.read(f"scratch/{name}")
            assert f"block 0 was lost with {dead} ({address})," in str(error.value)

    storm(main, batch=0)


def test_with_one_server_a_copy_is_elsewhere_before_its_writer_says_so(storm):
    """The only server dies before anybody was told what it has."""

    async def main(cluster, files, port):
        await files.resize(1)
        (address,) = system(cluster).table.servers
        handle, _, _ = await port.open("scratch/a", "new")
        await port.write_at(handle, 0, WHOLE)
        cluster.kill(name_of(cluster, address))
        while address in system(cluster).table.servers:
            await asyncio.sleep(0.01)
        await port.close(handle)
        assert await port.read("scratch/a") == WHOLE

    storm(main, copies=1, batch=0)


def test_two_die_one_after_the_other_while_a_file_is_open(storm):
    """Of its blocks copies are made again in between, though it was not flushed."""

    async def main(cluster, files, port):
        handle, _, _ = await port.open("scratch/a", "new")
        await port.write_at(handle, 0, WHOLE)
        (session,) = system(cluster).table.sessions.values()
        while len(session.put) < 3:
            await asyncio.sleep(0.01)
        blocks, content = system(cluster)._blocks, session.put[0].content
        for _ in range(2):
            cluster.kill(name_of(cluster, sorted(blocks.where(content))[0]))
            await asyncio.sleep(5)
            assert len(blocks.where(content)) == 2
        await port.close(handle)
        assert await port.read("scratch/a") == WHOLE

    storm(main, workers=5, copies=1, batch=0)


def test_who_has_given_fewer_copies_says_so_at_once(storm):
    """Others are made then, before the next one dies; the file need not be flushed."""

    async def main(cluster, files, port):
        agent = port._reach.agent
        first = system(cluster).table.servers[0]

        def no_connection(to):
            if to == first:
                raise OSError("a connection broke")
            return agent(to)

        port._reach.agent = no_connection
        handle, _, _ = await port.open("scratch/a", "new")
        await port.write_at(handle, 0, WHOLE * 4)
        await asyncio.sleep(5)
        port._reach.agent = agent
        blocks = system(cluster)._blocks
        contents = [content for content, _ in port._handle(handle)._sent.values()]
        assert all(len(blocks.where(content)) == 2 for content in contents) and len(contents) == 12
        await port.close(handle)
        assert await port.read("scratch/a") == WHOLE * 4

    storm(main, copies=1, batch=0)


@pytest.mark.parametrize("how", ["address", {"names": ["w1"]}, {"n": 2}])
def test_files_leave_first_though_nobody_manages_the_cluster(virtual_cluster, how):
    async def main(cluster):
        client = await cluster.client()
        before = cluster.scheduler.handlers["retire_workers"]
        async with dask_hpc.MemoryFiles("scratch", client=client, block=BLOCK) as files:
            port = routed(client).direct
            await port.write("scratch/a", WHOLE * 4)
            which = {"workers": [cluster.workers["w1"].address]} if how == "address" else how
            gone = await client.retire_workers(close_workers=True, **which)
            assert gone and not set(gone) & set(system(cluster).table.servers)
            assert await port.read("scratch/a") == WHOLE * 4
            assert (await files.status())["lost"] == 0
            assert not cluster.scheduler.plugins[NAME].errors
        assert cluster.scheduler.handlers["retire_workers"] == before

    with without_sockets():
        virtual_cluster(main, workers=3)


def test_a_worker_goes_while_all_are_told(virtual_cluster):
    """That is no error of ours."""

    async def main(cluster):
        client = await cluster.client()
        cluster.delay("w1", 0.2)
        making = asyncio.ensure_future(dask_hpc.MemoryFiles("scratch", client=client)._made)
        await asyncio.sleep(0.05)
        cluster.kill("w1")
        await making
        await asyncio.sleep(5)
        plugin = cluster.scheduler.plugins[NAME]
        assert not plugin.errors and not plugin._controller().errors

    with without_sockets():
        virtual_cluster(main, workers=3)


@pytest.mark.parametrize("seed", [856, 9943333293585254400])
def test_storms_that_lost_a_block(virtual_cluster, seed):
    """Two workers leave at once, and the one takes what the other has; a shrink trusts in a copy on a worker
    that has just died."""
    file_storm.storm(random.Random(seed))
