"""A bridge where all is encrypted and only the known get in."""

import asyncio

import pytest
from bridge_parts import close, declare, put, whole
from distributed import Security
from distributed.utils_test import gen_cluster

import dask_hpc

pytest.importorskip("cryptography")  # makes the certificates
SECURITY = Security.temporary()


@gen_cluster(
    client=True, scheduler="tls://127.0.0.1", nthreads=[("tls://127.0.0.1", 1)] * 2, security=SECURITY
)
async def test_with_certificates_only(c, s, a, b):
    async with await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4) as reader:
        future = c.compute(reader.array("t", 0).data.sum())
        with pytest.raises(dask_hpc.InputError, match="address"):
            await asyncio.to_thread(dask_hpc.Bridge, s.address, "heat", 16, 4, timeout="1s")
        bridge = await declare(s, security=SECURITY)
        await put(bridge, [0])
        assert await future == whole(0).sum()
        await close(bridge)
