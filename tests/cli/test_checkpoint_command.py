"""``dask-hpc checkpoint``: what it lists, shows, finds damaged and deletes."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

from dask_hpc.checkpoint.store.seal import Key, Services
from dask_hpc.checkpoint.store.versions import save
from dask_hpc.cli import cli


def run(*args, code=0):
    result = CliRunner().invoke(cli, ["checkpoint", *map(str, args)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == (code == 2)
    return result.stderr if code == 2 else result.stdout


@pytest.fixture
def store(tmp_path):
    for step in range(3):
        items = {"u": xr.Dataset({"u": ("x", np.arange(5.0) + step)}), "n": step}
        save(str(tmp_path), "run-17", items, step=step)
    save(str(tmp_path), "other", {"n": 1})
    return tmp_path


def test_list(store):
    lines = run("list", store).splitlines()
    assert lines[0].split() == ["name", "version", "step", "written", "items", "size", "state"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["other", "1"],
        *(["run-17", str(n)] for n in (1, 2, 3)),
    ]
    found = json.loads(run("list", store, "run-17", "--json"))
    assert [(row["version"], row["step"], row["items"], row["state"]) for row in found] == [
        (number, number - 1, ["u", "n"], "there") for number in (1, 2, 3)
    ]


def test_show(store):
    assert "version 3: step 2" in run("show", store, "run-17").splitlines()[0]
    found = json.loads(run("show", store, "run-17", "--version", 1, "--json"))
    assert found["version"] == 1 and found["items"][0]["what"] == "u (5)"
    assert found["items"][0]["bytes"] == 40
    assert "run-17" in run("show", store, code=2)
    assert "one of 1, 2, 3" in run("show", store, "run-17", "--version", 9, code=2)


def test_verify_says_which_block(store):
    assert "4 versions are intact" in run("verify", store)
    block = Path(store, "run-17", "00000002", "u.zarr", "u", "c", "0")
    block.write_bytes(block.read_bytes()[:-1] + b"x")
    next(Path(store, "run-17", "00000002").glob("n.value-*")).unlink()
    Path(store, "run-17", "00000003", "manifest.json").write_text("{}")
    said = run("verify", store, code=1)
    assert "run-17 version 2: u[u] is damaged" in said and "run-17 version 2: n is missing" in said
    assert "run-17 version 3: manifest is damaged" in said and "version 1" not in said
    assert len(json.loads(run("verify", store, "--json", code=1))["problems"]) == 3
    run("verify", store, "run-17", "--version", 1)
    run("verify", store, "run-17", "--version", 8, code=2)
    assert "damaged" in run("list", store)


def test_verify_looks_at_what_plain_xarray_needs(store):
    Path(store, "run-17", "00000001", "u.zarr", "zarr.json").write_text("{}")
    assert "u.zarr/zarr.json is damaged" in run("verify", store, code=1)


def test_prune(store):
    assert run("prune", store, "run-17", "--keep", 2) == "run-17 version 1 is deleted\n"
    assert json.loads(run("prune", store, "--json")) == [{"name": "run-17", "version": 2}]
    assert run("prune", store) == "nothing to delete\n"
    assert len(json.loads(run("list", store, "--json"))) == 2


def test_encrypted(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "6b" * 32)
    monkeypatch.setenv("OTHER", "6c" * 32)
    save(str(tmp_path), "run", {"n": 1}, services=Services(key=Key(b"k" * 32)))
    assert "encrypted" in run("list", tmp_path)
    assert "a key is needed" in run("show", tmp_path, "run", code=2)
    assert "another key" in run("show", tmp_path, "run", "--key", "env:OTHER", code=2)
    assert "kind" in run("show", tmp_path, "run", "--key", "env:SECRET")
    assert "intact" in run("verify", tmp_path, "--key", "env:SECRET")
