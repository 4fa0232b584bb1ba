"""The nodes that agents run on: who is there, what they keep, and how busy they are."""

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from dask_hpc.model.agents import AgentNode
from dask_hpc.simulator.checkpoint.network import Network
from dask_hpc.simulator.checkpoint.service import Service

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
