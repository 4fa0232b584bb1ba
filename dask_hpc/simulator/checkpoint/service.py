"""What takes commits: nodes for agents, the shared file system behind them, and what everything costs.

Every cost can be nothing. Seconds and bytes per second; the symbols are those of 000, 6.2 to 6.5.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import Union

from dask_hpc.model.checkpoint import AgentNode
from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.transfers import Transfer, fair_rates
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule


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


@dataclass(frozen=True, slots=True)
class Compression:
    """Of what goes to the store, on the agents' side (9.4.1.5 finds that the other side costs too much)."""

    ratio: float = 2.0
    #: bytes per second, of one agent
    rate: float = 400e6
    #: commits that are smaller are written as they are
    above: float = 1e9


@dataclass(frozen=True, slots=True)
class Store:
    """The shared file system. Every ``flush_every``-th commit is written to it in the background; 0: none."""

    bandwidth: float = inf
    #: of one writer
    writer: float = inf
    #: writers that agents may be at once, and what they may take of the bandwidth
    writers: int = 1_000_000
    background: float = inf
    #: seconds to open and close a file
    open: float = 0.0
    flush_every: int = 0
    compression: Compression | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """How the number of agents' nodes follows what they do: ``rule`` looks at them ``every`` so many seconds,
    and node by node gives back what nobody used for its ``idle`` time."""

    every: float = 10.0
    rule: AgentRule = field(default_factory=AgentRule)
    #: nodes that may still be had, and how long that takes
    spare: int = 0
    grant: float = 0.0


@dataclass(frozen=True, slots=True)
class Service:
    """``nodes`` for agents, each with ``memory`` for copies and a ``link``, as the nodes of applications have
    it. What ``joins`` and ``leaves`` say is given and taken at those times; what ``failures`` names is gone
    then, with all it kept."""

    nodes: int = 1
    link: float = inf
    memory: float = inf
    #: all agents' nodes together
    fabric: float = inf
    #: bytes of one commit that one agent keeps; what is more it writes to the store at once
    buffer: float = inf
    costs: Costs = field(default_factory=Costs)
    store: Store = field(default_factory=Store)
    pool: Pool | None = None
    joins: tuple[tuple[float, int], ...] = ()
    leaves: tuple[tuple[float, int], ...] = ()
    failures: tuple[tuple[float, str], ...] = ()
    #: after how many seconds a node that failed is back, empty
    repair: float = inf
    #: over how many seconds traffic and commits are averaged where nodes are ranked
    window: float = 30.0

    def __post_init__(self) -> None:
        if type(self.nodes) is not int or self.nodes < 1:
            raise InputError("service: nodes", f"found {shown(self.nodes)}", "1 or more")
        for name in ("link", "memory", "fabric"):
            if not getattr(self, name) > 0:
                raise InputError(f"service: {name}", f"found {shown(getattr(self, name))}", "more than 0")


Process = Generator[Union[float, "Signal"], None, None]


class Signal:
    """Something that happens once. ``is_broken``: what was waited for came to nothing."""

    __slots__ = ("_waiting", "has_fired", "is_broken")

    def __init__(self) -> None:
        self.has_fired = False
        self.is_broken = False
        self._waiting: list[Callable[[], None]] = []

    def fire(self, *, broken: bool = False) -> None:
        """It happens now; a second time nobody hears of."""
        if self.has_fired:
            return
        self.has_fired, self.is_broken = True, broken
        for call in self._waiting:
            call()
        self._waiting.clear()

    def then(self, call: Callable[[], None]) -> None:
        """Call when it happens, or now if it has."""
        if self.has_fired:
            call()
        else:
            self._waiting.append(call)


class Clock:
    """What is to come, in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Call at that time; never, if it is infinite."""
        if time < inf:
            self._order += 1
            heappush(self._events, (max(time, self.now), self._order, call))

    def start(self, process: Process) -> Signal:
        """Let a process run, from this very moment on; answers what fires at its end."""
        over = Signal()

        def go_on() -> None:
            try:
                wish = next(process)
            except StopIteration:
                over.fire()
                return
            if isinstance(wish, Signal):
                # by way of the queue, so that no chain of processes is as deep as it is long
                wish.then(lambda: self.at(self.now, go_on))
            else:
                self.at(self.now + wish, go_on)

        go_on()
        return over

    def run(self, until: float = inf) -> None:
        """Until nothing is to come, or up to a time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heappop(self._events)
            call()


def all_of(signals: Iterable[Signal]) -> Process:
    """Wait for every one of them."""
    yield from signals


class Slots:
    """So many at once; who comes later waits in line."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._line: list[Signal] = []

    def take(self) -> Signal:
        """Fires when it is our turn; ``give`` back afterwards."""
        turn = Signal()
        if self._free:
            self._free -= 1
            turn.fire()
        else:
            self._line.append(turn)
        return turn

    def give(self) -> None:
        """The next one's turn."""
        if self._line:
            self._line.pop(0).fire()
        else:
            self._free += 1


_SMALL = 1e-9  # of a transfer, that rounding may leave


class Network:
    """Links, and what is on them. A link that nobody named never fills."""

    def __init__(self, clock: Clock, links: Mapping[Hashable, float]) -> None:
        self._clock = clock
        self.links = dict(links)
        #: bytes that each link has carried
        self.carried: dict[Hashable, float] = {}
        self._flowing: dict[int, tuple[Transfer, Signal]] = {}
        self._left: dict[int, float] = {}
        self._rates: dict[Hashable, float] = {}
        self._since = 0.0
        self._number = 0
        self._version = 0
        self._is_due = False

    def send(self, nbytes: float, links: tuple[Hashable, ...], rate: float) -> Signal:
        """Fires when everything has arrived, or broken when one of the links is cut."""
        arrived = Signal()
        self._number += 1
        self._move_on()
        self._flowing[self._number] = (Transfer(self._number, nbytes, links, rate), arrived)
        self._left[self._number] = nbytes
        self._look_soon()
        return arrived

    def cut(self, link: Hashable) -> None:
        """What is on this link breaks off."""
        self._move_on()
        for number in [n for n, (one, _) in self._flowing.items() if link in one.links]:
            _, arrived = self._flowing.pop(number)
            del self._left[number]
            arrived.fire(broken=True)
        self._look_soon()

    def _move_on(self) -> None:
        passed = self._clock.now - self._since
        self._since = self._clock.now
        if passed <= 0:
            return
        for number, (one, _) in self._flowing.items():
            rate = self._rates.get(number, 0.0)
            step = min(self._left[number], rate * passed)
            self._left[number] -= step
            for link in one.links:
                self.carried[link] = self.carried.get(link, 0.0) + step

    def _look_soon(self) -> None:
        """Once in an instant, however many transfers begin and end in it."""
        if not self._is_due:
            self._is_due = True
            self._clock.at(self._clock.now, self._look)

    def _look(self) -> None:
        self._is_due = False
        self._move_on()
        for number, (one, _) in list(self._flowing.items()):
            if self._left[number] <= _SMALL * one.nbytes:
                self._end(number)
        self._rates = fair_rates([one for one, _ in self._flowing.values()], self.links)
        self._version += 1
        version = self._version
        times = []
        for number in list(self._flowing):
            rate = self._rates[number]
            if rate == float("inf"):
                self._end(number)
            elif rate > 0:
                times.append(self._left[number] / rate)
        if times:
            # a step that is too small for the clock to show must still be one
            time = max(self._clock.now + min(times), self._clock.now * (1 + 1e-15))
            self._clock.at(time, lambda: self._look() if version == self._version else None)

    def _end(self, number: int) -> None:
        one, arrived = self._flowing.pop(number)
        left = self._left.pop(number)
        for link in one.links:
            self.carried[link] = self.carried.get(link, 0.0) + left
        arrived.fire()


_RECENT = 60.0  # seconds in which an agent counts as one that has just joined


@dataclass(slots=True)
class Seat:
    """One node of the fleet."""

    name: str
    is_up: bool = True
    is_leaving: bool = False
    used: float = 0.0
    #: by application
    agents: dict[str, int] = field(default_factory=dict)
    #: bytes that their agents will need here
    promised: dict[str, float] = field(default_factory=dict)
    #: when agents came
    joined: deque[float] = field(default_factory=deque)
    #: when which application sent so many bytes, or (0 bytes) made a commit
    heard: deque[tuple[float, str, float]] = field(default_factory=deque)
    idle_since: float = 0.0

    @property
    def link(self) -> Hashable:
        """Its way to everybody else."""
        return ("agents", self.name)

    @property
    def way_out(self) -> Hashable:
        """The same link in the other direction."""
        return ("out", self.name)


class Fleet:
    """All of them; names are never used again."""

    def __init__(self, service: Service, network: Network) -> None:
        self._service, self._network = service, network
        self.seats: dict[str, Seat] = {}
        #: changes when a node comes or goes
        self.revision = 0
        self._filled: dict[str, tuple[float, float]] = {}
        for _ in range(service.nodes):
            self.add(0.0)

    def add(self, now: float) -> Seat:
        """One node more."""
        seat = Seat(f"n{len(self.seats) + 1}", idle_since=now)
        self.seats[seat.name] = seat
        self._network.links[seat.link] = self._network.links[seat.way_out] = self._service.link
        self.revision += 1
        return seat

    def lose(self, name: str) -> None:
        """It is gone, with all that it kept."""
        seat = self.seats[name]
        seat.is_up, seat.used = False, 0.0
        seat.agents.clear()
        seat.promised.clear()
        self.revision += 1
        self._network.cut(seat.link)
        self._network.cut(seat.way_out)

    def vacate(self, name: str) -> None:
        """Nobody may come any more; it is gone once nothing is kept there."""
        self.seats[name].is_leaving = True
        self.revision += 1

    def settle(self) -> list[str]:
        """Those that leave and are empty now are gone; answers which."""
        gone = [
            seat.name
            for seat in self.seats.values()
            if seat.is_up and seat.is_leaving and not seat.agents and seat.used < 1e-6
        ]
        for name in gone:
            self.seats[name].is_up = False
        return gone

    def back(self, name: str, now: float) -> None:
        """It is there again, empty."""
        self.seats[name].is_up, self.seats[name].idle_since = True, now
        self.revision += 1

    @property
    def up(self) -> list[Seat]:
        """Those that can have agents."""
        return [seat for seat in self.seats.values() if seat.is_up and not seat.is_leaving]

    def views(self, now: float, without: str = "") -> list[AgentNode]:
        """As rules see them; what one application does is left out if that is to be decided anew."""
        loads = self._loads(now, without)
        return [self._view(seat, now, without, loads) for seat in self.up]

    def views_of_promises(self, now: float, without: str) -> list[AgentNode]:
        """As rules see them that place agents: room that others were promised is taken, used or not."""
        return [
            replace(
                view,
                used=sum(nbytes for app, nbytes in self.seats[view.name].promised.items() if app != without),
            )
            for view in self.views(now, without)
        ]

    def note_fill(self, now: float) -> None:
        """Remember how full they are, to know how fast they fill."""
        self._filled = {seat.name: (now, seat.used) for seat in self.up}

    def _loads(self, now: float, without: str) -> dict[str, tuple[float, float]]:
        """Of each application what one of its agents brings: bytes and commits per second. What an agent did
        before it moved counts where it is now, or a node that has just joined would get all of them."""
        window = min(self._service.window, now) or 1.0
        nbytes: Counter[str] = Counter()
        commits: Counter[str] = Counter()
        agents: Counter[str] = Counter()
        for seat in self.seats.values():
            while seat.heard and seat.heard[0][0] < now - self._service.window:
                seat.heard.popleft()
            for _, app, size in seat.heard:
                nbytes[app] += size  # type: ignore[assignment]
                commits[app] += not size
            agents.update(seat.agents)
        return {
            app: (nbytes[app] / window / number, commits[app] / window / number)
            for app, number in agents.items()
            if app != without
        }

    def _view(self, seat: Seat, now: float, without: str, loads: dict[str, tuple[float, float]]) -> AgentNode:
        while seat.joined and seat.joined[0] < now - _RECENT:
            seat.joined.popleft()
        here = {app: number for app, number in seat.agents.items() if app != without}
        own = seat.agents.get(without, 0)
        since, before = self._filled.get(seat.name, (now, seat.used))
        return AgentNode(
            seat.name,
            self._service.memory,
            seat.used,
            filling=(seat.used - before) / (now - since) if now > since else 0.0,
            traffic=sum(loads[app][0] * number for app, number in here.items()),
            link=self._service.link,
            commits=sum(loads[app][1] * number for app, number in here.items()),
            agents=sum(here.values()),
            joined=max(0, len(seat.joined) - own),
            idle_for=0.0 if seat.used or here else now - seat.idle_since,
        )

    def seat_agents(self, app: str, nodes: tuple[str, ...], nbytes: float, now: float) -> None:
        """An application's agents are on these nodes, and nowhere else; each needs so much memory."""
        for seat in self.seats.values():
            had = seat.agents.pop(app, 0)
            seat.promised.pop(app, None)
            has = nodes.count(seat.name)
            if has:
                seat.agents[app] = has
                seat.promised[app] = has * nbytes
                seat.joined.extend([now] * (has - had))
            elif had and not seat.agents:
                seat.idle_since = now
