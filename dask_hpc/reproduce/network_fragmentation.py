"""Applications in pieces on a Cray XC30, and checkpoints beside them (seed 003, chapter 7)."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from dask_hpc.model.topology import Topology, xc30
from dask_hpc.planning.network.demands import Traffic
from dask_hpc.planning.network.program import Served, solve
from dask_hpc.reproduce.claim import (
    Band,
    Bench,
    Claim,
    Figure,
    Outcome,
    around,
    at_least,
    claim,
    direction,
    figure,
    rounded,
)

#: the worst loss of an application that is printed: it fixes what applications send, which is not
_WORST = 0.5
#: what an ordered pair of blades sends where the largest demand is looked for
_MUCH = 2e9
_PLACEMENTS = ("unfragmented", "by chassis", "by blade")
_BESIDE = {
    "application": "another application",
    "partner": "checkpoints to partners",
    "store": "checkpoints to the store",
}
#: how often cabinet, chassis and blade count where blades are divided by odd and even
_READINGS: Mapping[str, Mapping[str, tuple[int, int, int]]] = {
    "in turn": {"unfragmented": (1, 0, 0), "by chassis": (0, 1, 0), "by blade": (0, 0, 1)},
    "shifted": {"unfragmented": (1, 0, 0), "by chassis": (1, 1, 0), "by blade": (1, 1, 1)},
}
_FITTED = "fitted: what applications send, to this loss"


class _Case(NamedTuple):
    """An application, and what is beside it on the other half of the machine."""

    reading: str
    placement: str
    #: bytes a second from each blade of an application to each other one
    rate: float
    beside: str = ""
    restart: bool = False
    stores: str = "own"
    objective: Served = "min"


class _PairShares(NamedTuple):
    """Of its demand, that the application gets, and what is beside it."""

    application: float
    other: float

    @property
    def loss(self) -> float:
        """Of the application, in per cent."""
        return 100 * (1 - self.application)


def run(bench: Bench) -> Outcome:
    """Applications that are in one piece, or divided by chassis or by blade, beside others and beside what
    others save (seed 003, 7.4; digest 2.13, E7.1).

    Two applications of 94 blades each on two cabinets of a Cray XC30, each of whose blades sends to each
    other one. Beside the first there is nothing, the second, or what the second saves: to partners in the
    other cabinet, or to the store. The share of its demand that each gets is solved for, at full size.

    What applications send is not given. It is as much as makes the worst loss by chassis the one that is
    printed. How pieces alternate is not said either, and decides much: there are two readings.

    By minimal paths alone all that an application sends to the other cabinet goes over the optical links of
    its own chassis and blades. So pieces of one blade lose as much as pieces of a chassis, other than is
    published, wherever these are all that is left.
    """
    largest = _MUCH * _solved(_Case("in turn", "unfragmented", _MUCH)).application
    claims = [
        claim("largest demand of a pair that is met in one piece (digest)", 0.875, largest / 1e9,
              rounded(0.875, 0.001), "GB/s", "three decimals; one copper link of 14 GB/s for 16 pairs"),
    ]  # fmt: skip
    beside: list[Figure] = []
    for reading in _READINGS:
        worst = min(
            _solved(_Case(reading, "by chassis", largest, other)).application for other in ("", "application")
        )
        rate = largest * worst / _WORST
        found = _all(bench, reading, rate)
        claims += _claims(reading, found)
        beside.append(figure(f"{reading}: what a pair of blades sends", rate / 1e9, "GB/s"))
        beside += _figures(reading, found, rate)
    return Outcome([*claims, *_digest(largest)], beside)


_Found = Mapping[tuple[str, str, bool], _PairShares]


def _all(bench: Bench, reading: str, rate: float) -> _Found:
    """By placement, by what is beside, and whether that is a restart."""
    asked = [(placement, other, False) for placement in _PLACEMENTS for other in ("", *_BESIDE)]
    asked += [(placement, other, True) for placement in _PLACEMENTS for other in ("partner", "store")]
    cases = [_Case(reading, placement, rate, other, restart) for placement, other, restart in asked]
    return dict(zip(asked, bench.each(_solved, [(case,) for case in cases]), strict=True))


@lru_cache(1)
def _machine() -> Topology:
    return xc30()


def _halves(reading: str, placement: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whose blades are whose."""
    topology, counts = _machine(), _READINGS[reading][placement]
    halves: tuple[list[str], list[str]] = ([], [])
    for name in topology.nodes:
        numbers = [int(part.lstrip("abcdehilnst")) for part in topology.places[name]]
        halves[sum(count * number for count, number in zip(counts, numbers, strict=True)) % 2].append(name)
    return tuple(halves[0]), tuple(halves[1])


def _solved(case: _Case) -> _PairShares:
    one, other = _halves(case.reading, case.placement)
    jobs = {"application": Traffic(one, rate=case.rate)}
    if case.beside == "application":
        jobs["other"] = Traffic(other, rate=case.rate)
    elif case.beside:
        jobs["other"] = Traffic(other, case.beside, stores=case.stores, restart=case.restart)
    found = solve(_machine(), jobs, case.objective)
    assert found is not None, "it is no larger than the machine"
    return _PairShares(found.thetas["application"], found.thetas.get("other", 1.0))


def _claims(reading: str, found: _Found) -> Iterator[Claim]:
    def loss(placement: str, other: str) -> float:
        return round(found[placement, other, False].loss, 6)  # a solver's rounding error is no gain

    yield claim(f"{reading}, unfragmented: an application loses beside anything at most", 0.0,
                max(loss("unfragmented", other) for other in _BESIDE), rounded(0), "%",
                "not affected: less than half a per cent")  # fmt: skip
    worst = {placement: max(loss(placement, other) for other in ("", *_BESIDE)) for placement in _PLACEMENTS}
    yield claim(f"{reading}, by chassis: worst loss of an application", 50.0, worst["by chassis"],
                rounded(50), "%", "a printed figure", _FITTED)  # fmt: skip
    yield claim(f"{reading}, by blade: worst loss of an application", 25.0, worst["by blade"],
                rounded(25), "%", "a printed figure")  # fmt: skip
    # the source prints whole per cents, and less than that is no difference
    over = float(round(worst["by chassis"]) - round(worst["by blade"]))
    yield direction(
        f"{reading}: worst loss by chassis over that by blade", "more", over, at_least(0), "points"
    )
    for placement in _PLACEMENTS[1:]:
        saves = max(loss(placement, other) for other in ("partner", "store"))
        yield direction(f"{reading}, {placement}: loss beside checkpoints over that beside an application",
                        "more", saves - loss(placement, "application"), at_least(0), "points")  # fmt: skip
    for placement, (more, less) in (("by chassis", ("store", "partner")), ("by blade", ("partner", "store"))):
        over = loss(placement, more) - loss(placement, less)
        text = f"{reading}, {placement}: loss beside {_BESIDE[more]} over {_BESIDE[less]}"
        yield direction(text, "more", over, at_least(0), "points")
    stores = [found[placement, "store", False].other for placement in _PLACEMENTS]
    faster = 100 * (stores[1] / stores[0] - 1)
    yield direction(f"{reading}: checkpoints to the store are faster by chassis than unfragmented", "faster",
                    faster, at_least(0))  # fmt: skip
    yield claim(f"{reading}: checkpoints to the store are faster by chassis, by up to", 18.0, faster,
                rounded(18), "%", "a printed figure")  # fmt: skip
    partners = {
        placement: round(100 * (1 - found[placement, "partner", False].other), 6) for placement in _PLACEMENTS
    }
    yield direction(f"{reading}: checkpoints to partners lose by chassis", "slower", partners["by chassis"],
                    at_least(0))  # fmt: skip
    yield claim(f"{reading}: checkpoints to partners lose by blade, or unfragmented, at most", 0.0,
                max(partners["by blade"], partners["unfragmented"]), rounded(0), "%",
                "only by chassis: less than half a per cent")  # fmt: skip
    apart = max(
        abs(getattr(found[placement, other, True], who) - getattr(found[placement, other, False], who))
        for placement in _PLACEMENTS
        for other in ("partner", "store")
        for who in _PairShares._fields
    )
    yield claim(f"{reading}: shares beside restarts, and of these, differ from checkpoints by at most", 0.0,
                100 * apart, around(0, 1), "points", "nearly identical: a point")  # fmt: skip


def _digest(largest: float) -> Iterator[Claim]:
    """What another programme got that also takes minimal paths only, and leaves more of its setup unsaid."""
    note = "two decimals"
    for reading, published in (("in turn", 0.31), ("shifted", 0.62)):
        ours = _solved(_Case(reading, "by chassis", largest)).application
        yield claim(f"{reading}, by chassis: share of an application alone, at the largest demand (digest)",
                    published, ours, rounded(published, 0.01), "", note)  # fmt: skip
    rows: tuple[tuple[str, str, float, Band, str], ...] = (
        ("unfragmented", "any", 0.95, rounded(0.95, 0.01), note),
        ("unfragmented", "own", 0.48, rounded(0.48, 0.01), note),
        ("by chassis", "own", 0.83, rounded(0.83, 0.01), note),
    )
    for placement, stores, published, band, why in rows:
        ours = _solved(_Case("in turn", placement, 0.0, "store", stores=stores)).other
        text = f"{placement}: share of checkpoints to the store, {stores} service blades (digest)"
        yield claim(text, published, ours, band, "", why)
    for reading, published in (("in turn", 0.60), ("shifted", 0.93)):
        ours = _solved(_Case(reading, "by blade", 0.0, "store")).other
        yield claim(f"{reading}, by blade: share of checkpoints to the store, own service blades (digest)",
                    published, ours, rounded(published, 0.01), "",
                    f"{note}; 0.60 to 0.93 by how blades alternate")  # fmt: skip


def _figures(reading: str, found: _Found, rate: float) -> Iterator[Figure]:
    for placement in _PLACEMENTS:
        for other, words in {"": "nothing", **_BESIDE}.items():
            shares = found[placement, other, False]
            yield figure(f"{reading}, {placement}: loss of an application beside {words}", shares.loss, "%")
            if other in ("partner", "store"):
                yield figure(f"{reading}, {placement}: share of {words}", shares.other)
    for placement in _PLACEMENTS[1:]:
        both = _solved(_Case(reading, placement, rate, "application", objective="sum"))
        yield figure(f"{reading}, {placement}: shares of two applications in sum, if that is most", sum(both))
        shares = _solved(_Case(reading, placement, rate, "store", stores="any"))
        words = f"beside {_BESIDE['store']}, to any service blades"
        yield figure(f"{reading}, {placement}: loss of an application {words}", shares.loss, "%")
