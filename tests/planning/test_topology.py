"""Files that say where nodes are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.topology import hosts, read_topology

SLURM = """# a tree of two levels
SwitchName=s0 Level=1 LinkSpeed=1 Nodes=tux[0-3],login Switches=s[1-2]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=tux[0-1],login
SwitchName=s2 Nodes=tux[2-3]
"""


def test_a_tree_in_yaml():
    text = "cabinet0: {chassis0: 'node[08-10]', chassis1: [a, 'b[1,3]']}\ncabinet1: [17, c]\n"
    assert read_topology(text) == {
        "node08": ("cabinet0", "chassis0"),
        "node09": ("cabinet0", "chassis0"),
        "node10": ("cabinet0", "chassis0"),
        "a": ("cabinet0", "chassis1"),
        "b1": ("cabinet0", "chassis1"),
        "b3": ("cabinet0", "chassis1"),
        "17": ("cabinet1",),
        "c": ("cabinet1",),
    }


def test_what_slurm_prints():
    assert read_topology(SLURM.encode()) == {
        "tux0": ("s0", "s1"),
        "tux1": ("s0", "s1"),
        "login": ("s0", "s1"),
        "tux2": ("s0", "s2"),
        "tux3": ("s0", "s2"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "allowed: parts with parts or nodes in them"),
        ("a: {b: 3.5}\n", "a.b: found 3.5; allowed: parts with parts or nodes"),
        ("a: [x]\nb: [x]\n", "b: found \"x, which is in ('a',)\"; allowed: one place"),
        ("a: 'x[0-'\n", "found 'x[0-'; allowed: names of nodes, such as node[00-07]"),
        ("a: 'x[3-x]'\n", "found 'x[3-x]'"),
        ("a: 'x[0-99999999]'\n", "allowed: at most 1,000,000 nodes"),
        ("a: ['']\n", "found ''"),
        (
            "SwitchName=s Nodes=a\nSwitchName=t Nodes=a\n",
            "line 2: a: found 'at s and t'; allowed: one of them",
        ),
        ("SwitchName=s Switches=s\nSwitchName=s Nodes=a\n", "s: found 'is below itself, or too deep'"),
    ],
)
def test_what_cannot_be_is_said(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_topology(text)
    with pytest.raises(InputError):
        read_topology(b"a: \xff")


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 4))
def test_ranges_keep_their_zeros(first, more, width):
    names = list(hosts(f"n[{first:0{width}d}-{first + more:0{width}d}]x,m"))
    assert names == [f"n{number:0{width}d}x" for number in range(first, first + more + 1)] + ["m"]
