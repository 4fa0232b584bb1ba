"""A consistent cut: the current values of a program as results on the cluster, which never change."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_hpc.checkpoint.store.items import Described, Held, Plain, describe
from dask_hpc.checkpoint.store.saving import rule_text
from dask_hpc.model.on_resize import OnResize

#: values that nobody can change
_FIXED = (type(None), bool, int, float, complex, str, bytes)


@dataclass
class Cut:
    """``items`` is what there is to know, by label, and can be written as JSON; ``blocks`` has label, place
    and key of each."""

    items: dict[str, Any] = field(default_factory=dict)
    blocks: list[list[Any]] = field(default_factory=list)
    #: labels of what was not persisted before
    lazy: list[str] = field(default_factory=list)
    #: keeps results until the scheduler does
    kept: list[Any] = field(default_factory=list, repr=False)


async def take(client: Any, values: Mapping[str, Any], rules: Mapping[str, OnResize]) -> Cut:
    """Of these values. Nobody waits for results: they may still be computed."""
    cut = Cut()
    plain: list[tuple[str, str, Any]] = []
    for label, value in values.items():
        described = _persisted(client, cut, describe(value, label))
        cut.items[label] = {
            "kind": described.kind,
            "meta": described.meta,
            "on_resize": rule_text(rules[label]),
            "plain": [place for place, one in described.sources.items() if isinstance(one, Plain)],
        }
        for place, source in described.sources.items():
            if isinstance(source, Held):
                cut.blocks.append([label, place, source.key])
            else:
                plain.append((label, place, _own(source.value)))
    if plain:
        # By their contents: what did not change has the same key, and is not copied again.
        futures = await client.scatter([value for _, _, value in plain], hash=True)
        cut.blocks += [[label, place, one.key] for (label, place, _), one in zip(plain, futures, strict=True)]
        cut.kept.append(futures)
    return cut


def _persisted(client: Any, cut: Cut, described: Described) -> Described:
    from distributed import futures_of

    if not described.collection:
        return described
    if not all(map(futures_of, described.collection)):
        cut.lazy.append(described.label)
    cut.kept.append(client.persist(list(described.collection)))
    return described.after(cut.kept[-1])


def _own(value: Any) -> Any:
    """A copy, if the program could change the value while it is being committed."""
    return value if isinstance(value, _FIXED) else copy.deepcopy(value)
