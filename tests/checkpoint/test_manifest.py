"""Manifests: what was written is read, what was not is refused, and with a key nothing shows."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.checkpoint.store.manifest import Item, Manifest, StoredBlock, check_label, check_name
from dask_hpc.checkpoint.store.seal import Damaged, Key, WrongKey
from dask_hpc.model.errors import InputError

KEY, OTHER = Key(b"k" * 32), Key(b"o" * 32)
BLOCK = StoredBlock("u/0", 80, "xxh3:of what is in it", {"raw": [80], "stored": [80], "sum": "xxh3:cd"})
ITEM = Item("array", {"dims": ["station of Ozymandias"], "shape": [10]}, {"0": BLOCK}, "default:0.1")
ONE = Manifest("run-17", 3, 1795209887.5, {"u": ITEM}, step=40, nodes=("a", "b"), token="t")


@pytest.mark.parametrize("key", [None, KEY])
def test_back_again(key):
    assert Manifest.read(ONE.write(key), "run-17", 3, key) == ONE
    assert ONE.nbytes == 80


def test_with_a_key_nothing_shows():
    found = ONE.write(KEY)
    assert b"Ozymandias" not in found and b'"dims"' not in found and b"xxh3:of what is in it" not in found
    with pytest.raises(WrongKey, match="a key is needed"):
        Manifest.read(found, "run-17", 3)
    with pytest.raises(WrongKey, match="another key"):
        Manifest.read(found, "run-17", 3, OTHER)


@given(st.sampled_from([None, KEY]), st.data())
def test_any_damage_is_found(key, data):
    found = bytearray(ONE.write(key))
    place = data.draw(st.integers(0, len(found) - 1))
    found[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert Manifest.read(bytes(found), "run-17", 3, key) == ONE  # an unused field of the note
    except Damaged as error:
        assert "run-17 version 3" in str(error) or "run-17/3" in str(error)
    except WrongKey:
        assert key or b"cipher" in found


json_values = st.recursive(
    st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.binary() | json_values.map(json.dumps).map(str.encode))
def test_what_is_not_ours(found):
    with pytest.raises(Damaged):
        Manifest.read(found, "run-17", 3)


def test_it_counts_for_its_own_place_only():
    with pytest.raises(Damaged, match="is that of run-17 version 3"):
        Manifest.read(ONE.write(), "run-17", 4)
    with pytest.raises(Damaged, match="its format is"):
        text = ONE.write().replace(b"checkpoint 1", b"checkpoint 9")
        Manifest.read(text, "run-17", 3)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", ".hidden", "a\\b", "a\0", "x" * 101, 5, None, "ä", "a b"]
)
def test_names_that_are_refused(name):
    with pytest.raises(InputError, match="letters, digits"):
        check_name(name)
    if name != "a b" and name != "x" * 101:
        with pytest.raises(InputError):
            check_label(name)
    assert check_name("run-17_b.2") == "run-17_b.2"
