"""A hundred malformed inputs of each format: one line and exit code 2, or a fine answer, and nothing half
written. Half of them are damaged as text, half as data."""

import copy
import gzip
import json
import random
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dask_hpc.cli import cli

ELASTISIM = Path(__file__).parents[1] / "simulator" / "elastisim"
EACH = 100
LONG = 4  # seconds of the processor, of a play

WORKLOAD = """\
platform:
  nodes: 8
  speed: 1 Gflop/s
  link: 1 GB/s
  file_system: 2 GB/s
  idle_power: 71 W
  active_power: 250 W
  resize: {fixed: 2 s, per_process: 0.1 s, bandwidth: 10 GB/s}
  site: {supply: 96 %, switches: 1 kW, pue: 1.1}
  power: {ramp: 10 s, noise: 3 %, seed: 1, corridor: {lower: 1 kW, upper: 2 kW}}
jobs:
  - {id: a, submit: 0s, nodes: 2, runtime: 10 min, walltime: 15 min}
  - {id: b, nodes: 2, kind: malleable, min_nodes: 1, max_nodes: 4, runtime: 20 min, speedup: {power_law: 0.9}}
  - {id: c, nodes: 1, kind: evolving, max_nodes: 4, runtime: 10 min, requests: {50 %: 4}}
  - {id: e, nodes: 4, kind: evolving, max_nodes: 8, arguments: {size: 4 GB}, on_start: [{read: size / nodes}],
     phases: [{iterations: 10, compute: 20 Gflop / nodes, write: size / nodes}]}
"""
SWF = "; MaxNodes: 8\n" + "".join(
    f"{n} {10 * n} -1 {50 + n} {1 + n % 4} -1 -1 {1 + n % 4} 100 -1 1 {n % 3} -1 -1 -1 -1 -1 -1\n"
    for n in range(1, 9)
)
POLICY = """\
summary: One of ours.
source: dask-hpc
queue: {strategy: elastic, depth: 50}
malleability: {strategy: elastic}
nodes: {strategy: first}
"""
CORRIDOR = "- {id: pi, nodes: 4, min_nodes: 1, max_nodes: 14, power: 170 W}\n" + (
    "- {id: heat, nodes: 8, min_nodes: 1, max_nodes: 14, power: [240 W, 260 W]}\n"
)
CORRIDOR_CSV = (
    "id, nodes, min_nodes, max_nodes, power, least, most\npi, 4, 1, 14, 170 W, ,\n"
    "heat, 8, 1, 14, , 240 W, 260 W\n"
)
PARTITION = """\
platform: {nodes: 50, cores: 8, memory: 64 GiB, bandwidth: 10 GB/s}
simulation: {time: 30 min, memory: 2 TiB, serial: 0.0005}
analyses:
  - {name: spectrum, time: 90 s, memory: 300 GiB}
  - {name: front, time: 3 min, memory: 200 GiB, moved: 20 GiB}
mode: async
"""
NETWORK = """\
topology: {tree: {rack0: "node[00-07]", rack1: "node[08-15]"}, port: 12.5 GB/s, oversubscription: 4}
jobs:
  heat: {nodes: "node[04-11]", rate: 2 GB/s}
  save: {nodes: all of rack1, pattern: partner, rate: 1 GB/s}
"""
COLOCATION = "kind,seconds,mem_class,count,deadline\ncg,250s,I,100,3h\nsp, 7 min ,II,100,\nep,180,V,100,3h\n"
FAILURES = "time,node\n" + "".join(f"{n * 4000 + 37 * n * n % 1999},n{n}\n" for n in range(20))
RUNS = "seconds\n" + "".join(f"{900 + 700 * n % 4100}\n" for n in range(12)) + ">1h, >2 h\n"
WAITS = "requested,waited\n" + "".join(f"{600 * n},{n * n % 7 * 100 + 40 * n}\n" for n in range(1, 20))
SACCT = "JobName|User|ElapsedRaw|TimelimitRaw|State|Submit|Start|AllocNodes|MaxRSS\n" + "".join(
    f"cfd|ada|{900 + 50 * n}|60|{state}|2026-01-{n:02}T08:00:00|2026-01-{n:02}T09:30:00|{n % 4 + 1}|{n}00M\n"
    for n, state in enumerate(("COMPLETED", "TIMEOUT", "CANCELLED by 7", "COMPLETED", "FAILED"), 1)
)
HISTORY = json.dumps(
    {"format": "dask-hpc run history 1", "jobs": {name: [
        {"nodes": 2, "seconds": 100.5 * n, "ended": "done", "when": 1.7e9 + n, "io_seconds": 3.5,
         "requested": 3600, "waited": 20.5, "commit": [2.5, 10**9]}
        for n in range(1, 4)
    ] for name in ("cfd", "ada/heat")}}
)  # fmt: skip
SWITCHES = (
    "# of two racks\nSwitchName=rack0 Nodes=node[00-07]\nSwitchName=rack1 Nodes=node[08-13],node14,node15\n"
    "SwitchName=core Switches=rack[0-1]\n"
)
OF_SLURM = NETWORK.replace('tree: {rack0: "node[00-07]", rack1: "node[08-15]"}', "slurm: topology.conf")
STEPS = "- {at: 0 s, lower: 100 W, upper: 2 kW}\n- {at: 10 min, lower: 0, upper: 1 kW}\n"

CORRIDOR_WORDS = (
    "plan",
    "corridor",
    "--nodes",
    "14",
    "--idle",
    "71W",
    "--lower",
    "1kW",
    "--upper",
    "2.5kW",
    "--jobs",
)
FOLLOW = (
    "simulate",
    "builtin:five-jobs",
    "--machine",
    "frontier",
    "--nodes",
    "16",
    "--policy",
    "power-corridor",
    "--set",
)
RESERVATION = ("plan", "reservation", "--method", "no-checkpoint", "--law", "exponential mean=1h max=9h")
#: format -> name of the file, a good one, the command, words after the file
FORMATS = {
    "workload": ("w.yaml", WORKLOAD, ("simulate",), ("--policy", "elastic", "--jobs-csv", "OUT")),
    "swf": ("w.swf", SWF, ("simulate",), ("--jobs-csv", "OUT")),
    "gzipped swf": ("w.swf.gz", SWF, ("simulate",), ("--jobs-csv", "OUT")),
    "policy": ("p.yaml", POLICY, ("simulate", "builtin:five-jobs", "--policy"), ("--jobs-csv", "OUT")),
    "corridor": ("j.yaml", CORRIDOR, CORRIDOR_WORDS, ()),
    "corridor table": ("j.csv", CORRIDOR_CSV, CORRIDOR_WORDS, ()),
    "partition": ("a.yaml", PARTITION, ("plan", "partition"), ()),
    "network": ("n.yaml", NETWORK, ("plan", "network"), ()),
    "colocation": ("t.csv", COLOCATION, ("plan", "colocation"), ("--cores", "4", "--plot", "OUT")),
    "failures": (
        "f.csv", FAILURES, ("plan", "interval", "--failures"),
        ("--level", "a", "60s", "file", "--plot", "OUT"),
    ),
    "past runs": (
        "r.csv", RUNS, ("plan", "reservation", "--method", "no-checkpoint", "--runs"), ("--plot", "OUT"),
    ),
    "waits": ("w.csv", WAITS, (*RESERVATION, "--waits"), ("--output", "OUT")),
    "accounts": ("a.txt", SACCT, ("learn", "--file", "history.json", "--sacct"), ()),
    "history": ("history.json", HISTORY, ("history", "list", "--file"), ()),
    "topology.conf": ("topology.conf", SWITCHES, ("plan", "network"), ()),
    "followed corridor": ("c.yaml", STEPS, (*FOLLOW, "power.follow="), ("--jobs-csv", "OUT")),
    "elastisim configuration": ("configuration.json", None, ("simulate",), ("--jobs-csv", "OUT")),
    "elastisim jobs": ("jobs.json", None, ("simulate",), ("--jobs-csv", "OUT")),
    "elastisim platform": ("platform.xml", None, ("simulate",), ("--jobs-csv", "OUT")),
    "elastisim application": ("solver.json", None, ("simulate",), ("--jobs-csv", "OUT")),
}  # fmt: skip
ODD = (
    None, True, -1, 0, 0.5, 2**31, 10**30, 1e308, float("nan"), float("inf"), -float("inf"), "",
    " ", "nonsense",
    "NaN", "1e999", "-5 s", "5 parsecs", "\x00", "\u202e1", "9" * 5000, [], {}, [[]], [None], {"": None},
    {"a": {"b": [1]}}, {1: 2}, ["x"] * 50, "=1+1", "1; 2", "../..", "__import__('os')", "1 / 0",
    "2 ** 9999", "(" * 300,
)  # fmt: skip


def places(data, path=()):
    """Of all that is in plain data."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def damaged_data(plain, draw):
    found = copy.deepcopy(plain)
    *way, last = draw.choice([path for path in places(found) if path])
    inner = found
    for key in way:
        inner = inner[key]
    how = draw.randrange(5)
    if how == 0:
        del inner[last]
    elif how == 1 and isinstance(inner, dict):
        inner[draw.choice(("nonsense", "Nodes", "0", ""))] = inner[last]
    elif how == 2 and isinstance(inner, list):
        inner.append(inner[last])
    else:
        inner[last] = draw.choice(ODD)
    return found


def damaged_text(data, draw):
    how = draw.randrange(10)
    at = draw.randrange(len(data))
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + bytes(draw.randrange(256) for _ in range(8)) + data[at:]
    if how == 2:
        return bytes(draw.randrange(256) for _ in range(len(data)))
    if how == 3:
        return data.decode().encode(draw.choice(("utf-16", "utf-32", "utf-7")))
    if how == 4:
        return (
            data[:at]
            + draw.choice((b"[" * 3000, b"{a: " * 3000, b"<a>" * 3000, b"&a *a", b"\x00", b"\xed\xa0\x80"))
            + data[at:]
        )
    if how == 5:
        lines = data.splitlines(keepends=True)
        line = draw.randrange(len(lines))
        return b"".join([*lines[:line], lines[line], *lines[line:]])
    if how == 6:
        return draw.choice(
            (b"", b"\n", b"\xef\xbb\xbf", b"null", b"[]", b"{}", b"7", b"- ", b"---\n---\n", b"#")
        )
    # words are what people mistype
    words = data.split(b" ")
    word = draw.randrange(len(words))
    if how == 7:
        words[word] = str(draw.choice(ODD)).encode("utf-8", "surrogatepass")
    elif how == 8:
        words.pop(word)
    else:
        other = draw.randrange(len(words))
        words[word], words[other] = words[other], words[word]
    return b" ".join(words)


def variants(name, good):
    """A good file, damaged in a hundred ways."""
    draw = random.Random(f"malformed {name}")
    plain = (
        yaml.safe_load(good)
        if name.endswith(".yaml")
        else json.loads(good)
        if name.endswith(".json")
        else None
    )
    write = yaml.safe_dump if name.endswith(".yaml") else json.dumps
    for number in range(EACH):
        if plain is not None and number % 2:
            yield write(damaged_data(plain, draw)).encode("utf-8", "surrogatepass")
        elif name.endswith(".gz"):
            packed = gzip.compress(good, mtime=0)
            yield (
                damaged_text(good, draw)
                if number % 4 == 0
                else (gzip.compress(damaged_text(good, draw), mtime=0) if number % 2 else _bent(packed, draw))
            )
        else:
            yield damaged_text(good, draw)


def _bent(packed, draw):
    at = draw.randrange(len(packed))
    return packed[:at] if draw.random() < 0.5 else packed[:at] + b"\x5a" + packed[at + 1 :]


class PlaysOn(BaseException):
    """What is still valid may be a long play: of that nothing is to be seen here but how it began."""


@contextmanager
def at_most(seconds):
    def ends(*_):
        raise PlaysOn

    before = signal.signal(signal.SIGPROF, ends)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def placed(kind, folder):
    """Where the file is that is damaged, what is good of it, and what the command asks for."""
    name, text, *_ = FORMATS[kind]
    path = folder / name
    if text is not None:
        if kind == "topology.conf":
            (folder / "n.yaml").write_text(OF_SLURM)
            return path, text.encode(), folder / "n.yaml"
        return path, text.encode(), path
    shutil.copytree(ELASTISIM, folder / "elastisim")
    configuration = folder / "elastisim" / "configuration.json"
    configuration.write_text(configuration.read_text().replace("elastisim/", ""))
    jobs = folder / "elastisim" / "jobs.json"
    jobs.write_text(jobs.read_text().replace("elastisim/", ""))
    path = folder / "elastisim" / name
    return path, path.read_bytes(), configuration


SLOW = {kind for kind in FORMATS if kind.startswith("elastisim")} | {"past runs"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in FORMATS]
)
def test_malformed(kind, tmp_path, monkeypatch):
    name, _, command, after = FORMATS[kind]
    monkeypatch.chdir(tmp_path)
    path, good, asked = placed(kind, tmp_path)
    words = [*command, str(asked)]
    if command[-1].endswith("="):
        words = [*command[:-1], f"{command[-1]}{asked}"]
    out = tmp_path / "out" / "written"
    out.parent.mkdir()
    words = [str(out) if word == "OUT" else word for word in (*words, *after)]

    def run():
        out.unlink(missing_ok=True)
        with at_most(LONG):
            return CliRunner().invoke(cli, words)

    path.write_bytes(gzip.compress(good) if name.endswith(".gz") else good)
    fine = CliRunner().invoke(cli, words)
    assert fine.exit_code in (0, 1), fine.output
    refused, wrong, long = 0, [], 0
    for number, data in enumerate(variants(name, good)):
        path.write_bytes(data)
        try:
            result = run()
        except PlaysOn:
            long += 1
            continue
        left = sorted(one.name for one in out.parent.iterdir())
        lines = result.stderr.splitlines()
        if result.exit_code == 2:
            refused += 1
            as_it_should = (
                len(lines) == 1 and lines[0].startswith("dask-hpc: ") and not left and not result.stdout
            )
        else:
            as_it_should = result.exit_code in (0, 1) and isinstance(result.exception, SystemExit | None)
            as_it_should = as_it_should and left in ([], ["written"])
        if not as_it_should:
            wrong.append((number, result.exit_code, repr(result.exception)[:150], lines[:2], data[:60], left))
    assert not wrong, "\n".join(map(str, wrong))
    assert refused >= EACH // 4, f"only {refused} of them were refused"
    assert long <= EACH // 20, f"{long} of them play for more than {LONG} s"
