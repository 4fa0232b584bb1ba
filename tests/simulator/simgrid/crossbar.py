"""What is played on SimGrid and here: a crossbar with a file system, small jobs that each show one effect,
and 500 jobs with all kinds among them, written as ElastiSim's files.

The machine has the bandwidths and latencies of ElastiSim's example, the jobs have models of the same kinds of
tasks and arguments of about the same distributions; the same seed draws the same jobs on any Python.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

Json = dict[str, Any]

NODES = 128
_PLATFORM = f"""<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="site" routing="Full">
    <zone id="desk_zone" routing="Full">
      <host id="desk" speed="1Gf"><prop id="batch_system" value="true"/></host>
    </zone>
    <cluster id="machine" prefix="n" suffix="" radical="0-{NODES - 1}" speed="100Gf" bw="100Gbps" lat="50us">
      <prop id="node_local_bb" value="false"/>
      <prop id="pfs_targets" value="store"/>
    </cluster>
    <zone id="store_zone" routing="Full">
      <host id="store" speed="1Gf"><prop id="pfs_host" value="true"/></host>
    </zone>
    <link id="from_store" bandwidth="READING" latency="500us"/>
    <link id="to_store" bandwidth="WRITING" latency="500us"/>
    <zoneRoute src="store_zone" dst="machine" gw_src="store" gw_dst="nmachine_router" symmetrical="NO">
      <link_ctn id="from_store"/>
    </zoneRoute>
    <zoneRoute src="machine" dst="store_zone" gw_src="nmachine_router" gw_dst="store" symmetrical="NO">
      <link_ctn id="to_store"/>
    </zoneRoute>
  </zone>
</platform>
"""
_CONFIGURATION = {
    "jobs_file": "jobs.json",
    "platform_file": "platform.xml",
    "schedule_on_job_submit": True,
    "schedule_on_job_finalize": True,
    "schedule_on_scheduling_point": True,
    "pfs_read_links": ["from_store"],
    "pfs_write_links": ["to_store"],
}


class Case(NamedTuple):
    """Jobs, in order of submission, that all have one model, and how wide the ways from and to the file
    system are."""

    model: Json
    jobs: Sequence[Json]
    reading: str = "80GBps"
    writing: str = "50GBps"

    @property
    def platform(self) -> str:
        """The machine, as a file."""
        return _PLATFORM.replace("READING", self.reading).replace("WRITING", self.writing)

    @property
    def widened(self) -> "Case":
        """On a machine whose file system serves all nodes at once: nobody is in anybody's way there."""
        return self._replace(reading="1TBps", writing="1TBps")


def read(amount: Any, pattern: str = "all_ranks", **more: Any) -> Json:
    """A task."""
    return {"type": "pfs_read", "bytes": amount, "pattern": pattern, **more}


def written(amount: Any, pattern: str = "all_ranks", **more: Any) -> Json:
    """A task."""
    return {"type": "pfs_write", "bytes": amount, "pattern": pattern, **more}


def sent(amount: Any, pattern: str) -> Json:
    """A task that only communicates."""
    return {"type": "cpu", "bytes": amount, "communication_pattern": pattern}


def computed(flops: Any, amount: Any = None, pattern: str = "all_to_all", coupled: bool = True) -> Json:
    """A task of the same work on each node, that communicates as well if there is an amount."""
    task = {"type": "cpu", "flops": flops, "computation_pattern": "uniform"}
    if amount is not None:
        task |= {"bytes": amount, "communication_pattern": pattern, "coupled": coupled}
    return task


#: reads what it begins with, by one node, then computes, exchanges and stores again and again
MODEL: Json = {
    "on_init": {"tasks": [read("input", "root_only"), sent("input", "scatter")]},
    "on_reconfiguration": {"tasks": [read("input", "root_only"), sent("input", "scatter")]},
    "phases": [
        {
            "iterations": "steps",
            "evolving_request": "if(phase_iteration % 2 == 0, num_nodes - 4, num_nodes + 4)",
            "tasks": [computed("work / num_nodes^scaling", "exchanged"), written("state")],
        }
    ],
}
_KINDS = ("rigid",) * 45 + ("moldable",) * 28 + ("malleable",) * 17 + ("evolving",) * 5 + ("adaptive",) * 5


def drawn(kinds: Sequence[str] = _KINDS, count: int = 500, seed: int = 26) -> Case:
    """So many jobs with ``MODEL``, of these kinds."""
    draw = Random(seed).random  # of all that draws, this alone is the same in each Python

    def between(low: float, high: float) -> int:
        return int(low + draw() * (high - low))

    jobs: list[Json] = []
    for submitted in sorted(between(0, 60_000) for _ in range(count)):
        kind = kinds[between(0, len(kinds))]
        size = between(2, 17)
        jobs.append(
            {
                "type": kind,
                "submit_time": submitted,
                **({"num_nodes": size} if kind == "rigid" else {"num_nodes_min": 2, "num_nodes_max": 16}),
                "arguments": {
                    "steps": between(10, 25),
                    "work": between(1e12, 2e14),
                    "input": between(1e9, 4.3e11),
                    "state": between(5e8, 5.5e11),
                    "exchanged": between(1e10, 3.2e11),
                    "scaling": between(7000, 9000) / 10_000,
                },
            }
        )
    return Case(MODEL, jobs)


def _rigid(nodes: int, submitted: float = 0, **arguments: Any) -> Json:
    return {"type": "rigid", "submit_time": submitted, "num_nodes": nodes, "arguments": arguments}


def _range(kind: str, low: int, high: int, submitted: float = 0, **arguments: Any) -> Json:
    sizes = {"num_nodes_min": low, "num_nodes_max": high}
    return {"type": kind, "submit_time": submitted, **sizes, "arguments": arguments}


def _once(*tasks: Json, **more: Any) -> Json:
    return {"phases": [{"tasks": list(tasks), **more}]}


def _resized(**once: Any) -> Case:
    """A malleable job that starts on 8 nodes and grows to 16 when another one has ended."""
    phase = {"iterations": "steps", "tasks": [computed("work / num_nodes")]}
    model = {**{key: {"tasks": tasks} for key, tasks in once.items()}, "phases": [phase]}
    jobs = [_rigid(120, work=120 * 1e12, steps=3), _range("malleable", 2, 16, work=8 * 1e12, steps=9)]
    return Case(model, jobs)


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for nodes in (1, 2, 4, 16, 32):
        cases[f"read on {nodes}"] = Case(_once(read(64e9)), [_rigid(nodes)])
        cases[f"write on {nodes}"] = Case(_once(written(64e9)), [_rigid(nodes)])
    cases["read by the root"] = Case(_once(read(64e9, "root_only")), [_rigid(4)])
    cases["read by all alike"] = Case(_once(read(64e9, "uniform")), [_rigid(4)])
    two = [_rigid(16, amount=400e9), _rigid(16, 1, amount=100e9)]
    cases["two write"] = Case(_once(written("amount")), two)
    cases["two read"] = Case(_once(read("amount")), two)
    cases["many write"] = Case(
        _once(written("amount")), [_rigid(8, n, amount=2e11 + n * 1e10) for n in range(16)]
    )
    cases["small writes"] = Case(_once(written(1e6), iterations=1000), [_rigid(4)])
    cases["repeated writes"] = Case(_once(written(1e6, iterations=1000)), [_rigid(4)])
    patterns = (
        "all_to_all",
        "ring",
        "ring_clockwise",
        "ring_counter_clockwise",
        "gather",
        "scatter",
        "master_worker",
    )
    for pattern in patterns:
        for nodes in (1, 2, 4, 16):
            cases[f"{pattern} on {nodes}"] = Case(_once(sent(160e9, pattern)), [_rigid(nodes)])
    for coupled in (True, False):
        word = "coupled" if coupled else "not coupled"
        cases[f"{word} and computes longer"] = Case(
            _once(computed(5e12, 160e9, coupled=coupled)), [_rigid(4)]
        )
        cases[f"{word} and sends longer"] = Case(_once(computed(1e11, 160e9, coupled=coupled)), [_rigid(4)])
    cases["grows"] = _resized()
    cases["grows and reads"] = _resized(on_reconfiguration=[read(64e9, "root_only"), sent(64e9, "scatter")])
    ask = {"iterations": 9, "evolving_request": MODEL["phases"][0]["evolving_request"]}
    cases["asks"] = Case(_once(computed("work / num_nodes"), **ask), [_range("evolving", 2, 16, work=16e12)])
    cases["starts on what is there"] = Case(
        _once(computed("work / num_nodes")),
        [_rigid(121, work=121e13), _range("moldable", 2, 16, 1, work=1e13)],
    )
    cases["write by every other"] = Case(_once(written(64e9, "even_ranks")), [_rigid(5)])
    at_once = {"on_init": {"tasks": [read("taken"), written("given")]}, **_once(computed(1e9))}
    cases["read beside write"] = Case(
        at_once, [_rigid(16, taken=400e9, given=0), _rigid(16, taken=0, given=400e9)]
    )
    cases["grows and new nodes read"] = _resized(on_expansion=[read(64e9)])
    return cases


#: each shows one effect
CASES = _cases()


def write(folder: Path, case: Case) -> Path:
    """ElastiSim's files; answers the configuration."""
    jobs = [{**job, "application_model": "model.json"} for job in case.jobs]
    files = {"model.json": case.model, "jobs.json": {"jobs": jobs}, "configuration.json": _CONFIGURATION}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "platform.xml").write_text(case.platform)
    return folder / "configuration.json"


def plain(case: Case) -> str:
    """The same jobs as the reference reads them: figures instead of formulas, for each size."""
    words: list[Any] = [len(case.jobs)]
    for job in case.jobs:
        least, most = (job.get("num_nodes", job.get(key)) for key in ("num_nodes_min", "num_nodes_max"))
        phase = case.model["phases"][0]
        rounds = int(_value(phase.get("iterations", 1), job["arguments"]))
        asks = "evolving_request" in phase and job["type"] in ("evolving", "adaptive")
        words += [job["type"], job["submit_time"], least, most, rounds, int(asks)]
        for size in range(1, most + 1):
            names = {**job["arguments"], "num_nodes": size}
            for key in ("on_init", "on_reconfiguration", "on_expansion"):
                words += _tasks(case.model.get(key, {"tasks": []})["tasks"], names)
            words += _tasks(phase["tasks"], names)
            if asks:
                for number in range(rounds):
                    wish = int(_value(phase["evolving_request"], {**names, "phase_iteration": number}))
                    words.append(min(max(wish, least), most))
    return " ".join(map(str, words)) + "\n"


_CALLED = {"pfs_read": "read", "pfs_write": "write", "cpu": "cpu"}


def _tasks(tasks: Sequence[Json], names: Mapping[str, float]) -> list[Any]:
    words: list[Any] = [0]
    for task in tasks:
        amounts = ("flops", "computation_pattern", "bytes", "communication_pattern")
        if task["type"] != "cpu":
            amounts = ("bytes", "pattern", "", "")
        work, spread, amount, traffic = (task.get(key, 0) for key in amounts)
        one = [_CALLED[task["type"]], repr(float(_value(work, names))), spread or "-"]
        one += [repr(float(_value(amount, names))), traffic or "-", int(task.get("coupled", False))]
        times = int(_value(task.get("iterations", 1), names))
        words += one * times
        words[0] += times
    return words


def _value(formula: Any, names: Mapping[str, float]) -> float:
    """Without the formulas of the package, which are tried as well."""
    if not isinstance(formula, str):
        return float(formula)
    text = formula.replace("^", "**").replace("if(", "choice(")
    return float(eval(text, {"choice": lambda is_so, yes, no: yes if is_so else no}, dict(names)))
