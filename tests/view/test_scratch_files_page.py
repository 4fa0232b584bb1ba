"""Scratch files in memory are on their cluster's dashboard, and on it only while there are any; and they are
no copies of results there."""

import pytest
from distributed.utils_test import gen_cluster
from served_page import fed, get, until_fed

import dask_hpc

shown = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
)


@shown
async def test_the_page_follows_what_happens(c, s, *workers):
    pytest.importorskip("bokeh")
    async with await dask_hpc.manage(c):
        assert (await fed(s))["whole"].get("files") is None
        assert "scratch_files_view" in await get(s, "/individual-hpc-scratch-files")
        async with dask_hpc.MemoryFiles("scratch", block="4 kiB", client=c) as files:
            await files.fs._pipe_file(files.url("a"), b"x" * 10_000)
            whole = await until_fed(s, lambda whole: whole.get("files") and whole["files"][0]["files"])
            (row,) = whole["files"]
            assert (row["name"], row["nbytes"], sum(one["blocks"] for one in row["nodes"])) == (
                "scratch", 10_000, 3,
            )  # fmt: skip
            checkpoint = whole["checkpoint"]
            assert checkpoint["levels"]["partner"] == {"copies": 0, "nbytes": 0}
            assert [one["kept"] for one in checkpoint["nodes"]] == [{}, {}]
        await until_fed(s, lambda whole: whole["files"] is None)
