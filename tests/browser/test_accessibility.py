"""Every view can be used without a mouse and with weak eyes: its controls are reached by Tab and named, and
what is written has a contrast of 4.5 to 1 at least, in light and dark."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest
from distributed import Client, Event, LocalCluster
from reach import needs_axe, unreached, violations
from rig import FLAGS, chromium, id_of, new_page, served_kit, until

import dask_hpc
from dask_hpc.simulator.report import report_page
from dask_hpc.view import kit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.skipif(importlib.util.find_spec("anywidget") is None, reason="needs anywidget"),
    needs_axe,
    pytest.mark.filterwarnings("ignore"),
]
WORKLOAD = Path(__file__).parents[2] / "notebooks" / "pictures" / "six-jobs.yaml"
THEMES = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab")
#: the views that a widget is, by the kit's module
VIEWS = {
    "allotment_map": "AllotmentMap",
    "corridor_chart": "CorridorChart",
    "jobs_table": "JobsTable",
    "nodes_table": "NodesTable",
    "story_view": "StoryView",
    "checkpoint_view": "CheckpointView",
    "scratch_files_view": "ScratchFilesView",
    "neighbours_view": "NeighboursView",
    "policy_panel": "PolicyPanel",
    "what_if": "WhatIf",
    "compare": "Compare",
    "corridor_explorer": "CorridorExplorer",
    "partition_explorer": "PartitionExplorer",
    "reservation_explorer": "ReservationExplorer",
    "resilience_explorer": "ResilienceExplorer",
}
MACHINES = [
    {"state": "up", "job": "runs", "why": "", "watts": 130.0, "health": "good"},
    {"state": "hold", "job": None, "why": "asked for", "watts": None, "health": "no word for 12 s"},
]
#: what a cluster tells of kinds after a while: each way that a cell, a limit and a bar may look
TOGETHER = {
    "kept": [
        {"kind": "load", "waiting": 12, "in_flight": 1},
        {"kind": "new", "waiting": 3, "in_flight": 2},
    ],
    "memory": {
        "why_not": ["the limit is not known"],
        "worker": {"limit": 10**9, "base": 10**8, "threads": 4},
        "kinds": [
            {"kind": "load", "peak": 4e8, "remembered": False, "at_once": 2},
            {"kind": "sum", "peak": 2e9, "remembered": False, "at_once": 1},
            {"kind": "before", "peak": 1e6, "remembered": True, "at_once": 4},
        ],
    },
    "neighbours": {
        "kinds": [
            {"kind": "load", "tasks": 80, "seconds": 0.5, "how": "fastest", "class": "I", "by": "counters"},
            {"kind": "sum", "tasks": 90, "seconds": 0.1, "how": "alone", "class": None, "by": "bytes"},
        ],
        "slowdowns": {
            "load": {
                "load": {"ratio": 4.0, "stderr": 0.1, "tasks": 80.0},
                "sum": {"ratio": 1.1, "stderr": 0.01, "tasks": 40.0},
            },
            "sum": {"load": {"ratio": 2.0, "stderr": None, "tasks": 3.0}},
        },
        "mpe": 8.0,
        "nrmse": 0.05,
        "limits": [
            {"job": "", "kind": "load", "beside": 1, "alone": None, "is_trial": True, "reason": "tries it"},
        ],
        "why_not": ["this machine shows no counters of its processor"],
    },
}
#: a widget as its front end has it; what it asks is answered by what its kernel would have said
PAGE = """<!doctype html><html lang="en"><head><title>a view</title><style>{style}</style></head>
<body style="background: var(--jp-layout-color1, Canvas); margin: 8px"><main id="root"></main>
<script type="module">
import {{ Model }} from "/shared/document.js";
import view from "/view.js";
const {{ state, whole, machines }} = {given};
const model = new Model(state, ({{ do: what }}) => setTimeout(() => {{
  if (what === "whole") model.tell("msg:custom", {{ whole }});
  if (what === "looks") model.tell("msg:custom", {{ heard: true, age: 0 }});
  if (what === "machines") model.tell("msg:custom", {{ machines }});
}}));
view.render({{ model, el: document.getElementById("root") }});
document.body.dataset.drawn = "yes";
</script></body></html>"""


def blocked(event):
    Event(event).wait(60)


def raises(number):
    raise ValueError(f"no such grid: {number}")


@pytest.fixture(scope="module")
def managed():
    """Three nodes; a job runs, one waits, one has failed and one is cancelled; power has a corridor."""
    meter = {"simulated": {"idle": 70, "busy": 130}}
    with (
        dask.config.set({"hpc.power-meter": meter, "hpc.power-history": None}),
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client, "power-corridor") as manager,
        dask_hpc.MemoryFiles("scratch", recommended="1 TB/s", block="4 kiB", client=client) as files,
    ):
        for number in range(3):
            files.fs.pipe(files.url(str(number)), b"x" * 9000)
        manager.set(**{"power.upper": "600 W", "power.lower": "100 W"})
        with dask_hpc.job("broken", nodes=1):
            broken = client.map(raises, range(4), pure=False)
        until(lambda: all(one.status == "error" for one in broken), 20)
        with dask_hpc.job("runs", nodes=1, min_nodes=1, max_nodes=2, walltime="60s"):
            runs = client.submit(blocked, "go", pure=False)
        with dask_hpc.job("dropped", nodes=3):
            dropped = client.submit(blocked, "go", pure=False)
        with dask_hpc.job("waits", nodes=3, walltime="30s"):
            waits = client.submit(blocked, "go", pure=False)
        manager.cancel(id_of(manager, "dropped"))
        yield SimpleNamespace(manager=manager, cluster=cluster, client=client)
        Event("go", client=client).set()
        client.cancel([runs, dropped, waits])


@pytest.fixture(scope="module")
def page():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        found = new_page(chrome, 1024, 768)
        yield found
        chrome.close()


def theme(page, name):
    """JupyterLab's colours on the page, or none: then the browser's own scheme counts."""
    page.emulate_media(color_scheme=name.split()[-1])
    if name.startswith("JupyterLab"):
        colours = (THEMES / f"theme-{name.split()[-1]}-extension" / "index.css").read_text()
        page.evaluate(
            "text => { const one = document.getElementById('theme') ?? document.head.appendChild("
            "Object.assign(document.createElement('style'), { id: 'theme' })); one.textContent = text; }",
            colours,
        )


def problems(page, root, themes, *without):
    # axe takes the browser's own dark paper for white
    page.evaluate("document.body.style.background ||= 'Canvas'")
    found = {}
    for name in themes:
        theme(page, name)
        page.wait_for_timeout(100)  # pictures take the colours at the next frame
        for one in violations(page, root, *without):
            found.setdefault(one, []).append(name)
    return [f"{one} [{', '.join(names)}]" for one, names in found.items()] + [
        f"Tab never comes to: {one}" for one in unreached(page, root)
    ]


def none_of(found):
    assert not found, "\n".join(["", *found])


def widget(name, managed):
    import dask_hpc_widgets

    kind = getattr(dask_hpc_widgets, name, None)
    if kind is None:
        pytest.skip(f"there is no {name}")
    if name.endswith("Explorer"):
        return kind(), None
    if name == "Compare":
        results = [
            dask_hpc.simulate(WORKLOAD, policy=policy, allotments=True) for policy in ("fcfs", "elastic")
        ]
        return kind(*results), None
    view = kind(managed.manager)
    until(lambda: managed.manager.watch.course.head, 10)
    if name == "WhatIf":
        view.tried = ["elastic"]
        view.seeds = 2
        view._hear(None, {"do": "predict", "ask": 1}, [])
        until(lambda: view.rows, 30)
    if name == "PolicyPanel":
        view._hear(None, {"do": "edit", "path": "power.margin", "value": "-3 W"}, [])
        view._hear(None, {"do": "edit", "path": "power.upper", "value": "700 W"}, [])
        until(lambda: view.difference and view.refused, 10)
    return view, managed.manager.watch.course.whole()


@pytest.mark.parametrize("name", VIEWS)
def test_views(managed, page, name):
    view, whole = widget(VIEWS[name], managed)
    state = {key: one for key, one in view.get_state().items() if not key.startswith("_") and key != "layout"}
    if name == "neighbours_view":
        whole = {**whole, "together": TOGETHER}
    machines = [
        {"name": f"node{i}", "workers": 1, "threads": 1, "memory": 10**8, "memory_limit": 10**9} | more
        for i, more in enumerate(MACHINES)
    ]
    given = json.dumps({"state": state, "whole": whole, "machines": machines}, default=list)
    style = kit.style().replace("<", "\\3c ")
    page.complaints.clear()
    served_kit(page, PAGE.format(style=style, given=given.replace("<", "\\u003c")), view._esm)
    page.wait_for_selector("[data-drawn=yes]")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.wait_for_timeout(300)
    themes = ["JupyterLab light", "JupyterLab dark"] if THEMES.exists() else ["light"]
    none_of(problems(page, "#root", themes))
    assert page.complaints == []
    view.close()


@pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="needs bokeh")
def test_dashboard_page(managed, page):
    page.goto(managed.cluster.dashboard_link.replace("/status", "/hpc"))
    page.locator(".dh-jobs", has_text="broken").wait_for()
    none_of(problems(page, "body", ["light", "dark"]))


@pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="needs bokeh")
def test_control_page(managed, page):
    page.goto(managed.manager.control_page())
    page.get_by_role("button", name="Apply bounds").wait_for()
    none_of(problems(page, "body", ["light", "dark"]))


def test_report(page, tmp_path):
    """One page of a run that is over."""
    path = tmp_path / "report.html"
    path.write_text(report_page([dask_hpc.simulate(WORKLOAD, policy="elastic", allotments=True)]))
    page.goto(path.as_uri())
    page.locator(".dh-jobs").first.wait_for()
    none_of(problems(page, "body", ["light", "dark"]))
