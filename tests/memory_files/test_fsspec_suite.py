"""fsspec's own tests of what a file system has to do, for ``hpc-memory``."""

import fsspec.tests.abstract as abstract
import pytest

from dask_hpc.memory_files.client.filesystem import MemoryFileSystem


class FilesFixtures(abstract.AbstractFixtures):
    """Where these tests put their files."""

    @pytest.fixture
    def fs(self, small_cluster):
        return MemoryFileSystem()

    @pytest.fixture
    def fs_path(self):
        return "scratch"

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, FilesFixtures):
    """Within it."""


class TestGet(abstract.AbstractGetTests, FilesFixtures):
    """From it to local files."""


class TestPut(abstract.AbstractPutTests, FilesFixtures):
    """From local files to it."""


class TestOpen(abstract.AbstractOpenTests, FilesFixtures):
    """Files that are opened."""


class TestPipe(abstract.AbstractPipeTests, FilesFixtures):
    """Whole files."""
