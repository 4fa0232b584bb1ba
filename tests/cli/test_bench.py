"""``dask-hpc bench``: the list, a run, its complaints; and the page that is made of full runs."""

import json
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_hpc.cli import bench as module
from dask_hpc.cli import cli

HERE = Path(__file__).parents[2] / "notebooks" / "benchmarks"
papermill = pytest.mark.skipif(
    not all(map(find_spec, module.NEEDED)), reason="needs papermill, ipykernel and matplotlib"
)
runs = [papermill, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def bench(*args, code=0):
    result = CliRunner().invoke(cli, ("bench", *map(str, args)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def notebook(path, *sources):
    import nbformat  # takes two seconds, of each process that collects tests

    cells = [nbformat.v4.new_markdown_cell(f"# What does {path.stem} cost?\n\nMuch.")]
    cells.append(nbformat.v4.new_code_cell('scale = "full"', metadata={"tags": ["parameters"]}))
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two benchmarks: one that works, and one that does not."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    notebook(
        notebooks / "adding.ipynb", "figure = 1 + 1", 'print("what  ours"); print(f"{scale}    {figure}")'
    )
    notebook(notebooks / "failing.ipynb", "figure = 1", 'raise ValueError("no\\nfigure")')
    monkeypatch.setattr(module, "FOLDER", notebooks)
    return notebooks


def test_the_list(folder):
    lines = bench().splitlines()
    assert [line.split()[0] for line in lines] == ["name", "adding", "failing", "traces"]
    assert lines[1].endswith("What does adding cost?")


def test_the_list_has_every_notebook():
    lines = bench().splitlines()[1:]
    names = [line.split()[0] for line in lines]
    assert names == [*sorted(path.stem for path in HERE.glob("*.ipynb")), "traces"]


def test_an_unknown_name(folder, tmp_path):
    told = bench("ading", "--out", tmp_path / "out", code=2)
    assert "'ading' (nearest: adding)" in told and len(told.splitlines()) == 1
    assert "(nearest: traces)" in bench("trace", code=2)
    assert not (tmp_path / "out").exists()


def test_a_missing_package(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    told = bench("adding", "--out", tmp_path / "out", code=2)
    assert "papermill is missing" in told and "[notebooks]" in told and len(told.splitlines()) == 1


@papermill
@pytest.mark.parametrize("out", ["a-file", "a-file/below"])
def test_a_folder_that_cannot_be_written(folder, tmp_path, out):
    (tmp_path / "a-file").touch()
    told = bench("adding", "--out", tmp_path / out, code=2)
    assert "--out" in told and len(told.splitlines()) == 1
    assert bench("--out", tmp_path / out, "adding", code=2) == told


def test_an_installation_without_benchmarks(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLDER", tmp_path / "nowhere")
    assert "a clone of the repository" in bench(code=2)


def test_the_last_table():
    printed = {"outputs": [{"text": "a  b\n"}]}
    table = {"outputs": [{"data": {"text/plain": ["a\n", "b"], "text/markdown": "| a |"}}]}
    figure = {"outputs": [{"data": {"text/plain": "<Figure size>", "image/png": "abc"}}]}
    assert module.last_table([table, printed, figure, {}]) == {"text/plain": "a\nb", "text/markdown": "| a |"}
    assert module.last_table([printed, figure]) == {"text/plain": "a  b\n"}
    assert module.last_table([figure, {}]) == {}


@pytest.mark.usefixtures("folder")
class TestRuns:
    pytestmark = runs

    def test_one(self, tmp_path):
        said = bench("adding", "--scale", "full", "--out", tmp_path / "out")
        lines = said.splitlines()
        assert lines[0] == "adding, full: What does adding cost?"
        assert lines[1:3] == ["what  ours", "full    2"]
        stored = json.loads((tmp_path / "out" / "adding.ipynb").read_text())
        ran = stored["metadata"]["dask_hpc"]["ran"]
        assert ran["scale"] == "full" and ran["cores"] >= 1 and ran["seconds"] > 0
        assert {"Python", "dask", "distributed"} <= set(ran["versions"])

    def test_small_is_usual_and_the_notebook_is_left_alone(self, folder, tmp_path):
        before = (folder / "adding.ipynb").read_bytes()
        assert "\nsmall    2\n" in bench("adding", "--out", tmp_path / "out")
        assert (folder / "adding.ipynb").read_bytes() == before

    def test_one_that_fails_does_not_stop_the_others(self, folder, tmp_path):
        (folder / "failing.ipynb").rename(folder / "a-failing.ipynb")
        told = bench("all", "--out", tmp_path / "out", code=1)
        assert "a-failing failed in cell [4]: ValueError: no figure" in told and "Traceback" not in told
        assert told.splitlines()[-1] == "failed: a-failing"
        assert (tmp_path / "out" / "adding.ipynb").exists()


@pytest.mark.slow
@papermill
@pytest.mark.filterwarnings("ignore")
def test_a_real_one(tmp_path):
    said = bench("corridor", "--out", tmp_path)
    assert "what" in said and "wanted" in said and "program, 16 jobs, 64 nodes" in said


# The overview


def overview():
    spec = spec_from_file_location("benchmarks_overview", HERE / "overview.py")
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_page_was_made_and_not_edited():
    page, _, mark = (HERE / "README.md").read_text(encoding="utf-8").rstrip("\n").rpartition("\n")
    pictures = {path.name: path.read_bytes() for path in (HERE / "figures").iterdir()}
    assert mark == overview().seal(page, pictures), "run overview.py instead"
    assert all(len(picture) < 60_000 for picture in pictures.values())
    assert all(f"](figures/{name})" in page for name in pictures)


def test_the_page_has_every_benchmark():
    page = (HERE / "README.md").read_text(encoding="utf-8")
    for name, path in module.benchmarks().items():
        assert f"## {module.title(path)}\n" in page
        assert f"[{name}.ipynb]({name}.ipynb), `dask-hpc bench {name} --scale full`, " in page
    assert page.count("has not run at full scale yet") == page.count("## ") - page.count("](figures/")


def made(path, scale="full", picture="<svg/>"):
    """A run notebook without a run."""
    import nbformat

    notebook(path, "")
    found = nbformat.read(path, as_version=4)
    data = {"text/plain": "what  ours", "text/markdown": "| what | ours |\n| --- | --- |\n| time | 2 s |"}
    cell = found.cells[-1]
    cell.outputs = [
        nbformat.v4.new_output("display_data", data=data),
        nbformat.v4.new_output("display_data", data={"image/svg+xml": picture}),
    ]
    found.cells.insert(2, nbformat.v4.new_markdown_cell("## All of it\n\nIn the picture: nothing."))
    ran = {"scale": scale, "seconds": 75.2, "cores": 2, "processor": "Abacus", "versions": {"dask": "2026.8"}}
    found.metadata["dask_hpc"] = {"ran": ran}
    found.metadata["papermill"] = {"start_time": "2026-05-04T11:00:00"}
    nbformat.write(found, path)


def test_a_page_of_full_runs(folder, tmp_path, monkeypatch):
    page = overview()
    monkeypatch.setattr(page, "HERE", tmp_path)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "of-old.svg").touch()
    for name in ("adding", "failing"):
        made(tmp_path / f"{name}.ipynb")
    page.main(tmp_path)
    text = (tmp_path / "README.md").read_text()
    whole, _, mark = text.rstrip("\n").rpartition("\n")
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert page.seal(whole, pictures) == mark != page.seal(whole.replace("2 s", "1 s"), pictures)
    assert "## What does adding cost?\n\nIn the picture: nothing.\n\n| what | ours |" in text
    assert "2026-05-04, took 75 s on 2 cores (Abacus); dask 2026.8.\n" in text
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["adding.svg", "failing.svg"]


def test_what_has_not_run_again_stays_on_the_page(folder, tmp_path, monkeypatch):
    page = overview()
    monkeypatch.setattr(page, "HERE", tmp_path)
    (both := tmp_path / "both").mkdir()
    (one := tmp_path / "one").mkdir()
    for name in ("adding", "failing"):
        made(both / f"{name}.ipynb")
    page.main(both)
    before = (tmp_path / "README.md").read_text()
    made(one / "adding.ipynb", picture="<svg>new</svg>")
    page.main(one)
    figures = tmp_path / "figures"
    assert [(figures / f"{name}.svg").read_text().strip() for name in ("adding", "failing")] == [
        "<svg>new</svg>",
        "<svg/>",
    ]
    after = (tmp_path / "README.md").read_text()
    assert before.splitlines()[:-1] == after.splitlines()[:-1] and before != after  # the seal
    (tmp_path / "README.md").write_text(after.replace("2 s", "1 s"))
    with pytest.raises(SystemExit, match="was edited"):
        page.main(one)


def test_one_that_never_ran_in_full_is_said_to_have_not(folder, tmp_path, monkeypatch):
    page = overview()
    monkeypatch.setattr(page, "HERE", tmp_path)
    for name in ("adding", "failing"):
        made(tmp_path / f"{name}.ipynb")
    known = module.benchmarks()
    monkeypatch.setattr(page, "benchmarks", lambda: {name: known[name] for name in ["adding"]})
    page.main(tmp_path)
    monkeypatch.setattr(page, "benchmarks", lambda: known)
    (tmp_path / "failing.ipynb").rename(tmp_path / "later.ipynb")
    for _ in range(2):  # and is so when others run again
        page.main(tmp_path)
        text = (tmp_path / "README.md").read_text()
        assert "`dask-hpc bench failing --scale full`, has not run at full scale yet.\n" in text
        assert text.count("](figures/") == 1
    (tmp_path / "later.ipynb").rename(tmp_path / "failing.ipynb")
    page.main(tmp_path)
    assert "not run at full scale" not in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: made(path, scale="small"), "no full run"),
        (lambda path: made(path, picture="<svg>" + "x" * 70_000), "bytes of picture"),
    ],
)
def test_a_page_is_made_of_full_runs_only(folder, tmp_path, monkeypatch, spoil, words):
    page = overview()
    monkeypatch.setattr(page, "HERE", tmp_path)
    for name in ("adding", "failing"):
        made(tmp_path / f"{name}.ipynb")
    spoil(tmp_path / "adding.ipynb")
    with pytest.raises(SystemExit, match=words):
        page.main(tmp_path)
    assert not (tmp_path / "README.md").exists()


def test_the_script_says_what_it_wants():
    done = subprocess.run([sys.executable, HERE / "overview.py"], capture_output=True, text=True)
    assert done.returncode == 1 and "dask-hpc bench all --scale full" in done.stderr
