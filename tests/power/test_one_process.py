"""One process of a machine at a time."""

import subprocess
import sys
from uuid import uuid4

from dask_hpc.power.worker.sensors import OneProcess


def test_one_at_a_time():
    name = f"dask-hpc-test-{uuid4()}"
    one, other = OneProcess(name), OneProcess(name)
    assert one.take() and one.take() and not other.take()
    other.release()
    program = f"from dask_hpc.power.worker.sensors import OneProcess; print(OneProcess({name!r}).take())"

    def elsewhere():
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout

    assert elsewhere() == "False\n"
    one.release()
    assert elsewhere() == "True\n"  # and its end gives it back
    assert other.take()
    other.release()
