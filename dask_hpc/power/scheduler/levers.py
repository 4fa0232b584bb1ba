"""The levers of power: nodes that start nothing, fewer threads, nodes that are done without.

A plan says how many nodes are to be held, and that stays so until another plan says otherwise. Which ones
is chosen here, of those that no job holds:

1. Held nodes stay held. More are taken from those that have nothing to do, then from those that will be
   done first with what they have; those that are done last are the first to work again.
2. A node is held with all its workers or not at all. What ``Holds`` refuses (the last worker that runs, or
   that may run some task; one that a shuffle needs) another node is held for, if there is one. If there
   are too few, the story says so, and ``held`` is what is held indeed.
3. A job may be given a held node; then it works again. So nodes that the user holds are withheld from
   jobs, and these are not: how many nodes jobs may have is the policy's affair, which planned the holds.
   Of so many nodes that are to start nothing, those that the user holds are the first.
4. If only held nodes may run some task, one of them works again while that task is there.
5. A held node that a shuffle borrows counts as working.

What runs is never interrupted: a held node draws power until its tasks have ended. While nodes are held, an
adaptive cluster does not grow, and nodes that a plan does without are given back as the cluster finds them
idle. When control is paused everything stays as it is; when it ends, or the policy says nothing about
power any more, all levers are let go.
"""

from collections.abc import Iterable
from math import inf

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.service import Context, Service, WorkerSetting
from dask_hpc.model.plan import Plan
from dask_hpc.model.power import Lever
from dask_hpc.model.story import Explanation, Happening
from dask_hpc.model.units import count_nodes
from dask_hpc.power.worker.caps import CapPlugin

WHY = "the power corridor"  # of holds
_NAMED = 3  # nodes that cannot be held, in the story
_MISSED = 3.0  # intervals without a word, after which a cluster object is not adapted any more


class PowerLevers(Service):
    """What is done about power beside starts and sizes, while control is on: a service beside the one that
    watches power, which hands it the plans."""

    hold_reason = WHY

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._scheduler = context.scheduler
        #: the share of their threads that workers use
        self.share = WorkerSetting(context, compat.ThreadsPlugin, 1.0)
        #: the threads that workers came with, of those that have fewer
        self._own: dict[str, int] = {}
        #: watts that each node may draw; None is as many as it can
        self.watts_of_nodes = WorkerSetting(context, CapPlugin)

    def begin(self) -> None:
        """Nothing is pulled."""
        self._holds = self.context.get(Holds)
        #: how many nodes are to be held, and those that are
        self._wanted = 0
        self._held: dict[str, None] = {}
        #: nodes that could not be held when it was tried, and still cannot
        self._refusing: set[str] = set()
        #: what the story was last told of nodes that should be held and are not
        self._short = ""
        #: how many nodes are done without, and how many there may be for that
        self.released = 0
        self._most = inf
        #: idle nodes that cluster objects could give back, by object: when it said so, for how long, how many
        self._spare: dict[str, tuple[float, float, int]] = {}

    def release(self) -> None:
        """Of everything."""
        self._wanted = 0
        self._refusing.clear()
        self._let_work(list(self._held))
        self._share_threads(1.0)
        self.watts_of_nodes.set(None)
        self._release(0)

    async def settle(self) -> None:
        """Workers have heard of it."""
        await self.share.settle()
        await self.watts_of_nodes.settle()

    def cancel(self) -> None:
        self.share.cancel()
        self.watts_of_nodes.cancel()

    def worker_joins(self, address: str) -> None:
        """It gets its share of threads."""
        own, share = self.threads_of(address), self.share.value
        if share < 1 or address in self._own:
            self._own[address] = own
            compat.set_worker_threads(self._scheduler, address, compat.share_of(own, share))
        if share >= 1:
            self._own.pop(address, None)

    def worker_leaves(self, address: str) -> None:
        self._own.pop(address, None)

    def threads_of(self, address: str) -> int:
        """Before they were capped."""
        return self._own.get(address) or self._scheduler.workers[address].nthreads

    def _share_threads(self, share: float) -> None:
        if share != self.share.value:
            self.share.set(share)
            for address in compat.workers_by_name(self._scheduler):
                self.worker_joins(address)

    def pull(self, plan: Plan, why: Explanation | None = None) -> None:
        """What a plan says is so from now on."""
        if self.context.is_dry:
            return
        if plan.hold is not None and plan.hold.nodes != self._wanted:
            self._wanted = plan.hold.nodes
            self._tell(plan, why, "hold", f"{count_nodes(self._wanted)} to be held: {plan.hold.reason}")
        if plan.cap is not None and plan.cap.threads != self.share.value:
            self._tell(plan, why, "cap", f"{plan.cap.threads:.0%} of the threads: {plan.cap.reason}")
            self._share_threads(plan.cap.threads)
        if plan.cap is not None and plan.cap.watts != self.watts_of_nodes.value:
            most = "as much as they can" if plan.cap.watts is None else f"{plan.cap.watts:.0f} W at most"
            self._tell(plan, why, "cap", f"nodes draw {most}: {plan.cap.reason}")
            self.watts_of_nodes.set(plan.cap.watts)
        if plan.release is not None and plan.release.nodes != self.released:
            self._release(plan.release.nodes)
            self._tell(plan, why, "give-back", f"{count_nodes(self.released)} less: {plan.release.reason}")
        self.keep()

    @property
    def held(self) -> int:
        """How many of the nodes that are to be held start nothing indeed."""
        return min(self._wanted, self._withheld + sum(not self._works(name) for name in self._held))

    @property
    def holdable(self) -> int:
        """How many of the nodes that no job holds can be held, as far as that was tried."""
        return self._withheld + len(self.context.indices.idle) - len(self._refusing)

    @property
    def available(self) -> frozenset[Lever]:
        """What can be done here beside starts and sizes."""
        levers: set[Lever] = {"hold"}
        if any(self.threads_of(one) > 1 for one in compat.workers_by_name(self._scheduler)):
            levers.add("threads")
        if self._adapted():
            levers.add("release")
        return frozenset(levers)

    @property
    def releasable(self) -> int:
        """How many idle nodes could be given back now."""
        return sum(spare for _, _, spare in self._adapted())

    def most_nodes(self) -> float:
        """How many nodes an adaptive cluster may have. With nodes that are held, no more than there are:
        who works for jobs that wait is another matter."""
        has_enough = self._wanted and not len(self.context.indices.waiting)
        return min(self._most, len(self.context.nodes)) if has_enough else self._most

    def gives_nodes_back(self) -> bool:
        return bool(self.released)

    def cluster_asks(self, asker: str, interval: float, spare: int) -> None:
        self._spare[asker] = (self.context.clock(), interval, spare)

    def keep(self) -> None:
        """What the last plan said is still so, whatever has happened since."""
        if not self._wanted and not self._held:
            self._refusing.clear()
            return
        free = dict.fromkeys(self.context.indices.idle)
        needed = self._needed()
        self._let_work([n for n in self._held if n not in free or n in needed or self._works(n)])
        wanted = max(0, self._wanted - self._withheld)
        if len(self._held) > wanted:
            self._let_work(sorted(self._held, key=self._backlog)[wanted:])
        self._refusing = {n for n in self._refusing if n in free and self._refusal(n)} | needed & free.keys()
        if len(self._held) < wanted:
            self._hold_more([n for n in free if n not in self._held and n not in needed], wanted)

    def nodes_given(self, nodes: tuple[str, ...]) -> None:
        """They work for the job that gets them."""
        self._let_work(nodes)

    def _let_work(self, nodes: Iterable[str]) -> None:
        for name in nodes:
            if name in self._held:
                del self._held[name]
                for address in self.context.nodes.workers(name):
                    self._holds.release(address, WHY)

    @property
    def _withheld(self) -> int:
        """Nodes of no job that others hold: the user, or because they are leaving."""
        indices = self.context.indices
        of_jobs = sum(len(running.nodes) for running in indices.running.values())
        return len(indices.nodes) - len(indices.idle) - of_jobs

    def _hold_more(self, free: list[str], wanted: int) -> None:
        """Of the free nodes; the story hears once if there are too few."""
        refused = []
        for name in sorted(free, key=self._backlog):
            if len(self._held) == wanted:
                break
            refusal = self._refusal(name)
            if refusal is None:
                self._held[name] = None
                self._holds.hold(self.context.nodes.workers(name), WHY)
            else:
                self._refusing.add(name)
                refused.append(f"node {name}: {refusal}")
        is_short = refused and len(self._held) < wanted
        why = "; ".join(refused[:_NAMED])
        short = f"{len(self._held)} of {count_nodes(wanted)}: {why}" if is_short else ""
        if short and short != self._short:
            self.context.tell("hold-refused", short)
        self._short = short

    def _refusal(self, name: str) -> str | None:
        return self._holds.refusal(self.context.nodes.workers(name))

    def _needed(self) -> set[str]:
        """Held nodes that must work: one for each task that nobody else may run."""
        needed: set[str] = set()
        for key, addresses in self._holds.in_the_way(WHY):
            names = {self.context.nodes.node_of(address) for address in addresses}
            if names.isdisjoint(needed):
                name = min(names, key=self._backlog)
                needed.add(name)
                self.context.tell("hold-ends", f"node {name} works: nobody else may run {key!r}")
        return needed

    def _works(self, name: str) -> bool:
        """Whether a worker of a held node works all the same: for a shuffle, because it has just come, or
        because somebody has released it."""
        holds = self._holds
        workers = self.context.nodes.workers(name)
        return any(holds.is_lent(address) or address not in holds.reasons for address in workers)

    def _adapted(self) -> list[tuple[float, float, int]]:
        now = self.context.clock()
        self._spare = {
            asker: said for asker, said in self._spare.items() if now - said[0] <= _MISSED * said[1]
        }
        return list(self._spare.values())

    def _backlog(self, name: str) -> tuple[float, int]:
        """Those first that are done first."""
        found = [compat.backlog(self._scheduler, address) for address in self.context.nodes.workers(name)]
        return max((left for left, _ in found), default=0.0), sum(tasks for _, tasks in found)

    def _release(self, nodes: int) -> None:
        """As many nodes less as that is more than before."""
        if nodes == 0:
            self._most = inf
        else:
            here = min(self._most, len(self.context.nodes))
            self._most = max(1.0, here - (nodes - self.released))
        self.released = nodes

    def _tell(self, plan: Plan, why: Explanation | None, decision: str, reason: str) -> None:
        self.context.story.tell(Happening(plan.id, plan.time, decision, reason=reason, why=why))


SERVICE = PowerLevers
