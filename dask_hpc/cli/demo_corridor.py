"""The demo of the power corridor: it moves twice, and jobs change size and wait so that power stays inside.

No sensor is needed, and none is read: workers are given made-up watts by how busy they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, NamedTuple

import dask
from distributed import Client, Future

import dask_hpc
from dask_hpc.cli.demo_cluster import demo_cluster
from dask_hpc.cli.demo_seen import Seen
from dask_hpc.cli.demo_work import TASK, Piece, Tally
from dask_hpc.model.units import write_quantity
from dask_hpc.policy import Policy

NODES = 6
#: watts of a node that does nothing, and how many more if it works; seconds after which it has gone 63 % of
#: the way from one to the other; error of its sensor, as a share
METER = {"idle": 70.0, "busy": 130.0, "lag": 0.4, "noise": 0.02, "seed": 1}
INTERVAL = 0.25  # seconds between two readings
#: what a change of the corridor may take: tasks that run run on, power has to follow, and has to be seen
SETTLING = TASK + 3 * METER["lag"] + 2 * INTERVAL
#: (share of the time, lower, upper): at first there is room for two to four of the nodes to work, then for
#: one or two, then for four or five. The first two have room in common: who knows can be there in time
CORRIDOR = ((0.0, 620.0, 1000.0), (1 / 3, 480.0, 800.0), (2 / 3, 860.0, 1150.0))
_LEAD = 2.0  # seconds that a change is prepared before it comes, if it was announced
_UNITS = 30.0  # how many units of time the demo takes

PIECES = (
    Piece("climate", 0, 3, 1, 3, work=62, walltime=90),
    Piece("genomics", 1, 2, 1, 3, work=50, walltime=90),
    Piece("training", 12, 2, 1, 3, work=28, walltime=90),
)


class Point(NamedTuple):
    """Power at one time, the corridor that held then, and what was forecast, if anything was."""

    time: float
    watts: float
    lower: float
    upper: float
    forecast: tuple[float, float] | None

    @property
    def is_inside(self) -> bool:
        """Whether power is where it is to be."""
        return self.lower <= self.watts <= self.upper


class CorridorDemo(Seen):
    """One run. ``play`` does everything; the rest is there to be shown."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__()
        self.policy = policy.with_(**{"power.dwell": "1s", "power.lead": f"{_LEAD}s"})
        self.seconds = float(seconds)
        self.unit = seconds / _UNITS
        self.tally = Tally(submitted=sum(piece.tasks(self.unit) for piece in PIECES))
        self.points: list[Point] = []
        #: (from time, lower, upper) as it was, and as far as it is announced
        self.band: list[tuple[float, float, float]] = []
        #: as they were when the time was over
        self.violations = 0
        self.failure = ""

    def play(self, update: Callable[[], None]) -> None:
        """Start the cluster, hand in the jobs and move the corridor as their times come."""
        with self._cluster() as (client, manager), TemporaryDirectory() as folder:
            diary = Path(folder, "diary.txt")
            self.zero = round(manager.status()["time"], 2)
            self._say_corridor(manager, CORRIDOR[:2])
            began = monotonic()
            todo = list(PIECES)
            futures: list[Future] = []
            has_moved = False
            while (now := monotonic() - began) < self.seconds:
                if todo and now >= todo[0].submitted * self.unit:
                    futures += todo.pop(0).submit(client, self.unit, diary)
                if not has_moved and now >= CORRIDOR[2][0] * self.seconds:
                    has_moved = True
                    self._say_corridor(manager, CORRIDOR[2:])
                self._observe(manager, futures)
                update()
                sleep(0.1)
            self._finish(client, manager, futures, diary, update)

    def settled(self) -> list[Point]:
        """The points that are not shortly after the beginning or a move."""
        moves = [share * self.seconds for share, _, _ in CORRIDOR]
        return [one for one in self.points if not any(move <= one.time < move + SETTLING for move in moves)]

    def for_power(self) -> list[dict[str, Any]]:
        """The rows of the story that were decided for the sake of power."""
        return [row for row in self.story if row["rule"].startswith("power:") and row["time"] >= self.zero]

    @contextmanager
    def _cluster(self) -> Iterator[tuple[Client, Any]]:
        settings = {
            "hpc.power-meter": {"simulated": METER},
            "hpc.power-interval": f"{INTERVAL}s",
            "hpc.power-history": None,
        }
        with (
            dask.config.set(settings),
            demo_cluster(NODES) as (_, client),
            dask_hpc.manage(client, self.policy) as manager,
        ):
            yield client, manager

    def _say_corridor(self, manager: Any, steps: Any) -> None:
        """The first one holds from now on, and what comes after is announced."""
        said = [
            {
                "at": f"{self.zero + share * self.seconds:.2f}s",
                "lower": write_quantity(lower, "W"),
                "upper": write_quantity(upper, "W"),
            }
            for share, lower, upper in steps
        ]
        manager.set(**{"power.schedule": said})
        self.band += [(share * self.seconds, lower, upper) for share, lower, upper in steps]

    def _observe(self, manager: Any, futures: list[Future]) -> None:
        self.look(manager)
        self.tally.done = sum(future.done() for future in futures)
        power = self.status["power"]
        if power is None:
            return
        upper = inf if power["upper"] is None else power["upper"]
        point = Point(power["time"] - self.zero, power["watts"], power["lower"], upper, power["forecast"])
        if point.time >= 0 and (not self.points or point.time > self.points[-1].time):
            self.points.append(point)
            self.violations = power["violations"]

    def _finish(
        self,
        client: Client,
        manager: Any,
        futures: list[Future],
        diary: Path,
        update: Callable[[], None],
    ) -> None:
        """The corridor is lifted, what is left runs to its end, and every result is looked at."""
        limit = monotonic() + 30 + self.seconds
        manager.set(**{"power.schedule": None})
        while not all(future.done() for future in futures):
            if monotonic() > limit:
                self.failure = "The jobs did not end."
                return
            self.look(manager)
            self.tally.done = sum(future.done() for future in futures)
            update()
            sleep(0.1)
        numbers = [number for piece in PIECES for number in range(piece.tasks(self.unit))]
        self.failure = self.tally.check(futures, numbers, diary)
