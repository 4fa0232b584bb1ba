"""What a browser on the dashboard's page is told."""

import asyncio
import json
from time import monotonic

from tornado.httpclient import AsyncHTTPClient


async def get(s, path, **more):
    url = f"http://127.0.0.1:{s.http_server.port}{path}"
    return (await AsyncHTTPClient().fetch(url, **more)).body.decode()


async def fed(s, count=-1):
    """The answer of the feed to a page that has seen the news up to that count."""
    return json.loads(await get(s, f"/hpc-feed?count={count}"))


async def until_fed(s, condition):
    """Everything that a page is told, once it is so."""
    limit = monotonic() + 10
    while not condition(whole := (await fed(s))["whole"]):
        assert monotonic() < limit, "it never happened"
        await asyncio.sleep(0.1)
    return whole
