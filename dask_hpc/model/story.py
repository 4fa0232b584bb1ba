"""The story: a bounded log of plans and of what happened, so that "why?" always has an answer."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from math import inf
from typing import Any, Literal

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Plan
from dask_hpc.model.power import PowerView
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes

#: what a row does to who holds which node: the job has the nodes that it names from then on, or none; the
#: nodes that it names come, or go; a service has the nodes that it names as well; everybody leaves everything
Effect = Literal["", "has", "has too", "leaves", "come", "go", "all leave"]
#: what a decision does about power: more of it is drawn, less, or something is kept from working
Kind = Literal["more", "less", "hold", "other"]


class Word(StrEnum):
    """What a row of the story says that happened, how it is drawn, and what readers make of it."""

    sign: str
    effect: Effect
    kind: Kind

    def __new__(cls, word: str, sign: str = "·", effect: Effect = "", kind: Kind = "other") -> "Word":
        one = str.__new__(cls, word)
        one._value_, one.sign, one.effect, one.kind = word, sign, effect, kind
        return one

    # jobs
    SUBMIT = "submit", "+"
    START = "start", "▶", "has", "more"
    GROW = "grow", "▲", "has", "more"
    SHRINK = "shrink", "▼", "has", "less"
    HAND_OVER = "hand-over", "▼", "", "less"
    RESIZE = "resize", "◆"
    WINDOW = "window", "◈"
    REQUEST = "request"
    INTERRUPT = "interrupt", "■"
    REQUEUE = "requeue", "↩", "leaves"
    WITHDRAW = "withdraw", "↩", "leaves"
    CANCEL = "cancel", "✕", "leaves"
    END = "end", "■", "leaves"
    FAIL = "fail", "✗", "leaves"
    REJECT = "reject", "✕"
    DROP = "drop", "✕", "leaves"
    DEADLINE = "deadline", "◷"
    LOST = "lost", "!"
    RESCUE = "rescue", "↺"
    TASK_WAITS = "task-waits"
    IO_LIMIT = "io-limit"
    MEMORY_LANE = "memory-lane", "▥"
    TOGETHER = "together", "⇆"
    BACKUP = "backup", "⧉"
    WALLTIME = "walltime", "◷"
    OVERSTAY = "overstay", "◷"
    IGNORED = "ignored"
    # nodes
    NODE_JOINED = "node-joined", "●", "come"
    NODE_LEFT = "node-left", "○", "go"
    WORKER_ENDS = "worker-ends", "○"
    LEAVE = "leave", "○"
    RESTART = "restart", "↺"
    FAREWELL = "farewell", "○"
    DRAIN = "drain", "○"
    NOT_RETIRED = "not-retired", "!"
    SLOW_NODE = "slow-node", "◔"
    PICKED = "picked", "▤"
    MOVE = "move", "→"
    COPY = "copy", "→"
    NOT_MOVED = "not-moved", "!"
    SPREAD_WAITS = "spread-waits"
    MORE_NODES = "more-nodes", "●"
    SUBMIT_UNITS = "submit-units", "+"
    ASK = "ask", "?"
    CANCEL_UNIT = "cancel-unit", "✕"
    UNIT_LEAVES = "unit-leaves", "○"
    UNIT_DEAD = "unit-dead", "!"
    STAYS = "stays", "!"
    JOB_SCRIPT = "job-script"
    BATCH_SYSTEM = "batch-system"
    GIVE_BACK = "give-back", "○"
    BRIDGE = "bridge"
    HOLD = "hold", "‖", "", "hold"
    HOLD_ENDS = "hold-ends", "▹"
    HOLD_REFUSED = "hold-refused", "!"
    RELEASE = "release", "▹"
    # nodes for services
    NODE_QUERY = "node-query"
    NODE_ANSWER = "node-answer"
    NODE_REQUEST = "node-request", "●"
    LEND = "lend", "◉", "has too"
    TAKE_BACK = "take-back", "◎"
    RETURNED = "returned", "○", "go"
    # power
    CAP = "cap", "▽"
    CORRIDOR = "corridor", "≈"
    NEW_CORRIDOR = "new-corridor", "≈"
    CORRIDOR_REFUSED = "corridor-refused", "!"
    FORECAST = "forecast", "≈"
    POWER_DOUBT = "power-doubt", "!"
    POWER_TRUST = "power-trust", "≈"
    # in situ
    PIPELINE = "pipeline", "◧"
    PLACEMENT = "placement", "◧"
    SKIPPED = "skipped", "↷"
    RECOVERED = "recovered", "↺"
    NODES_CHANGED = "nodes-changed", "●"
    # checkpoints
    COMMIT = "commit", "⇉"
    RECOVERY = "recovery", "↺"
    AGENTS = "agents", "◉"
    IDLE_AGENT = "idle-agent", "◉"
    STORE = "store", "▤"
    DIRECT = "direct", "▤"
    INTERVAL = "interval", "◷"
    # files in memory
    FILES = "files", "▦"
    # control
    POLICY = "policy", "◇"
    PAUSE = "pause", "‖"
    RESUME = "resume", "▹"
    WARNING = "warning", "!"
    ERROR = "error", "!"
    OFF = "off", "!", "all leave"
    CLOSED = "closed", "!", "all leave"

    @classmethod
    def read(cls, decision: str) -> "Word | None":
        """The word of a row; None for one that only newer versions know."""
        return cls(decision) if decision in cls._value2member_map_ else None


_MOST = 3  # alternatives that are told; a queue of thousands is no explanation


@dataclass(frozen=True, slots=True)
class Explanation:
    """Goes with one decision of a plan. Plain data, to be sent and stored."""

    rule: str
    inputs: Mapping[str, Any]
    rejected: tuple[str, ...]

    @property
    def is_for_power(self) -> bool:
        """Whether the power strategy decided it."""
        return self.rule.startswith("power:")


def explain(snapshot: Snapshot, plan: Plan, rules: Mapping[str, str]) -> dict[str, Explanation]:
    """An explanation for every job that a plan speaks of, from the snapshot it was made from.

    ``rules`` names the strategy behind each kind of decision: start, drop, resize, request, interrupt,
    failed, lending, power.
    """
    machine = _machine(snapshot)
    power = _power(snapshot, plan) if plan.for_power else {}
    found: dict[str, Explanation] = {}
    not_started = tuple(_not_started(snapshot, plan)) if plan.starts else ()
    not_resized = tuple(_not_resized(snapshot, plan)) if plan.resizes else ()

    def add(job_id: str, rule: str, inputs: dict[str, Any], rejected: tuple[str, ...] = ()) -> None:
        inputs = machine | inputs
        if job_id in plan.for_power:
            rule, inputs = "power", inputs | power
        found[job_id] = Explanation(rules[rule], inputs, rejected)

    for start in plan.starts:
        job = snapshot.waiting[start.job]
        walltime = None if job.walltime == inf else job.walltime
        inputs = {"asks": job.nodes, "walltime": walltime, "waited": plan.time - job.submitted}
        add(job.id, "start", inputs, not_started)
    for resize in plan.resizes:
        running = snapshot.running[resize.job]
        job = running.job
        inputs = {"from": len(running.nodes), "to": resize.nodes, "min": job.min_nodes, "max": job.max_nodes}
        if job.id in snapshot.mtct:
            inputs["mtct"] = snapshot.mtct[job.id]
        rule = "failed" if plan.for_failed else "request" if job.id in snapshot.requests else "resize"
        if job.id in snapshot.lacking:
            inputs["lacks"] = snapshot.lacking[job.id]
        add(job.id, "lending" if job.id in plan.for_loans else rule, inputs, not_resized)
    for drop in plan.drops:
        job = snapshot.waiting[drop.job]
        add(
            job.id, "drop", {"asks": job.nodes, "waited": plan.time - job.submitted, "deadline": job.deadline}
        )
    for interrupt in plan.interrupts:
        add(interrupt.job, "interrupt", {"from": len(snapshot.running[interrupt.job].nodes)})
    return found


def explain_levers(snapshot: Snapshot, rules: Mapping[str, str], plan: Plan | None = None) -> Explanation:
    """Why nodes are held, capped or given back, and where the verdict on the corridor comes from."""
    inputs = _machine(snapshot) | _power(snapshot, plan)
    if plan is not None and plan.verdict is not None:
        inputs["reachable"] = (plan.verdict.lowest, plan.verdict.highest)
    rejected = () if plan is None or snapshot.power is None else tuple(_not_started(snapshot, plan))
    return Explanation(rules["power"], inputs, rejected)


def explain_loans(snapshot: Snapshot, rules: Mapping[str, str], plan: Plan) -> Explanation:
    """Why nodes are lent to services or taken back, and what these have and asked for."""
    inputs = _machine(snapshot)
    for service, known in snapshot.borrowers.items():
        inputs[service] = {
            "nodes": len(known.lent),
            "free": tuple(one.free for one in known.lent),
            "owes": known.owed,
            "asks": known.wish.count if known.wish is not None else 0,
        }
    return Explanation(rules["lending"], inputs, tuple(_not_started(snapshot, plan)))


def _machine(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "nodes": snapshot.size,
        "idle": snapshot.idle,
        "waiting": len(snapshot.waiting),
        "running": len(snapshot.running),
    }


def _power(snapshot: Snapshot, plan: Plan | None = None) -> dict[str, Any]:
    """What was known of power, in watts, and what the plan makes of it; nothing of what was not known."""
    view = snapshot.power
    if view is None:
        return {}
    found: dict[str, Any] = {"watts": view.watts, "source": view.source, "uncertainty": view.uncertainty}
    if plan is not None and plan.for_power:
        found["after"] = view.watts + _more(view, snapshot, plan)
    if snapshot.corridor is not None:
        lower, upper = snapshot.corridor.at(snapshot.now)
        found |= {"lower": lower, "upper": None if upper == inf else upper}
    if view.forecast is not None:
        found["forecast"] = tuple(view.forecast)
    if view.held:
        found["held"] = view.held
    if view.doubt:
        found["doubt"] = view.doubt
    return found


def _more(view: PowerView, snapshot: Snapshot, plan: Plan) -> float:
    """Watts that the starts and new sizes of a plan add, by the figures of their jobs."""
    changes = [(start.job, start.nodes) for start in plan.starts]
    changes += [(one.job, one.nodes - len(snapshot.running[one.job].nodes)) for one in plan.resizes]
    return sum(nodes * (view.per_node(job).most - view.idle) for job, nodes in changes)


def _lacks_power(snapshot: Snapshot, plan: Plan, job: Job) -> bool:
    """Whether the corridor is why it waits."""
    view, corridor = snapshot.power, snapshot.corridor
    if view is None or corridor is None:
        return False
    own = job.nodes * (view.per_node(job.id).most - view.idle)
    return view.watts + _more(view, snapshot, plan) + own > corridor.at(snapshot.now)[1]


def _not_started(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """The first waiting jobs that the plan leaves waiting, and whether they would have fitted."""
    started = {start.job: start.nodes for start in plan.starts}
    left = snapshot.idle - sum(started.values())
    waiting = (job for job in snapshot.waiting if job.id not in started)
    for job in islice(waiting, _MOST):
        fits = job.nodes <= left
        why = "would fit, but its turn has not come" if fits else f"{count_nodes(left)} left"
        if fits and _lacks_power(snapshot, plan, job):
            why = "power would leave its corridor"
        yield f"start {job.id} on {count_nodes(job.nodes)}: {why}"


def _not_resized(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """The first jobs that could have changed size instead."""
    resized = {resize.job for resize in plan.resizes}
    others = (running for running in snapshot.resizable if running.job.id not in resized)
    for running in islice(others, _MOST):
        job, size = running.job, count_nodes(len(running.nodes))
        yield f"resize {job.id} instead: stays at {size} of {job.min_nodes} to {job.max_nodes}"


#: what a policy decides for jobs; all else in a story brings its explanation along, or is an event
_DECIDED = frozenset({"start", "grow", "shrink", "hand-over", "interrupt"})


@dataclass(frozen=True, slots=True)
class Happening:
    """A decision carried out, or an event that led to one. ``id`` is that of the plan it came from, or
    the revision it found."""

    id: int
    time: float
    decision: str
    job: str = ""
    nodes: tuple[str, ...] = ()
    reason: str = ""
    #: why this and not another, if it was decided, but by no plan for jobs
    why: Explanation | None = None


class Story:
    """The newest plans and happenings, oldest first."""

    __slots__ = ("_explained", "_plans", "counts", "happenings")

    def __init__(self, length: int = 10_000) -> None:
        self._plans: deque[Plan] = deque(maxlen=length)
        self._explained: dict[tuple[int, str], Explanation] = {}
        self.happenings: deque[Happening] = deque(maxlen=length)
        #: how often which decision was told, including what is forgotten
        self.counts: Counter[str] = Counter()

    def add(self, plan: Plan, explained: Mapping[str, Explanation] | None = None) -> None:
        """Remember a plan, and why each of its jobs is in it, forgetting the oldest if the log is full: of
        plans, or of happenings, and none that is left tells of that plan."""
        plans, told = self._plans, self.happenings
        if plans and len(plans) == plans.maxlen:
            self._forget_oldest()
        while plans and len(told) == told.maxlen and plans[0].time < told[0].time:
            self._forget_oldest()
        plans.append(plan)
        if explained:
            self._explained.update({(plan.id, job): why for job, why in explained.items()})

    def _forget_oldest(self) -> None:
        oldest = self._plans.popleft()
        for job in oldest.jobs if self._explained else ():
            self._explained.pop((oldest.id, job), None)

    def row(self, happening: Happening) -> tuple[Any, ...]:
        """For who reads on: time, decision, job, nodes, reason, whether it was for the sake of power."""
        why, one = self.explanation(happening), happening
        return one.time, one.decision, one.job, one.nodes, one.reason, bool(why and why.is_for_power)

    def explanation(self, happening: Happening) -> Explanation | None:
        """Why that decision and not another; None of an event, or if it is forgotten."""
        if happening.decision not in _DECIDED:
            return happening.why  # an event may find the revision that a plan was made from
        return self._explained.get((happening.id, happening.job))

    def tell(self, happening: Happening) -> None:
        """Remember something that happened, forgetting the oldest if the log is full."""
        self.happenings.append(happening)
        self.counts[happening.decision] += 1

    def since(self, number: int) -> tuple[int, list[Happening]]:
        """What was told from that number on, as far as it is remembered, and the number of the first of it.

        Happenings are numbered from 0. A reader who asks next for that number plus those it got misses none.
        """
        told = self.counts.total()
        first = max(min(number, told), told - len(self.happenings))
        return first, list(islice(self.happenings, first - told + len(self.happenings), None))

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)
