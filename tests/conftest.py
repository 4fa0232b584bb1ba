"""Fixtures of distributed's own tests, its leak checks, the scenarios' report, and ``--runslow``."""

import gc
from importlib.util import find_spec
from math import isinf

import dask
import pytest
from distributed.utils_test import cleanup, loop, loop_in_thread  # noqa: F401
from hypothesis import settings

# Older releases of distributed keep the first one out of their wheel.
pytest_plugins = [name for name in ["distributed.pytest_resourceleaks", "scenario_report"] if find_spec(name)]

# The same examples each time, so that a failure is one for everybody; --hypothesis-profile=default looks
# for others.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config, items):
    reasons = {}
    if not config.getoption("--runslow"):
        reasons["slow"] = "slow: needs --runslow"
    if isinf(float(dask.config.get("distributed.scheduler.worker-saturation"))):
        reasons["queue"] = "Dask does not queue root tasks here"
    for item in items:
        for marker, reason in reasons.items():
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def own_heap():
    """For a test that takes times: Python does not search what other tests left behind for garbage."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
