"""Rigs for control-room.ipynb: a page that shows 1,000 nodes, and a scheduler that somebody watches.

``python thousand_nodes.py page SECONDS`` prints what it measured as JSON.
"""

import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace

from dask_hpc import Policy
from dask_hpc.cluster.client.watch import Watch
from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.status import Status
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.model.story import Happening, Story
from dask_hpc.planning.figures import JobFigures
from dask_hpc.power.scheduler.trace import LiveTrace
from dask_hpc.power.service import PowerService

HERE = Path(__file__).parent
NODES, JOBS, HISTORY, EVERY = 1_000, 200, 3_600.0, 0.1


class MadeUp:
    """What a scheduler would tell of 200 jobs on 1,000 nodes, if there were any: something happens every
    tenth of a second. It stands where the plugin does, so ``Status`` reads it like one."""

    def __init__(self, history=HISTORY, seed=1):
        self.story, self.power_trace, self.random = Story(), LiveTrace(), Random(seed)
        power = SimpleNamespace(feed_key="power", parts={}, feed=self.feed_power)
        self.context = SimpleNamespace(
            clock=self.clock, epoch=1.7e9, began=1.7e9, policy=Policy.load("power-corridor"), jobs={},
            errors=0, story=self.story, services=[power], get=self.part,
            indices=SimpleNamespace(nodes=range(NODES)),
        )  # fmt: skip
        self.figures, self.figures_of = Figures(self.context), {}
        self.history, self.state, self.status = _History(), "on", Status(self)
        self.time, self.history_ends, self.began = 0.0, history, None
        self.names = [f"node{i:04}" for i in range(NODES)]
        self.free, self.jobs, self.over, self.count = set(self.names), {}, [], 0
        self.tell("node-joined", "", self.names, "")
        for _ in range(JOBS):
            self.submit()

    def clock(self):
        return self.time

    def part(self, kind):
        """The only one that ``Status`` asks for."""
        assert kind is Figures
        return self.figures

    def catch_up(self):
        """What has happened until now."""
        self.began = self.began or time.monotonic()
        now = self.history_ends + time.monotonic() - self.began
        while self.time + EVERY <= now:
            self.step()

    def step(self):
        self.time += EVERY
        if int(self.time / EVERY) % 10 == 0:
            watts = 100 * NODES - 60 * len(self.free) + 900 * self.random.random()
            forecast = PowerRange(watts * 0.97, watts * 1.03)
            self.power_trace.add(self.time, PowerView(watts, forecast=forecast), 50e3, 99e3)
        running = [job for job in self.jobs.values() if job["state"] == "running"]
        waiting = [job for job in self.jobs.values() if job["state"] == "waiting"]
        dice = self.random.random()
        if waiting and len(self.free) >= waiting[0]["asks"] and dice < 0.7:
            return self.hold(
                waiting[0], waiting[0]["asks"], "start", "the first in the queue, and enough nodes"
            )
        job = self.random.choice(running)
        if dice < 0.4 and len(job["nodes"]) > job["min_nodes"]:
            return self.hold(job, self.random.randint(job["min_nodes"], len(job["nodes"]) - 1), "shrink",
                             "gives nodes to the first that waits")  # fmt: skip
        if dice < 0.6 and self.free:
            return self.hold(job, len(job["nodes"]) + min(len(self.free), 4), "grow", "nodes are idle")
        self.free.update(job["nodes"])
        self.figures.run.ends(self.figures_of.pop(job["id"]), self.time)
        job |= {"state": "done", "nodes": [], "ended": self.time, "progress": 1.0}
        self.tell("end", job["id"], [], "")
        self.over = [*self.over[-100:], self.jobs.pop(job["id"])]
        self.submit()

    def hold(self, job, count, decision, reason):
        kept = job["nodes"][:count]
        self.free.update(job["nodes"][count:])
        kept += sorted(self.free)[: count - len(kept)]
        self.free.difference_update(kept)
        started = self.time if job["started"] is None else job["started"]
        job |= {
            "nodes": kept,
            "state": "running",
            "started": started,
            "reason": reason,
            "waiting_because": None,
        }
        self.figures.run.holds(self.figures_of[job["id"]], len(kept), self.time)
        self.tell(decision, job["id"], kept, reason)

    def submit(self):
        self.count += 1
        asks = self.random.randint(2, 16)
        job = {
            "id": f"step-{self.count}", "name": f"step-{self.count % 40}", "script": "", "state": "waiting",
            "kind": "malleable", "asks": asks, "min_nodes": max(1, asks // 2), "max_nodes": 2 * asks,
            "walltime": 600.0, "nodes": [], "gives_up": [], "requested": None, "submitted": self.time,
            "started": None, "ended": None, "unfinished_tasks": 500, "finished_tasks": 0, "bytes": 10**6,
            "compute": 0.0, "transfer": 0.0, "disk": 0.0, "mtct": 30.0, "progress": 0.0, "expected_end": None,
            "context": "open", "cancelled": False, "failed": 0, "error": "", "user": f"user{self.count % 7}",
            "node_seconds": 0.0, "energy": 0.0, "reason": "",
            "waiting_because": f"needs {asks} nodes, 3 idle",
        }  # fmt: skip
        self.jobs[job["id"]] = job
        self.figures_of[job["id"]] = JobFigures(self.time, asks)
        self.figures.run.submitted(self.time)
        self.tell("submit", job["id"], [], "")

    def tell(self, decision, job, nodes, reason):
        self.story.tell(Happening(self.count, self.time, decision, job, tuple(nodes), reason))

    def marked(self):
        """Some are on hold, and every ten seconds others are."""
        first = int(self.time / 10) * 7 % (NODES - 40)
        return [[self.names[first : first + 20], "hold", "asked for"],
                [self.names[first + 20 : first + 40], "leaving", "it is leaving"]]  # fmt: skip

    def feed_power(self, read):
        return PowerService.feed(SimpleNamespace(trace=self.power_trace, verdict=None), read)

    def feed(self, story=0, power=0, jobs=None, parts=()):
        """As the plugin's."""
        found = self.status.feed(story, power=power)
        if jobs is not None:
            for job in self.jobs.values():
                if job["state"] == "running":
                    took = self.time - job["started"]
                    done = 1 - 1 / (1 + took / 60)
                    used = self.figures_of[job["id"]].node_seconds(self.time)
                    job |= {"node_seconds": used, "energy": 100 * used, "compute": 4 * took,
                            "transfer": took / 2, "progress": done,
                            "finished_tasks": int(500 * done),
                            "unfinished_tasks": 500 - int(500 * done)}  # fmt: skip
            ended = [job for job in self.over if job["ended"] >= jobs]
            found["jobs"] = [*map(dict, ended), *map(dict, self.jobs.values())]
        if "marked" in parts:
            found["marked"] = self.marked()
        if "power" in parts:
            shares = {
                name: [95 * len(job["nodes"]), 105 * len(job["nodes"])] for name, job in self.jobs.items()
            }
            watts = self.power_trace.samples[-1].watts if self.power_trace.samples else 0.0
            found["power_now"] = {
                "time": self.time, "watts": watts, "source": "modelled", "is_outside": watts > 99e3,
                "is_steered": True, "jobs": shares, "lower": 50e3, "upper": 99e3, "violations": 0,
            }  # fmt: skip
        return found


class _History:
    version = 0

    def __len__(self):
        return 0


class _MadeUpScheduler:
    """Where a client's remote calls go: through Dask's own form of messages, as on a wire."""

    def __init__(self, made_up):
        self.made_up = made_up

    async def hpc_feed(self, **asked):
        from distributed.protocol import dumps, loads

        self.made_up.catch_up()
        return loads(dumps(self.made_up.feed(**asked)))

    async def hpc_set(self):
        policy = self.made_up.context.policy
        return {
            "name": policy.name,
            "policy": policy.to_yaml(),
            "settings": {},
            "state": "on",
            "undo": 0,
            "version": 0,
        }


def cluster(history=HISTORY):
    """What a control room takes for a managed cluster: its watch and what goes over the wires are real."""
    from distributed.utils import LoopRunner

    made_up = MadeUp(history)
    runner = LoopRunner()
    runner.start()
    client = SimpleNamespace(
        loop=runner.loop, scheduler=_MadeUpScheduler(made_up), status="running", runner=runner
    )
    watch = Watch(client)
    while made_up.time + EVERY <= history:  # an hour that somebody has watched
        for _ in range(20):
            made_up.step()
        found = made_up.feed(**watch.course.wants(made_up.time % 20 < 2, ()))
        watch.course.add(found | {"state": "not yet"})  # so that the watch asks what is in force
    return SimpleNamespace(watch=watch, client=client, awaited=client.scheduler, made_up=made_up)


def room(history=HISTORY):
    """A real control room; only the cluster is made up."""
    from dask_hpc_widgets import ControlRoom

    return ControlRoom(cluster(history))


PREPARE = """\
# made-up changes of 1,000 nodes and 200 jobs, ten times a second: there is no such cluster
import sys
sys.path.insert(0, {folder!r})
import thousand_nodes"""
SHOW = """\
room = thousand_nodes.room({history})
room"""

FRAMES = """() => {
  window.dhFrames = [];
  const tick = (now) => {
    if (!window.dhFrames) return;
    window.dhFrames.push(now);
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}"""
SOCKET = """
window.dhMessages = [0, 0];
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => {
      window.dhMessages[0] += 1;
      window.dhMessages[1] += data.byteLength ?? data.length;
    });
  }
};
"""


def measure_page(seconds, history=HISTORY, with_room=True, pictures=None, profile=None):
    """Frames, memory and processor time of a page of JupyterLab, with the room or with a cell's text."""
    sys.path.insert(0, str(HERE.parents[1] / "tests" / "browser"))
    import rig

    with tempfile.TemporaryDirectory() as folder:
        show = SHOW.format(history=history) if with_room else "'no room'"
        rig.write_notebook(Path(folder, "room.ipynb"), [PREPARE.format(folder=str(HERE)), show])
        with rig.served("lab", folder, "room.ipynb") as url, rig.browser(folder, "room") as chrome:
            page = rig.new_page(chrome)
            page.add_init_script(SOCKET)
            page.goto(url)
            page.wait_for_selector(".jp-Notebook .jp-Cell")
            rig.run_cell(page, 0)
            # what the page asks the kernel as it opens is answered by then: ipywidgets may lose a widget
            # that comes in the middle of it
            page.locator(".jp-InputPrompt", has_text="[1]:").wait_for()
            rig.run_cell(page, 1)
            if with_room:
                page.wait_for_selector(".dh-headline b >> nth=3", timeout=120_000)
                page.locator(".dh-headline").scroll_into_view_if_needed()
            else:
                page.wait_for_selector(".jp-OutputArea-output")
            page.wait_for_timeout(3_000)  # everything has been drawn once
            found = _watch_page(chrome, page, seconds, profile)
            if pictures:
                page.screenshot(path=Path(pictures, "thousand-nodes.png"))
            return found | {"complaints": page.complaints}


def _watch_page(chrome, page, seconds, profile):
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable")
    if profile:
        cdp.send("Profiler.enable")
        cdp.send("Profiler.start")
    renderer = _renderer(chrome)
    began, cpu = time.monotonic(), _cpu(renderer)
    messages = page.evaluate("[...dhMessages]")
    page.evaluate(FRAMES)
    page.wait_for_timeout(seconds * 1_000)
    frames = page.evaluate("() => { const found = dhFrames; dhFrames = null; return found; }")
    took, cpu = time.monotonic() - began, _cpu(renderer) - cpu
    messages = [
        (after - before) / took for before, after in zip(messages, page.evaluate("dhMessages"), strict=True)
    ]
    if profile:
        Path(profile).write_text(json.dumps(cdp.send("Profiler.stop")["profile"]))
    rss, pss = _memory(renderer)
    peak = _heap(cdp)
    cdp.send("HeapProfiler.collectGarbage")
    gaps = sorted(1_000 / (b - a) for a, b in pairwise(frames) if b > a)
    return {
        "seconds": took,
        "frames": gaps[len(gaps) // 2],
        "frames_mean": len(gaps) / took,
        "frames_worst": gaps[len(gaps) // 100],
        "messages": messages[0],
        "kilobytes": messages[1] / 1e3,
        "heap": peak,
        "heap_collected": _heap(cdp),
        "pss": pss,
        "rss": rss,
        "cpu": cpu / took,
    }


def _heap(cdp):
    found = {one["name"]: one["value"] for one in cdp.send("Performance.getMetrics")["metrics"]}
    return found["JSHeapUsedSize"] / 1e6


def _renderer(chrome):
    """The process of the page: of the browser's renderers the largest."""
    found = chrome.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return max(
        (int(one["id"]) for one in found if one["type"] == "renderer"), key=lambda pid: _memory(pid)[1]
    )


def _memory(pid):
    """Resident megabytes, and those with what is shared counted in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = {line.split()[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines[1:]}
    return found["Rss:"], found["Pss:"]


def _cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["page"])
    parser.add_argument("seconds", type=float)
    parser.add_argument("--history", type=float, default=HISTORY)
    parser.add_argument("--bare", action="store_true", help="the page without the room")
    parser.add_argument("--profile", help="a file for the profile of the page's script")
    parser.add_argument("--pictures", help="a folder for a picture of the page")
    given = parser.parse_args()
    print(
        json.dumps(measure_page(given.seconds, given.history, not given.bare, given.pictures, given.profile))
    )
