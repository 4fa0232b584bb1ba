"""``dask-hpc files``: what it lists, shows, changes and copies out, from beside a cluster."""

import json
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import dask_hpc
from dask_hpc.cli import cli
from dask_hpc.cli import files as command


@pytest.fixture(scope="module")
def client():
    """That of three workers; the cluster is not managed."""
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0",
            memory_limit="2GB",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield client


@pytest.fixture
def scratch(client):
    """A file system with three files of 10,000 bytes, in nine blocks."""
    with dask_hpc.MemoryFiles("scratch", block="4 kiB", client=client) as files:
        for name in ("run/a", "run/sub/b", "c"):
            files.fs.pipe(files.url(name), name.encode() * 2000)
        yield files


def run(client, what, *args, code=0):
    result = CliRunner().invoke(cli, ["files", what, client.scheduler.address, *map(str, args)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == (code == 2)
    return result.stderr if code == 2 else result.stdout


def test_list(client, scratch):
    with dask_hpc.MemoryFiles("other", nodes=9, recommended="2 GB/s", client=client):
        head, first, second = [line.split() for line in run(client, "list").splitlines()]
        assert first[6] != "-" and first[7] in ("kB/s", "MB/s", "GB/s")  # as fast as the machine is
        assert [head, [*first[:6], *first[8:]], second] == [
            ["name", "state", "nodes", "files", "size", "throughput", "recommended", "lost"],
            ["scratch", "ready", "3", "3", "30", "kB", "-", "0"],
            ["other", "commissioning", "3", "of", "9", "0", "0", "B", "-", "2", "GB/s", "0"],
        ]
        assert [row["name"] for row in json.loads(run(client, "list", "--json"))] == ["scratch", "other"]
        assert "is missing; allowed: scratch, other" in run(client, "status", code=2)
    assert "6 more" not in run(client, "status")  # there is only one now


def test_where_there_are_none(client):
    assert run(client, "list") == "there is no file system in memory: dask_hpc.MemoryFiles makes one\n"
    assert run(client, "list", "--json") == "[]\n"
    assert "no file system in memory" in run(client, "resize", "scratch", 2, code=2)


def test_status(client, scratch):
    said = run(client, "status", "scratch")
    lines = [line.split() for line in said.splitlines()]
    assert said.startswith("scratch: ready, 3 files of 30 kB on 3 nodes; operations at ")
    assert sum(int(line[1]) for line in lines if line and line[0] in ("0", "1", "2")) == 9
    assert ["write-back", "0", "s", "yes"] in lines and ["block", "4", "KiB", "no"] in lines
    assert said.splitlines()[-1] == f"socket: {scratch.socket}"
    assert json.loads(run(client, "status", "--json"))["settings"]["write_back"] == 0
    assert "found 'no'; allowed: scratch" in run(client, "status", "no", code=2)


def test_what_is_written_and_lost_is_said():
    row = {"name": "a", "state": "ready", "files": 1, "nbytes": 5, "writers": 2, "wanted": 3, "lost": 1}
    row |= {"nodes": [{}], "throughput": 1.5e9, "settings": {"recommended": 2e9}}
    row |= {"to_store": 3, "store_problem": ""}
    assert command.summary(row) == (
        "a: ready, 1 file of 5 B on 1 node; 2 more when they come; operations at 1.5 GB/s; "
        "2 GB/s recommended; 2 files being written; 3 files on the way to the store; 1 block lost"
    )
    assert "; the store cannot be written: full" in command.summary(row | {"store_problem": "full"})


def test_resize(client, scratch):
    assert "on 2 nodes" in run(client, "resize", "scratch", 2)
    assert len(scratch.status()["nodes"]) == 2
    assert scratch.fs.cat(scratch.url("c")) == b"c" * 2000
    assert len(json.loads(run(client, "resize", "scratch", "all", "--json"))["nodes"]) == 3
    for bad in ("0", "-1", "2.5", "many", "²"):
        assert "whole number >= 1, or all" in run(client, "resize", "--", "scratch", bad, code=2)
    assert "allowed: scratch" in run(client, "resize", "other", 1, code=2)


def test_set(client, scratch):
    said = run(client, "set", "scratch", "write-back=5s", "batch=2 MiB", "recommended=1 GB/s", "copies=1")
    assert said.splitlines() == ["write-back: 5 s", "batch: 2 MiB", "recommended: 1 GB/s", "copies: 1"]
    said = run(client, "set", "scratch", "write_back=0", "recommended=none", "proxy=true", "encrypt=no")
    assert said.splitlines() == ["write-back: 0 s", "recommended: -", "proxy: always", "encrypt: no"]
    assert json.loads(run(client, "set", "scratch", "proxy=", "--json"))["proxy"] is None
    assert "copies, write-back, batch, proxy" in run(client, "set", "scratch", "block=1 MiB", code=2)
    assert "units s, min, h, d" in run(client, "set", "scratch", "write-back=5 kg", code=2)
    assert "0 to 10" in run(client, "set", "scratch", "copies=11", code=2)
    assert "such as write-back=5s" in run(client, "set", "scratch", "copies", code=2)
    assert "found '{'" in run(client, "set", "scratch", "copies={", code=2)
    assert scratch.status()["settings"]["copies"] == 1


def test_stage_out(client, scratch, tmp_path):
    assert (
        run(client, "stage-out", "scratch", tmp_path / "all") == f"3 files of 30 kB in {tmp_path / 'all'}\n"
    )
    assert (tmp_path / "all/run/sub/b").read_bytes() == b"run/sub/b" * 2000
    found = json.loads(run(client, "stage-out", "scratch", tmp_path / "one", "--path", "run/", "--json"))
    assert found == {"files": 2, "nbytes": 28_000, "to": str(tmp_path / "one")}
    assert (tmp_path / "one/sub/b").exists() and scratch.fs.exists(scratch.url("run/a"))
    assert f"--path: {scratch.url('no')}: No such" in run(
        client, "stage-out", "scratch", tmp_path, "--path", "no", code=2
    )
    (tmp_path / "file").touch()
    assert "DIRECTORY: " in run(client, "stage-out", "scratch", tmp_path / "file", code=2)
    assert "Protocol not known" in run(client, "stage-out", "scratch", "nonsense://x", code=2)


def test_how_far_a_copy_is(client, scratch, tmp_path, monkeypatch):
    for number in range(200):
        scratch.fs.pipe(scratch.url(f"many/{number}"), b"x")
    told = []

    @contextmanager
    def bar(name, total):
        told.append(total)
        yield told.append

    monkeypatch.setattr(command, "progress_bar", bar)
    monkeypatch.setattr(command, "_POLL", 0.005)
    run(client, "stage-out", "scratch", tmp_path, "--path", "many")
    assert told[0] == 200 and told[1:] == sorted(told[1:]) and 0 < told[-1] <= 200
    assert not scratch.status()["staging"]


def test_nobody_answers():
    result = CliRunner().invoke(cli, ["files", "list", "foo://x"])
    assert result.exit_code == 2 and "no scheduler answers at 'foo://x'" in result.stderr
