"""What must hold under every ready-made policy, on any machine, with any jobs."""

from contextlib import contextmanager
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import PowerLaw, is_legal
from dask_hpc.policy import ready_made
from dask_hpc.simulator import Arrival, Failures, Machine, Platform, Record
from dask_hpc.simulator.platform import ResizeCost
from dask_hpc.simulator.record import STATES
from dask_hpc.simulator.resizes import Resizes

POLICIES = sorted(ready_made())
NODES = 6


@st.composite
def arrivals(draw):
    """A few jobs of all kinds; small numbers, so that events often fall on one instant."""
    jobs = []
    for number in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["rigid", "rigid", "moldable", "malleable", "malleable", "evolving"]))
        constraint = draw(st.sampled_from(["any", "any", "even", "pof2"]))
        nodes = draw(st.sampled_from([1, 2, 3, 4, 7]))
        if not is_legal(constraint, nodes):
            constraint = "any"
        low, high = (nodes, nodes) if kind == "rigid" else (draw(st.integers(1, nodes)), nodes + 2)
        requests = ((0.5, draw(st.integers(1, 9))),) if kind == "evolving" else ()
        job = Job(
            id=f"j{number}",
            nodes=nodes,
            kind=kind,
            min_nodes=low,
            max_nodes=high,
            constraint=constraint,
            walltime=float(draw(st.sampled_from([20, 200, 1000]))),
            submitted=float(draw(st.integers(0, 40))),
            priority=float(draw(st.integers(0, 2))),
            user=draw(st.sampled_from(["u", "v"])),
        )
        cancelled = draw(st.sampled_from([float("inf")] * 4 + [30.0]))
        runtime = float(draw(st.just(0) | st.integers(0, 150)))
        jobs.append(Arrival(job, runtime, PowerLaw(0.7), requests=requests, cancelled=cancelled))
    return sorted(jobs, key=lambda arrival: arrival.job.submitted)


platforms = st.builds(
    Platform,
    nodes=st.just(NODES),
    tick=st.sampled_from([0.0, 30.0]),
    launch=st.sampled_from([0.0, 2.0]),
    cleanup=st.sampled_from([0.0, 1.0]),
    resize=st.sampled_from([ResizeCost(), ResizeCost(fixed=3.0, per_process=0.5)]),
    failures=st.sampled_from(
        [
            None,
            Failures(mtbf=900.0, repair=10.0, checkpoint=20.0),
            Failures(trace=((25.0, 0), (25.0, 3)), repair=40.0),
        ]
    ),
)


class SeenResizes(Resizes):
    """In which order they come."""

    def resize(self, resize):
        self._site.moves.append(resize.nodes > len(self._site.indices.running[resize.job].nodes))
        super().resize(resize)


class Checked(Machine):
    """A machine that checks every plan, and its own books after it."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self._resizes = SeenResizes(self)

    def _carry_out(self, plan):
        idle, running = len(self.indices.idle), self.indices.running
        jobs = [one.job for one in (*plan.starts, *plan.resizes, *plan.interrupts)]
        assert len(set(jobs)) == len(jobs)
        assert all(one.reason for one in (*plan.starts, *plan.resizes, *plan.interrupts))
        growth = sum(max(0, r.nodes - len(running[r.job].nodes)) for r in plan.resizes)
        assert growth + sum(start.nodes for start in plan.starts) <= idle + sum(
            len(running[i.job].nodes) for i in plan.interrupts
        )
        for one in (*plan.starts, *plan.resizes):
            job = self.lives[one.job].arrival.job
            assert job.min_nodes <= one.nodes <= job.max_nodes and is_legal(job.constraint, one.nodes)
        self.moves = []
        super()._carry_out(plan)
        assert self.moves == sorted(self.moves)  # all shrinks before any growth
        self.check_books()

    def check_books(self):
        indices = self.indices
        held = [name for one in indices.running.values() for name in one.nodes]
        assert sorted([*held, *indices.idle]) == sorted(indices.nodes)
        assert set(indices.resizable) <= set(indices.running)
        assert len(indices.by_end) == len(indices.running)


def play(policy, jobs, platform, record):
    machine = Checked(platform, Policy.load(policy), record)
    machine.run(jobs, until=10_000.0)
    machine.check_books()
    return machine


def rows(record):
    return list(zip(record.id, record.start, record.end, record.state, strict=True))


@contextmanager
def named(policy):
    """Whoever fails is told of by name. (To draw jobs takes longer than to play them: all policies play what
    was drawn.)"""
    try:
        yield
    except Exception as error:
        error.add_note(f"the policy is {policy}")
        raise


@given(jobs=arrivals(), platform=platforms)
@settings(max_examples=20, deadline=None)
def test_every_run_is_sound(jobs, platform):
    for policy in POLICIES:
        with named(policy):
            is_sound(play(policy, jobs, platform, Record(allotments=True)), jobs, platform)


def is_sound(machine, jobs, platform):
    record = machine.record
    # no node is held twice
    holder = {}
    for _, row, nodes in record.allotments:
        for node in [node for node, owner in holder.items() if owner == row]:
            del holder[node]
        assert not set(nodes) & set(holder)
        holder.update(dict.fromkeys(nodes, row))
    # every job has an end, unless it can be said why not
    for arrival, start, end, state in zip(jobs, record.start, record.end, record.state, strict=True):
        if STATES[state] == "rejected":
            assert arrival.job.nodes > NODES
        elif STATES[state] in ("completed", "killed"):
            assert arrival.job.submitted <= start <= end
    if platform.failures is None:
        assert {STATES[state] for state in record.state} <= {"completed", "killed", "cancelled", "rejected"}
        assert not machine.indices.running and not machine.indices.waiting


@st.composite
def brief_arrivals(draw):
    """A few jobs at once, some over as they start, and nothing comes after them that would wake anybody."""
    jobs = []
    for number in range(draw(st.integers(2, 4))):
        nodes, kind = draw(st.integers(1, NODES)), draw(st.sampled_from(["rigid", "malleable"]))
        low, high = (nodes, nodes) if kind == "rigid" else (1, NODES)
        job = Job(id=f"j{number}", nodes=nodes, kind=kind, min_nodes=low, max_nodes=high, walltime=100.0)
        jobs.append(Arrival(job, float(draw(st.sampled_from([0, 0, 5])))))
    return jobs


@given(jobs=brief_arrivals())
@settings(max_examples=30, deadline=None)
def test_no_run_ends_while_a_job_could_start(jobs):
    """The machine itself says so where its policy would still start one; here nobody waits at all."""
    for policy in POLICIES:
        with named(policy):
            record = Record()
            Machine(Platform(NODES), Policy.load(policy), record).run(jobs)
            assert {STATES[state] for state in record.state} == {"completed"}


@given(jobs=arrivals(), platform=platforms)
@settings(max_examples=8, deadline=None)
def test_same_input_same_run_recorded_or_not(jobs, platform):
    for policy in POLICIES:
        with named(policy):
            one, two = (play(policy, jobs, platform, Record(allotments=flag)) for flag in (True, False))
            silent = play(policy, jobs, platform, None)
            assert repr(rows(one.record)) == repr(rows(two.record))
            assert list(one.story) == list(two.story) == list(silent.story)


@given(jobs=arrivals(), platform=platforms)
@settings(max_examples=8, deadline=None)
def test_names_mean_nothing(jobs, platform):
    """Other names, the same schedule."""
    renamed = [replace(a, job=replace(a.job, id=f"x{9 - int(a.job.id[1:])}")) for a in jobs]
    for policy in POLICIES:
        with named(policy):
            plain = play(policy, jobs, platform, Record()).record
            other = play(policy, renamed, platform, Record()).record
            assert repr([row[1:] for row in rows(plain)]) == repr([row[1:] for row in rows(other)])


@given(jobs=arrivals())
@settings(max_examples=200, deadline=None)
def test_easy_never_moves_the_reservation_of_its_head_back(jobs):
    rigid = [
        replace(a, job=replace(a.job, kind="rigid", min_nodes=0, max_nodes=0), requests=()) for a in jobs
    ]
    queue = Policy.load("easy-backfill").queue
    promised = {}

    class Watching:
        rank = staticmethod(queue.rank)

        @staticmethod
        def decide(snapshot, memory):
            starts, memory = queue.decide(snapshot, memory)
            started = {start.job for start in starts}
            head = next((job.id for job in snapshot.waiting if job.id not in started), None)
            if memory is not None and head is not None:
                assert memory.shadow <= promised.get(head, memory.shadow)
                promised[head] = memory.shadow
            for start in starts:
                assert snapshot.now <= promised.get(start.job, snapshot.now)
            return starts, memory

    Machine(NODES, Policy("watched", Watching), Record()).run(rigid)
