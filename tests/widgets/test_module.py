"""A widget's JavaScript is one module: everything it needs, each once, and no name twice."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import dask_hpc_widgets
import pytest
from module_syntax import syntax_errors

from dask_hpc.view import kit
from dask_hpc.view.kit import module, style

HERE = Path(kit.__file__).parent
VIEWS = sorted(path.stem for path in HERE.glob("*.js"))
PYTHON = Path(dask_hpc_widgets.__file__).parent
NAMES = re.compile(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)


def test_every_widget_has_its_view():
    texts = [path.read_text() for path in PYTHON.glob("*.py")]
    used = {name for text in texts for name in re.findall(r'module\("(\w+)"', text)}
    on_pages = {"control_page", "curves", "lanes", "pipelines"}
    assert used and used | on_pages | {"headline", "queue", "time_toolbar"} == set(VIEWS)


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_views_on_a_page_do_not_meet(tmp_path):
    code = re.fullmatch(r"<script>(.*)</script>", kit.script(*VIEWS), re.DOTALL)[1]
    assert "</script" not in code and "import {" not in code and "export " not in code
    path = tmp_path / "page.js"
    path.write_text(code)
    subprocess.run(["node", "--check", str(path)], check=True, capture_output=True)


@pytest.mark.parametrize("name", VIEWS)
def test_a_module_is_complete_and_has_no_name_twice(name):
    text = module(name)
    assert not re.search(r"^import ", text, re.MULTILINE)
    assert re.findall(r"^export .*", text, re.MULTILINE) == ["export default { render: alone(render) };"]
    assert [one for one, count in Counter(NAMES.findall(text)).items() if count > 1] == []


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_comes_from_a_network(name):
    for text in (module(name), style()):
        assert not re.search(r"https?://(?!www\.w3\.org/)|@import|importScripts|new Worker", text)


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_modules_are_valid():
    assert VIEWS and syntax_errors({name: module(name) for name in VIEWS}) == {}
