"""Everything that is asked of a cluster works where all is encrypted and only the known get in."""

import os
import subprocess
import sys

import pytest
from distributed import Client, LocalCluster, Security
from distributed.utils_test import gen_cluster, inc
from small_cluster import live, plugin_of, until, where

import dask_hpc

pytest.importorskip("cryptography")  # makes the certificates

SECURITY = Security.temporary()
SCRIPT = """
from distributed import Client

if __name__ == "__main__":
    with Client() as client:
        print(client.scheduler.address[:6], client.submit(sum, [1, 2]).result())
"""

tls_cluster2 = gen_cluster(
    client=True, scheduler="tls://127.0.0.1", nthreads=[("tls://127.0.0.1", 1)] * 2, security=SECURITY
)


@tls_cluster2
async def test_manage_job_status_story_close(c, s, a, b):
    assert s.address.startswith("tls://")
    async with await dask_hpc.manage(c, "elastic") as m:
        async with dask_hpc.job("one", nodes=1, min_nodes=1, max_nodes=2):
            futures = c.map(where, range(4), pure=False)
            assert set(await c.gather(futures)) <= {a.address, b.address}
            assert live(s, "one").state == "running"
        await until(s, "one", "done")
        status = await m.status()
        assert {w for node in status["nodes"] for w in node["workers"]} == {a.address, b.address}
        assert {"start", "end"} <= {row["decision"] for row in await m.story()}
        page = await c.scheduler.hpc_story_since(number=0)
        assert page["first"] == 0 and page["rows"]
        with pytest.raises(dask_hpc.InputError):
            await c.scheduler.hpc_script(client=c.id, request={})
        await m.set("fcfs")
        assert plugin_of(s).context.policy.name == "fcfs"
        data = await c.scatter(list(range(3)), workers=[a.address])
        await c.retire_workers([a.address])
        assert await c.gather(data) == [0, 1, 2]
        assert (await m.status())["results_lost"] == 0
    assert "dask-hpc" not in s.plugins


@pytest.mark.slow
def test_commands(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    files = {}
    for name in ("tls_ca_file", "tls_client_cert", "tls_client_key"):
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_text(getattr(SECURITY, name))
    tls = {
        "REQUIRE_ENCRYPTION": "True",
        "TLS__CA_FILE": str(files["tls_ca_file"]),
        "TLS__CLIENT__CERT": str(files["tls_client_cert"]),
        "TLS__CLIENT__KEY": str(files["tls_client_key"]),
    }
    known = os.environ | {f"DASK_DISTRIBUTED__COMM__{key}": value for key, value in tls.items()}

    def said(*args, env=known):
        command = [sys.executable, "-m", "dask_hpc", *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    with (
        LocalCluster(
            n_workers=2, processes=False, protocol="tls", security=SECURITY, dashboard_address=":0"
        ) as cluster,
        Client(cluster, security=SECURITY) as client,
        dask_hpc.manage(client) as manager,
    ):
        with dask_hpc.job("one"):
            assert client.submit(inc, 1).result() == 2
        address = cluster.scheduler_address
        told = said("story", address)
        assert told.returncode == 0 and " start " in told.stdout, told.stderr
        ran = said("run", str(script), "--cluster", address)
        assert (ran.returncode, ran.stdout) == (0, "tls:// 3\n"), ran.stderr
        assert "script.py" in {job["name"] for job in manager.status()["jobs"]}
        for args in (("story", address), ("run", str(script), "--cluster", address)):
            stranger = said(*args, env=os.environ)
            assert stranger.returncode == 2 and len(stranger.stderr.splitlines()) == 1, stranger.stderr
