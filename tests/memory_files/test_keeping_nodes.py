"""Which workers keep the files of a file system, with agents that are a few dictionaries."""

import asyncio
from collections import Counter, deque

import pytest

from dask_hpc.checkpoint.scheduler.copies import Made
from dask_hpc.memory_files.scheduler.servers import KeepingNodes
from dask_hpc.memory_files.scheduler.table import FileTable
from dask_hpc.memory_files.settings import FilesSettings
from dask_hpc.model.errors import InputError
from dask_hpc.strategies.checkpoint.agents import AgentNode

BLOCK = 4096


class Agents:
    """What the checkpoint service does with blocks: see ``TenantBlocks``."""

    def __init__(self, *names, room=100 * BLOCK):
        self.has = {name: {} for name in names}
        self.budget = dict.fromkeys(names, room)
        self.promised = Counter()
        self.needed = {}
        self.sizes = {}
        self.on_disk = set()
        self.moves, self.told_full = [], []
        self.takes_nothing = False

    def used(self, name):
        return sum(self.sizes[one] for one in self.has[name]) + self.promised[name]

    def agents(self):
        return [AgentNode(name, self.budget[name], self.used(name), domain=name[0]) for name in self.has]

    def known(self):
        return list(self.has)

    def on(self, agent):
        return self.has.get(agent, {})

    def nbytes(self, content):
        return self.sizes.get(content, 0)

    def node_of(self, agent):
        return agent.partition("-")[0] if agent in self.has else agent

    def expect(self, block, agents):
        self.sizes[block.content] = block.nbytes
        self.needed[block.content] = block
        self.promised.update(dict.fromkeys(agents, block.nbytes))

    def settle(self, block, agents, there):
        self.promised.subtract(dict.fromkeys(agents, block.nbytes))
        for agent in agents:
            if agent in there and agent in self.has and block.content in self.needed:
                self.has[agent][block.content] = None

    def release(self, owner, contents):
        for content in contents:
            assert self.needed.pop(content).owner == owner
            for theirs in self.has.values():
                theirs.pop(content, None)

    def where(self, content):
        return [name for name, theirs in self.has.items() if content in theirs]

    def may_return(self, content):
        return content in self.on_disk

    async def returned(self, content):
        self.on_disk.remove(content)
        self.has.setdefault("back-1", {})[content] = None

    async def move(self, moves, away, stays=False):
        self.moves.append((dict(moves), list(away), stays))
        made = Made()
        for content, target in moves.items() if not self.takes_nothing else ():
            for agent in away:
                del self.has[agent][content]
            self.has[target][content] = None
            made.copied(self.sizes[content], self.sizes[content])
        await asyncio.sleep(0)
        return made

    def dies(self, name):
        return list(self.has.pop(name))


class System:
    """A file system with agents; ``nodes`` are wanted."""

    def __init__(self, *names, room=100 * BLOCK, **settings):
        self.blocks = Agents(*(names or ("a-1", "b-1", "c-1")), room=room)
        self.table = FileTable("scratch", FilesSettings(block=BLOCK, **settings))
        self.keeping = KeepingNodes(self.table, self.blocks)
        self.keeping.find_servers()
        self.number = 0

    def announce(self, path, count, nbytes=BLOCK):
        self.number += 1
        session = self.table.begin(path, "new", "me", 0.0)
        blocks = [(number, f"{self.number}-{number}", nbytes) for number in range(count)]
        places = self.table.announce(session, blocks, self.keeping.room())
        self.keeping.follow()
        return session, [(n, content, there) for (n, content, _), there in zip(blocks, places, strict=True)]

    def put(self, session, given):
        self.table.put(session, given)
        return self.keeping.follow()

    def write(self, path, count):
        session, given = self.announce(path, count)
        self.put(session, given)
        self.table.commit(session, count * BLOCK, True, 1.0, cuts=True)
        self.keeping.follow()
        return [content for _, content, _ in given]

    def resize(self, nodes, drain=0.0):
        return asyncio.run(self.keeping.resize(nodes, drain))

    def where(self, content):
        return asyncio.run(self.keeping.where(content))


def test_all_workers_of_as_many_nodes_as_are_wanted():
    system = System("a-1", "b-1", "a-2", "c-1", nodes=2)
    assert system.table.servers == ("a-1", "a-2", "b-1")
    assert system.keeping.nodes() == {"a": ["a-1", "a-2"], "b": ["b-1"]}
    assert system.keeping.find_servers() is False
    assert System("a-1", "b-1").table.servers == ("a-1", "b-1")
    assert System("a-1", nodes=3).keeping.state == "commissioning"
    assert system.keeping.state == "ready"


def test_who_keeps_files_goes_on_to():
    """A node that comes is taken if one is missing."""
    system = System("a-1", "b-1", "c-1", nodes=2)
    system.blocks.dies("a-1")
    assert system.keeping.find_servers() is True and system.table.servers == ("b-1", "c-1")
    system.blocks.has |= {"a-1": {}}
    assert system.keeping.find_servers() is False and system.table.servers == ("b-1", "c-1")


def test_growth_is_measured_anew():
    system = System("a-1")
    system.keeping.rates = deque([1.0, 3.0])
    system.blocks.has["b-1"] = {}
    before = system.keeping.changed
    assert system.keeping.find_servers()
    assert system.keeping.before == 2.0 and not system.keeping.rates and system.keeping.changed > before
    system.blocks.dies("b-1")
    system.keeping.rates.append(9.0)
    assert system.keeping.find_servers() and system.keeping.before == 2.0, "it shrank"
    system.blocks.has["c-1"] = {}
    assert system.keeping.find_servers() and system.keeping.before is None, "nothing was measured"


def test_books_follow_the_table():
    system = System(copies=1)
    session, given = system.announce("a", 3)
    assert system.blocks.promised.total() == 6 * BLOCK and not system.blocks.where("1-0")
    block = system.blocks.needed["1-0"]
    assert (block.owner, block.nbytes, block.copies) == (("scratch", "scratch", 1), BLOCK, 1)
    assert system.put(session, given) == ["1-0", "1-1", "1-2"]
    assert system.blocks.promised.total() == 0 and len(system.blocks.where("1-0")) == 2
    assert system.keeping.load() == dict.fromkeys(system.table.servers, 0), "it is nobody's yet"
    system.table.commit(session, 3 * BLOCK, True, 1.0)
    assert system.keeping.load() == dict.fromkeys(system.table.servers, 2)
    system.table.remove("a")
    system.keeping.follow()
    assert not system.blocks.needed and not any(system.blocks.has.values())


def test_room_is_what_agents_say():
    system = System("a-1", "b-1", room=10 * BLOCK)
    system.announce("a", 2)
    room = system.keeping.room()
    assert room.free == {"a-1": 9 * BLOCK, "b-1": 9 * BLOCK}
    assert room.find("a-1", ("a-1", "b-1"), BLOCK, 2, ()) == ["a-1", "b-1"]


def test_more_nodes_move_nothing():
    system = System(nodes=1)
    contents = system.write("a", 4)
    assert system.resize(2) == "scratch: 2 nodes" and system.keeping.wanted == 2
    assert system.resize(9) == "scratch: 3 nodes; 6 more when they come"
    assert system.keeping.state == "commissioning"
    assert system.resize(None) == "scratch: 3 nodes" and system.keeping.wanted is None
    assert not system.blocks.moves and system.blocks.where(contents[3]) == ["a-1"]


def test_more_nodes_get_what_is_not_dealt_in_turn():
    system = System("a-1", "b-1", nodes=1, dealing="rendezvous")
    contents = system.write("a", 20)
    told = system.resize(2)
    ((moves, away, stays),) = system.blocks.moves
    assert away == ["a-1"] and stays and set(moves.values()) == {"b-1"}
    assert told == f"scratch: {len(moves) * BLOCK / 1000:.3g} kB went to new servers"
    assert {one for one in contents if system.blocks.where(one) == ["b-1"]} == set(moves)
    assert asyncio.run(system.keeping.spread()) == ""


def test_fewer_nodes():
    """The one with least goes, and of those the last one; what it has goes to the others."""
    system = System()
    system.write("a", 2)
    contents = system.write("b", 6)
    loads = system.keeping.load()
    least = min(reversed(loads), key=loads.__getitem__)
    told = system.resize(2)
    assert least not in system.table.servers and len(system.table.servers) == 2
    assert told == f"scratch: 2 nodes; {loads[least] * BLOCK / 1000:.3g} kB moved"
    assert not system.blocks.has[least] and all(system.blocks.where(one) for one in contents)
    assert system.keeping.load() == dict.fromkeys(system.table.servers, 4)
    assert (system.keeping.wanted, system.keeping.state, system.keeping.is_shrinking) == (2, "ready", False)
    assert system.keeping.find_servers() is False, "it does not come back"


def test_fewer_nodes_than_have_room():
    system = System(room=4 * BLOCK)
    system.write("a", 6)
    before = system.table.servers
    with pytest.raises(InputError, match=r"do not fit on 1 node\b.*2 or more"):
        system.resize(1)
    assert system.table.servers == before and system.keeping.wanted is None
    assert not system.blocks.moves
    assert system.resize(2).startswith("scratch: 2 nodes")


def test_the_fewest_nodes_with_room():
    system = System(room=4 * BLOCK)
    assert system.keeping.least_nodes() == 1
    system.write("a", 4)
    assert system.keeping.least_nodes() == 1
    system.write("b", 1)
    assert system.keeping.least_nodes() == 2
    system.write("c", 4)
    assert system.keeping.least_nodes() == 3
    system.blocks.budget |= {"b-1": 20 * BLOCK}
    assert system.keeping.least_nodes() == 1


def test_it_waits_for_what_was_announced():
    """A block comes to a worker that was given up meanwhile: it goes on to those that stay."""
    system = System(nodes=2)
    session, given = system.announce("a", 4)
    gone = []

    async def comes():
        while not system.keeping.is_shrinking:
            await asyncio.sleep(0)
        assert system.keeping.state == "decommissioning"
        await asyncio.sleep(0.01)
        gone.extend(set(system.blocks.has) - set(system.table.servers))
        system.put(session, given)
        system.table.commit(session, 4 * BLOCK, True, 1.0)
        system.keeping.follow()

    async def both():
        await asyncio.gather(system.keeping.resize(1, 10.0), comes())

    asyncio.run(both())
    (stays,) = system.table.servers
    assert all(system.blocks.where(content) == [stays] for _, content, _ in given)


def test_it_waits_no_longer_than_it_may():
    system = System(nodes=2)
    session, given = system.announce("a", 2)
    assert system.resize(1, drain=0.0) == "scratch: 1 nodes; 0 B moved"
    system.put(session, given)


def test_what_finds_no_room_elsewhere_stays():
    system = System(nodes=2)
    system.write("a", 4)
    system.blocks.takes_nothing = True
    assert system.resize(1, drain=0.0) == (
        "scratch: 1 nodes; 0 B moved; 2 blocks found no room elsewhere, and stay until they do"
    )


def test_what_finds_room_later_moves_later(monkeypatch):
    system = System(nodes=2)
    system.write("a", 4)
    system.blocks.takes_nothing = True
    move = system.blocks.move

    async def takes_next_time(*args, **kwargs):
        found = await move(*args, **kwargs)
        system.blocks.takes_nothing = False
        return found

    monkeypatch.setattr(system.blocks, "move", takes_next_time)
    assert system.resize(1, drain=10.0) == "scratch: 1 nodes; 8.19 kB moved"
    assert len(system.blocks.moves) == 2


def test_if_it_cannot_shrink_as_many_are_wanted_as_before(monkeypatch):
    system = System(nodes=2)
    system.write("a", 4)

    async def fails(*args, **kwargs):
        raise RuntimeError

    monkeypatch.setattr(system.blocks, "move", fails)
    with pytest.raises(RuntimeError):
        system.resize(1)
    assert (system.keeping.wanted, system.keeping.is_shrinking) == (2, False)
    assert system.keeping.find_servers() and len(system.table.servers) == 2


def test_while_it_shrinks_others_come_in_the_place_of_those_that_go():
    system = System()
    system.write("a", 6)

    async def goes():
        while not system.keeping.is_shrinking:
            await asyncio.sleep(0)
        given_up = set(system.blocks.has) - set(system.table.servers)
        (first, _) = system.table.servers
        assert not system.keeping.find_servers(), "who is given up does not come back"
        system.keeping.announced([first])
        assert len(system.table.servers) == 1 and not set(system.table.servers) & given_up
        system.blocks.has["d-1"], system.blocks.budget["d-1"] = {}, 100 * BLOCK
        assert system.keeping.find_servers() and "d-1" in system.table.servers

    async def both():
        await asyncio.gather(system.keeping.resize(2, 0.0), goes())

    asyncio.run(both())


def test_one_resize_after_the_other(monkeypatch):
    system = System()
    system.write("a", 6)
    move, wanted = system.blocks.move, []

    async def slow(*args, **kwargs):
        before = system.keeping.wanted
        await asyncio.sleep(0.01)
        found = await move(*args, **kwargs)
        wanted.append((before, system.keeping.wanted))
        return found

    monkeypatch.setattr(system.blocks, "move", slow)

    async def both():
        await asyncio.gather(system.keeping.resize(2, 0.0), system.keeping.resize(None, 0.0))

    asyncio.run(both())
    assert wanted == [(2, 2)] and system.keeping.wanted is None and len(system.table.servers) == 3


def test_who_was_given_up_comes_back_if_one_that_was_to_stay_has_left():
    system = System()
    system.write("a", 6)

    async def leaves():
        while not system.keeping.is_shrinking:
            await asyncio.sleep(0)
        system.keeping.announced(system.table.servers[:1])
        assert len(system.table.servers) == 1

    async def both():
        await asyncio.gather(system.keeping.resize(2, 0.0), leaves())

    asyncio.run(both())
    assert len(system.table.servers) == 2 and system.keeping.state == "ready"


def test_nobody_is_to_have_blocks_who_leaves_at_the_same_time():
    system = System("a-1", "b-1", "c-1", "d-1")
    contents = system.write("a", 8)
    hints = system.keeping.leaving(["a-1", "b-1"])
    assert hints.keys() == {one for one in contents if system.blocks.where(one) in (["a-1"], ["b-1"])}
    assert set(hints.values()) == {"c-1", "d-1"} == set(system.table.servers)


def test_workers_leave():
    """New blocks go to others at once, and what they have goes where the layout says then."""
    system = System("a-1", "b-1", "c-1", "d-1", nodes=3)
    contents = system.write("a", 6)
    _, given = system.announce("b", 3)
    there = {content: agents[0] for _, content, agents in given}
    expected = system.keeping.announced(["a-1", "d-1"])
    assert expected == {"a-1": [one for one, agent in there.items() if agent == "a-1"]}
    assert system.table.servers == ("b-1", "c-1")
    theirs = set(system.blocks.on("a-1"))
    hints = system.keeping.leaving(["a-1"])
    assert hints.keys() == theirs and set(hints.values()) == {"b-1", "c-1"}
    file = system.table.file("a")
    assert {contents[n] for n in range(6) if file.layout.server(n) == hints.get(contents[n])} == theirs
    assert system.keeping.known == ["b-1", "c-1"]
    system.keeping.lost("a-1", system.blocks.dies("a-1"))
    system.blocks.has["a-1"] = {}
    assert system.keeping.known == ["b-1", "c-1", "a-1"], "another one by that address"


def test_what_is_lost_says_with_whom():
    system = System("a-1", "b-1")
    contents = system.write("a", 2)
    session, given = system.announce("b", 2)
    system.put(session, given)
    dead = system.blocks.where(contents[0])[0]
    (mine,) = (content for _, content, agents in given if agents == (dead,))
    system.blocks.has[dead]["of others"] = None
    system.keeping.lost(dead, system.blocks.dies(dead))
    assert system.where(contents[0]) == ([], f"{dead[0]} ({dead})") == system.where(mine)
    assert system.where(contents[1])[1] == "" and system.keeping.lost_blocks == 2
    assert system.where("of others") == ([], "nobody knows whom")
    system.table.remove("a")
    system.table.abandon(session)
    system.keeping.follow()
    assert system.keeping.lost_blocks == 0


def test_who_died_before_it_was_said_that_it_has_a_block():
    system = System("a-1", "b-1")
    session, given = system.announce("a", 1)
    (dead,) = given[0][2]
    system.keeping.lost(dead, system.blocks.dies(dead))
    system.put(session, given)
    assert system.where(given[0][1]) == ([], f"{dead[0]} ({dead})")


def test_with_a_copy_nothing_is_lost():
    system = System("a-1", "b-1", copies=1)
    contents = system.write("a", 2)
    system.keeping.lost("a-1", system.blocks.dies("a-1"))
    assert system.where(contents[0]) == (["b-1"], "") and system.keeping.lost_blocks == 0


def test_what_was_on_a_disk_comes_back():
    system = System("a-1")
    (content,) = system.write("a", 1)
    system.blocks.on_disk.add(content)
    system.keeping.lost("a-1", system.blocks.dies("a-1"))
    assert system.keeping.lost_blocks == 1
    assert system.where(content) == (["back-1"], "") and system.keeping.lost_blocks == 0


def test_status():
    system = System("a-1", "a-2", "b-1", nodes=2, max_nodes=4)
    system.write("a", 6)
    system.announce("b", 1)
    system.keeping.rates.extend([1.0, 2.0])
    found = system.keeping.status()
    settings = found.pop("settings")
    assert settings["block"] == BLOCK and found == {
        "name": "scratch", "state": "ready", "files": 1, "nbytes": 6 * BLOCK, "writers": 1, "wanted": 2,
        "most": 4, "nodes": [
            {"name": "a", "blocks": 4, "agents": ["a-1", "a-2"]},
            {"name": "b", "blocks": 2, "agents": ["b-1"]},
        ], "throughput": 1.5, "lost": 0, "to_store": 0, "staging": [], "store_problem": "",
    }  # fmt: skip
    system.keeping.rates.clear()
    assert system.keeping.status()["throughput"] is None
