"""Versions in a store without agents: what a program's commit leaves there, in one call."""

from dataclasses import replace

from distributed import Future

from dask_hpc.checkpoint.client.restore import nodes_of
from dask_hpc.checkpoint.store import versions
from dask_hpc.checkpoint.store.cells import Sampler
from dask_hpc.checkpoint.store.items import HeldItem, describe
from dask_hpc.checkpoint.store.seal import Services


def save(client, root, name, items, *, on_resize={}, services=Services(), **told):  # noqa: B006, B008
    """Commit items of a client's, written from here; without one plain values."""
    if client is None:
        return versions.save(root, name, items, on_resize=on_resize, services=services, **told)
    rules = {label: versions.rule_text(rule) for label, rule in on_resize.items()}
    described, kept = [describe(one, label) for label, one in items.items()], []
    for number, item in enumerate(described):
        if item.collection:
            kept.append(client.persist(list(item.collection)))
            item = item.after(kept[-1])
        described[number] = replace(item, on_resize=rules.get(item.label, "constant"))

    def value(commit, place):
        source = commit.items[place[0]].sources[place[1]]
        return Future(source.key, client).result() if isinstance(source, HeldItem) else source.value

    nodes = client.sync(nodes_of, client)
    return write(root, name, described, value, services, nodes=nodes, **told)


def write(root, name, described, value, services=Services(), **told):  # noqa: B008
    """Commit what was taken apart; ``value`` gives that of a block."""
    commit = versions.begin(root, name, described, services)
    sampler, samples = Sampler(services), commit.samples().items()
    commit.decide({array: sampler(commit.specs[one], value(commit, one)) for array, one in samples})
    blocks = {place: commit.writer(spec, value(commit, place)) for place, spec in commit.specs.items()}
    return versions.finish(commit, blocks, **told)


def computed(item):
    """Values of the blocks of one array's item, computed here."""
    found = {}
    for one, places in zip(item.collection, item.places, strict=True):
        delayed = one.to_delayed().ravel()
        found |= {
            place: block.compute(scheduler="sync") for place, block in zip(places, delayed, strict=True)
        }
    return lambda commit, place: found[place[1]]
