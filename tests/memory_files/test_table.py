"""Names, sizes and places of scratch files: the state machine of the scheduler, without a cluster.

``DASK_HPC_FILE_TABLES``: how many tables the slow test makes.
"""

import errno
import os
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dask_hpc.memory_files.scheduler.table import Expect, FileTable, ServerRoom, Settle, Unneeded
from dask_hpc.memory_files.settings import FilesSettings

SERVERS = ("a", "b", "c")
BLOCK = 4096


def made(servers=SERVERS, **changes):
    """A table with some servers."""
    table = FileTable("scratch", FilesSettings(block=BLOCK, **changes))
    table.servers = tuple(servers)
    return table


def room(free=1e9, servers=SERVERS):
    return ServerRoom(dict.fromkeys(servers, free), {one: one for one in servers})


def give(table, session, *numbers, **how):
    """Blocks of a session go to where they belong. Their contents by number."""
    found = {number: f"{session.number}-{number}-{next(_CONTENTS)}" for number in numbers}
    blocks = [(number, content, BLOCK) for number, content in found.items()]
    places = table.announce(session, blocks, how.pop("room", None) or room(), **how)
    table.put(session, [(number, found[number], places[at]) for at, number in enumerate(numbers)])
    return found


_CONTENTS = count(1)


def write(table, path, size=10, how="new", now=1.0):
    """A whole file. It, and the contents of its blocks by number."""
    session = table.begin(path, how, "me", now)
    found = give(table, session, *range(-(-size // BLOCK)))
    return table.commit(session, size, True, now, cuts=True), found


def raises(number):
    """An error of files with this number, which says of which path."""

    class Raises:
        def __enter__(self):
            self._found = pytest.raises(OSError)
            self.info = self._found.__enter__()
            return self

        def __exit__(self, *error):
            found = self._found.__exit__(*error)
            assert self.info.value.errno == number, self.info.value
            assert self.info.value.filename.startswith("hpcmemory://scratch")
            return found

    return Raises()


def names(table, path=""):
    return [one["name"] for one in table.listing(path)]


# names


def test_what_is_there():
    table = made()
    write(table, "b/c/file", 5000, now=7.0)
    write(table, "a", 1)
    assert names(table) == ["a", "b"] and names(table, "b") == ["b/c"]
    assert names(table, "b/c/file") == ["b/c/file"]
    assert [one["name"] for one in table.below("")] == ["", "a", "b", "b/c", "b/c/file"]
    info = table.info("b/c/file")
    assert (info["type"], info["size"], info["created"], info["modified"]) == ("file", 5000, 7.0, 7.0)
    assert table.info("b") == {"name": "b", "type": "directory", "size": 0}
    assert table.info("")["type"] == "directory"
    assert table.nbytes == 5001


def test_what_is_not_there():
    table = made()
    for ask in (table.info, table.listing, table.below, table.remove_folder, table.remove, table.file):
        with raises(errno.ENOENT):
            ask("nobody/made/this")
    with raises(errno.ENOENT):
        table.rename("a", "b")
    with raises(errno.ENOENT):
        table.begin("a", "change", "me", 0.0)
    assert not table.sessions


@pytest.mark.parametrize("path", ["..", "a/../b", "a/..", ".", "a//b", "/a", "a/", "a\0b"])
def test_names_that_are_none(path):
    table = made()
    for ask in (table.info, table.listing, table.below, table.make_folder, table.remove_folder, table.remove):
        with raises(errno.EINVAL):
            ask(path)
    with raises(errno.EINVAL):
        table.begin(path, "new", "me", 0.0)
    write(table, "c")
    with raises(errno.EINVAL):
        table.rename("c", path)
    assert names(table) == ["c"]


def test_the_root_is_no_file():
    table = made()
    write(table, "a/b")
    with raises(errno.EINVAL):
        table.begin("", "new", "me", 0.0)
    with raises(errno.EINVAL):
        table.file("")
    with raises(errno.EINVAL):
        table.rename("", "b")
    with raises(errno.EINVAL):
        table.rename("a/b", "")
    with raises(errno.ENOTEMPTY):
        table.remove_folder("")
    table.remove("", recursive=True)
    assert names(table) == []


def test_names_that_are_too_long():
    table = made()
    table.make_folder("x" * 4096)
    table.make_folder("/".join("d" * 200))
    for path in ("x" * 4097, "/".join("d" * 201)):
        with raises(errno.ENAMETOOLONG):
            table.info(path)
        with raises(errno.ENAMETOOLONG):
            table.begin(path, "new", "me", 0.0)


def test_folders():
    table = made()
    with raises(errno.ENOENT):
        table.make_folder("a/b", parents=False)
    assert names(table) == []
    table.make_folder("a/b")
    table.make_folder("a/c", parents=False)
    with raises(errno.EEXIST):
        table.make_folder("a/b")
    table.make_folder("a/b", may_exist=True)
    with raises(errno.ENOTEMPTY):
        table.remove_folder("a")
    table.remove_folder("a/b")
    assert names(table, "a") == ["a/c"]
    table.remove_folder("a/c")
    table.remove_folder("a")
    assert names(table) == []


def test_files_are_no_folders():
    table = made()
    write(table, "file")
    write(table, "folder/one")
    with raises(errno.EISDIR):
        table.begin("folder", "new", "me", 0.0)
    with raises(errno.EISDIR):
        table.file("folder")
    with raises(errno.EISDIR):
        table.remove("folder")
    with raises(errno.EISDIR):
        table.rename("file", "folder")
    with raises(errno.ENOTDIR):
        table.remove_folder("file")
    with raises(errno.ENOTDIR):
        table.begin("file/below", "new", "me", 0.0)
    with raises(errno.ENOTDIR):
        table.begin("file/far/below", "append", "me", 0.0)
    with raises(errno.ENOTDIR):
        table.make_folder("file/below")
    with raises(errno.ENOTDIR):
        table.rename("folder", "file")
    with raises(errno.ENOTDIR):
        table.rename("folder/one", "file/one")
    with raises(errno.EEXIST):
        table.make_folder("file", may_exist=True)
    assert [one["name"] for one in table.below("")] == ["", "file", "folder", "folder/one"]


def test_removal():
    table = made()
    _, one = write(table, "a/b/one", 2 * BLOCK)
    _, two = write(table, "a/two")
    write(table, "kept")
    table.take()
    table.remove("a", recursive=True)
    assert names(table) == ["kept"]
    gone = {content for told in table.take() for content in told.contents}
    assert gone == {*one.values(), *two.values()}
    assert table.whose(one[0]) is None and table.nbytes == 10
    table.remove("kept")
    assert names(table) == []


# renaming


def test_a_file_has_another_name():
    table = made()
    file, found = write(table, "a/b", 5000)
    table.take()
    table.rename("a/b", "c/d/e")
    assert names(table, "a") == [] and names(table, "c/d") == ["c/d/e"]
    assert table.file("c/d/e") is file and file.info()["name"] == "c/d/e"
    assert table.whose(found[1]) == (file, 1) and table.take() == []


def test_a_file_takes_the_place_of_another():
    table = made()
    file, _ = write(table, "a")
    _, old = write(table, "b", 5000)
    table.take()
    table.rename("a", "b")
    assert names(table) == ["b"] and table.file("b") is file
    assert {content for told in table.take() for content in told.contents} == set(old.values())
    assert table.nbytes == 10


def test_the_same_name_again():
    table = made()
    file, _ = write(table, "a/b")
    table.take()
    table.rename("a/b", "a/b")
    table.rename("a", "a")
    assert table.file("a/b") is file and table.take() == []
    with raises(errno.ENOENT):
        table.rename("c", "c")


def test_a_folder_has_another_name():
    table = made()
    file, _ = write(table, "a/b/c")
    table.make_folder("a/empty")
    table.make_folder("to")
    table.take()
    table.rename("a", "to")
    assert [one["name"] for one in table.below("")] == ["", "to", "to/b", "to/b/c", "to/empty"]
    assert table.file("to/b/c") is file and table.take() == []


def test_folders_that_cannot_have_that_name():
    table = made()
    write(table, "a/b")
    write(table, "full/one")
    with raises(errno.EINVAL):
        table.rename("a", "a/c")
    with raises(errno.ENOTEMPTY):
        table.rename("a", "full")
    table.rename("a", "ab")
    assert names(table) == ["ab", "full"]


def test_a_folder_is_renamed_whole_or_not_at_all():
    table = made()
    write(table, "a/short")
    write(table, "a/" + "x" * 100)
    table.take()
    before = table.below("")
    for to in ("y" * 4050, "/".join("d" * 200)):
        with raises(errno.ENAMETOOLONG):
            table.rename("a", to)
        assert table.below("") == before and table.take() == []


# writing


def test_nothing_is_there_before_it_is_said():
    table = made()
    session = table.begin("a/b", "new", "me", 0.0)
    found = give(table, session, 0, 1)
    assert names(table) == [] and table.whose(found[0]) is None
    table.commit(session, 5000, False, 1.0, cuts=True)
    assert names(table, "a") == ["a/b"]
    file = table.file("a/b")
    assert [block.content for block in file.blocks] == [found[0], found[1]]
    assert (file.size, file.version, table.sessions[session.number]) == (5000, 1, session)
    table.commit(session, 5000, True, 2.0)
    assert (file.version, file.modified, table.sessions) == (2, 2.0, {})


def test_a_new_file_takes_the_place_of_the_old_one_when_it_is_said():
    table = made()
    old, contents = write(table, "a", 5000)
    session = table.begin("a", "new", "me", 0.0)
    give(table, session, 0)
    assert table.file("a") is old
    table.take()
    new = table.commit(session, 10, True, 1.0, cuts=True)
    assert table.file("a") is new and new.number != old.number
    assert table.take() == [Unneeded(old.number, tuple(contents.values()))]


def test_who_begins_says_how():
    table = made()
    old, _ = write(table, "a", 10)
    for how in ("change", "append"):
        assert table.begin("a", how, "me", 0.0).file is old
    assert table.begin("a", "new", "me", 0.0).file is not old
    with raises(errno.EEXIST):
        table.begin("a", "only-new", "me", 0.0)
    appended, _ = write(table, "b", 10, how="append")
    assert table.file("b") is appended


def test_only_the_first_one_makes_it():
    table = made()
    one, two = (table.begin("a", "only-new", "me", 0.0) for _ in range(2))
    give(table, one, 0)
    give(table, two, 0)
    table.commit(one, 10, True, 1.0)
    with raises(errno.EEXIST):
        table.commit(two, 20, True, 1.0)
    assert table.file("a").size == 10
    table.abandon(two)
    follow(table.take(), needed := set(), {})
    assert len(needed) == 1


def test_who_made_it_says_more_of_it():
    """The second time it is there because of the first."""
    table = made()
    session = table.begin("a", "only-new", "me", 0.0)
    table.commit(session, 0, False, 1.0)
    table.commit(session, 10, True, 1.0)
    assert table.file("a").size == 10


def test_a_folder_came_in_between():
    table = made()
    one, two = table.begin("a", "new", "me", 0.0), table.begin("b/c", "new", "me", 0.0)
    table.make_folder("a")
    write(table, "b")
    with raises(errno.EISDIR):
        table.commit(one, 10, True, 1.0)
    with raises(errno.ENOTDIR):
        table.commit(two, 10, True, 1.0)
    assert names(table) == ["a", "b"]


def test_more_and_less():
    table = made()
    file, old = write(table, "a", 3 * BLOCK)
    session = table.begin("a", "append", "me", 0.0)
    give(table, session, 4)
    table.commit(session, 5 * BLOCK, False, 1.0)
    assert [block is None for block in file.blocks] == [False, False, False, True, False]
    table.take()
    new = give(table, session, 1)
    table.commit(session, BLOCK, False, 2.0)
    assert file.size == 5 * BLOCK, "somebody else may have made it larger"
    assert file.blocks[1].content == new[1] and table.whose(old[1]) is None
    table.commit(session, BLOCK + 1, True, 3.0, cuts=True)
    assert file.size == BLOCK + 1 and len(file.blocks) == 2
    gone = [content for told in table.take() if isinstance(told, Unneeded) for content in told.contents]
    assert gone[:2] == [old[1], old[2]] and len(gone) == 3
    table.commit(table.begin("a", "change", "me", 0.0), 0, True, 4.0, cuts=True)
    assert (file.size, file.blocks) == (0, [])


def test_a_block_that_is_given_twice():
    """Before others were told of the first one; then after."""
    table = made()
    session = table.begin("a", "new", "me", 0.0)
    (there,) = table.announce(session, [(0, "first", 10)], room())
    assert table.announce(session, [(0, "second", 10)], room()) == [there]
    table.put(session, [(0, "first", there), (0, "second", there), (0, "second", there)])
    assert session.put[0].content == "second"
    table.announce(session, [(0, "third", 10)], room())
    table.put(session, [(0, "third", there)])
    table.commit(session, 10, True, 1.0)
    told = table.take()
    follow(told, needed := set(), expected := {})
    assert {content for _, content in needed} == {"third"} and not expected
    assert [one.there for one in told if isinstance(one, Settle)] == [(), there, there]


def test_two_writers_are_told_of_once():
    table = made()
    file, _ = write(table, "a", 2 * BLOCK)
    one, two, three = (table.begin("a", "change", "me", 0.0) for _ in range(3))
    assert len(table.news) == 1 and "hpcmemory://scratch/a has two writers" in table.news[0]
    both = give(table, one, 0), give(table, two, 0, 1)
    table.commit(two, 2 * BLOCK, True, 1.0)
    table.commit(one, 2 * BLOCK, True, 2.0)
    assert [block.content for block in file.blocks] == [both[0][0], both[1][1]]
    table.abandon(three)
    write(table, "b")
    table.begin("b", "change", "me", 0.0)
    assert len(table.news) == 1


def test_it_is_removed_while_it_is_written():
    table = made()
    file, _ = write(table, "a", BLOCK)
    one, two = (table.begin("a", "change", "me", 0.0) for _ in range(2))
    give(table, one, 0)
    (there,) = table.announce(two, [(1, "late", 10)], room())
    table.remove("a")
    table.commit(one, BLOCK, True, 1.0)
    assert names(table) == [] and table.nbytes == 0
    table.put(two, [(1, "late", there)])
    table.commit(two, 2 * BLOCK, True, 1.0)
    follow(table.take(), needed := set(), expected := {})
    assert not needed and not expected and table.whose("late") is None
    assert file.is_gone


def test_it_is_renamed_while_it_is_written():
    table = made()
    session = table.begin("a", "new", "me", 0.0)
    table.commit(session, 0, False, 1.0)
    table.rename("a", "b")
    write(table, "a", 3)
    table.commit(session, 10, True, 1.0)
    assert [(one["name"], one["size"]) for one in table.listing("")] == [("a", 3), ("b", 10)]


def test_who_opened_it_is_gone():
    table = made()
    write(table, "a", 10)
    mine = table.begin("a", "change", "me", 0.0)
    other = table.begin("b", "new", "you", 0.0)
    give(table, mine, 0)
    table.announce(mine, [(1, "expected", 10)], room())
    assert table.owner_is_gone("me") == 1 and table.owner_is_gone("me") == 0
    assert list(table.sessions.values()) == [other] and table.file("a").version == 1
    table.abandon(mine)
    follow(table.take(), needed := set(), expected := {})
    assert not expected and len(needed) == 1


# places


def test_blocks_are_dealt_in_turn():
    table = made(copies=1)
    session = table.begin("a", "new", "me", 0.0)
    found = table.announce(session, [(number, f"c{number}", 10) for number in range(6)], room())
    first = SERVERS[session.file.layout.offset % 3 :] + SERVERS
    assert [agents[0] for agents in found] == list(first[:3] * 2)
    assert all(len(set(agents)) == 2 for agents in found)
    assert [one.agents for one in table.take()] == found


def test_no_room():
    """Then none of them is expected, and nothing that was there is gone."""
    table = made()
    session = table.begin("a", "new", "me", 0.0)
    found = give(table, session, 0)
    table.take()
    with raises(errno.ENOSPC):
        table.announce(session, [(0, "x", 10), (1, "y", 10)], room(5))
    with raises(errno.ENOSPC):
        table.announce(session, [(0, "x", 10)], room(), not_on=SERVERS)
    assert table.take() == [] and session.put[0].content == found[0] and not session.expected


def test_no_server():
    table = made(())
    session = table.begin("a", "new", "me", 0.0)
    with raises(errno.ENOSPC):
        table.announce(session, [(0, "x", 10)], room())
    table.servers = SERVERS
    assert give(table, session, 0)


def test_room_runs_out():
    """A block goes to another server then, and the layout says so."""
    table = made()
    session = table.begin("a", "new", "me", 0.0)
    rest = ServerRoom({"a": 10, "b": 0, "c": 30}, {})
    found = table.announce(session, [(number, f"c{number}", 10) for number in range(4)], rest)
    assert sorted(agents[0] for agents in found) == ["a", "c", "c", "c"] and set(rest.free.values()) == {0}
    assert [session.file.layout.server(number) for number in range(4)] == [one[0] for one in found]


def test_who_has_room():
    domains = {"a": "n1", "b": "n1", "c": "n2", "d": "n3"}

    def find(first="a", nbytes=10, number=1, not_on=(), **free):
        able = ServerRoom({"a": 50, "b": 50, "c": 50, "d": 50} | free, domains)
        return able.find(first, "abcd", nbytes, number, not_on)

    assert find() == ["a"] and find("c") == ["c"]
    assert find(number=2) == ["a", "c"] and find(number=3) == ["a", "c", "d"]
    assert find(number=4) == ["a", "c", "d", "b"] and find(number=9) == ["a", "c", "d", "b"]
    assert find("d", number=2) == ["d", "a"]
    assert find(a=9, c=60) == ["c"], "the one with most room"
    assert find(a=10) == ["a"], "it is just enough"
    assert find(not_on=["a", "c"], d=60) == ["d"]
    assert find(nbytes=51) == [] and find(not_on="abcd") == []
    able = ServerRoom({"a": 15, "z": 99}, domains)
    assert [able.find("a", "abcd", 10, 1, ()) for _ in range(2)] == [["a"], []], "who is not known has none"


def test_copies_go_to_others_where_servers_are_few():
    able = ServerRoom(
        {"a": 50, "b": 20, "c": 30, "d": 5, "e": 90}, {"a": "n1", "b": "n2", "c": "n3", "e": "n1"}
    )

    def find(number, not_on=()):
        return able.find("a", ["a"], 10, number, not_on)

    assert find(1) == ["a"]
    assert find(2) == ["a", "c"] and find(3) == ["a", "b", "c"], "those with room, in other domains"
    assert find(9, not_on="b") == ["a", "c", "e"] and find(2, not_on="a") == []


def test_a_server_comes():
    """What is written later is dealt among all; what is there stays."""
    table = made("ab")
    file, _ = write(table, "a", 4 * BLOCK)
    before = [file.layout.server(number) for number in range(4)]
    table.servers = ("a", "b", "c")
    session = table.begin("a", "append", "me", 0.0)
    places = table.announce(session, [(number, f"c{number}", 10) for number in range(4, 10)], room())
    assert {agents[0] for agents in places} == set("abc")
    assert [file.layout.server(number) for number in range(4)] == before
    assert table.dealt_anew() == {}


def test_a_server_comes_while_blocks_are_on_their_way():
    """Whoever was told where they go was told right."""
    table = made("ab")
    session = table.begin("a", "new", "me", 0.0)
    places = table.announce(session, [(number, f"c{number}", 10) for number in range(6)], room())
    table.servers = ("a", "b", "c")
    places += table.announce(session, [(number, f"c{number}", 10) for number in range(6, 12)], room())
    assert [session.file.layout.server(number) for number in range(12)] == [one[0] for one in places]
    assert "c" not in {one[0] for one in places[:6]} and "c" in {one[0] for one in places[6:]}


def test_a_server_comes_where_places_depend_on_a_hash():
    table = made("ab", dealing="rendezvous")
    file, found = write(table, "a", 20 * BLOCK)
    write(table, "empty", 0)
    table.servers = ("a", "b", "c")
    moves = table.dealt_anew()
    assert set(moves.values()) == {"c"} and set(moves) < set(found.values())
    assert {found[n] for n in range(20) if file.layout.server(n) == "c"} == set(moves)
    assert table.dealt_anew() == {}
    table.servers = ()
    assert table.dealt_anew() == {}


def test_a_server_goes():
    """What it has is dealt to those with the fewest blocks, and what comes goes to others."""
    table = made()
    file, found = write(table, "a", 6 * BLOCK)
    theirs = [found[number] for number in range(6) if file.layout.server(number) == "b"]
    load = {"a": 2, "b": 2, "c": 0}
    table.servers = ("a", "c")
    assert table.leaves("b", [*theirs, "not ours"], load) == dict.fromkeys(theirs, "c")
    assert load == {"a": 2, "c": 2}
    assert "b" not in {file.layout.server(number) for number in range(20)}
    assert table.leaves("b", [], load) == {}
    assert table.leaves("c", [found[0]], {"c": 1}) == {}, "nobody stays"


def test_a_server_goes_that_has_what_belongs_elsewhere():
    """A copy, or what had no room where it belonged."""
    table = made()
    file, found = write(table, "a", 3 * BLOCK)
    stray = next(number for number in range(3) if file.layout.server(number) == "a")
    load = {"a": 1, "c": 0}
    assert table.leaves("b", [found[stray]], load) == {found[stray]: "c"} and load == {"a": 1, "c": 1}
    assert file.layout.server(stray) == "c"


# all of it


def follow(instructions, needed, expected):
    """The books of agents, as they follow instructions: who needs which content, and which are expected."""
    for one in instructions:
        match one:
            case Expect():
                needed.add((one.file, one.content))
                expected[one.content] = one
            case Settle():
                assert expected.pop(one.expected.content, None) == one.expected, "each once"
                assert set(one.there) <= set(one.expected.agents)
                assert (one.expected.file, one.expected.content) in needed, (
                    "an agent would keep it for nobody"
                )
            case Unneeded(file, contents):
                assert contents is not None, "what others still expect would be dropped"
                needed -= {(file, content) for content in contents}


PATHS = ("a", "b", "d/x", "d/y", "d/e/z", "d", "d/e", "a/below")
paths = st.sampled_from(PATHS)
HOWS = ("new", "only-new", "change", "append")


class ModelFile:
    """What a file should be."""

    def __init__(self, blocks=(), size=0):
        self.blocks, self.size = dict(blocks), size
        self.is_removed = False


class ModelSession:
    """What a writer has said."""

    def __init__(self, session, file, path, how):
        self.session, self.file, self.path, self.is_exclusive = session, file, path, how == "only-new"
        self.expected, self.put = {}, {}


class Files(RuleBasedStateMachine):
    """Against a dictionary from names to files (None: a folder)."""

    def __init__(self):
        super().__init__()
        self.table = made(copies=1)
        self.names = {}
        self.sessions = []
        self.now = 0.0
        self.needed, self.expected = set(), {}
        self.contents = count(1)

    def tries(self, fine, call, *args, **kwargs):
        """What it gives; None if it raises, which it does if it is not ``fine``."""
        try:
            found = call(*args, **kwargs)
        except OSError as error:
            assert not fine, f"{error} {args}"
            return None
        assert fine, f"it should not go: {args}"
        return found if found is not None else True

    def above(self, path):
        parts = path.split("/")
        return ["/".join(parts[:number]) for number in range(1, len(parts))]

    def below(self, path):
        return [one for one in self.names if one.startswith(f"{path}/")]

    def is_file(self, path):
        return self.names.get(path) is not None

    def is_folder(self, path):
        return path in self.names and self.names[path] is None

    def may_be_below(self, path):
        return not any(map(self.is_file, self.above(path)))

    def forget(self, file):
        if file is not None:
            file.is_removed = True

    def enter(self, path, file):
        self.forget(self.names.get(path))
        self.names.update(dict.fromkeys((one for one in self.above(path) if one not in self.names), None))
        self.names[path] = file

    # names

    @rule(path=paths, parents=st.booleans(), may_exist=st.booleans())
    def make_folder(self, path, parents, may_exist):
        above = self.above(path)
        fine = self.may_be_below(path) and not self.is_file(path)
        fine = fine and (may_exist or not self.is_folder(path))
        fine = fine and (parents or not above or self.is_folder(above[-1]))
        if self.tries(fine, self.table.make_folder, path, parents, may_exist) is not None:
            self.enter(path, None)

    @rule(path=paths)
    def remove_folder(self, path):
        fine = self.is_folder(path) and not self.below(path)
        if self.tries(fine, self.table.remove_folder, path) is not None:
            del self.names[path]

    @rule(path=paths, recursive=st.booleans())
    def remove(self, path, recursive):
        fine = self.is_file(path) or (self.is_folder(path) and recursive)
        if self.tries(fine, self.table.remove, path, recursive) is not None:
            for one in [path, *self.below(path)]:
                self.forget(self.names.pop(one))

    @rule(path=paths, to=paths)
    def rename(self, path, to):
        fine = path in self.names
        if path != to and self.is_file(path):
            fine = self.may_be_below(to) and path not in self.above(to) and not self.is_folder(to)
        elif path != to and fine:
            fine = not self.is_file(to) and not self.below(to) and self.may_be_below(to)
            fine = fine and path not in self.above(to)
        if self.tries(fine, self.table.rename, path, to) is not None and path != to:
            theirs = [path, *self.below(path)]
            moved = {to + one[len(path) :]: self.names.pop(one) for one in theirs}
            for one, file in moved.items():
                self.enter(one, file)

    # contents

    @rule(path=paths, how=st.sampled_from(HOWS), owner=st.sampled_from(["me", "you"]))
    def begin(self, path, how, owner):
        fine = self.may_be_below(path) and not self.is_folder(path)
        fine = fine and not (how == "only-new" and path in self.names)
        fine = fine and not (how == "change" and path not in self.names)
        if session := self.tries(fine, self.table.begin, path, how, owner, self.now):
            is_known = self.is_file(path) and how in ("change", "append")
            file = self.names[path] if is_known else ModelFile()
            self.sessions.append(ModelSession(session, file, path, how))

    def of(self, data):
        return data.draw(st.sampled_from(self.sessions))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), numbers=st.sets(st.integers(0, 5), min_size=1), is_full=st.booleans())
    def announce(self, data, numbers, is_full):
        mine = self.of(data)
        blocks = [(number, f"c{next(self.contents)}", BLOCK) for number in sorted(numbers)]
        some = ServerRoom(dict.fromkeys(self.table.servers, BLOCK if is_full else 1e9), {})
        servers = self.table.servers
        fine = bool(servers) and (not is_full or len(servers) >= 2 * len(blocks))
        if is_full and not fine and len(blocks) <= len(servers):
            return  # whether it goes depends on who gets the copies
        if (found := self.tries(fine, self.table.announce, mine.session, blocks, some)) is not None:
            for (number, content, _), agents in zip(blocks, found, strict=True):
                assert 1 <= len(agents) == len(set(agents)) <= 2
                assert agents[0] == mine.session.file.layout.server(number)
                mine.expected[number] = (content, agents)
                mine.put.pop(number, None)

    @precondition(lambda self: any(one.expected for one in self.sessions))
    @rule(data=st.data(), is_one=st.booleans(), is_old=st.booleans())
    def put(self, data, is_one, is_old):
        mine = data.draw(st.sampled_from([one for one in self.sessions if one.expected]))
        number = data.draw(st.sampled_from(sorted(mine.expected)))
        content, agents = mine.expected[number]
        if is_old:  # somebody says late what came of an earlier one
            self.table.put(mine.session, [(number, "long ago", agents)])
            return
        self.table.put(mine.session, [(number, content, agents[:1] if is_one else agents)] * 2)
        del mine.expected[number]
        mine.put[number] = content

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), size=st.integers(0, 6 * BLOCK), ends=st.booleans(), cuts=st.booleans())
    def commit(self, data, size, ends, cuts):
        mine = self.of(data)
        file = mine.file
        is_there = file in self.names.values()
        fine = is_there or file.is_removed
        if not fine:
            fine = self.may_be_below(mine.path) and not self.is_folder(mine.path)
            fine = fine and not (mine.is_exclusive and mine.path in self.names)
        self.now += 1
        if self.tries(fine, self.table.commit, mine.session, size, ends, self.now, cuts) is None:
            return
        if not (is_there or file.is_removed):
            self.enter(mine.path, file)
        file.blocks |= mine.put
        mine.put = {}
        file.size = size if cuts else max(size, file.size)
        file.blocks = {one: c for one, c in file.blocks.items() if one * BLOCK < file.size}
        if ends:
            self.sessions.remove(mine)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def abandon(self, data):
        mine = self.of(data)
        self.sessions.remove(mine)
        self.table.abandon(mine.session)

    @rule(owner=st.sampled_from(["me", "you"]))
    def owner_is_gone(self, owner):
        theirs = [one for one in self.sessions if one.session.owner == owner]
        assert self.table.owner_is_gone(owner) == len(theirs)
        self.sessions = [one for one in self.sessions if one not in theirs]

    # servers

    @rule(servers=st.lists(st.sampled_from("abcde"), unique=True, max_size=5))
    def other_servers(self, servers):
        self.table.servers = tuple(servers)

    @rule(server=st.sampled_from("abcde"), stay=st.sets(st.sampled_from("abcde"), min_size=1))
    def leaves(self, server, stay):
        load = dict.fromkeys(sorted(stay), 0)
        theirs = [
            block.content
            for file in self.table.files.values()
            for number, block in enumerate(file.blocks)
            if block is not None and file.layout.server(number) == server
        ]
        found = self.table.leaves(server, theirs, load)
        if stay - {server}:
            assert sorted(found) == sorted(theirs) and set(found.values()) <= stay - {server}
            assert sum(load.values()) == len(theirs)
            assert max(load.values()) - min(load.values()) <= 1

    # what holds

    @invariant()
    def names_are_right(self):
        shown = {one["name"]: one for one in self.table.below("")}
        assert set(shown) == {"", *self.names}
        for path, file in self.names.items():
            assert shown[path]["type"] == ("directory" if file is None else "file")
            assert shown[path]["size"] == (0 if file is None else file.size)

    @invariant()
    def contents_are_right(self):
        for path, mine in self.names.items():
            if mine is not None:
                file = self.table.file(path)
                assert len(file.blocks) == -(-mine.size // BLOCK)
                found = {number: one.content for number, one in enumerate(file.blocks) if one is not None}
                assert found == mine.blocks
                for number, content in found.items():
                    assert self.table.whose(content) == (file, number)
        assert self.table.nbytes == sum(file.size for file in self.names.values() if file)
        files = [file for file in self.names.values() if file is not None]
        assert len(self.table._of) == sum(len(file.blocks) for file in files)

    @invariant()
    def sessions_are_right(self):
        assert [one.session for one in self.sessions] == list(self.table.sessions.values())
        for mine in self.sessions:
            session = mine.session
            assert {n: (one.content, one.agents) for n, one in session.expected.items()} == mine.expected
            assert {number: block.content for number, block in session.put.items()} == mine.put

    @invariant()
    def books_are_balanced(self):
        follow(self.table.take(), self.needed, self.expected)
        files = [file for file in self.names.values() if file is not None]
        wanted = [content for file in files for content in file.blocks.values()]
        wanted += [content for one in self.sessions for content in one.put.values()]
        announced = [content for one in self.sessions for content, _ in one.expected.values()]
        assert sorted(self.expected) == sorted(announced)
        assert sorted(content for _, content in self.needed) == sorted(wanted + announced)


TestFiles = Files.TestCase
TestFiles.settings = settings(settings.get_profile("same"), max_examples=100, stateful_step_count=40)


@pytest.mark.slow
def test_many_more():
    from hypothesis.stateful import run_state_machine_as_test

    tables = int(os.environ.get("DASK_HPC_FILE_TABLES", "2000"))
    many = settings(settings.get_profile("same"), max_examples=tables, stateful_step_count=60)
    run_state_machine_as_test(Files, settings=many)
