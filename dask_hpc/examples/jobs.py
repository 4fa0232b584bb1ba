"""Jobs of short tasks on a small cluster: five that compete while nodes are held, leave and come, and three
that change size so that power stays between two bounds, which move.

Workers import this module with the first task: what they do not need is imported where it is used.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, ClassVar, NamedTuple

import dask
import numpy as np
from distributed import Client, Future

from dask_hpc import Policy
from dask_hpc.examples import Example, small_cluster
from dask_hpc.model.job import Job, is_over
from dask_hpc.model.units import count_nodes, show_duration, write_quantity

TASK = 0.25  # seconds
_RESULT = 12_500  # numbers, 100 kB: enough for a lost one to matter


def asked(name: str, nodes: int, most: int = 0, **more: Any) -> Job:
    """A rigid job, or one of one node and more."""
    sizes: dict[str, Any] = {"kind": "malleable", "min_nodes": 1, "max_nodes": most} if most else {}
    return Job(id=name, nodes=nodes, **sizes, **more)


def work(name: str, number: int, diary: str) -> np.ndarray:
    """One task: a quarter of a second on one core. Each time it runs, it writes a line."""
    with open(diary, "a") as file:
        file.write(f"{name} {number}\n")
    sleep(TASK)
    return np.full(_RESULT, number, dtype="i8")


def warm_up(client: Client) -> None:
    """Workers import what tasks need before time counts."""
    client.run(work, "", 0, os.devnull)


class Event(NamedTuple):
    """Something to do at its time, in units. What is said of it is for the reader."""

    at: float
    do: Callable[[], Any]
    what: str = ""


class JobsExample(Example):
    """Submits jobs, does what else is to be done, each at its time, and checks every result."""

    #: each with its work on one node; all times are in units, of which there are so many
    given: ClassVar[Sequence[tuple[Job, float]]]
    units: ClassVar[float]

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__(policy)
        self.seconds, self.unit = float(seconds), seconds / self.units
        #: by its name, in seconds, and the number of its tasks
        self.jobs = {
            one.id: replace(one, submitted=one.submitted * self.unit, walltime=one.walltime * self.unit)
            for one, _ in self.given
        }
        self.tasks = {one.id: max(1, round(work * self.unit / TASK)) for one, work in self.given}
        #: tasks that are done, those whose results are right, and how often any was executed: as often as
        #: there are tasks, if nothing was lost on the way
        self.done = self.right = self.executed = 0
        #: what was done to the cluster, and when
        self.events: list[tuple[float, str]] = []

    @property
    def submitted(self) -> int:
        """Tasks there are."""
        return sum(self.tasks.values())

    def run(self, client: Client, manager: Any, events: list[Event]) -> Iterator[None]:
        """Until everything is done and every job has ended."""
        futures: list[Future] = []
        with TemporaryDirectory() as folder:
            diary = Path(folder, "diary.txt")
            submit = [
                Event(one.submitted, partial(self._submit, client, self.jobs[one.id], diary, futures))
                for one, _ in self.given
            ]
            todo = sorted([*submit, *events], key=lambda event: event.at)
            began, limit = monotonic(), 2 * self.seconds + 30
            while todo or self.done < len(futures):
                now = monotonic() - began
                if todo and now >= todo[0].at * self.unit:
                    event = todo.pop(0)
                    event.do()
                    self.events += [(now, event.what)] if event.what else []
                elif now > limit:
                    self.failure = f"The jobs did not end within {limit:.0f} s."
                    return
                self.done = sum(future.done() for future in futures)
                self.look(manager)
                yield
                sleep(0.1)
            self._check(futures, diary)

    def tally(self) -> str:
        """What became of the tasks, in words."""
        return (
            f"every result checked: {self.submitted - self.right} lost or wrong, "
            f"{self.executed - self.submitted} executed twice"
        )

    def _submit(self, client: Client, one: Job, diary: Path, futures: list[Future]) -> None:
        from dask_hpc import job

        count = self.tasks[one.id]
        sizes = {"nodes": one.nodes, "min_nodes": one.min_nodes, "max_nodes": one.max_nodes}
        with job(one.id, **sizes, walltime=one.walltime, priority=one.priority):
            futures += client.map(work, [one.id] * count, range(count), [str(diary)] * count, pure=False)

    def _check(self, futures: list[Future], diary: Path) -> None:
        numbers = [number for count in self.tasks.values() for number in range(count)]
        found = zip((future.result() for future in futures), numbers, strict=True)
        self.right = sum(bool((array == number).all()) for array, number in found)
        self.executed = len(diary.read_text().splitlines())
        if self.right != self.submitted:
            self.failure = f"Wrong results: {self.right} of {self.submitted} are right."
        elif self.executed != self.submitted:
            self.failure = f"{self.submitted} tasks were executed {self.executed} times."


class Competition(JobsExample):
    """Five jobs on four nodes: predicted first, then run while a node is held, one leaves and one comes."""

    NODES = 4
    given = (
        (asked("climate", 4, most=4, walltime=130), 300),
        (asked("genomics", 1, most=2, submitted=10, walltime=90), 60),
        (asked("urgent", 2, submitted=40, walltime=40, priority=10), 50),
        (asked("plots", 1, submitted=60, walltime=40), 25),
        (asked("training", 2, most=4, submitted=75, walltime=60, priority=5), 80),
    )
    units = 140.0
    panels = (("nodes",), ("waiting",), ("latest",), ("tasks",))
    at_end = ("comparison", "summary")
    sections = ("held", "events", "predicted", "comparison", "story", "policy")

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__(policy, seconds)
        self.predicted = self._predict()
        self.title = f"{len(self.jobs)} jobs on four nodes under {policy.name}"
        self.opening = f"Four nodes, {len(self.jobs)} jobs, policy [bold]{policy.name}[/]."

    def lead(self) -> str:
        """With what became of it."""
        return f"A run of dask-hpc demo on a live Dask cluster. {self.summary()[0]}"

    def play(self) -> Generator[None, None, None]:
        """Four nodes, until the last job has ended."""
        from dask_hpc import malleable

        with (
            small_cluster(self.NODES) as (cluster, client),
            malleable(cluster, policy=self.policy) as manager,
        ):
            warm_up(client)
            self.zero = manager.status()["time"]
            held: list[str] = []

            def hold() -> None:
                held.extend(self._may_be_held())
                manager.hold(held)

            fewer = self.NODES - 1
            disturbances = [
                Event(22, hold, "a node is held: it starts nothing more"),
                Event(32, lambda: manager.release(held), "the hold ends"),
                Event(92, lambda: cluster.scale(fewer), f"the cluster shrinks to {count_nodes(fewer)}"),
                Event(
                    106, lambda: cluster.scale(fewer + 1), f"the cluster grows to {count_nodes(fewer + 1)}"
                ),
            ]
            yield from self.run(client, manager, disturbances)
            self._wait_for_the_last(manager)
            yield

    def summary(self) -> list[str]:
        """What became of the tasks."""
        return [
            f"{self.done} of {self.submitted} tasks done in {show_duration(self.now)}, {self.tally()}; "
            f"{self.count('shrink')} shrinks and {self.count('grow')} growths on the way."
        ]

    def comparison(self) -> list[tuple[str, ...]]:
        """Of each job: name, nodes, priority, submitted, started, predicted to, ended, sizes it had."""
        predicted = self.predicted.jobs.set_index("id")["start"]

        def clock(time: float | None) -> str:
            return "-" if time is None else f"{time - self.zero:.1f} s"

        def sizes(job: str) -> Iterator[str]:
            for row in self.story:
                if row["job"] == job and row["decision"] in ("start", "grow", "shrink"):
                    yield str(len(row["nodes"]))

        return [
            (
                row["name"],
                f"{row['min_nodes']}-{row['max_nodes']}" if row["kind"] == "malleable" else str(row["asks"]),
                f"{self.jobs[row['name']].priority:g}",
                clock(row["submitted"]),
                clock(row["started"]),
                f"{predicted[row['name']]:.1f} s",
                clock(row["ended"]),
                ", ".join(sizes(row["id"])),
            )
            for row in self.status["jobs"]
        ]

    def _predict(self) -> Any:
        from dask_hpc.simulator import Arrival, Workload, simulate

        arrivals = [Arrival(one, self.tasks[one.id] / one.nodes * TASK) for one in self.jobs.values()]
        return simulate(Workload("demo", arrivals), self.NODES, self.policy, allotments=True)

    def _may_be_held(self) -> list[str]:
        """The workers of a node whose job has others to go on with."""
        sizes = [row["nodes"] for row in self.status["jobs"] if row["state"] == "running"]
        largest = max(sizes, key=len, default=self.nodes)
        return [worker for worker, node in self.places.items() if node == largest[-1]]

    def _wait_for_the_last(self, manager: Any) -> None:
        """Results arrive a moment before the story says that their job has ended."""
        limit = monotonic() + 5
        while monotonic() < limit:
            self.look(manager)
            if sum(is_over(row["state"]) for row in self.status["jobs"]) == len(self.jobs):
                return
            sleep(0.05)
        self.failure = self.failure or "Not every job was started and ended by the policy; see the story."


class PowerPoint(NamedTuple):
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


class MovingCorridor(JobsExample):
    """Three malleable jobs share six nodes whose power is to stay in a corridor that moves twice.

    No sensor is read: workers are given made-up watts by how busy they are."""

    NODES = 6
    given = (
        (asked("climate", 3, most=3, walltime=90), 62),
        (asked("genomics", 2, most=3, submitted=1, walltime=90), 50),
        (asked("training", 2, most=3, submitted=12, walltime=90), 28),
    )
    units = 30.0
    #: (unit, lower, upper): at first there is room for two to four of the nodes to work, then for one or two,
    #: then for four or five. The first two have room in common: who knows can be there in time
    STEPS = ((0.0, 620.0, 1000.0), (units / 3, 480.0, 800.0), (units * 2 / 3, 860.0, 1150.0))
    LEAD = 2.0  # seconds that a change is prepared before it comes, if it was announced
    #: watts of a node that does nothing, and how many more if it works; seconds after which it has gone 63 %
    #: of the way from one to the other; error of its sensor, as a share
    METER = {"idle": 70.0, "busy": 130.0, "lag": 0.4, "noise": 0.02, "seed": 1}
    INTERVAL = 0.25  # seconds between two readings
    #: what a change of the corridor may take: tasks that run run on, power has to follow, and has to be seen
    SETTLING = TASK + 3 * METER["lag"] + 2 * INTERVAL
    MADE_UP = "simulated power: no sensor is read"
    title = "dask-hpc demo: a power corridor that moves"
    panels = (("power",), ("sizes",), ("latest",))
    at_end = ("chart", "summary")
    sections = ("summary", "timeline", "story", "policy")

    def __init__(self, policy: Policy, seconds: float) -> None:
        dwelling = policy.with_(**{"power.dwell": "1s", "power.lead": f"{self.LEAD}s"})
        super().__init__(dwelling, seconds)
        self.opening = (
            f"{self.NODES} nodes, {len(self.jobs)} malleable jobs, policy [bold]{policy.name}[/], "
            f"{self.MADE_UP}."
        )
        self.points: list[PowerPoint] = []
        #: (from time, lower, upper) as it was, and as far as it is announced
        self.band: list[tuple[float, float, float]] = []
        #: as they were when the time was over
        self.violations = 0
        self.is_lifted = False

    def lead(self) -> str:
        """With what there was."""
        jobs = f"{len(self.jobs)} malleable jobs"
        return f"{count_nodes(len(self.nodes))}, {jobs}, a live Dask cluster; {self.MADE_UP}."

    def progress(self) -> str:
        """Of the time for which there is a corridor."""
        return f"{self.now:.0f} s of {self.seconds:.0f} s, {self.MADE_UP}"

    def play(self) -> Generator[None, None, None]:
        """Move the corridor, once announced and once not. When the time is over it is lifted, and what is
        left runs to its end."""
        from dask_hpc import manage

        settings = {
            "hpc.power-meter": {"simulated": self.METER},
            "hpc.power-interval": f"{self.INTERVAL}s",
            "hpc.power-history": None,
        }
        with (
            dask.config.set(settings),
            small_cluster(self.NODES) as (_, client),
            manage(client, self.policy) as manager,
        ):
            warm_up(client)
            self.zero = round(manager.status()["time"], 2)
            self._announce(manager, *self.STEPS[:2])
            move = Event(self.STEPS[2][0], lambda: self._announce(manager, self.STEPS[2]))
            lift = Event(self.units, lambda: self._lift(manager))
            yield from self.run(client, manager, [move, lift])

    def look(self, manager: Any) -> None:
        """At power, too, while there is a corridor."""
        super().look(manager)
        if (power := self.status["power"]) is None or self.is_lifted:
            return
        upper = inf if power["upper"] is None else power["upper"]
        time = power["time"] - self.zero
        if time >= 0 and (not self.points or time > self.points[-1].time):
            self.points.append(PowerPoint(time, power["watts"], power["lower"], upper, power["forecast"]))
            self.violations = power["violations"]

    def settled(self) -> list[PowerPoint]:
        """The points that are not shortly after the beginning or a move."""
        moves = [at * self.unit for at, _, _ in self.STEPS]
        return [one for one in self.points if not any(at <= one.time < at + self.SETTLING for at in moves)]

    def for_power(self) -> list[dict[str, Any]]:
        """The rows of the story that were decided for the sake of power."""
        return [row for row in self.story if row["rule"].startswith("power:") and row["time"] >= self.zero]

    def summary(self) -> list[str]:
        """How well the corridor was kept, for which price, and what became of the work."""
        settled = self.settled()
        inside = sum(one.is_inside for one in settled)
        outside = self.INTERVAL * sum(not one.is_inside for one in self.points)
        long = {0: "never", 1: "once"}.get(self.violations, f"{self.violations} times")
        return [
            f"The corridor moved twice, once announced and once not. Power ({self.MADE_UP}) was inside in "
            f"{inside} of {len(settled)} samples ({inside / max(len(settled), 1):.0%}) after settling, for "
            f"which the start and each move have {self.SETTLING:.1f} s.",
            f"Outside for {show_duration(outside)} of {show_duration(self.seconds)} in all; {long} for "
            f"longer than a second. Shrinks: {self.count('shrink')}, growths: {self.count('grow')}.",
            f"{self.done} of {self.submitted} tasks done, {self.tally()}.",
        ]

    def _announce(self, manager: Any, *steps: tuple[float, float, float]) -> None:
        """The first one holds from now on, and what comes after is announced."""
        said = [
            {
                "at": f"{self.zero + at * self.unit:.2f}s",
                "lower": write_quantity(lower, "W"),
                "upper": write_quantity(upper, "W"),
            }
            for at, lower, upper in steps
        ]
        manager.set(**{"power.schedule": said})
        self.band += [(at * self.unit, lower, upper) for at, lower, upper in steps]

    def _lift(self, manager: Any) -> None:
        self.is_lifted = True
        manager.set(**{"power.schedule": None})
