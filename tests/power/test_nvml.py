"""GPUs through a stand-in for NVIDIA's library; there is no such board here."""

import sys
from types import ModuleType

import pytest

from dask_hpc.power.worker.meters import Nvml


class Error(Exception):
    pass


class StandIn(ModuleType):
    """A machine with these boards: a dict each of ``power`` (mW) and ``energy`` (mJ), or without one."""

    NVMLError = Error

    def __init__(self, boards, works=True):
        super().__init__("pynvml_stand_in")
        self.boards = boards
        self.works = works
        self.opened = 0

    def nvmlInit(self):
        if not self.works:
            raise Error("Driver Not Loaded")
        self.opened += 1

    def nvmlShutdown(self):
        self.opened -= 1

    def nvmlDeviceGetCount(self):
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.boards[index]

    def nvmlDeviceGetTotalEnergyConsumption(self, board):
        return self._get(board, "energy")

    def nvmlDeviceGetPowerUsage(self, board):
        return self._get(board, "power")

    def _get(self, board, name):
        if name not in board:
            raise Error("Not Supported")
        return board[name]


@pytest.fixture
def machine(monkeypatch):
    def make(*args):
        stand_in = StandIn(*args)
        monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
        return stand_in, Nvml(library=stand_in.__name__)

    return make


def test_mean_power_where_energy_is_counted(machine):
    new, old = {"power": 90_000, "energy": 1_000_000}, {"power": 70_000}
    stand_in, nvml = machine([new, old])
    assert [row.watts for row in nvml.sense(0, 0)] == [90, 70]
    new["energy"] += 400_000
    rows = nvml.sense(2, 0)
    assert [(row.sensor, row.watts) for row in rows] == [("gpu-0", 200), ("gpu-1", 70)]
    assert rows[0].covers == "gpu" and rows[0].uncertainty == 10
    nvml.close()
    nvml.close()
    assert stand_in.opened == 0


def test_a_counter_that_was_set_back(machine):
    board = {"power": 90_000, "energy": 1_000_000}
    _, nvml = machine([board])
    nvml.sense(0, 0)
    board["energy"] = 0
    assert nvml.sense(1, 0)[0].watts == 90


def test_a_board_that_falls_off(machine):
    board = {"power": 90_000}
    _, nvml = machine([board, {"power": 10_000}])
    nvml.sense(0, 0)
    board.clear()
    rows = nvml.sense(1, 0)
    assert rows[0].watts is None and rows[0].problem == "Not Supported" and rows[1].watts == 10


def test_no_driver_is_no_error(machine):
    stand_in, nvml = machine([], False)
    (row,) = nvml.sense(0, 0)
    assert row.watts is None and "driver not loaded" in row.problem
    stand_in.works = True
    assert nvml.sense(1, 0) == [row]  # not asked every time
    assert nvml.sense(1000, 0)[0].problem == "no GPU" and stand_in.opened == 0
    nvml.close()


def test_no_library_is_no_error():
    (row,) = Nvml(library="no_such_library").sense(0, 0)
    assert row.watts is None and "nvidia-ml-py" in row.problem and "pip install" in row.fix
