"""A page that shows 1,000 nodes and 200 jobs ten times a second stays smooth and small."""

import importlib.util

import pytest
from rig import chromium, measured

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium")
@pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright")
def test_a_page_of_1000_nodes_and_200_jobs():
    found = measured("thousand_nodes.py", "page", "10")
    assert found["complaints"] == []
    assert found["frames"] > 30
    assert found["pss"] < 300
    assert found["messages"] > 10  # it was told all the time
