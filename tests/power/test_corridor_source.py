"""Corridors from files and signals: used as a whole or refused as a whole, and told once."""

import os
from importlib.metadata import EntryPoint
from time import time

import dask
import pytest
from distributed.utils_test import async_poll_for
from small_cluster import cluster2, plugin_of, power_of

import dask_hpc
from dask_hpc.model import power as corridor_signal
from dask_hpc.model.errors import InputError
from dask_hpc.model.power import Corridor
from dask_hpc.power.scheduler import corridor_source
from dask_hpc.power.scheduler.corridor_source import FollowedFile, FollowedSignal

QUICK = {
    "hpc.policy": "power-corridor",
    "hpc.power-interval": 0.05,
    "hpc.power-meter": {"simulated": {"noise": 0, "lag": 0}},
}


def put(path, text):
    """As a careful writer does: whole at once."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    os.replace(draft, path)


def told(s):
    kinds = ("new-corridor", "corridor-refused")
    return [h.reason for h in plugin_of(s).story.happenings if h.decision in kinds]


# the file


def test_a_file_is_read_when_it_changes_and_only_then(tmp_path):
    path = tmp_path / "corridor"
    put(path, "{lower: 1 kW, upper: 2 kW}")
    file = FollowedFile(str(path), 0.0)
    assert file.look() == Corridor.constant(1000, 2000)
    assert file.look() is None
    put(path, "{lower: 1 kW, upper: 3 kW}")  # of the same size
    assert file.look() == Corridor.constant(1000, 3000)
    with path.open("a") as more:
        more.write("\n# the same\n")
    assert file.look() == Corridor.constant(1000, 3000)


def test_a_bad_file_is_refused_at_every_look_until_it_is_better(tmp_path):
    path = tmp_path / "corridor"
    file = FollowedFile(str(path), 0.0)
    with pytest.raises(InputError, match=r"corridor: cannot be read: No such file"):
        file.look()
    put(path, "{lower: 1 kW, upper")
    for _ in range(3):
        with pytest.raises(InputError, match="not YAML"):
            file.look()
    put(path, "{upper: 1 kW}")
    assert file.look() == Corridor.constant(0, 1000)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        file.look()
    put(path, "{upper: 1 kW}")
    assert file.look() == Corridor.constant(0, 1000)


def test_a_folder_or_a_pipe_is_no_corridor(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="is no ordinary file"):
            FollowedFile(str(path), 0.0).look()


def test_a_file_that_changes_while_it_is_read_is_looked_at_again(tmp_path, monkeypatch):
    path = tmp_path / "corridor"
    put(path, "{upper: 1 kW}")
    file = FollowedFile(str(path), 0.0)
    honest = os.fstat

    def grows(fd):
        with path.open("a") as more:
            more.write("\n")
        return honest(fd)

    monkeypatch.setattr(corridor_source.os, "fstat", grows)
    assert file.look() is None
    monkeypatch.undo()
    assert file.look() == Corridor.constant(0, 1000)


def test_times_in_a_file_are_on_the_clock_of_control_or_dates(tmp_path):
    path = tmp_path / "corridor"
    text = (
        "- {at: 0, upper: 1 kW}\n- {at: 10 min, upper: 2 kW}\n"
        "- {at: 2026-11-20T14:00:00+01:00, upper: 3 kW}\n- {at: '2026-11-20T14:30:00Z', upper: 4 kW}"
    )
    put(path, text)
    began = 1795179600.0  # 2026-11-20, 13:00 UTC
    steps = FollowedFile(str(path), began - 3600).look().steps
    assert [at for at, _, _ in steps] == [0, 600, 3600, 3600 + 5400]
    put(path, "[{at: 2026-11-20 14:00:00, upper: 1}]")
    with pytest.raises(InputError, match="with its zone"):
        FollowedFile(str(path), began).look()
    put(path, "[{at: 1-02:00:00, upper: 1}]")  # one of Slurm's durations
    assert FollowedFile(str(path), began).look().steps[0][0] == 93600


def test_in_words():
    assert Corridor.constant(0, 1500).in_words() == "at most 1.5 kW"
    assert Corridor(((0, 1, 2), (5, 3, 4))).in_words() == "1 W to 2 W, from 5.0 s on 3 W to 4 W"


# the signal


def price(now):
    assert abs(now - time()) < 10
    return 100, 900.0


def grows(now):
    grows.calls += 1
    return 0, 1000 + 100 * grows.calls


grows.calls = 0


def fails(now):
    raise OSError("no grid")


@pytest.fixture
def signals(monkeypatch):
    found = [
        EntryPoint(name, f"{__name__}:{name}", corridor_signal.GROUP) for name in ("price", "grows", "fails")
    ]
    found += [EntryPoint("odd", f"{__name__}:put", corridor_signal.GROUP)]
    found += [EntryPoint("text", "builtins:str", corridor_signal.GROUP)]
    monkeypatch.setattr(corridor_signal, "entry_points", lambda group: found)


def test_a_signal_is_asked_with_the_time(signals):
    signal = FollowedSignal("price")
    assert signal.look() == Corridor.constant(100, 900)
    assert signal.look() is None
    changing = FollowedSignal("grows")
    assert changing.look() != changing.look() is not None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody", "no entry point of dask_hpc.corridors .*price"),
        ("text", r"said '1[0-9.]+'; allowed: \(lower"),
    ],
)
def test_a_signal_that_makes_no_sense(signals, name, words):
    with pytest.raises(InputError, match=words):
        FollowedSignal(name).look()


# on a cluster


@cluster2
async def test_a_followed_file_counts_at_once_and_stays_when_it_breaks(c, s, a, b):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corridor.yaml")
        with dask.config.set(QUICK):
            manager = await dask_hpc.manage(c)
        async with manager:
            watch = power_of(s)
            await manager.set(**{"power.follow": str(path), "power.upper": "5 kW"})
            await async_poll_for(lambda: told(s), 10)
            assert "cannot be read" in told(s)[0] and "the policy's parameters" in told(s)[0]
            assert watch.corridor.at(0) == (0, 5000)

            put(path, "{lower: 10 W, upper: 1 kW}")
            await async_poll_for(lambda: watch.corridor.at(0) == (10, 1000), 10)
            await async_poll_for(lambda: watch._decided and watch._decided[1] == (10, 1000), 10)
            assert told(s)[1] == f"{path} says 10 W to 1 kW"

            path.write_text("{lower: 10 W, up")
            await async_poll_for(lambda: len(told(s)) == 3, 10)
            refused = watch.source.refused
            await async_poll_for(lambda: watch.source.refused > refused + 3, 10)
            assert len(told(s)) == 3 and "stays what it was" in told(s)[2]
            path.unlink()
            await async_poll_for(lambda: len(told(s)) == 4, 10)
            assert watch.corridor.at(0) == (10, 1000) == power_of(s).corridor.at(0)
            power = await manager.power()
            assert power["corridor"]["problem"] and power["corridor"]["follow"] == str(path)
            assert (power["corridor"]["lower"], power["corridor"]["upper"]) == (10, 1000)

            put(path, "{lower: 10 W, upper: 1 kW}")
            await async_poll_for(lambda: len(told(s)) == 5, 10)
            assert "can be used again" in told(s)[4]
            await manager.undo()  # the parameters say it again
            assert watch.source is None and watch.corridor.at(0) == (0, float("inf"))
            assert plugin_of(s).errors == 0


@cluster2
async def test_a_signal_that_fails_changes_nothing(c, s, a, b):
    points = [EntryPoint(name, f"{__name__}:{name}", corridor_signal.GROUP) for name in ("price", "fails")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corridor_signal, "entry_points", lambda group: points)
        with dask.config.set(QUICK):
            manager = await dask_hpc.manage(c)
        async with manager:
            watch = power_of(s)
            await manager.set(**{"power.follow": "signal:price"})
            await async_poll_for(lambda: watch.corridor.at(0) == (100, 900), 10)
            await manager.set(**{"power.follow": "signal:fails", "power.upper": "7 kW"})
            await async_poll_for(lambda: watch.source.refused > 3, 10)
            assert watch.corridor.at(0) == (0, 7000)
            assert [words for words in told(s) if "no grid" in words] == [
                "signal:fails: OSError: no grid; the corridor is what the policy's parameters say"
            ]
            assert plugin_of(s).errors == 0 and plugin_of(s).is_on
