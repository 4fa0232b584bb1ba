"""Which part of a machine each node is in, from a file: a tree in YAML, or what Slurm says.

In YAML parts have names and contain parts, or in the end nodes, as a list of names or as Slurm writes them::

    cabinet0: {chassis0: "node[00-07]", chassis1: "node[08-15]"}
    cabinet1: [node16, node17]

Of Slurm both ``topology.conf`` and what ``scontrol show topology`` prints are read: lines with a
``SwitchName`` and its ``Switches`` or ``Nodes``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.safe_yaml import read_yaml

#: from the outermost part in
Place = tuple[str, ...]

#: bytes of a file, nodes of a machine, and parts within parts
LIMIT, _MOST, _DEEPEST = 10_000_000, 1_000_000, 20
_ALLOWED = "parts with parts or nodes in them: {cabinet0: {chassis0: 'node[0-7]'}}"
_FIELD = re.compile(r"(\w+)=(\S+)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def read_topology(text: str | bytes) -> dict[str, Place]:
    """The place of each node by name. Every complaint is an ``InputError``."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise InputError("", f"found byte {error.start + 1} that is no text", "UTF-8") from None
    lines = [line.partition("#")[0] for line in text.splitlines()]
    if any(line.lstrip().startswith("SwitchName=") for line in lines):
        return _of_slurm([line for line in lines if line.strip()])
    return places_in(read_yaml(text, LIMIT))


def places_in(tree: Any) -> dict[str, Place]:
    """The place of each node by name, of a tree that was read."""
    found: dict[str, Place] = {}
    insist(isinstance(tree, Mapping), "", tree, _ALLOWED)
    _walk(tree, (), found)
    return found


def hosts(text: str) -> Iterator[str]:
    """The names that Slurm means by such a list: ``"tux[0-2,7],login"``."""
    count = 0
    for one in _split(text):
        for name in _expand(one):
            count += 1
            insist(count <= _MOST, "", text, f"at most {_MOST:,} nodes")
            yield name


def _walk(tree: Any, place: Place, found: dict[str, Place]) -> None:
    where = ".".join(place)
    if isinstance(tree, Mapping):
        insist(len(place) < _DEEPEST, where, "more parts within parts", f"at most {_DEEPEST}")
        for name, part in tree.items():
            insist(isinstance(name, str | int) and str(name) != "", where, name, "the name of a part")
            _walk(part, (*place, str(name)), found)
        return
    nodes = [tree] if isinstance(tree, str) else tree
    fine = isinstance(nodes, list) and all(isinstance(name, str | int) for name in nodes)
    insist(fine and bool(place), where, tree, _ALLOWED)
    for one in nodes:
        for name in hosts(str(one)) if one != "" else [""]:
            insist(name != "", where, one, "the name of a node")
            _add(found, name, place, where)


def _of_slurm(lines: list[str]) -> dict[str, Place]:
    above: dict[str, str] = {}
    nodes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        with within(f"line {number}"):
            fields = dict(_FIELD.findall(line))
            switch = fields.get("SwitchName")
            if switch is None:
                continue
            if below := fields.get("Switches"):
                for name in hosts(below):
                    insist(name not in above, name, f"below {above.get(name)} and {switch}", "one of them")
                    above[name] = switch
            else:  # of one with switches scontrol prints the nodes of all of them as well
                for name in hosts(fields.get("Nodes", "")):
                    insist(name not in nodes, name, f"at {nodes.get(name)} and {switch}", "one of them")
                    nodes[name] = switch
    found: dict[str, Place] = {}
    for name, leaf in nodes.items():
        place = [leaf]
        while (switch := above.get(place[-1])) is not None:
            place.append(switch)
            insist(
                len(place) <= _DEEPEST, leaf, "is below itself, or too deep", f"at most {_DEEPEST} switches"
            )
        _add(found, name, tuple(reversed(place)), "")
    return found


def _add(found: dict[str, Place], name: str, place: Place, where: str) -> None:
    insist(
        found.get(name, place) == place, where, f"{name}, which is in {shown(found.get(name))}", "one place"
    )
    found[name] = place


def _split(text: str) -> Iterator[str]:
    """At the commas that are in no brackets."""
    begin = depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    if text[begin:]:
        yield text[begin:]


def _expand(text: str) -> Iterator[str]:
    before, bracket, rest = text.partition("[")
    if not bracket:
        insist(text != "" and "]" not in text, "", text, "names of nodes, such as node[00-07]")
        yield text
        return
    inside, closed, after = rest.partition("]")
    insist(bool(closed), "", text, "names of nodes, such as node[00-07]")
    for one in inside.split(","):
        match = _RANGE.fullmatch(one)
        insist(match is not None, "", text, "names of nodes, such as node[00-07]")
        assert match is not None
        first, last = match[1], match[2] or match[1]
        insist(int(last) - int(first) < _MOST, "", text, f"at most {_MOST:,} nodes")
        for number in range(int(first), int(last) + 1):
            for name in _expand(after) if after else ("",):
                yield f"{before}{number:0{len(first)}d}{name}"
