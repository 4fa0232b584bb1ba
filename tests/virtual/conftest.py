"""The fixture ``virtual_cluster``: see the module of that name."""

import pytest
import virtual_cluster as harness


@pytest.fixture
def virtual_cluster():
    """Called with an ``async def main(cluster)``: runs it on a virtual cluster and gives what it gives."""
    with harness.virtual_machine():
        yield harness.run
