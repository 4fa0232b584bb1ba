"""Kinds of tasks: their use of memory, their class, and what stands for what is not measured."""

from math import inf, nan

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.interference import CacheCounters, ClassAverages, MemoryUse, TaskKind, mem_class_of

#: table 2.3
PUBLISHED = {
    "I": {"canneal": 1.84e-2, "cg": 1.56e-2},
    "II": {"ua": 1.63e-3, "sp": 1.50e-3, "lu": 1.11e-3, "fluidanimate": 8.60e-4},
    "III": {"freqmine": 3.47e-5, "blackscholes": 1.88e-5},
    "IV": {"bodytrack": 8.69e-7},
    "V": {"ep": 6.27e-10, "swaptions": 4.22e-10},
}


def test_published_applications_are_of_their_classes():
    for name, found in PUBLISHED.items():
        assert {mem_class_of(intensity) for intensity in found.values()} == {name}
        mean = TaskKind("x", 1.0, said_class=name).use.intensity
        assert mean == pytest.approx(sum(found.values()) / len(found))
        assert mem_class_of(mean) == name


@pytest.mark.parametrize(
    "intensity, name",
    [(1.0, "I"), (1e-2, "I"), (9.9e-3, "II"), (1e-4, "II"), (9.9e-5, "III"), (1e-6, "III"), (9e-7, "IV"),
     (1e-8, "IV"), (9.9e-9, "V"), (0.0, "V")],
)  # fmt: skip
def test_borders_are_decades(intensity, name):
    assert mem_class_of(intensity) == name


def test_what_is_measured_goes_before_what_is_said():
    kind = TaskKind("cg", 250.0, CacheCounters(16, 40, 1000), "V")
    assert kind.mem_class == "I" and kind.use == MemoryUse(0.016, 0.4, 0.04)
    assert TaskKind("cg", 250.0, said_class="V").mem_class == "V"
    assert TaskKind("cg", 250.0).mem_class is None and TaskKind("cg", 250.0).use == MemoryUse()


def test_class_averages_replace_what_is_missing():
    kinds = [
        TaskKind("a", 1.0, CacheCounters(20, 50, 1000)),
        TaskKind("b", 1.0, CacheCounters(40, 80, 1000)),
        TaskKind("c", 1.0, CacheCounters(0, 0, 1000)),
        TaskKind("d", 1.0, said_class="III"),
    ]
    averages = ClassAverages.of(kinds)
    assert averages.use(TaskKind("e", 1.0, said_class="I")) == pytest.approx(MemoryUse(0.03, 0.45, 0.065))
    assert averages.use(TaskKind("f", 1.0, said_class="V")) == MemoryUse(0.0, 0.0, 0.0)
    assert averages.use(kinds[3]) == MemoryUse(pytest.approx(2.675e-5), None, None), "nobody is measured"
    assert averages.use(kinds[0]).intensity == 0.02, "its own"
    assert averages.use(TaskKind("g", 1.0)) == MemoryUse()


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: CacheCounters(-1, 1, 1), "misses: found -1"),
        (lambda: CacheCounters(1, 2.0**65, 1), "accesses.*wrapped"),
        (lambda: CacheCounters(1, 1, 0), "instructions: found 0"),
        (lambda: CacheCounters(nan, 1, 1), "misses"),
        (lambda: CacheCounters(1, 0, 1), "accesses: found 0"),
        (lambda: CacheCounters(True, 1, 1), "misses"),
        (lambda: TaskKind("a", 0.0), "seconds: found 0"),
        (lambda: TaskKind("a", inf), "seconds"),
        (lambda: TaskKind("a", nan), "seconds"),
        (lambda: TaskKind("a", 1.0, said_class="VI"), "mem_class: found 'VI'"),
        (lambda: mem_class_of(-1.0), "intensity: found -1"),
        (lambda: mem_class_of(nan), "intensity"),
    ],
)
def test_what_no_processor_counts(make, words):
    with pytest.raises(InputError, match=words):
        make()
