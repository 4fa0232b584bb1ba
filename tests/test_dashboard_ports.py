"""No test and no benchmark takes the port of Dask's dashboard, where somebody may have one."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: what serves something at port 8787 unless it is told otherwise; with dashboard=False it is the metrics
SERVERS = {"LocalCluster", "SpecCluster", "Scheduler"}
TOLD = "dashboard_address"


def calls_without_a_port(source):
    """Lines of the calls that say nothing of the dashboard, neither themselves nor in what they name."""
    tree = ast.parse(source)
    known = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def says(node):
        texts = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
        given = {one.arg: ast.unparse(one.value) for one in ast.walk(node) if isinstance(one, ast.keyword)}
        return TOLD in texts or given.get(TOLD, "None") != "None"

    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        starts_one = name == "Client" and not node.args and not any(
            keyword.arg in ("address", "scheduler_file") for keyword in node.keywords
        )  # fmt: skip
        if name not in SERVERS and not starts_one:
            continue
        named = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        if not says(node) and not any(says(known[one]) for one in named & known.keys()):
            yield node.lineno


@pytest.mark.parametrize(
    "line, is_found",
    [
        ("LocalCluster(n_workers=1)", True),
        ("Client()", True),
        ("deploy.LocalCluster()", True),
        ("LocalCluster(dashboard_address=':0')", False),
        ("quiet = {'dashboard_address': ':0'}; LocalCluster(n_workers=2, **quiet)", False),
        ("quiet = {'n_workers': 2}; LocalCluster(**quiet)", True),
        ("LocalCluster(dashboard_address=None)", True),
        ("Scheduler(dashboard=False)", True),
        ("one = {'options': {'dashboard_address': ':0'}}; SpecCluster(scheduler=one)", False),
        ("SpecCluster(scheduler={'cls': Scheduler, 'options': {'dashboard_address': ':0'}})", False),
        ("SpecCluster(scheduler={'cls': Scheduler, 'options': {'dashboard': False}})", True),
        ("SpecCluster(scheduler={'cls': Scheduler, 'options': {}})", True),
        ("Client(cluster)", False),
    ],
)
def test_what_is_found(line, is_found):
    assert list(calls_without_a_port(line)) == [1] * is_found


@pytest.mark.parametrize("folder", ["tests", "notebooks"])
def test_nobody_takes_port_8787(folder):
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if lines := list(calls_without_a_port(path.read_text())):
            found[str(path.relative_to(ROOT))] = lines
    assert not found, "say dashboard_address=':0'"
