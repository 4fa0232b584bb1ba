"""A rig for live.ipynb: what we add to a scheduler of 1,000 workers and 1,000,000 tasks, and a soak.

``python million_tasks.py cost|soak ...`` prints what it measured as JSON. The scheduler is Dask's own, with
our plugin on it. Its workers are states without processes: they end a task when the rig says so. What they
and the scheduler tell each other goes through Dask's form of messages, as on a wire, but through no socket.
Graphs are blocks that are read, two of which each block of work needs, summed up by twenties: one future is
left of each.

The scheduler's time is that of its thread, while it takes messages in, does what follows and makes messages
of its own: of two schedulers by turns, one of which has never heard of us, and has a plugin that does
nothing: what Dask takes for calling one is no plugin's own, and is measured by itself. Then ours is counted
where Dask's code calls ours and ours calls Dask's (``Meter``). That says where it goes, and is too much by
what counting does to caches. Bytes of ours are all that is reached from the plugin through objects of ours
and containers, and that Dask has not, too.
"""

import argparse
import asyncio
import gc
import json
import logging
import sys
from collections import Counter, deque
from contextlib import asynccontextmanager, nullcontext
from functools import partial, wraps
from random import Random
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import perf_counter, thread_time_ns

import dask
from dask._task_spec import Task, TaskRef
from distributed import Client, Scheduler, SchedulerPlugin
from distributed.protocol import dumps, loads
from distributed.protocol.pickle import dumps as pickled
from stateless_workers import DeadWire, add_workers, nobody

import dask_hpc

QUIET = {
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing-interval": "1h",  # it is on, and never looks
    "distributed.scheduler.worker-ttl": None,
}
BATCH, LEAVES, BLOCK = 64, 20, 8 << 20
INT = pickled(int)


# workers


class Wire(DeadWire):
    """What the scheduler sends to a worker waits here until it is looked at."""

    def __init__(self):
        self.messages = []

    def send(self, *messages):
        self.messages += messages


class Fleet:
    """Workers that end their tasks in the order in which they were given them, when they are asked to."""

    def __init__(self, scheduler, count):
        self.scheduler, self.inbox = scheduler, deque()
        self.ended, self.time = 0, 0.0
        self.wires = add_workers(scheduler, count, Wire, 10**10)
        for address in self.wires:
            scheduler.extensions["stealing"].add_worker(scheduler=scheduler, worker=address)

    def flush(self):
        """What was sent is on the wire; answers the nanoseconds that took the scheduler."""
        since, sent = thread_time_ns(), []
        for address, wire in self.wires.items():
            if wire.messages:
                dumps(wire.messages)
                sent.append((address, wire.messages))
                wire.messages = []
        took = thread_time_ns() - since
        given = [(m["run_id"], a, m["key"]) for a, some in sent for m in some if m["op"] == "compute-task"]
        self.inbox += [(address, key, run) for run, address, key in sorted(given)]  # not worker by worker
        return took

    async def step(self, most=BATCH):
        """So many tasks end. Answers how many, and the nanoseconds of the scheduler's thread."""
        await asyncio.sleep(0)
        took = self.flush()
        count = min(most, len(self.inbox))
        frames = [self._finished(*self.inbox.popleft()) for _ in range(count)]
        since = thread_time_ns()
        for one in frames:
            for message in loads(one):
                del message["op"]
                self.scheduler.handle_task_finished(**message)
        await asyncio.sleep(0)
        took += thread_time_ns() - since + self.flush()
        self.ended += count
        self.time += 0.01
        return count, took

    def _finished(self, address, key, run_id):
        began = 1.7e9 + self.time
        done = {
            "op": "task-finished", "key": key, "worker": address, "stimulus_id": "task-finished-1.0",
            "run_id": run_id,
            "metadata": {}, "nbytes": BLOCK, "type": INT, "typename": "int", "thread": 1,
            "startstops": [{"action": "compute", "start": began, "stop": began + 0.5}],
        }  # fmt: skip
        return dumps([done])

    def heartbeat(self):
        """Nanoseconds of the scheduler for one heartbeat of each worker, with what plain workers say."""
        said = {
            "task_counts": {"executing": 1}, "bandwidth": {"total": 10**8, "workers": {}, "types": {}},
            "digests_total_since_heartbeat": {("execute", "read", "thread-cpu", "seconds"): 0.5},
            "managed_bytes": 0, "spilled_bytes": {"memory": 0, "disk": 0}, "memory": 10**8, "cpu": 50.0,
            "event_loop_interval": 0.02,
        }  # fmt: skip
        frames = [dumps({"address": address, "now": 0.0, "metrics": said}) for address in self.wires]
        since = thread_time_ns()
        for one in frames:
            self.scheduler.heartbeat_worker(resolve_address=False, **loads(one))
        return thread_time_ns() - since


def block(*needs):
    """What is never run."""


def graph(name, count):
    """Some ``count`` tasks; the key of the last one."""
    leaves = max(2, round(count / (2 + 1 / (LEAVES - 1))))
    dsk = {}
    for i in range(leaves):
        read, work = (f"read-{name}", i), (f"work-{name}", i)
        dsk[read] = Task(read, block)
        dsk[work] = Task(work, block, TaskRef(read), TaskRef((f"read-{name}", (i + 1) % leaves)))
    level, keys = 0, [(f"work-{name}", i) for i in range(leaves)]
    while len(keys) > 1:
        sums = []
        for i in range(0, len(keys), LEAVES):
            key = (f"sum-{name}", level, i)
            dsk[key] = Task(key, block, *map(TaskRef, keys[i : i + LEAVES]))
            sums.append(key)
        level, keys = level + 1, sums
    return dsk, keys[0]


# whose time


class Meter:
    """Processor time of our code on this thread: from where Dask's calls it to where it calls Dask's."""

    def __init__(self):
        self.calls, self.spent = Counter(), Counter()
        #: how often ours called Dask's there
        self.crossed = Counter()
        self._stack, self._since = [], 0
        self._costs = self._costs_across = 0.0

    def ours(self, name, call):
        """Count this."""

        @wraps(call)
        def counted(*args, **kwargs):
            self._turn(name)
            try:
                return call(*args, **kwargs)
            finally:
                self._back()

        return counted

    def dasks(self, call):
        """Do not count this where ours calls it."""

        @wraps(call)
        def uncounted(*args, **kwargs):
            if not self._stack or self._stack[-1] is None:
                return call(*args, **kwargs)
            self.crossed[self._stack[-1]] += 1
            self._turn(None)
            try:
                return call(*args, **kwargs)
            finally:
                self._back()

        return uncounted

    def _turn(self, name):
        now = thread_time_ns()
        if self._stack:
            self.spent[self._stack[-1]] += now - self._since
        self._stack.append(name)
        self.calls[name] += 1
        self._since = thread_time_ns()

    def _back(self):
        now = thread_time_ns()
        self.spent[self._stack.pop()] += now - self._since
        self._since = thread_time_ns()

    def calibrate(self, turns=20_000):
        """Nanoseconds that one counted call, and one from it into Dask's, add to what is counted."""
        nothing = Meter()
        into = nothing.dasks(lambda *args, **kwargs: None)
        call = nothing.ours("nothing", lambda *args, **kwargs: None)
        across = nothing.ours("across", lambda *args, **kwargs: into())
        for _ in range(turns):
            call("key", "waiting", "processing", stimulus_id="s", worker="w")
            across("key", "waiting", "processing", stimulus_id="s", worker="w")
        self._costs = nothing.spent["nothing"] / turns
        self._costs_across = nothing.spent["across"] / turns - self._costs

    def found(self):
        """Microseconds and calls by name, without those of counting."""
        spent = Counter(self.spent)
        for name in spent:
            spent[name] -= self._costs * self.calls[name] + self._costs_across * self.crossed[name]
        return {name: (spent[name] / 1e3, self.calls[name]) for name in spent if name is not None}

    def reset(self):
        for counts in (self.calls, self.spent, self.crossed):
            counts.clear()

    def attach(self, scheduler, plugin):
        """To all ways from Dask's code into ours, and back."""
        self.calibrate()
        exit_ = scheduler.stimulus_queue_slots_maybe_opened.__self__
        exit_._plain = self.dasks(exit_._plain)
        for name in HOOKS:
            setattr(plugin, name, self.ours(name, getattr(plugin, name)))
        for place in (scheduler, *scheduler.extensions.values()):
            for name, value in list(vars(place).items()):
                if callable(value) and is_ours(value):
                    setattr(place, name, self.ours(name, value))
        for name in (
            "transitions",
            "transition",
            "_transitions",
            "client_releases_keys",
            "report",
            "send_all",
        ):
            setattr(scheduler, name, self.dasks(getattr(scheduler, name)))
        loop = scheduler.loop
        for name in ("add_callback", "call_later"):
            setattr(loop, name, partial(self._later, getattr(loop, name)))

    def _later(self, plain, *args, **kwargs):
        args = [
            self.ours(f"later {named(one)}", one) if callable(one) and is_ours(one) else one for one in args
        ]
        return plain(*args, **kwargs)


HOOKS = {
    "update_graph", "transition", "add_worker", "remove_worker", "add_client", "remove_client", "log_event",
    "restart", "valid_workers_downscaling",
}  # fmt: skip


def is_ours(call):
    while isinstance(call, partial):
        call = call.func
    its = getattr(call, "__self__", call)
    found = getattr(call, "__module__", None) or ""
    return found.startswith("dask_hpc") or type(its).__module__.startswith("dask_hpc")


def named(call):
    while isinstance(call, partial):
        call = call.func
    return getattr(call, "__qualname__", type(call).__name__)


# whose memory

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def annotated(scheduler):
    """Dask's, which may be more for our sake."""
    some = (task.annotations for task in scheduler.tasks.values())
    return sum(sys.getsizeof(one) for one in some if one is not None)


def bytes_of_ours(scheduler, plugin):
    """By the attribute of ours that was reached first, breadth first; what Dask has, too, is not counted."""
    seen = {id(scheduler), id(scheduler.tasks)}
    for key, task in scheduler.tasks.items():
        seen.update((id(key), id(task), id(task.priority)))
        if isinstance(key, tuple):
            seen.update(map(id, key))
        if task.priority:
            seen.update(map(id, task.priority))
    found = Counter()
    todo = deque([(plugin, "")])
    while todo:
        one, name = todo.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = type(one)
        if isinstance(one, _PLAIN) or hasattr(one, "nbytes"):
            found[name] += sys.getsizeof(one)
        elif isinstance(one, _CONTAINERS):
            found[name] += sys.getsizeof(one)
            parts = [*one.keys(), *one.values()] if isinstance(one, dict) else one
            todo.extend((part, name) for part in parts)
            todo.extend((part, name) for part in getattr(one, "__dict__", {}).values())
        elif isinstance(one, partial):
            todo.extend((part, name) for part in (one.func, *one.args, *one.keywords.values()))
        elif kind.__module__.startswith("dask_hpc"):
            found[kind.__name__] += sys.getsizeof(one)
            names = dict.fromkeys(n for k in kind.__mro__ for n in _slots(k))
            if hasattr(one, "__dict__"):
                found[kind.__name__] += sys.getsizeof(vars(one))
            values = {n: getattr(one, n) for n in names if hasattr(one, n)} | getattr(one, "__dict__", {})
            todo.extend((value, f"{kind.__name__}.{name}") for name, value in values.items())
        elif (its := getattr(one, "__self__", None)) is not None:
            todo.append((its, name))
    return found


def _slots(kind):
    names = vars(kind).get("__slots__", ())
    return [n for n in ([names] if isinstance(names, str) else names) if not n.startswith("__")]


# what is measured


class Side:
    """A scheduler with its workers; managed if it has a plugin."""

    def __init__(self, scheduler, client, fleet):
        self.scheduler, self.client, self.fleet = scheduler, client, fleet
        self.plugin = self.meter = self.manager = None
        self.futures = {}
        self.submitted = 0

    async def manage(self, policy):
        self.meter = Meter()
        self.manager = await dask_hpc.manage(self.client, policy=policy)
        self.plugin = self.scheduler.plugins["dask-hpc"]

    def count(self):
        self.meter.attach(self.scheduler, self.plugin)

    async def submit(self, name, count, context):
        """One graph, in this context; it has arrived."""
        dsk, last = graph(name, count)
        with context:
            self.futures[name] = self.client.get(dsk, last, sync=False)
        while last not in self.scheduler.tasks:
            await asyncio.sleep(0.001)
        self.submitted += len(dsk)
        return len(dsk)

    async def settle(self):
        """All turns of the loop that are owed are over."""
        for _ in range(20):
            await asyncio.sleep(0.002)

    async def leave(self):
        """No need to let go of a million tasks one by one."""
        s = self.scheduler
        if self.plugin is not None:
            s.plugins.pop("dask-hpc", None)
            self.plugin.context.is_on = False
            self.plugin.control.gate.owner.clear()
            self.plugin.control.gate.waves.close()
        s._clear_task_state()
        for address in list(s.workers):
            del s.stream_comms[address], s.workers[address]
        s.running.clear()


@asynccontextmanager
async def side(workers):
    async with (
        Scheduler(port=0, dashboard_address=":0", protocol="inproc://", validate=False) as s,
        Client(s.address, asynchronous=True) as c,
    ):
        s.broadcast = nobody
        found = Side(s, c, Fleet(s, workers))
        try:
            yield found
        finally:
            await found.leave()


def in_no_job(i, jobs, workers):
    return nullcontext()


def in_one_job(i, jobs, workers, known={}):  # noqa: B006 - the one job of all graphs of this run
    return known.setdefault("job", _Again(dask_hpc.job("all", nodes=workers, walltime="10h")))


def in_jobs(i, jobs, workers):
    nodes = max(1, workers // jobs)
    return dask_hpc.job(f"j{i}", nodes=nodes, min_nodes=1, max_nodes=nodes, walltime="10h")


class _Again:
    """A context that is entered once for many graphs, and never left; without it, its annotation would go."""

    def __init__(self, job):
        self.job, self.is_entered = job, False

    def __enter__(self):
        if not self.is_entered:
            self.is_entered = True
            self.job.__enter__()

    def __exit__(self, *error):
        pass


class Listener(SchedulerPlugin):
    """Hears of all tasks and does nothing: what Dask takes for any plugin that hears of them."""

    def transition(self, key, start, finish, *args, **kwargs):
        pass


UNMANAGED = "not managed"  # what the rig finds between two schedulers that have never heard of us
LISTENED = "a plugin that does nothing"
KINDS = {
    UNMANAGED: in_no_job,
    LISTENED: in_no_job,
    "no job": in_no_job,
    "one job on all nodes": in_one_job,
    "restricted jobs": in_jobs,
}


async def without_us(kind, workers, tasks, jobs, run):
    """The ratio of two schedulers that are alike, but for a plugin that does nothing: what is within its
    interval says nothing."""
    async with side(workers) as one, side(workers) as other:
        if kind == LISTENED:
            other.scheduler.add_plugin(Listener())
        for i in range(jobs):
            for each in (one, other):
                await each.submit(f"g{i}", tasks // jobs, nullcontext())
        await one.settle()
        await other.settle()
        gc.collect()
        gc.freeze()
        gc.disable()
        pairs = await _by_turns(one, other, run)
        gc.enable()
        gc.unfreeze()
        return {
            "kind": kind, "workers": workers, "live": len(one.scheduler.tasks), "ratio": _ratio(pairs),
            "plain_middle_us": _middle(one[0] for one in pairs), "ours_us": _middle(one[1] for one in pairs),
        }  # fmt: skip


async def cost(kind, workers, tasks, jobs, run, policy):
    """Of a scheduler with so many workers and live tasks, and of as many that end there."""
    async with side(workers) as plain, side(workers) as ours:
        plain.scheduler.add_plugin(Listener())
        await ours.manage(policy)
        gc.collect()
        before = bytes_of_ours(ours.scheduler, ours.plugin)
        ingest = perf_counter()
        for i in range(jobs):  # by turns, or one side's tasks lie closer together in memory
            await plain.submit(f"g{i}", tasks // jobs, in_no_job(i, jobs, workers))
            await ours.submit(f"g{i}", tasks // jobs, KINDS[kind](i, jobs, workers))
        ingest = perf_counter() - ingest
        await plain.settle()
        await ours.settle()
        gc.collect()
        after = bytes_of_ours(ours.scheduler, ours.plugin)
        after["TaskState.annotations"] = annotated(ours.scheduler) - annotated(plain.scheduler)
        live, owned = len(ours.scheduler.tasks), len(ours.plugin.context.owner)
        assert owned == (0 if kind == "no job" else live), f"{owned} of {live} tasks are in jobs"
        beats = _pairs(plain.fleet.heartbeat, ours.fleet.heartbeat, 5, workers)
        shown = _shown(ours)
        gc.collect()
        gc.freeze()
        gc.disable()
        pairs = await _by_turns(plain, ours, run // 2)
        ours.count()
        before_counting = ours.fleet.ended
        counted = await _by_turns(plain, ours, run // 2)
        gc.enable()
        gc.unfreeze()
        found = ours.meter.found()
        ended = ours.fleet.ended - before_counting
        dask_us = sum(one[0] for one in counted) / len(counted) / 1e3
        hooks_us = sum(spent for spent, _ in found.values()) / ended
        grown = +(after - before)
        return {
            "transitions": found.get("transition", (0, 0))[1] / ended, "kind": kind, "workers": workers,
            "live": live, "ended": ours.fleet.ended, "peak_mb": getrusage(RUSAGE_SELF).ru_maxrss / 1e3,
            "plain_us": dask_us, "hooks_us": hooks_us,
            "share": hooks_us / dask_us,
            "by": {name: (spent / ended, calls / ended) for name, (spent, calls) in sorted(
                found.items(), key=lambda one: -one[1][0])[:12]},
            "ours_us": _middle(one[1] for one in pairs), "plain_middle_us": _middle(one[0] for one in pairs),
            "bytes": sum(grown.values()) / live,
            "bytes_by": {name: size / live for name, size in grown.most_common(10)},
            "ratio": _ratio(pairs),
            "heartbeat_us": beats, "shown_ms": shown, "ingest": ingest, "errors": ours.plugin.errors,
        }  # fmt: skip


async def _by_turns(plain, ours, count):
    """Nanoseconds of the scheduler for each of the tasks that end together, without us and with us: the
    machine changes its speed more slowly than that."""
    found, until, in_vain = [], plain.fleet.ended + count, 0
    while plain.fleet.ended < until and in_vain < 500:
        if len(found) % 2:
            (ended, without), (ours_ended, with_us) = await plain.fleet.step(), await ours.fleet.step()
        else:
            (ours_ended, with_us), (ended, without) = await ours.fleet.step(), await plain.fleet.step()
        if ended and ours_ended:
            found.append((without / ended, with_us / ours_ended))
        else:
            in_vain += 1
            await asyncio.sleep(0.002)
    return found


def _middle(values):
    """The mean without the outermost twentieths: in these the machine did something else."""
    return _trimmed(values) / 1e3


def _trimmed(values):
    values = sorted(values)
    cut = len(values) // 20
    kept = values[cut : len(values) - cut]
    return sum(kept) / len(kept)


def _ratio(pairs, draws=400, seed=1):
    """With us over without us: of the means, each without the outermost twentieths, and between what 95 % of
    its bootstrap over pairs lies. That tells the noise of this run; where things lie in memory differs from
    run to run by another percent, so several runs are needed."""
    dice = Random(seed)

    def ratio(some):
        return _trimmed(one[1] for one in some) / _trimmed(one[0] for one in some)

    found = sorted(ratio(dice.choices(pairs, k=len(pairs))) for _ in range(draws))
    return [ratio(pairs), found[draws // 40], found[-1 - draws // 40]]


def _pairs(without, with_us, turns, count):
    found = [(without() / count / 1e3, with_us() / count / 1e3) for _ in range(turns)]
    return median(one[0] for one in found), median(one[1] for one in found)


def _shown(ours):
    """Milliseconds of what somebody who looks asks for."""
    status = ours.plugin.status
    first = status.feed(0, jobs=-1, parts=("power", "checkpoint"))
    read = first["story"]["first"] + len(first["story"]["rows"])
    asks = {
        "feed": lambda: status.feed(read, jobs=ours.plugin.context.clock(), parts=("marked",)),
        "status": status.whole,
        "metrics": lambda: ours.plugin._metrics.samples(),
        "decision": ours.plugin.control.decide,
    }
    found = {}
    for name, ask in asks.items():
        times = []
        for _ in range(5):
            since = thread_time_ns()
            ask()
            times.append((thread_time_ns() - since) / 1e6)
        found[name] = median(times)
    return found


async def soak(workers, tasks, size, at_once, every, policy, seed=1):
    """Jobs of ``size`` tasks, so many at once, resized all the time, until so many tasks are done."""
    async with side(workers) as ours:
        await ours.manage(policy)
        dice, number, running, rows, resizes = Random(seed), 0, deque(), [], 0
        nodes = max(1, workers // at_once)
        began, told = perf_counter(), 0
        while ours.fleet.ended < tasks or running:
            while len(running) < at_once and ours.submitted < tasks:
                name = f"s{number}"
                most = min(workers, 2 * nodes)
                context = dask_hpc.job(name, nodes=nodes, min_nodes=1, max_nodes=most, walltime="1h")
                await ours.submit(name, size, context)
                running.append(name)
                number += 1
            count, _ = await ours.fleet.step()
            if not count:
                await asyncio.sleep(0.001)
            for name in [name for name in running if ours.futures[name].done()]:
                running.remove(name)
                ours.futures.pop(name).release()
            if dice.random() < 0.02:
                resizes += await _resize(ours, dice)
            if ours.fleet.ended - told >= every or not (running or ours.submitted < tasks):
                told = ours.fleet.ended
                await ours.settle()
                gc.collect()
                found = bytes_of_ours(ours.scheduler, ours.plugin)
                rows.append({
                    "ended": told, "bytes": sum(found.values()), "tasks": len(ours.scheduler.tasks),
                    "jobs": number, "most": found.most_common(6), "resizes": resizes,
                    "seconds": perf_counter() - began,
                })  # fmt: skip
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        return {"workers": workers, "policy": policy, "rows": rows, "errors": ours.plugin.errors}


async def _resize(ours, dice):
    """Whether one of the jobs became larger or smaller."""
    indices = ours.plugin.context.indices
    if not indices.running:
        return 0
    job = dice.choice(list(indices.running))
    try:
        await ours.manager.resize(job, dice.choice([-2, -1, 1, 2]))
    except dask_hpc.InputError:  # it may be as small or as large as it may be
        return 0
    return 1


def main():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["cost", "soak"])
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="one or more: a line for each")
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--run", type=int, default=50_000, help="tasks that end while somebody counts")
    parser.add_argument("--size", type=int, default=500, help="tasks of a job of the soak")
    parser.add_argument("--every", type=int, default=100_000, help="tasks between two looks at memory")
    parser.add_argument("--policy", default="fpsma-pwma")
    given = parser.parse_args()
    with dask.config.set(QUIET):
        for kind in given.kind or ["restricted jobs"]:
            if given.what == "soak":
                work = soak(given.workers, given.tasks, given.size, given.jobs, given.every, given.policy)
            elif kind in (UNMANAGED, LISTENED):
                work = without_us(kind, given.workers, given.tasks, given.jobs, given.run)
            else:
                work = cost(kind, given.workers, given.tasks, given.jobs, given.run, given.policy)
            print(json.dumps(asyncio.run(work)), flush=True)


if __name__ == "__main__":
    main()
