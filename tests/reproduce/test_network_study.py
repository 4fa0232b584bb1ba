"""Applications in pieces: what must agree does, and the misses are those that we know."""

import pytest

from dask_hpc.reproduce import experiment, network_fragmentation
from dask_hpc.reproduce.claim import Bench

MISSED = {
    "in turn, by blade: worst loss of an application",
    "in turn: worst loss by chassis over that by blade",
    "in turn, by chassis: loss beside checkpoints over that beside an application",
    "in turn, by blade: loss beside checkpoints over that beside an application",
    "in turn, by chassis: loss beside checkpoints to the store over checkpoints to partners",
    "in turn, by blade: loss beside checkpoints to partners over checkpoints to the store",
    "in turn: checkpoints to the store are faster by chassis, by up to",
    "in turn: checkpoints to partners lose by chassis",
    "shifted, by blade: worst loss of an application",
    "shifted: worst loss by chassis over that by blade",
    "shifted, by chassis: loss beside checkpoints over that beside an application",
    "shifted, by blade: loss beside checkpoints over that beside an application",
    "shifted, by chassis: loss beside checkpoints to the store over checkpoints to partners",
    "shifted: checkpoints to the store are faster by chassis, by up to",
    "shifted: checkpoints to partners lose by blade, or unfragmented, at most",
    "by chassis: share of checkpoints to the store, own service blades (digest)",
    "in turn, by blade: share of checkpoints to the store, own service blades (digest)",
    "shifted, by blade: share of checkpoints to the store, own service blades (digest)",
}


def test_six_scenarios_in_three_placements():
    told = []
    found = network_fragmentation.run(Bench(progress=told.append))
    assert {one.claim for one in found.claims if not one.reached} == MISSED
    assert told[-1] == experiment("network-fragmentation").total(0)
    beside = {one.figure: one.ours for one in found.beside}
    assert beside["in turn: what a pair of blades sends"] == pytest.approx(0.543, abs=5e-4)
    # alone, pieces of a chassis have half of the optical links; shifted, all of them
    assert beside["in turn, by chassis: loss of an application beside nothing"] == pytest.approx(50, abs=0.1)
    assert beside["shifted, by chassis: loss of an application beside nothing"] == pytest.approx(0, abs=0.1)
    # the optical links are what two applications share, whoever gets more of them
    sums = [ours for text, ours in beside.items() if "in sum" in text]
    assert sums == pytest.approx([1.0] * 4, abs=1e-2)


def test_halves_are_halves():
    names = [number for reading in network_fragmentation._READINGS.values() for number in reading]
    assert set(names) == set(network_fragmentation._PLACEMENTS)
    for reading in network_fragmentation._READINGS:
        for placement in network_fragmentation._PLACEMENTS:
            one, other = network_fragmentation._halves(reading, placement)
            assert len(one) == len(other) == 94 and not set(one) & set(other)
    one, _ = network_fragmentation._halves("in turn", "by blade")
    assert one[:3] == ("cabinet0-chassis0-blade2", "cabinet0-chassis0-blade4", "cabinet0-chassis0-blade6")
    one, _ = network_fragmentation._halves("shifted", "by chassis")
    assert one[-1] == "cabinet1-chassis5-blade14"
