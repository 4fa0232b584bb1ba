"""Machines by name: how many nodes they have, and what a node draws idle and at work.

Figures of whole nodes, without conversion losses and cooling:

* ``supermuc-ng-partition``: the 16 nodes of seed 000, 9.2.4; idle 71 W, and 250 W under its heat equation
  (its Pi code draws 170 W). RAPL figures of a job's energy over its time, not of the whole node.
* ``supermuc-ng``: as many thin nodes as LRZ's description of the machine gives (6,336), each as above.
* ``frontier``: 9,472 nodes as 74 racks of 128; idle 626 W and peak 2,704 W, the sums of one processor (90 to
  280 W), four accelerators (88 to 560 W each), memory (74 W), four network cards (20 W each) and disks (30 W)
  that ExaDigiT's RAPS has in ``config/frontier/power.json``; also in Brewer et al., SC'24,
  arXiv:2410.05133.
* ``marconi100``: 980 nodes; idle 612 W and peak 1,836 W, from RAPS' ``config/marconi100/power.json`` in the
  same way: two processors (64 to 226 W), four accelerators (75 to 300 W), memory (74 W), network cards (80 W)
  and disks (30 W).
"""

from collections.abc import Mapping
from typing import NamedTuple

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.platform import Platform


class KnownMachine(NamedTuple):
    """Nodes, and watts of one of them."""

    nodes: int
    idle: float
    active: float


MACHINES: Mapping[str, KnownMachine] = {
    "supermuc-ng-partition": KnownMachine(16, 71.0, 250.0),
    "supermuc-ng": KnownMachine(6336, 71.0, 250.0),
    "frontier": KnownMachine(9472, 626.0, 2704.0),
    "marconi100": KnownMachine(980, 612.0, 1836.0),
}


def known_machine(name: object) -> KnownMachine:
    """By name."""
    if not isinstance(name, str) or name not in MACHINES:
        raise InputError(
            "machine", f"no machine is named {shown(name)}{nearest(name, MACHINES)}", ", ".join(MACHINES)
        )
    return MACHINES[name]


def platform_of(name: str, nodes: int | None = None) -> Platform:
    """All of a known machine, or so many nodes like its own."""
    known = known_machine(name)
    return Platform(nodes or known.nodes, idle_power=known.idle, active_power=known.active)
