"""One brain, two bodies: who gets nodes that only keep copies, and from whom they come."""

import threading
from dataclasses import dataclass

from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.model.lending import NodeDesk, NodeQuery, NodeRequest, NodesReturned, NodesWanted
from dask_hpc.model.node import NodeWish
from dask_hpc.model.speedup import Speedup
from dask_hpc.simulator import Arrival
from dask_hpc.simulator.engine import Engine
from dask_hpc.simulator.service import MachineService

#: name, submitted, nodes, fewest and most; A communicates little, B much
JOBS = {
    "A": (0.0, 2, 1, 2),
    "B": (1.0, 3, 1, 3),
    "C": (60.0, 2, 2, 2),
    "D": (61.0, 1, 1, 1),
    "E": (63.0, 2, 2, 2),
}
MTCT = {"A": 0.1, "B": 0.5, "C": 0.0, "D": 0.0, "E": 0.0}
GATES = {name: threading.Event() for name in JOBS}
HIGH = NodeRequest("checkpoint", NodeWish(1, True, "n is 95% full, and fills"))
LOW = NodeRequest("checkpoint", NodeWish(2, False, "n uses 92% of its link"))


@dataclass(frozen=True)
class Fixed(Speedup):
    """Communicates as much on any number of nodes."""

    fixed: float

    def factor(self, nodes):
        return float(nodes)

    def mtct(self, nodes):
        return self.fixed


class Scripted(MachineService):
    """Says what the script says, and gives back what can be missed."""

    borrows = "checkpoint"

    def __init__(self, says):
        self._says = says

    def begin(self):
        for time, _ in self._says:
            self.site.decide_at(time, self)

    def woken(self, now):
        for time, message in self._says:
            if time == now:
                self.site.desk.receive(message)

    def hear_of_nodes(self, message):
        if isinstance(message, NodesWanted):
            nodes = self.site.indices.borrowers["checkpoint"].emptiest(message.count)
            answer = NodesReturned("checkpoint", nodes, "no copies are kept", message.count)
            self.site.desk.receive(answer)


def work(name):
    """Runs until the script says that its job is over."""
    GATES[name].wait(60)


def described(name):
    _, nodes, least, most = JOBS[name]
    kind = "malleable" if least < most else "rigid"
    return {"nodes": nodes, "min_nodes": least, "max_nodes": most, "kind": kind, "walltime": 5000.0}


def decisions(plans, name=lambda text: text):
    """In order: time, what, of whom, nodes, reason."""
    found = []
    for plan in plans:
        jobs = [("start", one) for one in plan.starts] + [("resize", one) for one in plan.resizes]
        found += [(plan.time, what, name(one.job), one.nodes, name(one.reason)) for what, one in jobs]
        loans = (("lend", plan.lend), ("take-back", plan.take_back))
        found += [(plan.time, what, one.service, one.nodes, name(one.reason)) for what, one in loans if one]
    return found


WORDS = ("node-query", "node-answer", "node-request", "lend", "take-back", "returned")


def told(story, name=lambda text: text):
    return [
        (one.time, one.decision, len(one.nodes), name(one.reason)) for one in story if one.decision in WORDS
    ]


def simulated(policy, nodes, names, says, ends):
    jobs = [
        Arrival(
            Job(id=name, submitted=JOBS[name][0], **described(name)),
            1e4 if name not in ends else (ends[name] - JOBS[name][0]),
            speedup=Fixed(MTCT[name]),
        )
        for name in names
    ]
    machine = Engine(nodes, policy, services=[Scripted(says)])
    machine.run(jobs, until=1000.0)
    return decisions(machine.story), told(machine.story.happenings)


def live(policy, nodes, names, says, ends):
    script = [(JOBS[name][0], "submit", name) for name in names]
    script += [(time, "says", message) for time, message in says]
    script = sorted(script + [(time, "end", name) for name, time in ends.items()], key=lambda one: one[0])
    found = []

    @gen_cluster(client=True, nthreads=[("", 6)] * nodes, config={"hpc.drain": 0})
    async def run(c, s, *workers):
        for gate in GATES.values():
            gate.clear()
        async with await dask_hpc.manage(c, policy=policy):
            plugin = s.plugins["dask-hpc"]
            plugin.context.clock = lambda: now
            plugin.control.measurements.measure = lambda job, nodes: MTCT[job.name]
            ids, futures = {}, []

            def is_told(decision, job):
                return any(h.decision == decision and h.job == ids[job] for h in plugin.story.happenings)

            for now, what, one in script:  # noqa: B007 (the clock reads it)
                if what == "submit":
                    with dask_hpc.job(one, **described(one)) as context:
                        futures.append(c.submit(work, one, key=f"work-{one}"))
                    ids[one] = context.id
                elif what == "end":
                    GATES[one].set()
                else:
                    plugin.context.get(NodeDesk).receive(one)
                if what != "says":
                    await async_poll_for(lambda what=what, one=one: is_told(what, one), 10)
                await async_poll_for(lambda: not plugin.context.is_awake and not plugin.context._tasks, 10)
            for gate in GATES.values():
                gate.set()
            names = {job_id: job for job, job_id in ids.items()}

            def named(text):
                for job_id, job in names.items():
                    text = text.replace(job_id, job)
                return text

            found.extend([decisions(plugin.story, named), told(plugin.story.happenings, named)])
            await c.gather(futures)

    run()
    return tuple(found)


def both(name, *script):
    policy = Policy.load(name)
    predicted = simulated(policy, *script)
    assert live(policy, *script) == predicted
    return predicted


def test_what_is_urgent_takes_from_the_least_efficient_job():
    """Two malleable jobs and no idle node; B, which communicates most, can give two of its three."""
    found, rows = both("favor-checkpoints", 5, "AB", [(5.0, HIGH)], {})
    assert [row[:4] for row in found[2:]] == [(5.0, "resize", "B", 2), (5.0, "lend", "checkpoint", 1)]
    assert [word for _, word, _, _ in rows] == ["node-request", "lend"]
    assert found[2][4] == "gives 1 node to checkpoint: n is 95% full, and fills"


def test_it_gives_no_more_than_it_can():
    says = [(5.0, NodeRequest("checkpoint", NodeWish(3, True, "n is full")))]
    found, _ = both("favor-checkpoints", 5, "AB", says, {})
    assert [row[:4] for row in found[2:4]] == [(5.0, "resize", "B", 1), (5.0, "resize", "A", 1)]
    assert [row[:4] for row in found[4:]] == [(5.0, "lend", "checkpoint", 3)]


def test_who_can_wait_asks_first_and_gets_what_is_idle_in_the_end():
    """The published order: question, answer, request, order to use nodes."""
    says = [(5.0, NodeQuery("checkpoint")), (6.0, LOW)]
    found, rows = both("favor-checkpoints", 7, "AB", says, {})
    assert [row[:4] for row in found[2:]] == [(6.0, "lend", "checkpoint", 2)]
    assert [word for _, word, _, _ in rows] == ["node-query", "node-answer", "node-request", "lend"]
    assert rows[1][3] == "2 nodes idle"
    found, rows = both("favor-jobs", 7, "AB", says, {})
    assert found[2:] == [] and rows[-1][1] == "node-request", "what is not urgent is not heard"


def test_jobs_come_first_and_empty_nodes_come_back():
    """Two nodes for copies, both empty, and something urgent for which no node is idle: nobody shrinks, and
    nothing is taken back while that is looked at. C can have its two nodes from a job alone; for D one of the
    two comes back, and the other stays."""
    says = [(0.5, NodeRequest("checkpoint", NodeWish(2, True, "many copies"))), (5.0, HIGH)]
    found, rows = both("favor-jobs", 7, "ABCD", says, {})
    assert found[1][:4] == (0.5, "lend", "checkpoint", 2)
    assert not [row for row in found if row[0] == 5.0]
    assert [row[:4] for row in found if row[1] == "take-back"] == [(61.0, "take-back", "checkpoint", 1)]
    assert found[-1][:4] == (61.0, "start", "D", 1)
    assert [word for _, word, _, _ in rows[-2:]] == ["take-back", "returned"] and rows[-1][2] == 1


def test_what_is_urgent_waits_for_nodes_that_come_free():
    """No job can shrink: the first node that comes free is for copies, before the job that waits, or else
    the request is forgotten."""
    script = (3, "CDE", [(62.0, HIGH)], {"C": 90.0, "D": 95.0})
    found, _ = both("favor-checkpoints", *script)
    rest = [row[:4] for row in found[2:]]
    assert rest == [(90.0, "lend", "checkpoint", 1), (95.0, "start", "E", 2)]
    found, _ = both("favor-jobs", *script)
    assert [row[:4] for row in found[2:]] == [(90.0, "start", "E", 2)]
