"""What a store must not be able to do to us, and what it must not tell others."""

import base64
import json
import os
import pickle
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from small_stores import save

from dask_hpc import restore
from dask_hpc.checkpoint.store.manifest import FORMAT, Item, Manifest, StoredBlock
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, WrongKey, sum_of
from dask_hpc.model.errors import InputError

KEY, OTHER = Key(b"k" * 32), Key(b"o" * 32)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("something was unpickled",)


class Custom:
    pass


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_nothing_is_unpickled_unless_the_user_says_so(tmp_path):
    save(None, str(tmp_path), "run", {"plain": 1, "mine": Custom()})
    with pytest.raises(InputError, match=r"item mine: a pickled 'Custom'.*unpickle=True") as found:
        restore("run", str(tmp_path))
    assert "\n" not in str(found.value)
    assert restore("run", str(tmp_path), item="plain")[0] == 1
    assert isinstance(restore("run", str(tmp_path), unpickle=True)[0]["mine"], Custom)
    with pytest.raises(InputError):
        restore("run", str(tmp_path), unpickle="yes")


def test_nor_by_a_worker(client, tmp_path):
    lazy = da.from_array(np.ma.masked_equal(np.arange(6), 3), chunks=3)
    save(client, str(tmp_path), "run", {"u": lazy})
    with pytest.raises(InputError, match="item u: a pickled 'MaskedArray'"):
        restore("run", str(tmp_path), client=client)
    found, _ = restore("run", str(tmp_path), client=client, unpickle=True)
    assert found.compute().mask.tolist() == lazy.compute().mask.tolist()


def forge(root, item=None, **fields):
    """A version by somebody who knows our format and has no scruples."""
    body = json.dumps(
        {
            "name": "run",
            "version": 1,
            "time": 0.0,
            "step": None,
            "nodes": [],
            "token": "",
            "items": {"u": item or value_item(b"{}")},
        }
        | fields
    )
    note = {"raw": [len(body)], "stored": [len(body)], "sum": sum_of([body.encode()])}
    folder = Path(root, "run", "00000001")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, "note": note, "body": body})
    Path(folder, "manifest.json").write_text(text)


def value_item(head, *frames, file="u.value", root=None, form="value", **note):
    body = b"".join([head, *frames])
    if root is not None:
        Path(root, "run", "00000001").mkdir(parents=True, exist_ok=True)
        Path(root, "run", "00000001", "u.value").write_bytes(body)
    sizes = [len(head), *map(len, frames)]
    note = {"raw": sizes, "stored": sizes, "sum": sum_of([body]), "form": form} | note
    return {
        "kind": "value",
        "meta": {},
        "on_resize": "constant",
        "blocks": {"": [file, len(body), "x", note]},
    }


def test_a_forged_pickle_that_does_not_say_so(tmp_path):
    head = json.dumps({"is": "opaque", "type": "int"}).encode()
    forge(tmp_path, value_item(head, pickle.dumps(Bomb()), root=tmp_path))
    with pytest.raises(ValueError, match="pickled int"):
        restore("run", str(tmp_path))


def test_a_forged_pickle_in_attributes(tmp_path):
    bomb = base64.b64encode(pickle.dumps(Bomb())).decode()
    packed = {"head": {"is": "opaque", "type": "int"}, "frames": [bomb]}
    empty = {"variables": [], "indexes": [], "attrs": [], "encoding": []}
    for meta in (
        empty | {"attrs": [[{"head": "a"}, packed]]},
        empty | {"attrs": [[packed, {"head": "a"}]]},
        empty | {"indexes": [{"levels": packed}]},
    ):
        item = {"kind": "dataset", "meta": meta, "on_resize": "constant", "blocks": {}}
        forge(tmp_path, item)
        with pytest.raises(InputError, match="unpickle=True"):
            restore("run", str(tmp_path))
    forge(tmp_path, {**item, "meta": empty | {"encoding": [[{"head": "a"}, packed]]}})
    assert restore("run", str(tmp_path))[0].encoding == {}
    for kind in ("dataframe", "series"):
        forge(tmp_path, {**item, "kind": kind, "meta": {"partitions": 0, "empty": packed}})
        with pytest.raises((InputError, Damaged)):
            restore("run", str(tmp_path))


FILES = ["../../x", "/etc/passwd", "a/../../x", "..", "", "a//b", "a\\b", "a\0b", ".", 3, None, ["a"]]


@pytest.mark.parametrize("file", FILES, ids=repr)
def test_files_outside_of_the_version_are_not_touched(tmp_path, file):
    forge(tmp_path, value_item(b"{}", file=file))
    with pytest.raises(Damaged, match="manifest is damaged"):
        restore("run", str(tmp_path))


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", ".hidden", "x" * 101, "a\0", 3, None])
def test_names_and_labels_are_checked(tmp_path, name):
    with pytest.raises(InputError, match="name"):
        save(None, str(tmp_path), name, {"u": 1})
    with pytest.raises(InputError, match="name"):
        restore(name, str(tmp_path))
    with pytest.raises(InputError, match="label"):
        save(None, str(tmp_path), "run", {name if name != "x" * 101 else "x" * 201: 1})
    assert os.listdir(tmp_path) == []
    if isinstance(name, str):
        forge(tmp_path, items={name if name != "x" * 101 else "x" * 201: value_item(b"{}")})
        with pytest.raises(Damaged):
            restore("run", str(tmp_path))


NONSENSE = [None, {}, [], "x", 3, -1, 1e999, {"a": 1}, ["x"], True, 10**30]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=repr)
def test_descriptions_that_make_no_sense(tmp_path, nonsense):
    """Every field, one at a time: a plain error, and no array of the size that somebody dreamt of."""
    dataset = xr.Dataset({"u": ("x", np.arange(3.0), {"a": 1})}, coords={"x": [1, 2, 3]})
    save(None, str(tmp_path), "run", {"u": dataset})
    head = json.loads(Path(tmp_path, "run", "00000001", "manifest.json").read_bytes())
    good = json.loads(head["body"])
    outcomes = set()
    for path in list(paths(good)):
        bad = json.loads(head["body"])
        spot = bad
        for step in path[:-1]:
            spot = spot[step]
        if spot[path[-1]] == nonsense:
            continue
        spot[path[-1]] = nonsense
        forge(tmp_path, items=bad["items"]) if path[0] == "items" else forge(tmp_path, **bad)
        try:
            found, _ = restore("run", str(tmp_path))
            outcomes.add("fine")
            if path[0] == "items" and path[2:4] == ("meta", "variables") and "dtype" in path:
                assert found is not None
        except (Damaged, InputError) as error:
            outcomes.add("told")
            assert "\n" not in str(error)
    assert "told" in outcomes


def paths(found, path=()):
    steps = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from paths(inner, (*path, step))


def secrets():
    return xr.Dataset(
        {"secretvariable": (("secretdim", "y"), np.full((4, 3), 0.123456789), {"secretattr": "secretunits"})},
        coords={"secretdim": [f"secretcoord{i}" for i in range(4)], "y": [98765.5, 98766.5, 98767.5]},
        attrs={"title": "secrettitle"},
    )


def test_an_encrypted_store_tells_nothing(client, tmp_path):
    items = {"secretlabel": secrets().chunk(2), "secretvalue": "secretword", "secretlist": [b"secretbytes"]}
    save(client, str(tmp_path), "run", items, token="secrettoken", services=Services("never", key=KEY))
    words = [
        b"secret",
        np.float64(0.123456789).tobytes(),
        np.float64(98765.5).tobytes(),
        b"float64",
        b"units",
    ]
    words += ["secret".encode("utf-32-le"), KEY.secret, KEY.secret.hex().encode()]
    seen = 0
    for path in tmp_path.rglob("*"):
        assert "secret" not in str(path.relative_to(tmp_path)) and ".zarr" not in path.name
        if path.is_file():
            seen += 1
            body = path.read_bytes()
            inside = base64.b64decode(json.loads(body)["body"]) if path.name == "manifest.json" else b""
            for word in words:
                assert word not in body and word not in inside, (path, word)
    assert seen > 8
    found, _ = restore("run", str(tmp_path), client=client, key=KEY)
    xr.testing.assert_identical(found["secretlabel"].compute(), secrets())
    assert found["secretvalue"] == "secretword"


def test_a_wrong_key_is_told_apart_from_damage(client, tmp_path, monkeypatch):
    for step in (1, 2):
        save(client, str(tmp_path), "run", {"u": da.arange(9, chunks=3) * step}, services=Services(key=KEY))
    for key in (None, OTHER):
        with pytest.raises(WrongKey, match="another key" if key else "a key is needed"):
            restore("run", str(tmp_path), key=key, client=client)
    (victim,) = Path(tmp_path, "run", "00000002", "blocks").glob("00000002-*")
    body = victim.read_bytes()
    victim.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    found, meta = restore("run", str(tmp_path), key=KEY, client=client)
    assert meta.version == 1 and found.compute().tolist() == list(range(9))
    with pytest.raises(Damaged):
        restore("run", str(tmp_path), 2, key=KEY, client=client)
    monkeypatch.setenv("SECRET", KEY.secret.hex())
    assert restore("run", str(tmp_path), key="env:SECRET", client=client)[1].version == 1
    with pytest.raises(WrongKey, match="NOWHERE"):
        restore("run", str(tmp_path), key="env:NOWHERE", client=client)
    with pytest.raises(InputError, match="key"):
        restore("run", str(tmp_path), key=b"k" * 32, client=client)


def test_an_encrypted_block_does_not_pass_for_another(tmp_path):
    """With sums made to fit, as only somebody on purpose would."""
    save(None, str(tmp_path), "run", {"a": "one", "b": "two"}, services=Services("never", key=KEY))
    one, two = sorted(Path(tmp_path, "run", "00000001", "blocks").iterdir())
    one.write_bytes(two.read_bytes())
    with pytest.raises((Damaged, WrongKey)):
        restore("run", str(tmp_path), key=KEY)


def test_a_manifest_of_another_version_or_name(tmp_path):
    for step in (1, 2):
        save(None, str(tmp_path), "run", {"n": step}, step=step)
    second = Path(tmp_path, "run", "00000002", "manifest.json")
    second.write_bytes(Path(tmp_path, "run", "00000001", "manifest.json").read_bytes())
    found, meta = restore("run", str(tmp_path))
    assert found == 1 and "that of run version 1" in meta.skipped[0]
    manifest = Manifest("run", 2, 0.0, {"n": Item("value", {}, {"": StoredBlock("n.value", 1, "x", {})})})
    second.write_bytes(manifest.write(KEY))
    with pytest.raises(WrongKey):
        restore("run", str(tmp_path))


def test_links_lead_nowhere(tmp_path):
    save(None, str(tmp_path / "store"), "run", {"n": 1})
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (block,) = Path(tmp_path, "store", "run", "00000001").glob("n.value-*")
    block.unlink()
    block.symlink_to(secret)
    with pytest.raises(Damaged) as found:
        restore("run", str(tmp_path / "store"))
    assert "secret" not in str(found.value).replace(str(tmp_path), "")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("")
    for number in (2, 3):
        save(None, str(tmp_path / "store"), "run", {"n": number})
    (tmp_path / "store" / "run" / "00000001").rename(tmp_path / "aside")
    (tmp_path / "store" / "run" / "00000001").symlink_to(outside)
    save(None, str(tmp_path / "store"), "run", {"n": 4}, keep=1)
    assert (outside / "file").exists()
