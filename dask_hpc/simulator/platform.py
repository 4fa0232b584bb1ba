"""The machine that is simulated, and the costs that real ones have. Every cost can be zero."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise
from math import gamma, inf, log, nan
from sys import float_info
from typing import Any, Literal, get_args

from dask_hpc.model.errors import InputError, insist, is_number, shown, within
from dask_hpc.model.node import Node
from dask_hpc.model.power import Corridor
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.speedup import IoDemand
from dask_hpc.model.topology import Topology
from dask_hpc.planning.forecast_models import MODELS


@dataclass(frozen=True, slots=True)
class Failures:
    """Node failures. ``mtbf`` is of one node, in seconds; ``shape`` 1 is exponential, below 1 failures
    come in clusters. With a ``trace`` of ``(time, node index)`` nothing is drawn. A node is back after
    ``repair``. A job that loses a node starts again from its last checkpoint: the last commit of its own, if
    it says what it commits, else one every ``checkpoint`` seconds of work that costs nothing (0: from
    scratch). With ``survive`` one that has no application and no commits of its own goes on with its other
    nodes, as a job of Dask does, and what the failed node did since that checkpoint is done again.
    """

    mtbf: float = inf
    shape: float = 1.0
    repair: float = 0.0
    checkpoint: float = 0.0
    trace: tuple[tuple[float, int], ...] = ()
    seed: int = 0
    survive: bool = False

    def __post_init__(self) -> None:
        insist(self.mtbf > 0, "failures.mtbf", self.mtbf, "more than 0")
        insist(self.shape > 0, "failures.shape", self.shape, "more than 0")
        insist(self.repair >= 0, "failures.repair", self.repair, "0 s or more")
        insist(self.checkpoint >= 0, "failures.checkpoint", self.checkpoint, "0 s or more")

    def times(self, nodes: int) -> Iterator[tuple[float, int]]:
        """``(time, node index)`` of failures, in order of time, without end."""
        if self.trace:
            yield from sorted(self.trace)
        if self.trace or self.mtbf == inf:
            return
        draw = random.Random(self.seed)
        if self.shape == 1.0:  # memoryless: the machine as a whole is one exponential clock
            time = 0.0
            while True:
                time += draw.expovariate(nodes / self.mtbf)
                yield time, draw.randrange(nodes)
        scale = self.mtbf / gamma(1 + 1 / self.shape)

        def life() -> float:
            return float(scale * (-log(1.0 - draw.random())) ** (1 / self.shape))

        lives = [(life(), node) for node in range(nodes)]
        heapify(lives)
        while True:
            time, node = lives[0]
            heapreplace(lives, (time + self.repair + life(), node))
            yield time, node


@dataclass(frozen=True, slots=True)
class Crowding:
    """A shared file system that serves ``knee`` nodes well and gets slower under more: ``n`` of them together
    get ``(knee / n) ** decline`` of its bandwidth. 0 is a file system that serves any number.

    Where a policy says how many may read, what one node reads at once is ``reads`` tasks, one after another.
    """

    knee: int
    decline: float = 1.0
    reads: int = 8

    def __post_init__(self) -> None:
        for name, most in (("knee", 10**7), ("reads", 10**4)):
            value = getattr(self, name)
            insist(type(value) is int and 1 <= value <= most, name, value, f"1 to {most:,}")
        insist(is_number(self.decline, 0, 100), "decline", self.decline, "0 to 100")

    def share(self, nodes: int) -> float:
        """What so many nodes together get of the bandwidth."""
        return float((self.knee / nodes) ** self.decline) if nodes > self.knee else 1.0


class TransferWay:
    """Transfers that share one bandwidth."""

    def __init__(self, rate_of: Callable[[int], float]) -> None:
        self._rate_of = rate_of
        self._clock = 0.0  # bytes per node so far
        self._since = 0.0
        self.nodes = 0
        #: those in progress, the next to end in front
        self._transfers: list[tuple[float, int, int, int, Any]] = []
        #: the lengths of all transfers together
        self.waited = 0.0

    def begin(
        self, now: float, order: int, nodes: int, bytes_per_node: float, version: int, owner: Any
    ) -> None:
        self._advance(now)
        heappush(self._transfers, (self._clock + bytes_per_node, order, nodes, version, owner))
        self.nodes += nodes

    def abandon(self, now: float, owner: Any) -> list[int]:
        """The numbers of those that stop."""
        self._advance(now)
        gone = [entry for entry in self._transfers if entry[4] is owner]
        if gone:
            kept = [entry for entry in self._transfers if entry[4] is not owner]
            self.nodes = sum(entry[2] for entry in kept)
            self._transfers = sorted(kept, key=lambda entry: entry[:2])
        return [entry[1] for entry in gone]

    @property
    def next_end(self) -> float:
        if not self._transfers:
            return inf
        left = self._transfers[0][0] - self._clock
        return self._since + (left / self._rate if left > 0 else 0.0)

    def ended(self, now: float) -> Iterator[tuple[int, Any, int]]:
        """``(number, owner, version)`` of those that end now."""
        while self._transfers and self.next_end <= now:
            self._advance(now)
            clock, order, nodes, version, owner = heappop(self._transfers)
            self._clock = max(self._clock, clock)  # exactly there, whatever rounding did
            self.nodes -= nodes
            yield order, owner, version

    @property
    def _rate(self) -> float:
        return self._rate_of(max(1, self.nodes))

    def _advance(self, now: float) -> None:
        if self.nodes and now > self._since:
            self._clock += self._rate * (now - self._since)
            self.waited += len(self._transfers) * (now - self._since)
        self._since = now


class FileSystem:
    """Transfers in progress, one way or both. Times must not go backwards."""

    def __init__(self, platform: "Platform") -> None:
        self._reads = self._writes = TransferWay(platform.file_system_rate)
        self._ways: tuple[TransferWay, ...] = (self._reads,)
        if platform.writing is not None:
            self._writes = TransferWay(partial(platform.file_system_rate, is_read=False))
            self._ways = (self._reads, self._writes)
        #: how many transfers there have been
        self.begun = 0
        #: the numbers of those in progress
        self.transfers: set[int] = set()
        #: from when on so many nodes read or write, if anybody wants to know
        self.loads: list[tuple[float, int]] | None = None

    def begin(
        self,
        now: float,
        owner: Any,
        nodes: int,
        bytes_per_node: float,
        version: int = 0,
        *,
        is_read: bool = True,
    ) -> None:
        """``nodes`` nodes of ``owner`` start to read or write."""
        self.begun += 1
        self.transfers.add(self.begun)
        way = self._reads if is_read else self._writes
        way.begin(now, self.begun, nodes, bytes_per_node, version, owner)
        self._changed(now)

    def abandon(self, now: float, owner: Any) -> None:
        """The owner's transfers stop unfinished."""
        gone = [number for way in self._ways for number in way.abandon(now, owner)]
        if gone:
            self.transfers.difference_update(gone)
            self._changed(now)

    @property
    def waited(self) -> float:
        """The lengths of all transfers together."""
        return sum(way.waited for way in self._ways)

    @property
    def mean_transfer(self) -> float:
        """Seconds of a transfer, on average; nan if there was none."""
        return self.waited / self.begun if self.begun else nan

    @property
    def next_end(self) -> float:
        """When the next transfer ends, as things are."""
        return min(way.next_end for way in self._ways)

    def ended(self, now: float) -> list[tuple[Any, int]]:
        """``(owner, version)`` of the transfers that end now."""
        done = []
        for way in self._ways:
            for number, owner, version in way.ended(now):
                self.transfers.discard(number)
                done.append((owner, version))
        if done:
            self._changed(now)
        return done

    def _changed(self, now: float) -> None:
        if self.loads is not None:
            self.loads.append((now, sum(way.nodes for way in self._ways)))


@dataclass(frozen=True, slots=True)
class NodeType:
    """So many nodes that draw so many watts, idle and at work."""

    count: int
    idle: float
    active: float

    def __post_init__(self) -> None:
        insist(type(self.count) is int and self.count >= 1, "count", self.count, "a whole number, 1 or more")
        most = float_info.max
        if not (is_number(self.idle, 0, most) and is_number(self.active, self.idle, most)):
            found = f"found idle {shown(self.idle)} W, active {shown(self.active)} W"
            raise InputError("", found, "0 <= idle <= active, finite")


WhoForecasts = Literal["oracle", "online", "none"]
FORECASTS: tuple[WhoForecasts, ...] = get_args(WhoForecasts)


@dataclass(frozen=True, slots=True)
class Metering:
    """A platform that has one records its power, whatever the policy.

    Power nears the level of the work at hand as a first-order lag: 63 % of a step after ``ramp`` seconds,
    95 % after three times that. ``noise`` is the standard deviation of what a policy *reads*, relative to
    the true value (drawn with ``seed``, once an instant); what is recorded is the truth. With ``types``
    the first nodes are of the first type and so on. ``corridor`` is the site's: what the run is judged by,
    and what a power strategy keeps that says no bounds of its own.

    ``forecast`` is who foretells the power of the machine, which is a matter of the site, as on a live
    cluster, and not of a policy: the *oracle* knows what the work at hand will draw over the ``horizon`` if
    nothing is decided; *online* are the live service's forecasters (``models``, chosen by MAPE), which know
    nothing but a reading at each tick of the platform; *none* says nothing.
    """

    ramp: float = 0.0
    noise: float = 0.0
    seed: int = 0
    types: tuple[NodeType, ...] = ()
    corridor: Corridor | None = None
    forecast: WhoForecasts = "oracle"
    horizon: float = 300.0
    models: tuple[str, ...] = MODELS

    def __post_init__(self) -> None:
        insist(self.forecast in FORECASTS, "power.forecast", self.forecast, ", ".join(FORECASTS))
        fine = is_number(self.horizon, 0, float_info.max) and self.horizon > 0
        insist(fine, "power.horizon", self.horizon, "more than 0 s")
        for name in self.models:
            insist(name in MODELS, "power.models", name, ", ".join(MODELS))
        insist(is_number(self.ramp, 0, float_info.max), "power.ramp", self.ramp, "0 s or more")
        insist(is_number(self.noise, 0, 1), "power.noise", self.noise, "a share from 0 to 1")


#: seconds on two numbers of nodes, the fewer first
TwoPoints = tuple[tuple[int, float], tuple[int, float]]


@dataclass(frozen=True, slots=True)
class ResizeCost:
    """Seconds a job stands still during a resize. All zero by default: the ideal machine.

    ``expand`` and ``shrink`` are what it takes a job to grow and to give nodes, on two numbers of nodes:
    the straight line through both counts, at the larger of its sizes before and after, since all its
    processes take part. One resize counts once, however many nodes it is about.
    """

    fixed: float = 0.0
    per_process: float = 0.0
    bandwidth: float = inf
    expand: TwoPoints | None = None
    shrink: TwoPoints | None = None

    def __post_init__(self) -> None:
        for name, value in (("fixed", self.fixed), ("per_process", self.per_process)):
            insist(is_number(value, 0, inf), name, value, "0 s or more")
        fine = is_number(self.bandwidth, 0, inf) and self.bandwidth > 0
        insist(fine, "bandwidth", self.bandwidth, "more than 0 B/s")
        for name, points in (("expand", self.expand), ("shrink", self.shrink)):
            insist(points is None or _rises(points), name, points, "seconds on two numbers of nodes")

    def seconds(self, before: int, after: int, moved_bytes: float = 0.0) -> float:
        """Cost of going from ``before`` to ``after`` processes."""
        if before == after:
            return 0.0
        processes = abs(after - before)
        cost = self.fixed + self.per_process * processes + moved_bytes / self.bandwidth
        points = self.expand if after > before else self.shrink
        return cost if points is None else cost + _on_the_line(points, max(before, after))


def _rises(points: Any) -> bool:
    """Whether these are two sizes, the smaller first, and what each costs."""
    try:
        (small, less), (large, more) = points
    except (TypeError, ValueError):
        return False
    sizes = type(small) is int and type(large) is int and 1 <= small < large
    return sizes and all(is_number(one, 0, float_info.max) for one in (less, more))


def _on_the_line(points: TwoPoints, nodes: int) -> float:
    (small, less), (large, more) = points
    way = (nodes - small) / (large - small)
    return max(0.0, less * (1.0 - way) + more * way)


#: costs by name. Published: seed 001, 7.5 (digest 3.5), from 1 to 2 and from 15 to 16 nodes, from 2 to 1
#: and from 16 to 15, without the data that moves; the source's steps are of one node, and what is between
#: its ends is only drawn there: the straight line is the digest's, the one count for several nodes ours
RESIZE_COSTS: Mapping[str, ResizeCost] = {
    "none": ResizeCost(),
    "published": ResizeCost(expand=((2, 0.11), (16, 1.29)), shrink=((2, 0.05), (16, 2.25))),
}


@dataclass(frozen=True, slots=True)
class Costs:
    """``t_(msg+copy)`` is ``message`` plus a node's bytes at ``copy``; an agent takes one part after the
    other at the rate ``agent``, with ``operation`` seconds for each and ``turn`` for each read of it."""

    agent: float = inf
    copy: float = inf
    message: float = 0.0
    operation: float = 0.0
    turn: float = 0.0
    #: the first commit to new agents takes so many times as long, as memory is registered: 5 to 10 (9.3.4)
    registering: float = 7.0
    #: asking whether agents should change, if they need not
    probe: float = 0.002
    #: a probe that changes them
    change: float = 0.0
    #: starting any agents, each new one, and connecting an agent to one node
    launch: float = 0.0
    per_agent: float = 0.0
    connect: float = 0.0
    #: before an agent that does not answer is given up, and until the next probe after that
    give_up: float = 0.0
    retry_wait: float = 60.0
    #: operations take a share longer or shorter, normally distributed
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("agent", "copy"):
            insist(getattr(self, name) > 0, name, getattr(self, name), "more than 0 B/s")
        for name in ("message", "operation", "turn", "registering", "probe", "change", "launch", "per_agent",
                     "connect", "give_up", "retry_wait", "noise"):  # fmt: skip
            insist(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")

    def setup(self, nbytes: float, link: float, reads: int = 1, is_first: bool = False) -> float:
        """Seconds before an agent takes a part of so many bytes."""
        seconds = self.operation + self.turn * reads
        if is_first:
            seconds += (self.registering - 1) * (seconds + nbytes / min(self.agent, link))
        return seconds

    def changing(self, new: int, agents: int, parts: int) -> float:
        """Seconds of a change to so many agents, of which some are new, for an item of so many parts."""
        seconds = self.connect * -(-parts // max(1, agents))
        if new:
            seconds += self.change + self.launch + self.per_agent * new
        return seconds


@dataclass(frozen=True, slots=True)
class Units:
    """A platform that has these has no nodes of its own: they come from a batch system, ``nodes`` at once.

    A unit comes ``wait`` seconds after it was asked for and ends ``walltime`` after that. How many there are
    says the policy's ``size`` strategy, which is asked every ``interval`` while there are jobs or units.
    ``maximum`` 0: as many as the platform has nodes for.
    """

    nodes: int = 1
    wait: float = 0.0
    walltime: float = inf
    minimum: int = 0
    maximum: int = 0
    interval: float = 10.0

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("minimum", 0), ("maximum", 0)):
            value = getattr(self, name)
            insist(type(value) is int and least <= value <= 10**7, name, value, f"{least} to 10,000,000")
        insist(is_number(self.wait, 0, float_info.max), "wait", self.wait, "0 s or more")
        insist(
            is_number(self.walltime, 0, inf) and self.walltime > 0, "walltime", self.walltime, "more than 0 s"
        )
        fine = is_number(self.interval, 0, float_info.max) and self.interval >= 0.001
        insist(fine, "interval", self.interval, "0.001 s or more")


Decide = Literal["instant", "event"]
DECIDE: tuple[Decide, ...] = get_args(Decide)


@dataclass(frozen=True, slots=True)
class PowerSite:
    """What a machine draws beyond its nodes: of what comes in, power supplies pass on the share ``supply``
    (1: the powers of nodes hold before their supplies); ``switches`` draw so many watts, whatever is sent;
    and with cooling it is ``pue`` times as much (power usage effectiveness)."""

    supply: float = 1.0
    switches: float = 0.0
    pue: float = 1.0

    def __post_init__(self) -> None:
        insist(is_number(self.supply, 0.01, 1), "supply", self.supply, "0.01 to 1")
        insist(is_number(self.switches, 0, float_info.max), "switches", self.switches, "0 W or more, finite")
        insist(is_number(self.pue, 1, 10), "pue", self.pue, "1 to 10")

    def energy(self, nodes: float, seconds: float) -> float:
        """Joules in all, where nodes used so many in so many seconds."""
        return (nodes / self.supply + self.switches * seconds) * self.pue


@dataclass(frozen=True, slots=True)
class Platform:
    """``speed`` in operations per second and node, bandwidths in bytes per second, powers in watts.

    ``link`` is each node's way to the other nodes and to the file system; ``file_system`` is what all
    nodes together get from it, shared equally by the nodes that read or write; less if they are many and it
    has a ``crowding``. If ``writing`` has a bandwidth of its own, that one is for reading alone. No node gets
    more of it than its ``stream``, which latency may limit, however few they are. ``tick`` adds a decision
    every so many seconds while jobs are there; with ``only_ticks`` there are no others. ``launch`` and
    ``cleanup`` are seconds during which a job holds its nodes before and after its work. With a ``metering``
    power is recorded. ``groups`` are the sizes of the machine's parts, the outermost first: ``(64, 16)`` for
    cabinets of 64 nodes with chassis of 16, which a policy may go by that picks nodes.
    Instead a ``topology`` says which parts there are and what the links between them carry: of its nodes for
    jobs the platform has the first, in their order, under its own names. Then who communicates is as fast as
    what others send lets him be (``NetworkPace``), and commits are, too.
    ``agents`` is what checkpoint agents cost, where a policy has some. ``copies`` are the bytes that a node
    keeps which is there for copies alone (0: there are no such nodes). With ``units`` nodes come and go.
    With a ``site`` the energy of the whole site is told, too; corridors and policies go by the nodes alone.

    Much may happen at one ``instant``: jobs come, end, or are at a scheduling point. A policy sees all of it
    before it decides. If it is to ``decide`` on each ``event``, it is asked after every single one and knows
    nothing of those to come: of jobs that are submitted together the first starts without regard for the
    others. That an evolving job asks for nodes is such an event, too: it gets all of them then, or none,
    where else it gets what there is and waits for the rest. So it is in ElastiSim, which calls its scheduler
    for each message, and with the scheduler of its example.
    """

    nodes: int
    speed: float = 1.0
    link: float = inf
    file_system: float = inf
    idle_power: float = 0.0
    active_power: float = 0.0
    tick: float = 0.0
    only_ticks: bool = False
    launch: float = 0.0
    cleanup: float = 0.0
    copies: float = 0.0
    resize: ResizeCost = field(default_factory=ResizeCost)
    failures: Failures | None = None
    metering: Metering | None = None
    groups: tuple[int, ...] = ()
    agents: Costs = Costs(registering=1.0)
    crowding: Crowding | None = None
    units: Units | None = None
    topology: Topology | None = None
    stream: float = inf
    writing: float | None = None
    decide: Decide = "instant"
    site: PowerSite | None = None

    def __post_init__(self) -> None:
        insist(type(self.nodes) is int and 1 <= self.nodes <= 10**7, "nodes", self.nodes, "1 to 10,000,000")
        for name in ("speed", "link", "file_system", "stream"):
            insist(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        insist(self.writing is None or self.writing > 0, "writing", self.writing, "more than 0")
        for name in ("idle_power", "active_power", "tick", "launch", "cleanup", "copies"):
            insist(0 <= getattr(self, name) < inf, name, getattr(self, name), "0 or more")
        insist(self.decide in DECIDE, "decide", self.decide, ", ".join(DECIDE))
        if self.only_ticks and not self.tick:
            raise InputError("only_ticks", "there is no tick", "tick more than 0")
        if self.units is not None:
            with within("units"):
                self._check_units(self.units)
        if self.topology is not None:
            insist(not self.groups, "groups", list(self.groups), "none beside a topology")
            object.__setattr__(self, "topology", _numbered(self.topology))
            there = len(self.topology.nodes)
            insist(self.nodes <= there, "nodes", self.nodes, f"at most the {there:,} of the topology")
        fine = all(type(size) is int and size >= 1 for size in self.groups)
        fine = fine and all(not large % small for large, small in pairwise(self.groups))
        insist(fine, "groups", list(self.groups), "sizes, each a multiple of the next: [64, 16]")
        count = sum(one.count for one in self.metering.types) if self.metering else 0
        if count not in (0, self.nodes):
            raise InputError("power.types", f"found {count} nodes", f"the {self.nodes} of the platform")

    def _check_units(self, units: Units) -> None:
        room = self.nodes // units.nodes
        for name, least in (("maximum", units.minimum if units.maximum else 0), ("minimum", 0)):
            value = getattr(units, name)
            insist(least <= value <= room, name, value, f"{least} to {room}, on {self.nodes} nodes")
        insist(room > 0, "nodes", units.nodes, f"1 to {self.nodes}")
        for other in ("failures", "metering"):
            if getattr(self, other) is not None:
                word = "power" if other == "metering" else other
                allowed = "one of both: nodes that come and go do not fail or draw power"
                raise InputError("", f"found {word} as well", allowed)

    @property
    def most_units(self) -> int:
        """How many units there may be."""
        assert self.units is not None
        return self.units.maximum or self.nodes // self.units.nodes

    @property
    def most_nodes(self) -> int:
        """How many nodes a job can have."""
        return self.nodes if self.units is None else self.most_units * self.units.nodes

    def node_list(self) -> Iterator[Node]:
        """Its nodes, by the names they have everywhere."""
        types = self.metering.types if self.metering else ()
        powers = [(self.idle_power, self.active_power)] * (0 if types else self.nodes)
        for one in types:
            powers += [(one.idle, one.active)] * one.count
        if self.topology is not None:
            around = self.topology.around()
            return (Node(str(i), *power, around[str(i)]) for i, power in enumerate(powers))
        return (
            Node(str(i), *power, tuple(str(i // size) for size in self.groups))
            for i, power in enumerate(powers)
        )

    def file_system_rate(self, nodes: int, is_read: bool = True) -> float:
        """Bytes per second that each of so many nodes gets which read, or write, at a time."""
        total = self.file_system if is_read else self.written
        if self.crowding is not None:
            total *= self.crowding.share(nodes)
        return min(self.way, self.stream, total / nodes)

    @property
    def written(self) -> float:
        """Bytes per second that all nodes together can write."""
        return self.file_system if self.writing is None else self.writing

    @property
    def way(self) -> float:
        """Bytes per second that a node gets to another one if it is alone."""
        return self.link if self.topology is None else min(self.link, self.topology.smallest)

    def io_demand(self, compute: float, data: float) -> IoDemand:
        """Of a job that needs so many operations, and reads and writes so many bytes, in all."""
        link = min(self.link, self.stream)
        slower = min(self.file_system, self.written)  # who asks does not tell reading from writing
        return IoDemand(compute=compute, data=data, speed=self.speed, link=link, file_system=slower)

    @property
    def has_powers(self) -> bool:
        """Whether it says what its nodes draw."""
        return self.active_power > 0 or bool(self.metering and self.metering.types)


def _numbered(topology: Topology) -> Topology:
    """With the names that nodes have here."""
    names = topology.nodes
    numbers = tuple(map(str, range(len(names))))
    if names == numbers:
        return topology
    known = {old: (new,) for old, new in zip(names, numbers, strict=True)}
    known |= {name: (f"service{number}",) for number, name in enumerate(topology.service)}
    return topology.renamed(known)


#: all nodes of real machines, with their powers
MACHINES: Mapping[str, Platform] = {
    "supermuc-ng-partition": Platform(16, idle_power=71.0, active_power=250.0),
    "supermuc-ng": Platform(6336, idle_power=71.0, active_power=250.0),
    "frontier": Platform(9472, idle_power=626.0, active_power=2704.0),
    # 4 GPUs of 75 to 300 W, 2 CPUs of 47.25 to 252 W, memory 74.26 W, 2 NICs of 21 W and NVMe 45 W a node
    # (ExaDigiT/RAPS, config/marconi100.yaml; it had 64 to 226 W a CPU before, 10 % more when idle). Its 49
    # racks with 5 switches of 250 W each draw 61 kW more: see PowerSite.
    "marconi100": Platform(980, idle_power=555.76, active_power=1865.26),
}


def platform_of(name: object, nodes: int | None = None) -> Platform:
    """All of a known machine, or so many nodes like its own."""
    if not isinstance(name, str) or name not in MACHINES:
        found = f"no machine is named {shown(name)}{nearest(name, MACHINES)}"
        raise InputError("machine", found, ", ".join(MACHINES))
    known = MACHINES[name]
    return replace(known, nodes=nodes or known.nodes)
