"""Which nodes a job gets, by where they are in the machine."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Neighbourhood, Picked
from dask_hpc.simulator import Arrival, Machine, Platform
from dask_hpc.simulator.record import Record
from dask_hpc.strategies.nodes.contiguous import Contiguous
from dask_hpc.strategies.nodes.first import First
from dask_hpc.strategies.nodes.least_congested import LeastCongested
from dask_hpc.strategies.nodes.spread import SpreadOut

JOB = Job(id="a", nodes=1)


def nodes(groups=(8, 4), count=16):
    return {node.name: node for node in Platform(count, groups=groups).node_list()}


def pick(strategy, count, idle, held=(), of=None):
    idle, held = [str(one) for one in idle], [str(one) for one in held]
    picked = strategy.pick(JOB, count, idle, held, Neighbourhood(of or nodes()))
    return [int(name) for name in picked.nodes]


def test_a_simulated_machine_has_parts():
    assert [node.place for node in nodes().values()][3:5] == [("0", "0"), ("0", "1")]
    assert nodes()["15"].place == ("1", "3")


def test_contiguous_takes_the_smallest_part_that_is_large_enough():
    # chassis: 0 has 3 idle, 1 has 1, 2 has 2, 3 has 4
    idle = [0, 1, 2, 4, 8, 9, 12, 13, 14, 15]
    assert pick(Contiguous(), 2, idle) == [8, 9]
    assert pick(Contiguous(), 3, idle) == [0, 1, 2]
    assert pick(Contiguous(), 4, idle) == [12, 13, 14, 15]
    # cabinet 0 has 4 idle, cabinet 1 has 6; the fullest chassis comes first, and is given back last
    assert pick(Contiguous(), 5, idle) == [12, 13, 14, 15, 8]
    assert pick(Contiguous(), 8, idle) == [12, 13, 14, 15, 8, 9, 0, 1]


def test_contiguous_grows_next_to_what_there_is():
    idle = [2, 5, 6, 9, 12, 13, 14]
    assert pick(Contiguous(), 1, idle, held=[8]) == [9]
    assert pick(Contiguous(), 3, idle, held=[8]) == [9, 12, 13]
    assert pick(Contiguous(), 5, idle, held=[8]) == [9, 12, 13, 14, 2]


def test_spread_goes_round():
    assert pick(SpreadOut(), 4, range(16)) == [0, 8, 4, 12]
    assert pick(SpreadOut(), 3, range(1, 16), held=[0]) == [8, 4, 12]


def test_where_nothing_is_known_all_take_the_first():
    plain = {str(i): Node(str(i)) for i in range(6)}
    assert (
        pick(Contiguous(), 3, [1, 3, 5], of=plain) == pick(SpreadOut(), 3, [1, 3, 5], of=plain) == [1, 3, 5]
    )
    assert pick(Contiguous(), 2, [1, 3, 5], held=[0], of=plain) == [1, 3]


@given(st.data(), st.sampled_from([First(), Contiguous(), SpreadOut(), LeastCongested()]))
def test_they_pick_idle_nodes_each_once(data, strategy):
    order = data.draw(st.permutations(range(16)))
    held = order[: data.draw(st.integers(0, 4))]
    idle = order[len(held) : len(held) + data.draw(st.integers(1, 16 - len(held)))]
    count = data.draw(st.integers(1, len(idle)))
    picked = pick(strategy, count, idle, held)
    assert len(set(picked)) == len(picked) == count and set(picked) <= set(idle)


@given(st.sets(st.integers(0, 15), min_size=1), st.data())
def test_contiguous_spans_no_more_parts_than_the_first_would(idle, data):
    count = data.draw(st.integers(1, len(idle)))
    first = sorted(idle)[:count]

    def parts(picked, depth):
        return len({nodes()[str(one)].place[:depth] for one in picked})

    assert parts(pick(Contiguous(), count, sorted(idle)), 1) <= parts(first, 1)


def test_a_body_takes_what_is_picked_and_nothing_else():
    indices = Indices(nodes().values())
    indices.picker = SpreadOut()
    indices.waiting.add(Job(id="a", nodes=2, kind="malleable", min_nodes=1, max_nodes=4))
    assert indices.start("a", 2).nodes == ("0", "8")
    indices.begin_resize("a", 4)
    assert indices.finish_resize("a").nodes == ("0", "8", "4", "12")
    assert set(indices.idle) == {str(i) for i in range(16)} - {"0", "8", "4", "12"}
    indices.picker = Wrong()
    indices.waiting.add(Job(id="b", nodes=2))
    with pytest.raises(ValueError, match="for job 'b': not 2 idle nodes"):
        indices.start("b", 2)
    assert "b" in indices.waiting


class Reasoned(First):
    def pick(self, job, count, idle, held, around):
        return Picked(idle[:count], f"for {job.id}")


def test_why_nodes_were_picked_is_that_of_the_last_job():
    indices = Indices(nodes().values())
    for name, picker, says in (("a", Reasoned(), "for a"), ("b", None, ""), ("c", First(), "")):
        indices.picker = picker
        indices.waiting.add(Job(id=name, nodes=2))
        indices.start(name, 2)
        assert indices.picked == says


class Wrong:
    def pick(self, job, count, idle, held, around):
        return Picked(["0", "0"])


def test_a_policy_says_who_picks_in_a_simulation():
    arrivals = [Arrival(Job(id=str(i), nodes=2, submitted=float(i)), 10.0) for i in range(2)]
    places = Counter()
    for name in ("contiguous", "spread"):
        policy = Policy.load("fcfs").with_(**{"nodes.strategy": name})
        record = Record(allotments=True)
        Machine(Platform(16, groups=(8, 4)), policy, record).run(arrivals)
        for _, _, held in record.allotments:
            if held:
                places[name, len({nodes()[one].place[0] for one in held})] += 1
    assert places == {("contiguous", 1): 2, ("spread", 2): 2}


def test_what_fails_together():
    indices = Indices(nodes().values())
    assert indices.part_of("3") == "0" and indices.part_of("15") == "1" and indices.part_of("?") == "?"
    for name in range(8, 16):
        indices.remove_node(str(name))
    assert indices.part_of("3") == "3"  # one part is none
    indices.add_node(Node("new"))
    assert indices.part_of("3") == "3"  # not known of all
    indices.place("new", ("far",))
    assert indices.part_of("new") == "far" and indices.part_of("3") == "0"
    assert indices.copy().part_of("3") == "0"
