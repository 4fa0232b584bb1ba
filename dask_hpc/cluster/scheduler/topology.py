"""Where nodes are in the machine, for policies that pick nodes by it: as a file says, or as Slurm does."""

import asyncio
from typing import Any

from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.errors import InputError, insist, one_line
from dask_hpc.planning.topology import LIMIT, Place
from dask_hpc.planning.topology_file import ReadTopology, topology_in, with_usual_bandwidths

_LONGEST, _DEEPEST = 255, 20  # of a name; of parts within parts


class NodePlaces:
    """Of all nodes, as far as it is known."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._source: str | None = context.settings["topology"]
        #: as the file has it, by the names of nodes or hosts
        self._read: ReadTopology | None = None
        #: of each node that has a place the name that it has in the file
        self._names: dict[str, str] = {}
        #: counts changes
        self.revision = 0
        #: what workers said of themselves: their host, and its place if they know it
        self._told: dict[str, tuple[str, Place]] = {}

    def start(self) -> None:
        """Look what the file says, if there is one. One that cannot be used is told, and all goes on."""
        if self._source not in (None, "slurm"):
            self._context.do("reading the topology", self._learn(str(self._source)))

    def worker_at(self, address: Any = None, host: Any = None, place: Any = ()) -> str:
        """A worker says on which host it is, and in which parts of the machine, if Slurm told it."""
        fine = isinstance(place, list | tuple) and len(place) <= _DEEPEST
        fine = fine and all(isinstance(part, str) and 0 < len(part) <= _LONGEST for part in place)
        insist(fine, "place", place, "names of parts, the outermost first")
        insist(isinstance(host, str) and len(host) <= _LONGEST, "host", host, "a name")
        if isinstance(address, str) and address in self._context.scheduler.workers:
            self._told[address] = host, tuple(place)
            self.look(address)
        return "OK"

    def worker_leaves(self, address: str) -> None:
        """It is gone."""
        self._told.pop(address, None)

    def look(self, address: str) -> None:
        """Note where the node of a worker is, if that is known by now."""
        context = self._context
        name = context.nodes.node_of(address)
        node = context.indices.nodes.get(name)
        if self._source is None or node is None:
            return
        host, place = self._told.get(address, ("", ()))
        if self._source != "slurm":
            known = {} if self._read is None else self._read.places
            found = name if name in known else host
            place = known.get(found, ())
            self._names[name] = found
        if place and place != node.place:
            context.indices.place(name, place)
            self.revision += 1

    def look_again(self) -> None:
        """Note where all nodes are that are known by now."""
        for name in self._context.nodes:
            for address in self._context.nodes.workers(name):
                self.look(address)

    def links(self) -> ReadTopology | None:
        """What joins the nodes that are here, by their names here; those that have no place are not in it.
        None: nobody knows of any."""
        nodes = self._context.indices.nodes
        places = {name: node.place for name, node in nodes.items() if node.place}
        if not places:
            return None
        if self._read is None:
            return with_usual_bandwidths(places)
        here: dict[str, list[str]] = {}
        for name in places:
            here.setdefault(self._names[name], []).append(name)
        return self._read._replace(topology=self._read.topology.renamed(here))

    async def _learn(self, path: str) -> None:
        try:
            self._read = await asyncio.to_thread(_from_file, path)
        except InputError as error:
            self._context.tell("warning", one_line(f"hpc.topology: {error}; nodes have no places"))
        self.look_again()
        self._context.wake()


def _from_file(path: str) -> ReadTopology:
    try:
        with open(path, "rb") as file:
            text = file.read(LIMIT + 1)
    except OSError as error:
        raise InputError("", f"cannot be read: {error.strerror}", file=one_line(path)) from None
    if len(text) > LIMIT:
        raise InputError("", f"more than {LIMIT:,} bytes", f"at most {LIMIT:,}", file=one_line(path))
    try:
        return topology_in(text)
    except InputError as error:
        raise error.in_file(one_line(path)) from None
