"""Many transfers at once over links that they share, each as fast as is fair.

Max-min fairness: the rates of all transfers rise together until a link is full; those on it stay, the others
rise on. That is what many streams over one network come to, and it needs no rates but those of links. A
transfer that waits for another begins when that ends: an agent that serves nodes one by one is a chain.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

_SMALL = 1e-9  # share of a transfer that rounding may leave


@dataclass(frozen=True, slots=True)
class Transfer:
    """So many bytes over these links, ``rate`` at most. It begins at ``start``, and not before the transfer
    ``after`` has ended; ``setup`` seconds pass before its first byte."""

    name: Hashable
    nbytes: float
    links: tuple[Hashable, ...]
    rate: float = inf
    start: float = 0.0
    after: Hashable = None
    setup: float = 0.0


def ends(transfers: Iterable[Transfer], links: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """When each of them ends. A link that is not in ``links`` never fills."""
    waiting: dict[Hashable, list[Transfer]] = {}
    coming: list[tuple[float, int, Transfer]] = []
    known = list(transfers)
    names = {one.name for one in known}
    for number, one in enumerate(known):
        if one.after in names:
            waiting.setdefault(one.after, []).append(one)
        else:
            coming.append((one.start + one.setup, number, one))
    coming.sort(key=lambda entry: entry[:2], reverse=True)
    now = 0.0
    left: dict[Hashable, float] = {}
    rates: dict[Hashable, float] = {}
    flowing: dict[Hashable, Transfer] = {}
    found: dict[Hashable, float] = {}
    while flowing or coming:
        until = coming[-1][0] if coming else inf
        first = min((left[name] / rates[name] if rates[name] else inf for name in flowing), default=inf)
        step = min(until - now, first)
        if step == inf:
            break  # what is left stands still for ever
        now += step
        for name in flowing:
            left[name] = 0.0 if rates[name] == inf else left[name] - rates[name] * step
        done = [name for name in flowing if left[name] <= _SMALL * flowing[name].nbytes]
        for name in done:
            found[name] = now
            del flowing[name]
            for one in waiting.pop(name, ()):
                coming.append((max(now, one.start) + one.setup, len(found), one))
        coming.sort(key=lambda entry: entry[:2], reverse=True)
        while coming and coming[-1][0] <= now:
            _, _, one = coming.pop()
            flowing[one.name] = one
            left[one.name] = one.nbytes
        rates = fair_rates(list(flowing.values()), links)
    return {one.name: found.get(one.name, inf) for one in known}


def fair_rates(transfers: Sequence[Transfer], links: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """The max-min fair rate of each."""
    rates: dict[Hashable, float] = {}
    room = {link: links[link] for one in transfers for link in one.links if link in links}
    rising = list(transfers)
    while rising:
        users: dict[Hashable, int] = {}
        for one in rising:
            for link in one.links:
                if link in room:
                    users[link] = users.get(link, 0) + 1
        share, tightest = min(
            ((room[link] / count, link) for link, count in users.items()),
            key=lambda entry: entry[0],
            default=(inf, None),
        )
        slowest = min(one.rate for one in rising)
        if slowest <= share:
            settled = [one for one in rising if one.rate == slowest]
            level = slowest
        else:
            settled = [one for one in rising if tightest in one.links]
            level = share
        for one in settled:
            rates[one.name] = level
            for link in one.links:
                if link in room:
                    room[link] = max(0.0, room[link] - level)
        gone = {one.name for one in settled}
        rising = [one for one in rising if one.name not in gone]
    return rates
