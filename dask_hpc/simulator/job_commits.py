"""Jobs that commit on a machine: between a job's steps, its events and the shared file system.

A commit that the job waits for is a step of the job like any other, taken before its next one; a job that
proceeds steadily is stopped for it in the middle of its work, one with phases between two tasks. Any other
commit is an owner of transfers of its own, and the job knows nothing of it.

How commits to partners go is the policy's matter, if it has a strategy for checkpoints: as many agents as it
says, on the nodes that it says, which need not be idle, fetch the part of each of the job's nodes. What that
takes is ``platform.Costs``: the model of ``simulator.checkpoint``, but that a commit is as fast to its end as
what others do lets it be when it sets out. Without a strategy each node has the next one as its partner.

Copies go to another of the machine's outermost parts, where it has several. On a machine whose network is
known commits share it with jobs and with each other: one is slower by what it gets of its demand when it sets
out (``NetworkPace``), and others are by what it sends until it is over. What commits are planned with is what
one would take if it set out now.

Deviation from a live cluster: the part of a node is one piece, so that a job has at most as many agents as
nodes (000, 7.2.1). How long it will go on is known as a loop that has an end knows it.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import cycle, islice, pairwise
from math import inf

from dask_hpc.model.story import Happening
from dask_hpc.planning.interval import Pattern, young
from dask_hpc.planning.network.demands import Traffic
from dask_hpc.simulator.execution import Steady
from dask_hpc.simulator.network_pace import NetworkPace
from dask_hpc.simulator.platform import Failures, Platform
from dask_hpc.simulator.service import Companion, Life, MachineService, Site
from dask_hpc.simulator.workload import DeclaredCheckpoint, LevelName
from dask_hpc.strategies.checkpoint.agent_rule import served
from dask_hpc.strategies.checkpoint.agents import AgentNode, ItemAgents
from dask_hpc.strategies.checkpoint.when import LevelCost, When, commits_left, until_end, when

_MOST = 10_000  # commits to one level before one to the next
_CHEAPEST = 0.01  # seconds of a commit that is planned with
_RAREST, _COMMONEST = 1e-6, 0.9  # of all failures, that need the last level
_ROOM = 1e18  # bytes of copies that a node can keep: machines do not say, and the emptiest come first
_RECENT = 60.0  # seconds in which an agent counts as one that has just joined


def _partners(platform: Platform) -> dict[str, str]:
    """Of each node that of the same number in the next of the machine's outermost parts, if there are any."""
    parts: dict[str, list[str]] = {}
    for node in platform.node_list():
        parts.setdefault(node.place[0] if node.place else "", []).append(node.name)
    if len(parts) < 2:
        return {}
    following = dict(pairwise([*parts, next(iter(parts))]))
    return {
        name: parts[following[part]][number % len(parts[following[part]])]
        for part, names in parts.items()
        for number, name in enumerate(names)
    }


def failure_rate(failures: Failures | None, nodes: int) -> float:
    """Of one node, per second, as far as it is known beforehand; ``nodes`` is how many the machine has."""
    if failures is None:
        return 0.0
    if failures.trace:
        last = max(time for time, _ in failures.trace)
        return len(failures.trace) / nodes / last if last else 0.0
    return 1 / failures.mtbf


def pattern_for(
    checkpoint: DeclaredCheckpoint,
    platform: Platform,
    nodes: int,
    left: float = inf,
    partner: float | None = None,
    rate: float | None = None,
    longer: Mapping[LevelName, float] | None = None,
) -> Pattern | None:
    """The order of its commits on so many nodes, with so many seconds left; None: never. ``partner`` is what
    one to partners takes, if it is not each node's to the next; ``rate`` is that of failures, if somebody
    knows it already; ``longer`` is how many times as long as alone one takes to each level."""
    levels = len(checkpoint.levels)
    if not isinstance(checkpoint.every, str):
        return Pattern(checkpoint.every, (0,) * (levels - 1))
    if rate is None:
        rate = failure_rate(platform.failures, platform.nodes)
    costs = _costs(checkpoint, platform, nodes, partner, rate, longer or {})
    if not costs:
        return None
    every = list(until_end(_endless(checkpoint.every, costs, nodes), costs, nodes, left).every.values())
    if every[0] == inf:
        return None
    # every so-many-th goes one level further
    counts = tuple(max(0, round(min(above / below, _MOST)) - 1) for below, above in pairwise(every))
    return Pattern(every[0], counts)


@lru_cache(4096)
def _endless(rule: str, costs: tuple[LevelCost, ...], nodes: int) -> When:
    """What the live service would plan."""
    return when(rule, costs, nodes)


def _costs(
    checkpoint: DeclaredCheckpoint,
    platform: Platform,
    nodes: int,
    partner: float | None,
    rate: float,
    longer: Mapping[LevelName, float],
) -> tuple[LevelCost, ...]:
    """None if nothing ever fails."""
    if not rate:
        return ()
    # of a commit to each level alone, when nobody else uses the file system
    rates = {"partner": platform.way, "store": platform.file_system_rate(nodes, is_read=False)}
    quiet = {level: checkpoint.nbytes / nodes / rates[level] for level in checkpoint.levels}
    if partner is not None and "partner" in quiet:
        quiet["partner"] = partner
    seconds = [max(_CHEAPEST, one * longer.get(level, 1.0)) for level, one in quiet.items()]
    needs = [rate]
    if len(seconds) == 2:
        # Both copies of a part are gone if a neighbour fails as well before the next commit.
        both = 2 * rate * (young(seconds[0], nodes * rate) + seconds[0])
        needs.append(rate * min(_COMMONEST, max(_RAREST, both)))
        needs[0] -= needs[1]
    return tuple(
        LevelCost(level, one, need)
        for level, one, need in zip(checkpoint.levels, seconds, needs, strict=True)
    )


@dataclass(slots=True)
class Kept:
    """A commit that is complete on one level."""

    done: float
    #: where its copies lie, for partners: each part on its node and on that node's partner
    partners: Mapping[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


@dataclass(slots=True)
class CommitsOfJob:
    """Commits that are complete, seconds of standing still for them and for reading them back, and bytes."""

    commits: int = 0
    seconds: float = 0.0
    nbytes: float = 0.0


class CommitsOfJobs(dict[int, CommitsOfJob]):
    """Of one run of a machine, by the rows of its jobs."""


class CommitDesk(MachineService):
    """Where jobs commit. ``network`` is the machine's, if it is known."""

    def __init__(self, network: NetworkPace | None = None) -> None:
        self.network = network
        self._partners: Mapping[str, str] = {}
        #: of all jobs that are not through, by name
        self.known: dict[str, JobCommits] = {}
        #: nodes, as often as they have an agent that is at work now
        self.at_work: Counter[str] = Counter()
        #: when agents of which job came where
        self._joined: deque[tuple[float, str, JobCommits]] = deque()

    def nodes_for(self, one: "JobCommits") -> list[AgentNode]:
        """All nodes as a rule for agents sees them, without what this job has there."""
        now = self.site.indices.now
        while self._joined and self._joined[0][0] < now - _RECENT:
            self._joined.popleft()
        joined = Counter(node for _, node, whose in self._joined if whose is not one)
        agents: Counter[str] = Counter()
        used: dict[str, float] = defaultdict(float)
        traffic: dict[str, float] = defaultdict(float)
        commits: dict[str, float] = defaultdict(float)
        for other in self.known.values():
            if other is not one and other.agents:
                nbytes, rate = other.brings
                for node in other.agents:
                    agents[node] += 1
                    used[node] += nbytes
                    traffic[node] += nbytes * rate
                    commits[node] += rate
        link = self.site.platform.link
        return [
            AgentNode(
                name, _ROOM, used[name], traffic=traffic[name], link=link, commits=commits[name],
                watts=node.active_power, agents=agents[name], joined=joined[name],
                domain=self.site.indices.part_of(name),
            )
            for name, node in self.site.indices.nodes.items()
        ]  # fmt: skip

    def partners_of(self, nodes: Sequence[str]) -> dict[str, str]:
        """Of each of these nodes the one that keeps its part: in another of the machine's outermost parts,
        where it has several, else the next."""
        count = self.site.platform.nodes
        return {one: self._partners.get(one) or str((int(one) + 1) % count) for one in nodes}

    def domains_of(self, nodes: Sequence[str]) -> frozenset[str]:
        """What fails together with these nodes."""
        return frozenset(map(self.site.indices.part_of, nodes))

    def come(self, whose: "JobCommits", nodes: Counter[str]) -> None:
        """Agents of a job have come to these nodes."""
        self._joined.extend((self.site.indices.now, node, whose) for node in nodes.elements())

    def begin(self) -> None:
        record = self.site.record
        platform = self.site.platform
        self.failure_rate = failure_rate(platform.failures, platform.nodes)
        self._partners = _partners(platform)
        self.written = None if record is None else record.find(CommitsOfJobs) or record.add(CommitsOfJobs())

    def accompany(self, life: Life) -> Companion | None:
        checkpoint = life.arrival.checkpoint
        if checkpoint is None:
            return None
        commits = self.known[life.arrival.job.id] = JobCommits(life, checkpoint, self)
        return commits

    def node_failed(self, node: str) -> None:
        """Copies on it are gone, also those of jobs that wait."""
        for commits in self.known.values():
            commits.lost(node)


class JobCommits(Companion):
    """Of one job. Work is counted in shares, as executions do."""

    def __init__(self, life: Life, checkpoint: DeclaredCheckpoint, desk: CommitDesk) -> None:
        self._life, self._checkpoint, self._desk = life, checkpoint, desk
        self._site: Site = desk.site
        self._pattern: Pattern | None = None
        #: waits for the job to come to where it can stand still
        self._is_due = False
        #: has to be read back before the job goes on
        self._is_restoring = False
        #: that what is on its way still goes to, or comes from
        self._levels: list[LevelName] = []
        self._is_moving = False
        self._number = 0
        #: when it set out, with which share of the work, and from where
        self._began = 0.0
        self._done = 0.0
        self._nodes: tuple[str, ...] = ()
        #: nodes that failed meanwhile
        self._failed: set[str] = set()
        self._kept: dict[LevelName, Kept] = {}
        #: whether the job stops once a commit is complete
        self._is_last = False
        #: if the policy has a rule for agents: what it remembers, where they are, how many there could be
        self._item: ItemAgents | None = None
        self.agents: tuple[str, ...] = ()
        self._most = 1
        self._is_first = True
        #: for which of its nodes they were chosen
        self._chosen_for: frozenset[str] = frozenset()
        #: where a commit that is on its way goes from each node, how long that takes, and who works for it
        self._serving: dict[str, str] = {}
        self._takes = 0.0
        self._working: Counter[str] = Counter()

    # what there is

    @property
    def saved(self) -> float:
        """The share of the work that need not be done again."""
        return max((kept.done for kept in self._kept.values()), default=0.0)

    @property
    def at_partners(self) -> float:
        """Bytes of it that others keep."""
        return self._checkpoint.nbytes if "partner" in self._kept else 0.0

    def lost(self, node: str) -> None:
        """A node failed, with the copies that lay there."""
        self._failed.add(node)
        kept = self._kept.get("partner")
        if kept is not None:
            kept.failed.add(node)
            if any(one in kept.failed and other in kept.failed for one, other in kept.partners.items()):
                del self._kept["partner"]
        life, saved = self._life, self.saved
        if life.execution is None and saved < life.done:
            if self._site.record is not None:
                work = life.arrival.runtime * life.arrival.job.nodes
                self._site.record.detail(life.row).lost += (life.done - saved) * work
            life.done = saved

    # what the job does

    def begin(self, now: float) -> None:
        self._number = 0
        self.resized()
        self._is_restoring = self.saved > 0
        if not self._is_restoring:
            self._expect_next(now)

    def resized(self) -> None:
        rule, nodes = self._site.policy.checkpoint, len(self._held)
        if rule is not None and self._item is not None:
            self._remember(rule.resized(self._item, nodes))
        self._plan()

    def _plan(self) -> None:
        nodes, platform, partner = len(self._held), self._site.platform, None
        execution = self._life.execution
        left = inf if execution is None else execution.left(self._site.indices.now)
        if self.agents:
            each, speed = self._checkpoint.nbytes / nodes, min(platform.agents.agent, platform.way)
            partner = -(-nodes // len(self.agents)) * (each / speed + platform.agents.setup(each, speed))
        rate = self._desk.failure_rate
        longer = {level: self._longer(level) for level in self._checkpoint.levels if self._desk.network}
        self._pattern = pattern_for(self._checkpoint, platform, nodes, left, partner, rate, longer)

    def goes_first(self, now: float) -> bool:
        life = self._life
        assert life.execution is not None
        is_under_way = self._stops_the_job
        if not (is_under_way or self._is_restoring or self._is_due):
            return False
        if not is_under_way and isinstance(life.execution, Steady):
            life.execution.stand_still(now)
        if is_under_way:
            self._step_over(now)
        elif self._is_restoring:
            # the newest one, from where that is quickest
            self._set_out(now, [max(self._kept, key=lambda at: (self._kept[at].done, at == "partner"))])
        else:
            self._begin_commit(now, life.execution.reached(now))
        return self._goes_on(now, life)

    def woken(self, now: float) -> None:
        """A commit is due, or one that nobody waits for has come to its next level."""
        life = self._life
        if self._pattern is None:
            return
        assert life.execution is not None
        if self._is_moving:
            self._step_over(now)
            self._goes_on(now, self)
        elif self._checkpoint.asynchronous:
            self._begin_commit(now, life.execution.done(now))
            self._goes_on(now, self)
        else:
            self._is_due = True
            # one that stands still already is asked again when it goes on
            if isinstance(life.execution, Steady) and not life.execution.stands_still:
                life.version += 1
                self._site.step_at(now, life)

    def keeps_first(self, now: float, at_once: bool) -> bool:
        if self._pattern is None or self._is_restoring or (self._pattern.work == inf and not at_once):
            return False
        self._is_last = True
        if at_once and not self._is_moving:  # one that is on its way is as good
            self.version += 1
            self._site.wake_at(now, self)
        return True

    def interrupted(self, now: float) -> None:
        if self._stops_the_job:
            self._account(now)
            self._site.file_system.abandon(now, self._life)
            self._drop()

    def last_commit(self, now: float) -> float:
        """To its last level, as long as that takes when nobody else uses the file system."""
        self._nodes, self._failed = self._held, set()
        platform, nodes, level = self._site.platform, len(self._nodes), self._checkpoint.levels[-1]
        rate = platform.way
        if level == "store":
            rate = platform.file_system_rate(nodes, is_read=False)
        return self._checkpoint.nbytes / nodes / rate * self._longer(level)

    def committed(self, done: float) -> None:
        level = self._checkpoint.levels[-1]
        partners = self._desk.partners_of(self._nodes) if level == "partner" else {}
        self._kept[level] = Kept(done, partners, set(self._failed))
        if (written := self._written) is not None:
            written.commits += 1
            written.nbytes += self._checkpoint.nbytes

    def stopped(self, now: float) -> float:
        self.interrupted(now)
        self._site.file_system.abandon(now, self)
        self._drop()
        self.version += 1
        self._is_due = self._is_restoring = False
        return self.saved

    def finished(self, now: float) -> None:
        self.stopped(now)
        self._desk.known.pop(self._life.arrival.job.id, None)

    # what is on its way

    @property
    def _held(self) -> tuple[str, ...]:
        return self._site.indices.running[self._life.arrival.job.id].nodes

    @property
    def _stops_the_job(self) -> bool:
        """Whether something is on its way that the job waits for."""
        return self._is_moving and (self._is_restoring or not self._checkpoint.asynchronous)

    def _expect_next(self, now: float) -> None:
        """One that takes longer than the interval is followed by the next at once."""
        if self._pattern is None:
            return
        due = now + self._pattern.work
        if self._checkpoint.asynchronous and self._number:
            due = max(now, self._began + self._pattern.work)
        if due < inf:
            self.version += 1
            self._site.wake_at(due, self)

    def _begin_commit(self, now: float, done: float) -> None:
        self._is_due = False
        self._plan()
        if self._pattern is None:  # there is too little left for any
            return
        self._number += 1
        self._done, self._failed = done, set()
        upto = self._pattern.level(self._number)
        self._set_out(now, self._checkpoint.levels[: upto + 1])

    def _set_out(self, now: float, levels: Sequence[LevelName]) -> None:
        self._is_moving, self._began, self._nodes = True, now, self._held
        self._levels = list(levels)

    def _goes_on(self, now: float, owner: "Life | JobCommits") -> bool:
        """With a commit that the job waits for, if it is the owner, or nobody; whether that takes time."""
        site, nodes = self._site, len(self._nodes)
        while self._levels:
            each = self._checkpoint.nbytes / nodes
            if self._levels[0] == "store":
                seconds, each = 0.0, each * self._on_the_way("store")
            else:
                seconds = self._to_partners()
            if owner is self:
                self.version += 1
            if self._levels[0] == "store" and each > 0:
                is_read = self._is_restoring
                site.file_system.begin(now, owner, nodes, each, owner.version, is_read=is_read)
                return True
            if self._levels[0] != "store" and seconds > 0:
                if isinstance(owner, Life):
                    site.step_at(now + seconds, owner)
                else:
                    site.wake_at(now + seconds, owner)
                return True
            self._step_over(now)
        self._is_moving = self._is_restoring = False
        execution = self._life.execution
        if owner is not self and isinstance(execution, Steady):
            execution.begin(now, execution.nodes)
        self._expect_next(now)
        return False

    def _step_over(self, now: float) -> None:
        """One more level has it."""
        level = self._levels.pop(0)
        self._rest()
        if not self._is_restoring:
            partners = self._serving if level == "partner" else {}
            self._kept[level] = Kept(self._done, partners, set(self._failed))
            if level == "partner":
                self._arrived(now)
            if (written := self._written) is not None:
                written.nbytes += self._checkpoint.nbytes
                written.commits += not self._levels
        if not self._levels:
            self._account(now)
            if self._is_last:
                self._is_last = False
                self._site.stop_after(now, self._life)

    def _drop(self) -> None:
        """The job was stopped or resized in the middle of it. A commit is due again."""
        if self._is_moving and not self._is_restoring:
            self._number -= 1
            self._is_due = not self._checkpoint.asynchronous
        self._is_moving = False
        self._levels.clear()
        self._rest()

    # the network

    def _on_the_way(self, level: LevelName) -> float:
        """A commit to that level sets out, or comes back from there: how many times as long as alone it
        takes, as things are now."""
        network = self._desk.network
        traffic = self._sends(level, self._nodes, self._serving)
        if network is None or traffic is None:
            return 1.0
        return 1.0 / network.set_out(self._life.arrival.job.id, traffic, self._stops_the_job)

    def _longer(self, level: LevelName) -> float:
        """How many times as long as alone a commit to that level would take if it set out now."""
        network, held = self._desk.network, self._held
        partners = served(held, self.agents) if self.agents else self._desk.partners_of(held)
        traffic = self._sends(level, held, partners)
        if network is None or traffic is None:
            return 1.0
        stands_still = not self._checkpoint.asynchronous
        return 1.0 / network.theta_of(self._life.arrival.job.id, traffic, stands_still)

    def _sends(self, level: LevelName, nodes: Sequence[str], partners: Mapping[str, str]) -> Traffic | None:
        """What goes over the network for a commit; None if nobody knows over which links."""
        network, platform = self._desk.network, self._site.platform
        if network is None or (level == "store" and not network.topology.service):
            return None
        if level == "store":
            rate = platform.file_system_rate(len(nodes), is_read=self._is_restoring)
            return Traffic(tuple(nodes), "store", rate, restart=self._is_restoring)
        if self._is_restoring:
            to = list(islice(cycle(self._kept["partner"].partners.values()), len(nodes)))
        else:
            to = [partners[one] for one in nodes]
        # an agent takes one part after the other
        rate = min(platform.agents.agent, platform.way) if self.agents else platform.way
        most = max(Counter(to).values())
        return Traffic(tuple(nodes), "partner", rate / most, restart=self._is_restoring, partners=tuple(to))

    # agents

    @property
    def brings(self) -> tuple[float, float]:
        """Of one of its agents: bytes of a commit, and commits per second."""
        return self._checkpoint.nbytes / len(self.agents), 1 / self._pattern.work if self._pattern else 0.0

    def _to_partners(self) -> float:
        """Seconds of a commit to partners, or back from them, that sets out now."""
        platform, nodes = self._site.platform, self._nodes
        each = self._checkpoint.nbytes / len(nodes)
        if self._site.policy.checkpoint is None:
            self._serving = self._desk.partners_of(nodes)
            return each / platform.way * self._on_the_way("partner")
        costs, changing = platform.agents, 0.0
        if not self._is_restoring:
            changing = self._choose()
            self._serving = served(nodes, self.agents)
        self._working = Counter(self.agents)
        self._desk.at_work += self._working
        longer = self._on_the_way("partner")
        if self._is_restoring:
            kept = self._kept["partner"].partners
            return self._moving(Counter(kept.values()), self._checkpoint.nbytes / len(kept) * longer, 0.0)
        setup = costs.setup(each, platform.way, 1, self._is_first)
        moving = self._moving(Counter(self._serving.values()), each * longer, setup)
        self._takes = costs.message + each / costs.copy + moving
        return changing + self._takes

    def _moving(self, parts: Counter[str], each: float, setup: float) -> float:
        """Seconds until so many parts of so many bytes have come to, or from, the agents on these nodes.
        Those on one node share its link."""
        platform, at_work, agents = self._site.platform, self._desk.at_work, Counter(self.agents)
        slowest = 0.0
        for node, count in parts.items():
            rate = min(platform.agents.agent, platform.way / max(1, at_work[node]))
            of_one = -(-count // max(1, agents[node]))
            slowest = max(slowest, of_one * (setup + each / rate))
        return slowest

    def _choose(self) -> float:
        """Its agents for this commit, as the policy says. What a change of them takes."""
        rule = self._site.policy.checkpoint
        assert rule is not None
        held, up = frozenset(self._held), self._site.indices.nodes
        domains = self._desk.domains_of(self._held)
        item = self._item
        count = 0 if item is None else max(1, min(item.agents, self._most))
        stays = held == self._chosen_for and all(one in up for one in self.agents)
        if stays and count == len(self.agents):
            return 0.0
        seen = self._desk.nodes_for(self)
        self._most = max(1, min(len(held), len(rule.slots(len(held), seen, 0.0, domains))))
        if item is None:
            item = self._item = rule.first(len(held), self._most, seen, domains)
        count = max(1, min(item.agents, self._most))
        found = rule.slots(count, seen, self._checkpoint.nbytes / count, domains)
        if not found:  # others have all that nodes may have
            found = rule.slots(1, [replace(one, agents=0) for one in seen], 0.0, domains)
        before, self.agents = self.agents, tuple(found)
        if held == self._chosen_for and Counter(found) == Counter(before):
            return 0.0
        new = Counter(found) - Counter(before)
        self._desk.come(self, new)
        self._chosen_for, self._is_first = held, True
        return self._site.platform.agents.changing(new.total(), len(found), len(held))

    def _arrived(self, now: float) -> None:
        """All of a commit is with its agents."""
        rule, item = self._site.policy.checkpoint, self._item
        if rule is None or item is None:
            return
        is_usual = not self._is_first or self._site.platform.agents.registering == 1.0
        self._is_first = False
        if is_usual:
            left = self._commits_left(now)
            self._remember(rule.committed(item, len(self.agents), self._takes, self._most, left))

    def _commits_left(self, now: float) -> float:
        """After this one; a job ends without."""
        execution, pattern = self._life.execution, self._pattern
        if execution is None or pattern is None:
            return inf
        return max(0.0, commits_left(execution.left(now), pattern.work) - 1)

    def _remember(self, item: ItemAgents) -> None:
        before, self._item = self._item, item
        if before is not None and before.agents != item.agents:
            indices, job = self._site.indices, self._life.arrival.job.id
            happening = Happening(indices.revision, indices.now, "agents", job, (), item.why)
            self._site.story.tell(happening)

    def _rest(self) -> None:
        """Its agents are at work no longer."""
        self._desk.at_work -= self._working
        self._working = Counter()
        if self._desk.network is not None:
            self._desk.network.arrived(self._life.arrival.job.id)

    def _account(self, now: float) -> None:
        if (written := self._written) is not None and self._stops_the_job:
            written.seconds += now - self._began

    @property
    def _written(self) -> CommitsOfJob | None:
        written = self._desk.written
        return None if written is None else written.setdefault(self._life.row, CommitsOfJob())
