"""Files of ``hpcmemory`` for asynchronous code."""

import numpy as np
import zarr
from distributed.utils_test import gen_cluster

import dask_hpc


@gen_cluster(client=True)
async def test_from_asynchronous_code(client, scheduler, *workers):
    async with dask_hpc.MemoryFiles("soon", client=client, block="4 kiB") as files:
        fs = files.fs
        await fs._pipe_file("soon/a", b"a" * 10_000)
        assert await fs._cat_file("soon/a", 2, 5) == b"aaa"
        async with await fs.open_async("soon/b", "wb") as file:
            await file.write(b"b" * 5000)
            await file.write(b"c" * 5000)
        async with await fs.open_async("soon/b") as file:
            assert (await file.read(4998), await file.read(4)) == (b"b" * 4998, b"bbcc")
        assert await fs._du("soon") == 20_000
        assert await fs._glob("soon/*") == ["soon/a", "soon/b"]
        await fs._mv("soon/b", "soon/deep/c")
        found = await fs._cat_ranges(["soon/a", "soon/deep/c"], 0, 2)
        assert found == [b"aa", b"bb"]
        await fs._rm("soon/deep", recursive=True)
        assert [one async for one in _walked(fs, "soon")] == [("soon", [], ["a"])]
        group = await zarr.api.asynchronous.open_group(
            zarr.storage.FsspecStore(fs, path="soon/z.zarr"), mode="w"
        )
        array = await group.create_array("x", shape=(10,), chunks=(5,), dtype="i4")
        await array.setitem(slice(None), np.arange(10, dtype="i4"))
        assert (await array.getitem(slice(3, 7))).tolist() == [3, 4, 5, 6]


async def _walked(fs, path):
    async for one in fs._walk(path):
        yield one
