"""What a pipeline keeps of itself."""

from dask_hpc.in_situ.client.job import PipelineDiary
from dask_hpc.planning.in_situ.partition import Partition, Phases

FIRST = Partition("async", 4, 1, ("front",), (), Phases(0.4, 0.5, 0))
SECOND = Partition("async", 3, 1, (), ("front",), Phases(0.8, 0.1, 0.7))
MEASURED = Phases(0.5, 0.5, 0.5)


def test_an_iteration_is_beside_the_plan_it_ran_under_not_beside_that_for_those_to_come():
    diary = PipelineDiary("heat", "1", ["front"], "wait")
    assert diary.partition is None and diary.status()["partition"] is None
    diary.change(1, FIRST, "as declared")
    for iteration in range(1, 7):
        if iteration == 4:
            diary.change(6, SECOND, "front is slow")  # decided while two are under way
        diary.add(iteration, 0.6, MEASURED)
    assert [one["expected"] for one in diary.status()["history"]] == [0.5] * 5 + [0.8]
    assert diary.partition == SECOND
    assert [one["iteration"] for one in diary.status()["changes"]] == [1, 6]


def test_what_is_expected_of_the_newest_partition_may_be_said_later():
    diary = PipelineDiary("heat", "1", ["front"], "wait")
    diary.change(1, FIRST, "guessed")
    diary.add(1, 0.6, MEASURED)
    diary.expect(SECOND)
    diary.add(2, 0.6, MEASURED)
    assert [one["expected"] for one in diary.status()["history"]] == [0.5, 0.8]
    assert diary.status()["changed"] == 0
