"""A program beside Dask: it ends when its script does, whichever way, and says how many nodes it wants."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

from dask_hpc.cluster.client import tied
from dask_hpc.cluster.client.beside import Beside, WishFiles

TIED = [sys.executable, "-I", tied.__file__]
#: a shell with a child; both are told when they hear SIGTERM, unless they are deaf
FAMILY = "sleep 300 & echo $!; {}; wait"


def family(trap="true"):
    process = subprocess.Popen(
        [*TIED, "sh", "-c", FAMILY.format(trap)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, psutil.Process(int(process.stdout.readline()))


def gone(process, timeout=20):
    with suppress(psutil.NoSuchProcess):
        process.wait(timeout)
    return True


def told(*command):
    """Its exit code and what it said, while its input stays open."""
    with subprocess.Popen(
        [*TIED, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, complaint = process.stdout.read(), process.stderr.read()
        return process.wait(20), out, complaint


def test_the_exit_code_is_passed_on():
    assert told("sh", "-c", "exit 3") == (3, "", "")
    complaint = "dask-hpc: no-such-program: No such file or directory\n"
    assert told("no-such-program") == (127, "", complaint)
    assert told("sh", "-c", "kill -9 $$")[0] == 128 + signal.SIGKILL


def test_it_ends_with_what_it_has_started_when_its_input_does():
    process, child = family()
    with process:
        process.stdin.close()
        assert process.wait(20) == 128 + signal.SIGTERM and gone(child)


def test_signals_are_passed_on():
    process, child = family()
    with process:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 128 + signal.SIGINT and gone(child)


def test_what_does_not_hear_is_killed(tmp_path):
    slow = (tmp_path / "tied.py", "_PATIENCE = 10.0", "_PATIENCE = 0.2")
    with open(tied.__file__) as file:
        text = file.read()
    assert slow[1] in text
    slow[0].write_text(text.replace(*slow[1:]))
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
    command = [sys.executable, "-I", str(slow[0]), sys.executable, "-c", f"{program}; time.sleep(300)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "deaf\n"
        process.stdin.close()
        assert process.wait(20) == 128 + signal.SIGKILL


def test_it_leaves_nobody_behind():
    code, child, _ = told("sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!")
    assert code == 0
    with suppress(psutil.NoSuchProcess):
        gone(psutil.Process(int(child)))


def program(*words, over=(), **how):
    over = [] if over == () else over
    return Beside(words, dict(os.environ), ["n2", "n3"], over.append, **how)


def test_a_program_that_ends_well_or_not():
    over = []
    with program("sh", "-c", "exit 0", over=over) as found:
        pass
    assert found.is_over and over == [found] and found.process.returncode == 0
    assert program("sh", "-c", "exit 5").wait() == 5


def test_a_program_is_stopped_if_something_is_raised():
    with pytest.raises(ZeroDivisionError), program("sleep", "300") as found:
        raise ZeroDivisionError
    assert found.is_over and found.process.returncode == 128 + signal.SIGTERM


def test_no_such_program():
    with pytest.raises(FileNotFoundError, match="beside: there is no program no-such-program"):
        program("no-such-program")


def test_wishes(tmp_path):
    (tmp_path / "wish").write_text("9")
    files = WishFiles(tmp_path)
    assert files.wish() is None, "of an earlier program"
    script = 'cat "$DASK_HPC_NODES_FILE"; echo 3 > "$DASK_HPC_WISH"'
    found = program("sh", "-c", script, files=files, stdout=subprocess.PIPE, text=True)
    assert found.process.stdout.read() == "n2\nn3\n"
    found.process.stdout.close()
    assert found.wait() == 0 and files.wish() == 3
    for text, wish in (("0", None), ("-1", None), ("many", None), ("", None), (" 2\n", 2)):
        (tmp_path / "wish").write_text(text)
        assert files.wish() == wish
    files.tell(["n2"])
    assert (tmp_path / "nodes").read_text() == "n2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nodes", "wish"]
