"""The plate computes the same, cut into blocks or not, and its analyses say what is so."""

from itertools import islice
from time import perf_counter

import numpy as np
import pytest

from dask_hpc.examples import heat


@pytest.fixture
def warm():
    """A plate after some iterations."""
    state = heat.plate(48, 64, 6).compute()
    for _ in range(5):
        state = heat.advance(state)
    return state


def test_blocks_with_ghost_cells_make_the_same_plate_to_the_last_bit(warm):
    whole, halo = heat.advance(warm), heat.HALO["y"]
    for low in range(0, 48, 8):
        first, last = max(0, low - halo), min(48, low + 8 + halo)
        block = heat.advance(warm.isel(y=slice(first, last)))
        found = block.isel(y=slice(low - first, low - first + 8))
        assert found.identical(whole.isel(y=slice(low, low + 8)))


def test_heat_comes_from_the_wire_and_goes_to_the_air_and_nowhere_else(warm):
    before, after = (float(one["temperature"].sum()) for one in (warm, heat.advance(warm)))
    heating = float(warm["heating"].sum())
    for _ in range(heat.STEPS):
        before = (1 - heat._LOSS) * before + heating
    assert after == pytest.approx(before, rel=1e-12)
    assert float(warm["temperature"].min()) >= 0


def test_analyses_by_block_are_those_of_the_plate(warm):
    blocks = [warm.isel(y=slice(low, low + 8)) for low in range(0, 48, 8)]
    found = {
        name: combine([function(one) for one in blocks])
        for name, (function, combine) in heat.ANALYSES.items()
    }
    field = warm["temperature"].values
    assert found["front"] == (field > heat.WARM).sum() > 0
    np.testing.assert_allclose(found["profile"], field.sum(axis=0))
    np.testing.assert_allclose(found["spectrum"], heat.spectrum(warm))
    assert found["spectrum"][0] == pytest.approx((field.sum(axis=1) ** 2).sum())
    assert (found["picture"] == heat.picture(warm)).all()


def test_the_serial_loop_goes_on_and_the_front_advances():
    found = list(islice(heat.serial(heat.plate(48, 64, 6)), 8))
    fronts = [one["front"] for one in found]
    assert fronts == sorted(fronts) and fronts[-1] > fronts[1] > 0
    assert found[0].keys() == heat.ANALYSES.keys()


def test_the_wire_is_hot_in_the_end_and_the_disc_stays_cool():
    field = next(islice(heat.serial(heat.plate()), 100, None))["picture"]
    assert 0.7 * heat.HOT < field.max() < 3 * heat.HOT
    assert field[22, 26] < 0.3 * field.max()


def test_slow_cores_are_played_by_whoever_asks_and_no_longer():
    block = heat.plate(16, 16, 2).compute()
    heat.play({"front": 0.05})
    try:
        begun = perf_counter()
        heat.front(block)
        assert perf_counter() - begun >= 0.05
    finally:
        heat.play({})
    assert not heat._played
