"""Sealed blocks: what went in comes out, damage and a wrong key are told apart, and nothing shows through."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.checkpoint.store import seal as module
from dask_hpc.checkpoint.store.seal import (
    Damaged,
    Key,
    Services,
    WrongKey,
    has_sum,
    pays,
    seal,
    sum_of,
    unseal,
)

KEY, OTHER = Key(b"k" * 32), Key(b"o" * 32)
WAYS = [
    Services("never"),
    Services("always"),
    Services("never", key=KEY),
    Services("always", key=KEY),
    Services("auto", least=0),
]
frames = st.lists(st.binary(max_size=300), max_size=4)


def stored(sealed):
    return b"".join(bytes(frame) for frame in sealed.frames)


@settings(deadline=None)
@given(frames, st.sampled_from(WAYS))
def test_back_again(found, services):
    sealed = seal(found, "u/0", services)
    back = unseal(stored(sealed), "u/0", sealed.note, services.key)
    assert [bytes(frame) for frame in back] == found


@settings(deadline=None)
@given(frames.filter(lambda found: any(found)), st.sampled_from(WAYS), st.data())
def test_any_damage_is_found(found, services, data):
    sealed = seal(found, "u/0", services)
    body = bytearray(stored(sealed))
    kind = data.draw(st.sampled_from(["flip", "cut", "longer", "empty"]))
    if kind == "flip":
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    elif kind == "longer":
        body += b"x"
    else:
        body.clear()
    with pytest.raises(Damaged):
        unseal(body, "u/0", sealed.note, services.key)


@pytest.mark.parametrize("compress", ["never", "always"])
def test_a_wrong_key_is_not_damage(compress):
    sealed = seal([b"secret" * 100], "u/0", Services(compress, key=KEY))
    for key, words in ((OTHER, "another key"), (None, "a key is needed")):
        with pytest.raises(WrongKey, match=words):
            unseal(stored(sealed), "u/0", sealed.note, key)
    with pytest.raises(WrongKey):  # a block does not pass for another
        unseal(stored(sealed), "u/1", sealed.note, KEY)


def test_nothing_shows_through():
    text = b"the quick brown fox " * 20
    one, two = (seal([text], "u/0", Services("never", key=KEY)) for _ in range(2))
    assert text[:8] not in stored(one) and stored(one) != stored(two)
    services = Services(key=KEY)
    assert services.name_of([text]) == services.name_of([text]) != Services(key=OTHER).name_of([text])
    assert sum_of([text]).split(":")[1] not in services.name_of([text])


def test_long_blocks_are_encrypted_in_parts(monkeypatch):
    monkeypatch.setattr(module, "_SEGMENT", 64)
    body = os.urandom(1000)
    sealed = seal([body, b""], "u/0", Services("never", key=KEY))
    assert unseal(stored(sealed), "u/0", sealed.note, KEY) == [body, b""]
    parts = bytearray(stored(sealed))
    parts[:80], parts[80:160] = parts[80:160], parts[:80]  # two of them change places
    note = sealed.note | {"sum": sum_of([parts])}
    with pytest.raises(WrongKey):
        unseal(parts, "u/0", note, KEY)


def test_compressing_where_it_pays():
    smooth, noise = np.zeros(2**18), np.random.default_rng(0).bytes(2**21)
    assert "codec" in seal([smooth], "u", Services(rate=1e6)).note
    assert "codec" not in seal([noise], "u", Services(rate=1e6)).note
    assert "codec" not in seal([smooth], "u", Services(rate=1e15)).note  # a store quicker than any codec
    assert "codec" not in seal([smooth[:10]], "u", Services(rate=1e6)).note


@pytest.mark.parametrize(
    "was, took, is_worth_it", [(None, 0.7, 1), (None, 1.5, 0), (True, 1.5, 1), (False, 0.7, 0)]
)
def test_what_was_compressed_stays_so_unless_that_is_clearly_worse(monkeypatch, was, took, is_worth_it):
    clock = iter([0.0, took])
    monkeypatch.setattr(module, "thread_time", lambda: next(clock))
    assert pays([bytes(2**20)], Services(rate=2.0**20), was) == is_worth_it


def test_the_middle_of_the_largest_frame_tells_and_small_blocks_are_left_alone(monkeypatch):
    monkeypatch.setattr(module, "thread_time", lambda: 0.0)
    noise, smooth = os.urandom(2**20), bytes(2**20)
    assert pays([noise + smooth + noise, noise], Services())
    assert not pays([smooth + noise + smooth, smooth], Services())
    assert pays([bytes(100)], Services(least=100)) and not pays([bytes(99)], Services(least=100))


def test_the_contents_are_named():
    assert sum_of([b"ab", b"c"]) == sum_of([b"abc"]) != sum_of([b"abd"])
    assert has_sum([b"abc"], sum_of([b"abc"])) and not has_sum([b"abc"], "md5:1")


def test_workers_without_xxhash(monkeypatch):
    with_it = seal([b"abc"], "u", Services("never"))
    monkeypatch.setattr(module, "xxhash", None)
    without = seal([b"abc"], "u", Services("never"))
    assert without.note["sum"].startswith("blake2b:")
    assert unseal(b"abc", "u", without.note) == [b"abc"]
    with pytest.raises(Damaged, match="install xxhash"):
        unseal(b"abc", "u", with_it.note)
    monkeypatch.undo()
    assert unseal(b"abc", "u", without.note) == [b"abc"]


@pytest.mark.parametrize("note", [{}, {"stored": [3]}, {"stored": [3], "sum": 1}, {"stored": "x", "sum": ""}])
def test_notes_that_nobody_wrote(note):
    with pytest.raises(Damaged):
        unseal(b"abc", "u", note)


def test_keys(tmp_path, monkeypatch):
    secret = os.urandom(32)
    path = tmp_path / "key"
    path.write_bytes(secret)
    path.chmod(0o600)
    assert Key.read(f"file:{path}").secret == secret
    path.write_text(secret.hex() + "\n")
    assert Key.read(f"file:{path}").secret == secret
    monkeypatch.setenv("HPC_KEY", secret.hex())
    assert Key.read("env:HPC_KEY").secret == secret
    assert "secret" not in repr(Key(secret)) and secret.hex() not in repr(Key(secret))


@pytest.mark.parametrize(
    "source, words",
    [
        ("env:NO_SUCH_KEY", "no NO_SUCH_KEY"),
        ("file:/no/such", "No such file"),
        ("abc", "file:PATH"),
        ("", "file:"),
    ],
)
def test_keys_that_are_not_there(source, words):
    with pytest.raises(WrongKey, match=words):
        Key.read(source)


def test_keys_that_others_know_and_bad_ones(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"short")
    path.chmod(0o600)
    with pytest.raises(WrongKey, match="holds no key"):
        Key.read(f"file:{path}")
    path.write_bytes(b"k" * 32)
    path.chmod(0o644)
    with pytest.raises(WrongKey, match="chmod 600"):
        Key.read(f"file:{path}")
