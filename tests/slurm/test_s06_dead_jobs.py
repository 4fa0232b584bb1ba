"""S6: batch jobs die while they wait, before their workers connect, with their node, and again and again."""

from contextlib import contextmanager
from time import monotonic, sleep

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client
from distributed.utils_test import slowinc

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

POLL = 1.0  # seconds between our questions to Slurm
HOPELESS = 6.0  # seconds that plain Dask gets to notice: a dozen of its cycles
RETRIES = 3  # replacements in a row that may die
DELAY = 2.0  # seconds before the second of them; before the third twice that


class Group:
    """Batch jobs of two workers each, all the time as many as there shall be."""

    def __init__(self, slurm, client, name):
        self.slurm, self.client, self.name = slurm, client, name

    def jobs(self, *states):
        mine = self.slurm.jobs(name=self.name)
        return {job for job, state in mine.items() if state in states or not states}

    def submitted(self):
        return len(self.slurm.jobs(name=self.name, states="all"))

    def workers(self):
        return len(self.client.nthreads())

    def wait(self, holds, what):
        return self.slurm.wait_until(holds, what)

    def seconds_until(self, holds, patience):
        """How long until something holds; None if it does not."""
        began = monotonic()
        while not holds():
            if monotonic() - began > patience:
                return None
            sleep(0.1)
        return monotonic() - began


@contextmanager
def group_of(slurm, name, count, ours, prologue=(), **ours_only):
    with (
        dask_cluster(slurm, processes=2, job_name=name, prologue=prologue) as cluster,
        Client(cluster) as client,
    ):
        limits = {"minimum_jobs": count, "maximum_jobs": count, "interval": "500ms"}
        if ours:
            with dask_hpc.malleable(cluster) as manager:
                cluster.adapt(poll=POLL, **limits, **ours_only)
                yield Group(slurm, client, name), manager
        else:
            cluster.adapt(**limits)
            yield Group(slurm, client, name), None


# each kills one of two jobs, and gives its id; nodes n3 and n4 are down


def while_it_waits(slurm, group):
    (dead,) = group.wait(lambda: group.jobs("PENDING"), "a job in the queue")
    slurm.run("scancel", dead)
    return dead


def just_after_its_start(slurm, group):
    (dead,) = group.wait(lambda: group.jobs("PENDING"), "a job in the queue")
    slurm.set_up("n2")
    group.wait(lambda: dead in group.jobs("RUNNING"), "its start")
    assert group.workers() == 2  # Slurm says that it runs, but Python takes longer
    slurm.run("scancel", dead)
    return dead


def with_its_node(slurm, group):
    slurm.set_up("n2")
    group.wait(lambda: group.workers() == 4, "two jobs of two workers")
    group.client.gather(group.client.map(slowinc, range(40), delay=0.1))
    (dead,) = slurm.jobs(name=group.name, nodelist="n2")
    slurm.crash("n2")
    slurm.set_down("n2")
    slurm.set_up("n3")
    return dead


def kill_one(slurm, name, deed, ours):
    """Seconds until Slurm has another job in its place, None for never, and the workers in the end."""
    for node in ("n2", "n3", "n4"):
        slurm.set_down(node)
    with group_of(slurm, name, 2, ours) as (group, manager):
        group.wait(lambda: group.workers() == 2, "the workers of one job")
        group.wait(lambda: len(group.jobs()) == 2, "two jobs")
        dead = deed(slurm, group)
        seconds = group.seconds_until(lambda: len(group.jobs() - {dead}) == 2, 60 if ours else HOPELESS)
        slurm.set_up("n3")
        all_there = group.seconds_until(lambda: group.workers() == 4, 60 if ours else 0) is not None
        if ours:
            assert all_there
            # one that Slurm had put back into its queue is not left there
            group.wait(lambda: len(group.jobs()) == 2, "two jobs and no more")
            told = [row["reason"] for row in manager.story() if row["decision"] == "unit-dead"]
            print(deed.__name__, told)
            assert len(told) == 1
    slurm.clear()
    return seconds, all_there


@pytest.mark.parametrize("deed", [while_it_waits, just_after_its_start, with_its_node])
def test_a_dead_job_is_replaced(slurm, report, deed):
    never, whole = kill_one(slurm, f"plain-{deed.__name__}", deed, ours=False)
    soon, _ = kill_one(slurm, f"ours-{deed.__name__}", deed, ours=True)
    report.add(
        "S6",
        f"a job killed {deed.__name__.replace('_', ' ')} is replaced after",
        plain=f"{never:.1f} s" if never is not None else f"never ({HOPELESS:.0f} s)",
        ours=f"{soon:.1f} s",
        bound=f"one poll ({POLL:g} s)",
    )
    assert never is None and not whole
    assert soon < POLL + 3


def attempts(slurm, name, ours):
    """How many jobs were submitted that die at once, how long after each death, and what was said."""
    hopeless = {"retries": RETRIES, "retry_delay": f"{DELAY} s"}
    with group_of(slurm, name, 1, ours, ["exit 1"], **hopeless) as (group, manager):
        group.wait(group.submitted, "a first job")
        if not ours:
            group.seconds_until(lambda: group.submitted() > 1, HOPELESS)
            return group.submitted(), [], []

        def told(kind):
            return [row for row in manager.story() if row["decision"] == kind]

        group.wait(lambda: told("warning"), "a word about it")
        # longer than the next replacement would have taken
        group.seconds_until(lambda: group.submitted() > RETRIES + 1, 4 * DELAY + 2 * POLL)
        asked, died = told("submit-units"), told("unit-dead")
        assert len(died) == len(asked) == RETRIES + 1
        waits = [again["time"] - dead["time"] for dead, again in zip(died[:-1], asked[1:], strict=True)]
        return group.submitted(), waits, [row["reason"] for row in told("warning")]


def test_jobs_that_all_die_are_asked_for_ever_later_then_given_up_and_reported(slurm, report):
    plain, _, _ = attempts(slurm, "plain-hopeless", ours=False)
    ours, waits, said = attempts(slurm, "ours-hopeless", ours=True)
    print(waits, said)
    what = f"jobs submitted that die at once, {RETRIES} replacements allowed"
    report.add("S6", what, plain=plain, ours=ours, bound=RETRIES + 1)
    shown = ", ".join(f"{max(wait, 0):.1f}" for wait in waits)
    report.add("S6", "seconds until each replacement", plain="never", ours=shown, bound="0, 2, 4")
    assert plain == 1  # it waits for ever, and says nothing
    assert ours == RETRIES + 1
    at_once, soon, later = waits
    assert at_once < DELAY <= soon < 2 * DELAY <= later < 4 * DELAY
    assert len(said) == 1 and f"{RETRIES + 1} units in a row have died" in said[0]
