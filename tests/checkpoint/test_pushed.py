"""Copies are the same whether agents fetch blocks, workers send them, or one of a host sends for all."""

import asyncio

import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import gen_cluster
from small_agents import copy, results, start, value

import dask_hpc
from dask_hpc.checkpoint.scheduler import agents
from dask_hpc.checkpoint.scheduler.copies import pushed
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule

NAME = "dask-hpc-checkpoint"
four = gen_cluster(client=True, nthreads=[("", 1)] * 4)


def count_sends(workers):
    """By worker, how many blocks it was asked to send."""
    found = dict.fromkeys(range(len(workers)), 0)
    for number, worker in enumerate(workers):

        async def send(blocks, to, send=worker.handlers["hpc_agent_send"], number=number):
            found[number] += len(blocks)
            return await send(blocks=blocks, to=to)

        worker.handlers["hpc_agent_send"] = send
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "senders"),
    [
        (AgentRule(), set()),
        (AgentRule(transfer="push"), {0, 1}),
        (AgentRule(gather="host"), None),
    ],
)
def test_copies_are_the_same(rule, senders, monkeypatch):
    monkeypatch.setattr(agents, "_DEFAULT", rule)

    @four
    async def run(c, s, *workers):
        some = await results(c, workers[0], *[1000 + i for i in range(8)])
        large = await results(c, workers[1], 2**25, *[500 + i for i in range(8)], name="y")
        agents = dict(zip([w.address for w in workers], await start(c, *workers), strict=True))
        sends = count_sends(workers)
        await dask_hpc.protect([*some, *large], "x", client=c)
        await c.scheduler.hpc_protected_commit(name="x")
        catalogue = s.plugins[NAME].catalogue
        for one in [*some, *large]:
            content, (where,) = catalogue.where(one.key)
            holders = s.plugins[NAME].agents.holders(one.key)
            assert where not in holders
            np.testing.assert_array_equal(value(agents[where], content), await one)
        if senders is not None:
            assert {number for number, count in sends.items() if count} == senders
            assert sum(sends.values()) == (17 if senders else 0)
        else:  # for each agent one of the two sends, for the other as well
            assert sum(sends.values()) == 17 and not sends[2] and not sends[3]

    run()


@pytest.mark.parametrize("rule", [AgentRule(transfer="push"), AgentRule(gather="host")])
def test_what_an_agent_has_is_not_sent_again(rule, monkeypatch):
    monkeypatch.setattr(agents, "_DEFAULT", rule)

    @four
    async def run(c, s, *workers):
        await start(c, *workers)
        first = await results(c, workers[0], *[1000] * 6)
        known = s.plugins[NAME].catalogue
        made = await copy(s, first)
        assert made.moved == 6000
        again = await results(c, workers[0], *[1000] * 6, name="again")
        await wait(again)
        like = {b.key: known.where(a.key)[0] for a, b in zip(first, again, strict=True)}
        made = await copy(s, again, like)
        assert made.copies == 6 and made.moved == 0

    run()


@four
async def test_a_sender_that_is_gone_is_an_error_and_no_wait(c, s, *workers):
    await start(c, *workers)
    calling = s.plugins[NAME].calls
    blocks = [{"key": "x", "source": "tcp://127.0.0.1:1", "have": []}]
    async with asyncio.timeout(5):
        (said,) = await pushed(calling, workers[0].address, blocks, str)
    assert "has gone" in said["error"]
