"""Every service does its work where all is encrypted and only the known get in."""

import dask
import dask.array as da
import heat
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from distributed import Client, LocalCluster, Security, futures_of, wait
from distributed.utils_test import async_poll_for, inc

import dask_hpc
from dask_hpc.cli import cli
from dask_hpc.planning.in_situ.partition import Partition, Phases

pytest.importorskip("cryptography")  # makes the certificates

SECURITY = Security.temporary()


@pytest.fixture
def client():
    with encrypted(3) as cluster, Client(cluster) as client:
        assert {worker.address[:6] for worker in cluster.workers.values()} == {"tls://"}
        yield client


def encrypted(workers):
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=False, protocol="tls", security=SECURITY,
        dashboard_address=":0",
    )  # fmt: skip


def test_protected_results_outlive_a_worker(client):
    x = client.persist(da.random.default_rng(1).random(90, chunks=10))
    wait(x)
    before = client.compute(x).result()
    dask_hpc.protect(x, "x", client=client)
    while (found := dask_hpc.protected("x", wait=True, client=client))["copied"] < found["keys"]:
        pass
    scheduler = client.cluster.scheduler
    victim = next(iter(scheduler.tasks[futures_of(x)[0].key].who_has)).address
    client.sync(scheduler.remove_worker, victim, stimulus_id="dies", close=False)
    np.testing.assert_array_equal(client.compute(x).result(), before)
    assert not scheduler.plugins["dask-hpc-checkpoint"].errors


def test_a_program_goes_on_from_its_store_on_another_cluster(client, tmp_path):
    def iterate(client, last):
        done = []
        with dask_hpc.Checkpoint("run", str(tmp_path), client=client, every=1) as ck:
            u = ck.add("u", client.persist(da.zeros(30, chunks=10)))
            for i in ck.loop(range(6)):
                if i == last:
                    break
                done.append(i)
                u = client.persist(u * 2 + 1)
                ck.update(u=u)
                wait(u)
            return done, client.compute(u).result()

    assert iterate(client, 4)[0] == [0, 1, 2, 3]
    assert list(tmp_path.iterdir())
    with encrypted(1) as other, Client(other) as client:
        done, u = iterate(client, None)
        assert done and done[0] > 0
        np.testing.assert_array_equal(u, np.full(30, 2.0**6 - 1))
        found, _ = dask_hpc.restore("run", str(tmp_path), client=client)
        np.testing.assert_array_equal(client.compute(found).result(), u)


def test_scratch_files_are_resized_and_copied_out_from_beside_the_cluster(client, tmp_path):
    known = {
        "distributed.comm.tls.ca-file": SECURITY.tls_ca_file,
        "distributed.comm.tls.client.cert": SECURITY.tls_client_cert,
        "distributed.comm.tls.client.key": SECURITY.tls_client_key,
    }
    with dask_hpc.MemoryFiles("scratch", block="4 kiB", client=client) as files, dask.config.set(known):
        files.fs.pipe(files.url("a"), b"x" * 20_000)
        for call in (["resize", "scratch", "1"], ["stage-out", "scratch", str(tmp_path)]):
            told = CliRunner().invoke(cli, ["files", call[0], client.scheduler.address, *call[1:]])
            assert told.exit_code == 0, told.output
        assert len(files.status()["nodes"]) == 1
        assert (tmp_path / "a").read_bytes() == files.fs.cat(files.url("a")) == b"x" * 20_000


def test_arrays_are_redistributed(client):
    x = client.persist(da.arange(90, chunks=10))
    wait(x)
    workers = list(client.nthreads())
    y = dask_hpc.redistribute(x, workers=workers[:2], layout="cyclic")
    wait(y)
    held = {address for there in client.who_has(futures_of(y)).values() for address in there}
    assert held == set(workers[:2])
    np.testing.assert_array_equal(client.compute(y).result(), np.arange(90))


def test_a_cluster_adapts(client):
    cluster = client.cluster
    with dask_hpc.malleable(cluster) as manager:
        futures = client.map(inc, range(30))
        wait(futures)
        cluster.adapt(minimum=1, maximum=3, interval="50ms", cool_down=0, idle_grace=0)
        client.sync(async_poll_for, lambda: len(cluster.scheduler.workers) == 1, 20)
        assert client.gather(futures) == list(range(1, 31))
        more = client.map(nap, range(60), pure=False)
        client.sync(async_poll_for, lambda: len(cluster.scheduler.workers) > 1, 20)
        assert client.gather(more) == list(range(60))
        assert manager.status()["results_lost"] == 0


def nap(x):
    from time import sleep

    sleep(0.1)
    return x


def test_a_pipeline_equals_the_serial_loop(client):
    state = heat.plate((8, 6))
    pipe = dask_hpc.InSituPipeline(
        heat.advance, state, {"hottest": heat.hottest}, chunks={"y": (4, 4)}, halo={"y": 1, "x": 1},
        placement=Partition("async", 2, 1, (), ("hottest",), Phases(0, 0, 0)), client=client,
    )  # fmt: skip
    wanted = heat.serial(state, 3)
    for i, results in pipe.run(3):
        assert results["hottest"] == heat.hottest(wanted[i - 1])
    xr.testing.assert_identical(pipe.state.compute(), wanted[-1])
