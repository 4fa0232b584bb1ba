"""Calls that hang are given up, and not repeated before they come back."""

import threading

import pytest
from distributed.utils_test import async_poll_for, gen_test

from dask_hpc.checkpoint.scheduler.series import Patience
from dask_hpc.checkpoint.store.files import Trouble


@gen_test()
async def test_results_and_errors_come_through():
    patience = Patience(5)
    assert await patience.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await patience.call(divmod, 7, 0)


@gen_test()
async def test_what_hangs_is_not_called_again_until_it_comes_back():
    patience, go, called = Patience(0.05), threading.Event(), []

    def hang():
        called.append(1)
        go.wait()

    with pytest.raises(Trouble, match="did not answer"):
        await patience.call(hang)
    with pytest.raises(Trouble, match="it hangs"):
        await patience.call(hang)
    assert len(called) == 1
    go.set()

    async def answers():
        try:
            return await patience.call(lambda: "back") == "back"
        except Trouble:
            return False

    for _ in range(100):
        if await answers():
            break
    else:
        await async_poll_for(lambda: patience._hanging == 0, 5)
        assert await answers()
