"""Fixtures of distributed's own tests, its leak checks, and ``--runslow``."""

import pytest
from distributed.utils_test import cleanup, loop, loop_in_thread  # noqa: F401

pytest_plugins = ["distributed.pytest_resourceleaks"]


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--runslow"):
        skip = pytest.mark.skip(reason="slow: needs --runslow")
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(skip)
