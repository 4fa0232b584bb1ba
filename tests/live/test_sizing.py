"""Which units go first when the cluster shrinks."""

from distributed import Event
from small_cluster import blocked, cluster4, plugin_of, until

import dask_hpc


@cluster4
async def test_first_go_idle_nodes_then_those_of_jobs_that_can_do_with_less(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"):
        with dask_hpc.job("rigid", nodes=1, walltime="1h"):
            first = c.submit(blocked, "go", 1, pure=False)
        rigid = await until(s, "rigid", "running")
        with dask_hpc.job("malleable", nodes=2, min_nodes=1, max_nodes=2, walltime="1h"):
            second = c.submit(blocked, "go", 2, pure=False)
        malleable = await until(s, "malleable", "running")
        order = plugin_of(s).sizing.rank({str(i): [str(i)] for i in range(4)})
        assert order[0] not in rigid.nodes + malleable.nodes
        assert set(order[1:3]) == set(malleable.nodes) and order[3:] == list(rigid.nodes)
        await Event("go").set()
        await c.gather([first, second])
