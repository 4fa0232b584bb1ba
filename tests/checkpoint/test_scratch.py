"""Folders of agents on a node: one for each that lives, and the files of the dead go to the living."""

import os
import subprocess
import sys
import time

import pytest

from dask_hpc.checkpoint.worker import kept as scratch
from dask_hpc.checkpoint.worker.kept import Scratch


def test_each_has_one_of_its_own_and_nobody_else_may_look(tmp_path):
    a, b = Scratch(str(tmp_path), "run 1/../x"), Scratch(str(tmp_path), "run 1/../x")
    assert a.path != b.path and a.path.parent == b.path.parent
    assert tmp_path in a.path.parents
    for folder in (a.path, a.path.parent, a.path.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    (a.path / "file").write_text("1")
    b.take_over()  # a lives
    assert (a.path / "file").exists()
    a.leave(keep=False)
    b.leave(keep=False)
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import os, sys
from dask_hpc.checkpoint.worker.kept import Scratch
mine = Scratch(sys.argv[1], "run")
(mine.path / "file").write_text("1")
os.kill(os.getpid(), 9)
"""


def test_the_next_one_has_what_a_dead_one_left(tmp_path):
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=False)
    stranger, heir, late = (Scratch(str(tmp_path), run) for run in ("other", "run", "run"))
    for one in (stranger, heir, late):
        one.take_over()
    assert (heir.path / "file").read_text() == "1"
    assert not (stranger.path / "file").exists() and not (late.path / "file").exists()
    assert len(list(heir.path.parent.iterdir())) == 2
    heir.leave(keep=True)
    late.take_over()
    assert (late.path / "file").read_text() == "1"
    late.leave(keep=False)
    stranger.leave(keep=False)


def test_folders_of_clusters_that_are_gone(tmp_path):
    living, gone, fresh = (Scratch(str(tmp_path), run) for run in ("living", "gone", "fresh"))
    gone.leave(keep=True)
    fresh.leave(keep=True)
    long_ago = time.time() - 2 * scratch._OLD
    for one in (living, gone):
        os.utime(one.path, (long_ago, long_ago))
    new = Scratch(str(tmp_path), "new")
    runs = {folder.name for folder in new.path.parent.parent.iterdir()}
    assert runs == {"living", "fresh", "new"}
    new.leave(keep=False)
    living.leave(keep=False)


def test_a_folder_that_others_may_write_or_that_leads_elsewhere(tmp_path):
    (tmp_path / "open").mkdir()
    folder = tmp_path / "open" / f"dask-hpc-{os.geteuid()}"
    folder.mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="others may look into it"):
        Scratch(str(tmp_path / "open"), "run")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        Scratch(str(tmp_path / "open"), "run")


COMING_AND_GOING = """
import sys
from dask_hpc.checkpoint.worker.kept import Scratch
for number in range(200):
    one = Scratch(sys.argv[1], f"{sys.argv[2]} {number}")
    one.take_over()
    assert one.path.is_dir()
    one.leave(keep=False)
"""


@pytest.mark.slow
def test_agents_that_come_while_others_go(tmp_path):
    """Who goes removes folders that are empty, and those of another who has just come are."""
    here = [sys.executable, "-c", COMING_AND_GOING, str(tmp_path)]
    both = [subprocess.Popen([*here, name], stderr=subprocess.PIPE, text=True) for name in "ab"]
    for one in both:
        _, told = one.communicate(timeout=60)
        assert one.returncode == 0, told
