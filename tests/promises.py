"""What the tutorials promise, and how it is seen in the kernel that runs them.

Each promise is some words of the tutorial, the cell after which they hold, and code that fails where they do not.
``until`` waits for what the reader would wait for. The checks stand here, so that a tutorial is only what it teaches;
``with_checks`` puts them between its cells.
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
            "c3",
            'assert len(its_story("start", job="climate")[0]["nodes"]) == 4',
        ),
        Promise(
            "`climate` gives nodes up when others come",
            "c3",
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
            'assert client.status == "running" and len(manager.status()["nodes"]) == 4',
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
its_sizes = [(row["decision"], len(row["nodes"])) for row in its_story("start", "grow", "shrink", job="trend")]
assert [decision for decision, _ in its_sizes] == ["start", "grow", "shrink"], its_sizes
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
assert len(log.read_text().splitlines()) == YEARS, "computed again"
""",
        ),
        Promise("The room, with the whole course", "malleable-jobs-28", 'assert client.status == "running"'),
    ],
    "3-power-corridor": [
        Promise(
            "where there is none it says what would make one possible",
            "power-corridor-04",
            """
its_plans = [dask_hpc.plan_corridor(16, explorer.jobs, "0 W", w, idle="60 W") for w in ("3.5 kW", "2.5 kW", "1 kW")]
assert [one.is_feasible for one in its_plans][::2] == [True, False]
assert sum(its_plans[0].sizes.values()) > sum(its_plans[1].sizes.values()) and " W" in its_plans[2].reason
""",
        ),
        Promise("The line of the chart climbs", "power-corridor-10", 'assert manager.power()["watts"] > 700'),
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
its_until(lambda: manager.power()["watts"] > 740)
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
            'assert "cannot be kept" in verdict["text"] and "280" in verdict["text"], verdict',
        ),
        Promise(
            "Every change can be undone",
            "power-corridor-22",
            'assert _ > 0 and its_until(lambda: manager.power()["corridor"]["upper"] is None)',
        ),
        Promise(
            "the jobs are cancelled, and what they have done stays",
            "power-corridor-24",
            'assert len(found) > 10 and its_until(lambda: all(job["state"] != "running" for job in its_jobs().values()))',
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
