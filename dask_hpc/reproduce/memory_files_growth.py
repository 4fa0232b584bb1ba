"""A file system in the memory of nodes that grows while it is in use."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from statistics import fmean
from typing import NamedTuple

from dask_hpc.planning.moves.file_layout import DEALINGS, FileLayout
from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Outcome,
    around,
    at_least,
    claim,
    direction,
    exactly,
    figure,
    rounded,
)
from dask_hpc.simulator.memory_files import FileRun, FileServers, FileUse, use_file
from dask_hpc.strategies.files.files_view import FilesView

_MOST = 16
_CLIENTS = 16
_RATE = 1e9
#: of the run on as many servers as there are at first, after which there are 16
_SHARE = 0.583
#: what the network carries of reads, in servers
_CARRIES = 4.2
_SERVERS = (2, 4, 8, 16)
#: bytes of a file and of a block
_SIZES = {
    ("weak", "256 kB"): (_CLIENTS * 100e6, 256e3),
    ("weak", "1 MB"): (_CLIENTS * 100e6, 1e6),
    ("strong", "256 kB"): (1e9, 256e3),
    ("strong", "1 MB"): (1e9, 1e6),
}
#: printed gains, in per cent, by scaling, block and operation, and by the number of servers
_PUBLISHED: dict[tuple[str, str, str], dict[int, float]] = {
    ("weak", "256 kB", "write"): {2: 57.54, 16: -1.10},
    ("weak", "1 MB", "write"): {2: 54.72, 8: 22.96, 16: -3.87},
    ("strong", "256 kB", "write"): {2: 57.83, 8: 30.12, 16: -3.02},
    ("strong", "1 MB", "write"): {2: 51.98, 16: 4.42},
    ("weak", "256 kB", "read"): {2: 24.48, 4: 4.99, 8: 0.0003, 16: 1.12},
    ("weak", "1 MB", "read"): {2: 23.53, 8: 1.26},
    ("strong", "256 kB", "read"): {2: 18.64, 4: 1.10, 8: -0.38, 16: 0.85},
    ("strong", "1 MB", "read"): {2: 13.27, 16: 9.07},
}
_POINTS = 10.0
_BAND = "one number stands for what is not given: within 10 points"
_FITTED = "fitted: the share of the run after which there are 16 servers, by writes on 2"
_PICKED = "picked: what the network carries, by these rows"
_SAME = "one and the same run: with 16 servers of 16 at most nothing grows"
_FORMULA = "the formula itself"
#: blocks written before servers come
_OLD = 12_000


class _Run(NamedTuple):
    """Of one file on so many servers at first: written and read, with and without growth."""

    static: FileRun
    grown: FileRun
    static_read: FileRun
    grown_read: FileRun

    def gain(self, operation: str) -> float:
        """Of throughput by growth, in per cent."""
        one, other = (
            (self.static, self.grown) if operation == "write" else (self.static_read, self.grown_read)
        )
        return 100 * (other.throughput / one.throughput - 1)


def run(bench: Bench) -> Outcome:
    """A file system in memory that grows from 2, 4 or 8 to 16 servers while it is in use, against one that
    does not (seed 002, 3.2.4; digest 3.2).

    Sixteen clients write one file, block by block, and 16 servers are asked for when they begin. These come
    after a share of the time that the run takes without them: the one number that is fitted, for all sizes.
    Blocks lie where they were written, so whoever reads the file finds its first part on the first servers.
    Beside that, the rule that asks for servers and the layout of blocks, by their test vectors.
    """
    asked = [(shape, servers) for shape in _SIZES for servers in _SERVERS]
    found = dict(zip(asked, bench.each(_simulated, asked), strict=True))
    claims = [*_gains(found), *_shapes(found), *_rule(), *_placements()]
    return Outcome(claims, [*_beside(found), *_decided()])


def _simulated(shape: tuple[str, str], servers: int) -> _Run:
    nbytes, block = _SIZES[shape]
    use = FileUse(_on(servers), round(nbytes / block), block, _CLIENTS)
    static = use_file(FileServers(_RATE), use)
    grown = use_file(FileServers(_RATE, delay=_SHARE * static.seconds), replace(use, wanted=_MOST))
    network = FileServers(_RATE, network=_CARRIES * _RATE)
    reads = (use_file(network, replace(use, layout=one.layout, is_read=True)) for one in (static, grown))
    return _Run(static, grown, *reads)


def _on(servers: int) -> FileLayout:
    return FileLayout.on([f"s{number}" for number in range(servers)])


_Runs = dict[tuple[tuple[str, str], int], _Run]


def _gains(found: _Runs) -> Iterator[Claim]:
    for (scaling, block, operation), printed in _PUBLISHED.items():
        for servers, published in printed.items():
            note = f"printed as less than that; {_BAND}" if published == 0.0003 else _BAND
            ours = found[(scaling, block), servers].gain(operation)
            text = f"{scaling}, {block}: {operation}s gain {_where(servers)}"
            why = _built(operation, servers)
            yield claim(text, published, ours, around(published, _POINTS), "%", note, why)


def _where(servers: int) -> str:
    return "where 16 servers are the most" if servers == _MOST else f"where {servers} servers become 16"


def _built(operation: str, servers: int) -> str:
    """What a gain was fitted to, if it was."""
    if servers == _MOST:
        return _SAME
    if operation == "read":
        return _PICKED
    return _FITTED if servers == 2 else ""


def _shapes(found: _Runs) -> Iterator[Claim]:
    falls = [found[shape, few].gain("write") - found[shape, many].gain("write")
             for shape in _SIZES for few, many in ((2, 4), (4, 8), (8, 16))]  # fmt: skip
    yield direction("the gain of writes falls with the servers there are at first, by at least", "falls",
                    min(falls), at_least(0.0), "points")  # fmt: skip
    for operation, published in (("write", 1.47), ("read", 1.10)):
        rates = [
            fmean(_of(found[("strong", block), servers], operation) for servers in _SERVERS)
            for block in ("1 MB", "256 kB")
        ]
        yield claim(f"strong: mean throughput of {operation}s in blocks of 1 MB, over 256 kB", published,
                    rates[0] / rates[1], rounded(published, 0.01), "",
                    "a factor with two decimals; in ours a block costs nothing beyond its bytes")  # fmt: skip


def _of(one: _Run, operation: str) -> float:
    return (one.grown if operation == "write" else one.grown_read).throughput


def _rule() -> Iterator[Claim]:
    """RIO and AIO: what is recommended, 100, and what operations get (digest, test vector 3)."""
    strategy = Policy.load("scratch-files").files
    assert strategy is not None
    for mean, published, band in (
        (95.0, "keep", exactly(0)),
        (85.0, "expand", at_least(1)),
        (115.0, "shrink", exactly(-1)),
    ):
        view = FilesView("scratch", 10, 1, _MOST, 1, 100.0, (mean,) * 20, inf, None)
        found = strategy.decide(view)
        ours = 0 if found is None else found.servers - view.servers
        yield claim(f"10 servers, recommended 100, tolerance 10, mean {mean:g}: servers that come (digest)",
                    published, ours, band, "servers", "three words: none, at least one, or one less",
                    f"{_FORMULA}, as corrected")  # fmt: skip


def _placements() -> Iterator[Claim]:
    """Where blocks lie, and which move (digest, test vector 4)."""
    four, six = _on(4), _on(6)
    grown, moves = four.grown(six.servers, blocks=8, promised=8)
    for block, published in ((5, 1), (10, 4)):
        ours = six.servers.index(grown.server(block))
        yield claim(f"4 servers, and 6 from block 8 on: block {block} is on server (digest)", published, ours,
                    exactly(published), "", "the number of a server", f"{_FORMULA}: modulo")  # fmt: skip
    yield claim("4 servers, and 6 from block 8 on: old blocks that move (digest)", 0, len(moves), exactly(0),
                "blocks", "none moves", f"{_FORMULA}: old blocks have an interval of their own")  # fmt: skip
    shares = {"round-robin": 0.0, "hash": 66.7, "rendezvous": 33.3}
    for dealing in DEALINGS:
        _, moves = replace(four, dealing=dealing).grown(six.servers, _OLD, _OLD)
        share = 100 * len(moves) / _OLD
        note, band = "a share with one decimal", rounded(shares[dealing], 0.1)
        if dealing == "rendezvous":
            note, band = f"a share, by hashes of {_OLD:,} blocks: within a point", around(33.3, 1.0)
        text, why = f"4 to 6 servers, {dealing}: old blocks that move (digest)", f"{_FORMULA}: whose is which"
        yield claim(text, shares[dealing], share, band, "%", note, why)


def _beside(found: _Runs) -> Iterator[Figure]:
    for operation in ("write", "read"):
        for servers in _SERVERS:
            gains = [found[shape, servers].gain(operation) for shape in _SIZES]
            yield figure(f"{operation}s gain {_where(servers)}, mean of sizes", fmean(gains), "%")
    for servers in (4, 8):
        # as long as it takes on two, in seconds
        first, one = (found[("weak", "1 MB"), number].static for number in (2, servers))
        late = FileServers(_RATE, delay=_SHARE * first.seconds)
        grown = use_file(late, replace(one.use, wanted=_MOST))
        text = f"if servers came after as many seconds as with 2: writes gain {_where(servers)}"
        yield figure(text, 100 * (grown.throughput / one.throughput - 1), "%")


def _decided() -> Iterator[Figure]:
    """The same file, longer, with the strategy instead of who asks for 16 servers at once."""
    policy = Policy.load("scratch-files")
    for name, network in (("", inf), (", through the network of reads", _CARRIES * _RATE)):
        machine = FileServers(_RATE, network, delay=5.0)
        # what every client has of 8 servers
        use = FileUse(_on(2), 8_000, 64e6, _CLIENTS, most=64, recommended=8 * _RATE / _CLIENTS)
        alone, ours = use_file(machine, use), use_file(machine, use, policy)
        grown = [one for one in ours.changes if one.servers > one.before]
        text = f"strategy, from 2 servers, recommended what 8 give{name}"
        yield figure(f"{text}: most servers", max(one.servers for one in grown))
        yield figure(f"{text}: expansions", len(grown))
        yield figure(f"{text}: gain", 100 * (ours.throughput / alone.throughput - 1), "%")
