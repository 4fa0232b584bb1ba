"""Random small networks with jobs, and the best shares by writing down every path."""

from itertools import permutations, product

import numpy as np
from scipy.optimize import linprog

from dask_hpc.model.topology import LinkLevel, Topology
from dask_hpc.planning.network.demands import Traffic


def draw(seed, *, most_jobs=4, patterns=("all-to-all", "all-to-all", "partner", "store")):
    """A lattice of one to three levels, perhaps with a tree below, and jobs on it that send too much."""
    random = np.random.default_rng(seed)
    depth = int(random.integers(1, 4))
    shape = [int(random.integers(2, (7, 5, 4)[depth - 1])) for _ in range(depth)]
    below = int(random.integers(1, 4)) if random.random() < 0.5 else 0
    levels = [LinkLevel(f"level{at}", float(random.uniform(1, 4)), "all-to-all") for at in range(depth)]
    levels += [LinkLevel("node", float(random.uniform(3, 20)))] if below else []
    places = {}
    for place in product(*map(range, shape)):
        for number in range(max(below, 1)):
            own = (str(number),) if below else ()
            places["-".join(map(str, (*place, number)))] = (*map(str, place), *own)
    names = list(places)
    service = tuple(str(name) for name in random.choice(names, 2, replace=False)) if len(names) > 4 else ()
    topology = Topology(tuple(levels), places, service)
    left = list(topology.nodes)
    if random.random() < 0.6:
        left = [str(name) for name in random.permutation(left)]
    jobs = {}
    for number in range(int(random.integers(1, most_jobs + 1))):
        if len(left) < 2:
            break
        count = int(random.integers(2, max(3, len(left) // 2)))
        nodes, left = tuple(left[:count]), left[count:]
        pattern = patterns[int(random.integers(len(patterns)))]
        if (pattern == "store" and not service) or (pattern == "partner" and len(topology.domains()) < 2):
            pattern = "all-to-all"
        rate = float(random.uniform(1, 12) / count if pattern == "all-to-all" else random.uniform(0.5, 4))
        jobs[f"job{number}"] = Traffic(nodes, pattern, rate, "any", bool(random.random() < 0.3))
    return topology, jobs


def sent_by(topology, job):
    """From node to node, in bytes a second, by the words of the source alone. Partners only where the same
    coordinates are there in the next part."""
    service = topology.service
    rate = topology.smallest if job.rate is None else job.rate
    if job.pattern == "all-to-all":
        found = {(one, other): rate for one in job.nodes for other in job.nodes if one != other}
    elif job.pattern == "store":
        found = {(one, to): rate / len(service) for one in job.nodes for to in service}
    else:
        found = {}
        domains = topology.domains()
        parts = list(domains)
        for one in job.nodes:
            place = topology.places[one]
            other = parts[(parts.index(place[0]) + 1) % len(parts)]
            same = [name for name in domains[other] if topology.places[name][1:] == place[1:]]
            partner = same[0] if same else domains[other][domains[place[0]].index(one) % len(domains[other])]
            found[one, partner] = rate
    if job.restart:
        found = {(other, one): much for (one, other), much in found.items()}
    return found


def paths(topology, one, other):
    """Every minimal path, as the links that it leads over."""
    depth = len(topology.lattice)
    here, there = topology.places[one], topology.places[other]
    up, down = [], []
    for at in range(len(here), depth, -1):
        if here[:at] != there[:at]:
            up.append(("up", here[:at]))
            down.append(("down", there[:at]))
    differs = [at for at in range(depth) if here[at] != there[at]]
    found = []
    for order in permutations(differs):
        now, links = list(here[:depth]), list(up)
        for at in order:
            before = tuple(now)
            now[at] = there[at]
            links.append((before, tuple(now)))
        found.append((*links, *down))
    return found


def best(topology, jobs, objective):
    """Shares of jobs by a programme with a variable for each path of each two nodes of each job."""
    bandwidth = {}
    for level, at in zip(topology.levels, range(len(topology.levels)), strict=True):
        for place in topology.places.values():
            if level.is_tree:
                bandwidth["up", place[: at + 1]] = bandwidth["down", place[: at + 1]] = level.bandwidth
    names = list(jobs)
    columns, commodity, wanted = [], [], []
    for number, name in enumerate(names):
        for (one, other), rate in sent_by(topology, jobs[name]).items():
            choices = paths(topology, one, other)
            wanted.append((number, rate))
            columns += choices
            commodity += [len(wanted) - 1] * len(choices)
    links = {link: row for row, link in enumerate(dict.fromkeys(link for way in columns for link in way))}
    width, count = len(columns), len(names)
    carried, room = np.zeros((len(links), width + count + 1)), np.zeros(len(links))
    for link, row in links.items():
        if link in bandwidth:
            room[row] = bandwidth[link]
        else:
            at = next(at for at, (one, other) in enumerate(zip(*link, strict=True)) if one != other)
            room[row] = topology.levels[at].bandwidth
    for column, way in enumerate(columns):
        for link in way:
            carried[links[link], column] += 1
    kept = np.zeros((len(wanted), width + count + 1))
    kept[commodity, range(width)] = 1
    for row, (number, rate) in enumerate(wanted):
        kept[row, width + number] = -rate
    above = np.zeros((count, width + count + 1))
    above[range(count), range(width, width + count)] = -1
    above[:, -1] = 1

    def solved(cost, least):
        limits = [(0, None)] * width + [(least, 1)] * count + [(0, 1)]
        found = linprog(
            cost,
            np.vstack([carried, above]),
            np.concatenate([room, np.zeros(count)]),
            kept if len(kept) else None,
            np.zeros(len(kept)) if len(kept) else None,
            limits,
        )
        assert found.status == 0
        return found.x

    cost = np.zeros(width + count + 1)
    least = 0.0
    if objective == "min":
        cost[-1] = -1
        least = max(solved(cost, 0.0)[-1] - 1e-9, 0.0)
    cost = np.zeros(width + count + 1)
    cost[width : width + count] = -1
    return dict(zip(names, map(float, solved(cost, least)[width : width + count]), strict=True))
