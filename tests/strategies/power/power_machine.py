"""A small machine that draws power, and a policy that decides for it until there is nothing left to do."""

from dataclasses import replace

from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Start
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.model.snapshot import Indices, Snapshot

WATTS = PowerRange(100.0, 100.0)


def machine(nodes=8, *, running=(), waiting=(), now=100.0, **power):
    """Nodes of 10 W when idle and 100 W when they work, unless said otherwise; jobs run since 0."""
    indices = Indices(Node(str(i)) for i in range(nodes))
    for job in running:
        indices.waiting.add(job, ahead=9)
        indices.start(job.id, job.nodes)
    for job in waiting:
        indices.waiting.add(job)
    indices.now = now
    figures = {"idle": 10.0, "active": WATTS} | power
    work = sum(
        figures["active"].most if job.power is None else job.power.most
        for job in running
        for _ in range(job.nodes)
    )
    figures.setdefault("watts", work + len(indices.idle) * figures["idle"])
    figures.setdefault("jobs", {job.id: job.power for job in (*running, *waiting) if job.power})
    indices.power = PowerView(**figures)
    return indices


def job(name, nodes=2, least=1, most=8, kind="malleable", **more):
    return Job(id=name, nodes=nodes, min_nodes=least, max_nodes=most, kind=kind, **more)


def rigid(name, nodes=2, **more):
    return Job(id=name, nodes=nodes, **more)


def decided(indices, strategy, starts=(), resizes=(), memory=None):
    snapshot = Snapshot(indices, strategy.corridor)
    return strategy.decide(snapshot, list(starts), list(resizes), memory)


def sizes(decisions):
    return {one.job: one.nodes for one in decisions}


def policy(name="power-corridor", **power):
    return Policy.load(name).with_(**{f"power.{key}": value for key, value in power.items()})


def draws(indices):
    """What the machine draws by its figures."""
    view, running = indices.power, indices.running
    busy = sum(len(r.nodes) for r in running.values())
    idle = (len(indices.nodes) - busy) * view.idle
    outside = view.outside_nodes * (view.outside.most - view.idle)
    return idle + outside + sum(len(r.nodes) * view.per_node(j).most for j, r in running.items())


def settled(indices, policy, memory=None, corridor=None):
    """Everything that is decided now, carried out at once; the plans, and what is remembered."""
    plans = []
    indices.power = replace(indices.power, watts=draws(indices))

    def carry_out(plan):
        plans.append(plan)
        for deed in plan.in_order(lambda name: len(indices.running[name].nodes)):
            if isinstance(deed, Start):
                indices.start(deed.job, deed.nodes)
            else:
                indices.begin_resize(deed.job, deed.nodes)
                indices.finish_resize(deed.job)
        indices.pull_levers(plan)
        indices.power = replace(indices.power, watts=draws(indices))

    memory = policy.settle(Snapshot(indices, corridor or policy.power.corridor), memory, carry_out)
    return plans, memory


def held(indices):
    return {name: len(running.nodes) for name, running in indices.running.items()}


def verdicts(plans):
    return [plan.verdict for plan in plans if plan.verdict is not None]
