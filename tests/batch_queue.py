"""A simulated batch queue and the cluster on it, in seconds of its own clock, for strategies of size."""

from dataclasses import dataclass, field
from math import ceil, inf

from dask_hpc.model.cluster_view import ClusterView, Unit


@dataclass
class Submitted:
    name: str
    at: float
    starts: float
    walltime: float = inf
    boot: float = 2.0
    busy: bool = False
    dies: float = inf


@dataclass
class BatchQueue:
    """Submissions wait as a trace says, one wait after the other (the last for ever after)."""

    waits: list
    walltime: float = inf
    boot: float = 2.0
    threads: int = 1
    minimum: int = 0
    maximum: float = inf
    interval: float = 1.0
    now: float = 0.0
    work: float = 0.0
    tasks: int = 0
    task_length: float = 10.0
    units: dict = field(default_factory=dict)
    #: everything that was ever done: (time, what, unit, reason)
    deeds: list = field(default_factory=list)
    memory: object = None
    steps: int = 0
    submissions: int = 0
    plan: object = None

    def connected(self, unit):
        end = min(unit.starts + unit.walltime, unit.dies)
        return unit.starts + unit.boot <= self.now < end

    def count(self):
        """Connected and pending units."""
        there = sum(self.connected(unit) for unit in self.units.values())
        return there, len(self.units) - there

    def view(self):
        units = []
        for unit in self.units.values():
            end = min(unit.starts + unit.walltime, unit.dies)
            state = "queued" if self.now < unit.starts else "running" if self.now < end else "gone"
            units.append(
                Unit(
                    name=unit.name,
                    connected=int(self.connected(unit)),
                    state=state,
                    why="killed" if state == "gone" else "",
                    age=self.now - unit.at,
                    running_for=None if state == "queued" else self.now - unit.starts,
                    left=inf if unit.walltime == inf or state == "queued" else end - self.now,
                    is_busy=self.connected(unit) and unit.busy,
                )
            )
        return ClusterView(
            now=self.now,
            interval=self.interval,
            units=tuple(units),
            minimum=self.minimum,
            maximum=self.maximum,
            threads=self.threads,
            work=self.work,
            tasks=self.tasks,
            steps=self.steps,
        )

    def look(self, strategy):
        """One decision, carried out."""
        self.plan, self.memory = strategy.decide(self.view(), self.memory)
        for kind in ("dead", "cancel", "leave"):
            for parting in getattr(self.plan, kind):
                del self.units[parting.unit]
                self.deeds.append((self.now, kind, parting.unit, parting.reason))
        for _ in range(self.plan.submit):
            wait = self.waits[min(self.submissions, len(self.waits) - 1)]
            name = f"u{self.submissions}"
            self.units[name] = Submitted(name, self.now, self.now + wait, self.walltime, self.boot)
            self.submissions += 1
            self.deeds.append((self.now, "submit", name, self.plan.reason))
        for word in self.plan.news:
            self.deeds.append((self.now, "news", "", word))
        return self.plan

    def run(self, strategy, seconds, each=None):
        """Look every interval for so long; ``each`` is called before every look."""
        until = self.now + seconds
        while self.now < until:
            self._work()
            if each is not None:
                each(self)
            self.look(strategy)
            self.now += self.interval

    def _work(self):
        there = [unit for unit in self.units.values() if self.connected(unit)]
        slots = len(there) * self.threads
        for place, unit in enumerate(there):
            unit.busy = place * self.threads < self.tasks
        if self.work > 0 and slots:
            self.work = max(0.0, self.work - min(slots, self.tasks) * self.interval)
            self.steps += 1
        self.tasks = ceil(self.work / self.task_length)

    def done(self, *kinds):
        return [deed for deed in self.deeds if deed[1] in kinds]
