"""Checkpoint agents on a simulated machine: what commits cost, by how many agents there are and where.

Applications compute and commit; agents on nodes of their own take the commits over links that they share,
keep them, and write them to a shared file system in the background. How many agents an application has, where
they run and how many nodes there are for them is decided by the same strategy that decides on a live cluster,
as a policy has it. What only a machine can know, rates and costs, is in ``Costs`` and can be set.

    rule = AgentRule(count="climb", rank="bandwidth")  # or Policy.load("...").checkpoint
    app = App("heat", nodes=12, nbytes=1.4e9, interval=1.0, commits=100, agents=2, rule=rule)
    service = CommitService(nodes=4, link=12.5e9, costs=Costs(agent=1e9))
    result = simulate_commits([app], service)
    result.commits, result.agents, result.dataset

Every decision of a run follows from its arguments and its seed.
"""

from dask_hpc.simulator.checkpoint.run import App, SizeChange, simulate_commits
from dask_hpc.simulator.checkpoint.world import (
    CommitResult,
    CommitService,
    Compression,
    Pool,
    SiteStore,
)
from dask_hpc.simulator.platform import Costs
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule

__all__ = [
    "AgentRule",
    "App",
    "CommitResult",
    "CommitService",
    "Compression",
    "Costs",
    "Pool",
    "SiteStore",
    "SizeChange",
    "simulate_commits",
]
