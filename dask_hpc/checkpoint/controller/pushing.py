"""Blocks that agents do not fetch: whoever has them sends them, or one worker of a host sends what all there
have."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dask_hpc.checkpoint.controller.calling import Calling
from dask_hpc.model.errors import one_line


async def pushed(
    calling: Calling, agent: str, blocks: Sequence[dict[str, Any]], host_of: Callable[[str], str] | None
) -> list[dict[str, Any]]:
    """Have blocks sent to an agent, each by its ``source``, or if hosts are known by one worker of its host.
    Answers as the agent would if it had fetched them."""
    by_host: dict[str, list[int]] = {}
    for place, block in enumerate(blocks):
        source = block["source"]
        by_host.setdefault(source if host_of is None else host_of(source), []).append(place)
    answers: list[dict[str, Any]] = [{} for _ in blocks]

    async def from_one(places: Sequence[int]) -> None:
        theirs = [blocks[place] for place in places]
        sender = theirs[0]["source"]
        try:
            said = await calling.call(sender, "hpc_agent_send", blocks=theirs, to=agent)
            error = {"error": f"{sender} has no agent"}
        except OSError as wrong:
            said, error = None, {"error": one_line(str(wrong))}
        for number, place in enumerate(places):
            answers[place] = error if said is None else said[number]

    await asyncio.gather(*map(from_one, by_host.values()))
    return answers
