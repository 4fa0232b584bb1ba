"""What the tutorials promise, and how it is seen in the kernel that runs them.

Each promise is some words of the tutorial, the cell after which they hold, and code that fails where they do
not. ``its_until`` waits for what the reader would wait for. The checks stand here, so that a tutorial is only
what it teaches; ``with_checks`` puts them between its cells.
"""

import re
from typing import NamedTuple


class Promise(NamedTuple):
    words: str
    after: str  # the id of a cell
    check: str


#: what the checks use; their names begin with "its_", as the tutorial has names of its own
TOOLS = '''
import time as its_time


def its_until(what, seconds=60):
    """Wait until that is so; answers what it is."""
    limit = its_time.monotonic() + seconds
    while not (found := what()):
        assert its_time.monotonic() < limit, "waited in vain"
        its_time.sleep(0.05)
    return found


def its_story(*decisions, job=None, since=0):
    return [
        row
        for row in manager.story()
        if row["decision"] in decisions
        and row["time"] >= since
        and (job is None or row["job"].rpartition("-")[0] == job)
    ]


def its_jobs():
    return {job["name"]: job for job in manager.status()["jobs"]}
'''

PROMISES = {
    "1-first-steps": [
        Promise(
            "`climate` has all four nodes",
            "c1",
            'assert len(its_story("start", job="climate")[0]["nodes"]) == 4',
        ),
        Promise(
            "`climate` gives nodes up when others come",
            "c1",
            'its_until(lambda: its_story("shrink", job="climate") and its_story("start", job="plots"))',
        ),
        Promise(
            "The next cell blocks until the two are done",
            "c5",
            "assert _ == sum(range(20)) + sum(range(10)), _",
        ),
        Promise(
            "takes them back when they are done",
            "c5",
            'its_until(lambda: its_story("grow", job="climate") and len(climate.status()["nodes"]) == 4)',
        ),
        Promise("Four nodes at work draw 800 W", "c5", 'its_until(lambda: manager.power()["watts"] > 750)'),
        Promise(
            "`climate` gives back two nodes",
            "c7",
            'its_until(lambda: len(climate.status()["nodes"]) == 2)',
        ),
        Promise("power falls below the bound", "c7", 'its_until(lambda: manager.power()["watts"] <= 600)'),
        Promise("either way it can be undone", "c9", 'assert manager.power()["corridor"]["upper"] is None'),
        Promise("is cancelled", "c9", 'its_until(lambda: its_jobs()["climate"]["state"] != "running")'),
        Promise(
            "of four new jobs one has to wait for all nodes",
            "c10",
            """
its_whole, its_large = its_jobs()["whole"], its_jobs()["large"]
assert its_whole["waited"] > 0 and its_whole["started"] >= its_large["ended"], its_whole
""",
        ),
        Promise(
            "twenty times for each policy",
            "c9",
            """
assert list(study.summary.index) == ["fcfs", "easy-backfill", "elastic"]
assert (study.summary["mean_wait"] > 0).all() and (study.summary["mean_wait_ci"] > 0).all()
""",
        ),
        Promise(
            "Every decision has its reason",
            "c12",
            'assert all(row["reason"] for row in its_story("start", "shrink", "grow", "policy"))',
        ),
        Promise(
            "All stays as it is",
            "c12",
            'assert client.status == "running"',
        ),
    ],
    "2-malleable-jobs": [
        Promise(
            "make room for a more urgent one",
            "malleable-jobs-14",
            """
its_shrink, *_ = its_story("shrink", job="climatology")
its_start, *_ = its_story("start", job="storm warning")
assert its_shrink["time"] <= its_jobs()["storm warning"]["started"] <= its_jobs()["climatology"]["ended"]
""",
        ),
        Promise(
            "then the nodes return",
            "malleable-jobs-14",
            """
its_grow = its_story("grow", job="climatology")
assert its_grow and its_grow[-1]["time"] > its_jobs()["storm warning"]["started"], its_grow
""",
        ),
        Promise(
            "Every decision has its reason",
            "malleable-jobs-16",
            'assert all(row["reason"] for row in its_story("start", "shrink", "grow"))',
        ),
        Promise(
            "Each year of each job was smoothed exactly once",
            "malleable-jobs-18",
            'assert len(log.read_text().splitlines()) == YEARS + YEARS // 8, "computed again"',
        ),
        Promise(
            "asks for two more for the large part, and gives three back after it",
            "malleable-jobs-22",
            """
its_ways = [row["decision"] for row in its_story("start", "grow", "shrink", job="trend")]
assert its_ways == ["start", "grow", "shrink"], its_ways
""",
        ),
        Promise(
            "`on_resize` is called once for each change",
            "on-resize-code",
            """
its_moves = [(len(one.staying), len(one.leaving), len(one.joining)) for one in changes]
assert its_moves == [(0, 0, 2), (2, 0, 2), (1, 3, 0)], its_moves
""",
        ),
        Promise(
            "plain values by a rule, here the *rank* of each node, which numbers them from 0",
            "on-resize-code",
            """
assert [sorted(by_node.values()) for by_node in ranks] == [[0, 1], [0, 1, 2, 3], [0]], ranks
assert np.array_equal(u, relaxed(relaxed(relaxed(first))))
""",
        ),
        Promise("Two rows of the map end", "malleable-jobs-26", 'assert its_story("node-left")'),
        Promise("two new ones are asked for", "malleable-jobs-26", "client.wait_for_workers(4, timeout=60)"),
        Promise(
            "Same numbers, to the last bit, and every year computed once",
            "malleable-jobs-28",
            """
assert its_jobs()["climatology again"]["state"] == "done"
assert np.array_equal(climate_before, again.values)
its_count = len(log.read_text().splitlines())
assert its_count == YEARS, its_count
""",
        ),
        Promise("The room, with the whole course", "malleable-jobs-28", 'assert client.status == "running"'),
    ],
    "3-power-corridor": [
        Promise(
            "where there is none it says what would make one possible",
            "power-corridor-04",
            """
its_plans = [
    dask_hpc.plan_corridor(16, explorer.jobs, "0 W", watts, idle="60 W")
    for watts in ("3.5 kW", "2.5 kW", "1 kW")
]
assert [one.is_feasible for one in its_plans][::2] == [True, False]
assert sum(its_plans[0].sizes.values()) > sum(its_plans[1].sizes.values()) and " W" in its_plans[2].reason
""",
        ),
        Promise(
            "The line of the chart climbs",
            "power-corridor-10",
            'its_until(lambda: manager.power()["watts"] > 650)',
        ),
        Promise(
            "power follows within about the length of a task",
            "power-corridor-14",
            """
its_until(lambda: manager.power()["watts"] < 720)
assert its_story("shrink", job="ensemble") or its_story("shrink", job="sensitivity")
""",
        ),
        Promise(
            "nodes are given back a little before the bound falls",
            "power-corridor-16",
            """
its_shrinks = its_story("shrink", since=now)
assert its_shrinks and its_shrinks[0]["time"] < now + 4.5, its_shrinks
""",
        ),
        Promise(
            "When it is gone, they come back",
            "power-corridor-16",
            """
its_until(lambda: manager.power()["watts"] > 700)
assert its_story("grow", since=now + 9)
""",
        ),
        Promise(
            "Each change of a job's size has a reason",
            "power-corridor-18",
            'assert all(row["reason"] for row in its_story("start", "shrink", "grow", "corridor"))',
        ),
        Promise(
            "says so: its *verdict* is whether the corridor can be kept, and what would help if not",
            "power-corridor-20",
            """
assert "cannot be kept" in verdict["text"] and "raise the upper bound" in verdict["text"], verdict
""",
        ),
        Promise(
            "Every change can be undone",
            "power-corridor-22",
            'assert _ > 0 and its_until(lambda: manager.power()["corridor"]["upper"] is None)',
        ),
        Promise(
            "the jobs are cancelled, and what they have done stays",
            "power-corridor-24",
            """
assert len(found) > 10
its_until(lambda: all(job["state"] != "running" for job in its_jobs().values()))
assert client.status == "running"
""",
        ),
    ],
    "4-in-situ": [
        Promise(
            "The answer depends on the network",
            "in-situ-06",
            """
assert len({row["in situ"] for row in rows.values()}) > 1
assert len({row["an iteration, s"] for row in rows.values()}) == 5
""",
        ),
        Promise("No figure had to be declared", "in-situ-14", 'assert its_story("placement")'),
        Promise(
            "gives the same, to the last bit",
            "in-situ-16",
            "assert all(right) and len(right) == before, right",
        ),
        Promise(
            "it finds out by itself, and what it does about it is in the story, with the reason",
            "in-situ-20",
            """
its_changes = [one for one in status["changes"] if one["iteration"] > before]
assert its_changes and "spectrum" in its_changes[0]["reason"], status["changes"]
""",
        ),
        Promise(
            "in the one called `steps` an analysis becomes ten times slower, too",
            "in-situ-22",
            "assert len(run.changes) > 1 and all(one.reason for one in run.changes)",
        ),
        Promise(
            "The graph that consumes them may be submitted *before* there are any data",
            "in-situ-25",
            "assert [float(one) for one in means.result()] == [1.5, 11.5, 21.5]",
        ),
        Promise("The pictures and the room stay", "in-situ-25", 'assert client.status == "running"'),
    ],
    "5-checkpoint-and-restart": [
        Promise(
            "each block is sent to an *agent* on another node",
            "checkpoint-and-restart-08",
            'assert its_story("commit")',
        ),
        Promise(
            "it is loaded from the copies instead",
            "checkpoint-and-restart-10",
            'assert before == after and its_until(lambda: its_story("recovery"))',
        ),
        Promise(
            "Copies that were lost with the node are made again",
            "checkpoint-and-restart-11",
            'dask_hpc.protected("u", wait=True)',
        ),
        Promise(
            "data that came from outside",
            "checkpoint-and-restart-11",
            "assert measured.result().sum() == np.arange(200_000.0).sum()",
        ),
        Promise(
            "the same script goes on where it was, also on another number of nodes",
            "checkpoint-and-restart-18",
            """
assert np.array_equal(state.heat.values, plain)
assert len(begins) == 2 and begins[0] == 0 < begins[1], begins
""",
        ),
        Promise(
            "Anybody can have a version back, without the program",
            "checkpoint-and-restart-23",
            """
its_plain = xr.open_zarr(f"{store}/plate/{version.version:08}/state.zarr")
assert np.array_equal(its_plain.heat.values, found.heat.values)
""",
        ),
        Promise(
            "to another number of nodes",
            "checkpoint-and-restart-26",
            "assert len({where[0] for where in client.who_has(futures_of(found)).values()}) == 5",
        ),
        Promise(
            "a program in `manager.status()`",
            "checkpoint-and-restart-29",
            'assert status["counts"] and status["last_commit"] and status["levels"]',
        ),
        Promise(
            "The pictures and the rooms stay",
            "checkpoint-and-restart-29",
            'assert client.status == "running"',
        ),
    ],
    "6-on-slurm": [
        Promise(
            "Without a Slurm the page runs, too",
            "on-slurm-07",
            "assert isinstance(cluster, LocalCluster) != IS_SLURM",
        ),
        Promise("Two nodes to begin with", "on-slurm-09", "assert len(client.nthreads()) == 2"),
        Promise(
            "Now two nodes more, which the job takes",
            "on-slurm-13",
            'its_until(lambda: its_story("grow", job="wind"))',
        ),
        Promise(
            "and after a while three fewer",
            "on-slurm-14",
            """
its_until(lambda: len(client.nthreads()) == 1)
assert its_story("shrink", job="wind")
""",
        ),
        Promise(
            "finishes the task it runs and hands its results to the others before it ends",
            "on-slurm-16",
            'assert not its_story("lost") and its_jobs()["wind"]["state"] == "done"',
        ),
        Promise(
            "let the demand decide",
            "on-slurm-18",
            'assert len(its_jobs()["wind again"]["nodes"]) > 1 or its_story("grow", job="wind again")',
        ),
        Promise(
            "nodes nobody needs go back after a while", "on-slurm-18", "assert len(client.nthreads()) == 1"
        ),
        Promise("The room and the cluster stay", "on-slurm-18", 'assert client.status == "running"'),
    ],
    "6b-ask-well": [
        Promise(
            "the requests are those with the least mean cost", "ask-well-05", "assert len(plan.requests) > 1"
        ),
        Promise(
            "Without commits no plan is much better than to ask for the longest run",
            "ask-well-08",
            """
its_hours = {
    name: np.mean([stay(way, job).price(plan.cost) for job in jobs]) for name, way in ways.items()
}
assert its_hours["this plan"] == min(its_hours.values()), its_hours
assert its_hours["this plan"] < 0.95 * its_hours["without commits"], its_hours
assert its_hours["without commits"] > 0.9 * its_hours["the longest run"], its_hours
""",
        ),
        Promise(
            "Four jobs run, sixteen wait, and yet some nodes are free for a while",
            "ask-well-12",
            "assert (len(view.running), len(view.pending)) == (4, 16) and holes",
        ),
        Promise(
            "The usual request of eight hours fits into no hole",
            "ask-well-14",
            """
assert all(seconds < 8 * HOUR for seconds, _ in holes)
assert choice.best.starts.at(0.5) < choice.usual.starts.at(0.5)
""",
        ),
        Promise(
            "What fits has done most of the work before the first usual request begins",
            "ask-well-18",
            """
its_first = min(bar.really for bar in bars if bar.kind == "as usual")
its_fits = [bar for bar in bars if bar.kind == "what fits"]
assert sum(max(0, min(its_first - bar.really, bar.length)) for bar in its_fits) > work.seconds / 2
""",
        ),
        Promise(
            "Each request ends with a commit, so the next one goes on from there",
            "ask-well-20",
            "assert len(job.reservations) > 1 and all(one.saved >= 0 for one in job.reservations)",
        ),
    ],
    "7-write-a-strategy": [
        Promise(
            "A wrong value is refused with the reason",
            "write-a-strategy-10",
            """
try:
    mine.with_(**{"malleability.slack": -1})
except dask_hpc.InputError as its_error:
    assert "slack" in str(its_error) and "allowed" in str(its_error)
else:
    raise AssertionError("it was taken")
""",
        ),
        Promise(
            "ours is not there: it is even behind plain `fcfs`",
            "write-a-strategy-12",
            'assert table["mean_response"]["equal-shares"] > table["mean_response"]["fcfs"], table',
        ),
        Promise(
            "The machine is fuller, and responses are shorter, with the same idea",
            "write-a-strategy-14",
            """
its_first, its_second = (sweep.summary.iloc[i] for i in (0, 1))
assert its_second["utilisation"] > its_first["utilisation"], sweep.summary
assert its_second["mean_response"] < its_first["mean_response"], sweep.summary
""",
        ),
        Promise(
            "`north` and `south` have two nodes each, `west` waits",
            "write-a-strategy-20",
            'assert [len(its_jobs()[name]["nodes"]) for name in ("north", "south", "west")] == [2, 2, 0]',
        ),
        Promise(
            "What would our policy do from here?",
            "write-a-strategy-22",
            """
its_waits = study.summary["mean_wait"]
assert its_waits.iloc[1] < its_waits.iloc[0], study.summary
""",
        ),
        Promise(
            "`west` need not wait any longer",
            "write-a-strategy-28",
            """
assert its_jobs()["west"]["state"] == "running"
assert any("equal share" in row["reason"] for row in its_story("shrink"))
""",
        ),
        Promise("The rooms stay", "write-a-strategy-29", 'assert client.status == "running"'),
    ],
    "8-scratch-files": [
        Promise(
            "no more than 30 MB pass in a second",
            "scratch-files-07",
            """
its_shared = rows["slowshared"]
its_seconds = its_shared["stage 1, s"] + its_shared["stage 2, s"]
assert 100 < its_shared["through the shared file system, MB"] < 31 * its_seconds, its_shared
""",
        ),
        Promise(
            "no byte went over the line",
            "scratch-files-09",
            """
its_memory = rows["hpcmemory"]
assert its_memory["through the shared file system, MB"] == 0, its_memory
assert its_memory["stage 1, s"] + its_memory["stage 2, s"] < its_seconds, rows
""",
        ),
        Promise(
            "new blocks go to all three",
            "scratch-files-13",
            """
its_nodes = files.status()["nodes"]
assert len(its_nodes) == 3 and all(node["blocks"] for node in its_nodes), its_nodes
""",
        ),
        Promise(
            "Its blocks go to the others first, so the next stage finds all of them",
            "scratch-files-15",
            """
its_status = files.status()
assert len(its_status["nodes"]) == 2 and its_status["lost"] == 0, its_status
assert its_status["state"] == "commissioning" and again.identical(in_memory), its_status
""",
        ),
        Promise(
            "here the results alone", "scratch-files-17", "assert 0 < staged < total / 10, (staged, total)"
        ),
    ],
}


def with_checks(notebook, name, cell):
    """Put the checks of a tutorial between its cells; ``cell`` makes one of some code."""
    found = [cell(TOOLS)]
    for one in notebook.cells:
        found.append(one)
        for promise in PROMISES.get(name, ()):
            if promise.after == one.id:
                found.append(cell(f"# {promise.words}\n{promise.check.strip()}"))
    notebook.cells = found
    return notebook


def plain(text):
    """In one line, for words may go over two."""
    return re.sub(r"\s+", " ", text)
