"""Our defaults, their schema, and what a bad configuration says."""

import os
import subprocess
import sys
from importlib import import_module
from math import inf

import dask
import pytest
import yaml

from dask_hpc import InputError, config
from dask_hpc.planning.asks.budget import AskSettings
from dask_hpc.planning.polling import Manners

SCHEMA = yaml.safe_load(config.FILE.with_name("hpc-schema.yaml").read_text())


@pytest.fixture
def jsonschema():
    """It takes seconds to import, of each process that collects tests."""
    return import_module("jsonschema")


def test_schema_validates_the_defaults(jsonschema):
    jsonschema.validate(config.DEFAULTS, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"hpc": {"node": "rack"}}, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"hpc": {"policies": "fcfs"}}, SCHEMA)


def test_every_key_is_in_both_files():
    described = SCHEMA["properties"]["hpc"]["properties"]
    assert set(described) == set(config.DEFAULTS["hpc"])
    assert all(entry["description"].strip() for entry in described.values())
    assert tuple(described["node"]["enum"]) == config.NODE_MODES


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("policy", 3),
        ("node", "rack"),
        ("node", ["host"]),
        ("story-length", 0),
        ("story-length", "many"),
        ("max-errors", True),
        ("fair-shares", "often"),
        ("fair-shares", 1),
        ("drain", "-1s"),
        ("drain", "soon"),
        ("drain", float("nan")),
        ("spread", "sometimes"),
        ("fair-shares", {"alice": 0}),
        ("fair-shares", {"alice": "much"}),
        ("fair-shares", {3: 1}),
        ("fair-shares", ["alice"]),
        ("dry-run", "perhaps"),
        ("farewell", "0s"),
        ("farewell", "soon"),
        ("farewell", "2 h"),
        ("io-lanes", 8),
        ("io-lanes", "many"),
        ("io-lanes", {"scratch": 8}),
        ("io-lanes", {"/scratch": 0}),
        ("io-lanes", {"/scratch": True}),
        ("io-lanes", {"default": "many"}),
        ("io-lanes", {3: 3}),
        ("power-watch", 1),
        ("power-interval", "1 ms"),
        ("power-interval", "1 h"),
        ("power-meter", "best"),
        ("power-meter", {"simulated": {"watts": 3}}),
        ("power-meter", {"simulated": {"noise": -1}}),
        ("power-meter", {"simulated": {"idle": float("nan")}}),
        ("power-meter", {"simulated": {}, "auto": {}}),
        ("power-meter", ["auto"]),
        ("power-model", {"idle": "90 W"}),
        ("power-model", {"idle": "90 W", "busy": "80 W"}),
        ("power-model", {"idle": 0, "busy": "80 W"}),
        ("power-model", 5),
        ("power-history", 5),
        ("power-history", ""),
        ("history", 5),
    ],
)
def test_bad_values_name_the_key(key, bad):
    with dask.config.set({f"hpc.{key}": bad}), pytest.raises(InputError, match=f"hpc.{key}"):
        config.policy(), config.settings()


def test_settings_are_everything_but_the_policy():
    apart = ("policy", "batch", "ask", "checkpoint", "memory-files")
    plain = {k: v for k, v in config.DEFAULTS["hpc"].items() if k not in apart}
    plain |= {"drain": 10.0, "farewell": 25.0, "power-interval": 1.0, "history": None}  # see conftest.py
    assert config.settings() == plain
    assert set(config.LIVE) <= set(config.settings())


def test_manners():
    assert config.manners() == Manners(120.0, 10.0, 30)
    assert config.manners("1 min") == Manners(60.0, 10.0, 30)
    assert config.manners(0.5) == Manners(0.5, 0.5, 30)
    with dask.config.set({"hpc.batch": {"poll": "5 min"}}):
        assert config.manners() == Manners(300.0, 10.0, 30)
    with dask.config.set({"hpc.batch": {"poll": "5s", "per-minute": 2}}):
        assert config.manners() == Manners(5.0, 5.0, 2)


@pytest.mark.parametrize(
    "bad", [5, {"poll": 0}, {"poll": "2 days"}, {"due": "soon"}, {"per-minute": 0}, {"every": "1 s"}]
)
def test_bad_manners_name_the_key(bad):
    with dask.config.set({"hpc.batch": bad}), pytest.raises(InputError, match=r"hpc\.batch"):
        config.manners()
    with pytest.raises(InputError, match=r"adapt: poll.*100 ms to 1 day"):
        config.manners(0)


def test_how_units_are_asked_for():
    assert config.ask_settings() == AskSettings()
    given = {
        "budget": "500 node-hours",
        "qos": ["preempt", "regular"],
        "partitions": "short",
        "least": "5 min",
    }
    with dask.config.set({"hpc.ask": given}):
        found = config.ask_settings({"overhead": "30s", "margin": 0.5})
        assert found == AskSettings(1.8e6, ("preempt", "regular"), ("short",), 30.0, 300.0, 0.5)
        assert config.ask_settings({"budget": None}).budget == inf


@pytest.mark.parametrize(
    "bad",
    [
        5,
        {"budget": "500 hours"},
        {"budget": 500},
        {"qos": [3]},
        {"qos": "a,b"},
        {"partitions": [""]},
        {"partitions": ["a b"]},
        {"overhead": "-1s"},
        {"least": "30s"},
        {"margin": 1},
        {"gain": "long"},
        {"shape": "fit"},
    ],
)
def test_a_bad_way_of_asking_names_the_key(bad):
    with dask.config.set({"hpc.ask": bad}), pytest.raises(InputError, match=r"hpc\.ask"):
        config.ask_settings()
    if isinstance(bad, dict):
        with pytest.raises(InputError, match=r"adapt: ask.*allowed"):
            config.ask_settings(bad)


def test_power_in_human_units(jsonschema):
    given = {
        "hpc.power-meter": {"simulated": {"idle": "60 W", "busy": "0.14 kW", "lag": "1.5s", "seed": 3}},
        "hpc.power-model": {"idle": "90 W", "busy": "0.35 kW"},
        "hpc.power-history": "~/power.json",
        "hpc.power-interval": "500 ms",
    }
    with dask.config.set(given):
        found = config.settings()
        jsonschema.validate({"hpc": {key[4:]: value for key, value in given.items()}}, SCHEMA)
    assert found["power-meter"] == {"simulated": {"idle": 60.0, "busy": 140.0, "lag": 1.5, "seed": 3}}
    assert found["power-model"] == {"idle": 90.0, "busy": 350.0} and found["power-interval"] == 0.5
    assert found["power-history"] == os.path.expanduser("~/power.json")


def test_live_settings_are_checked():
    assert config.live_setting("fair-shares", True) is True
    assert config.live_setting("io-lanes", "auto") == "auto"
    assert config.live_setting("fair-shares", {"alice": 2}) == {"alice": 2.0}
    assert config.live_setting("io-lanes", {"/a": 2, "default": 1}) == {"/a": 2, "default": 1}
    assert config.live_setting("io-lanes", None) is None
    for key, value in (("fair-shares", 3), ("node", "host"), ("nothing", 1), (["x"], 1)):
        with pytest.raises(InputError, match="settings"):
            config.live_setting(key, value)


def test_environment_variables():
    code = "from dask_hpc import config; print(config.policy(), config.settings()['story-length'])"
    env = os.environ | {"DASK_HPC__POLICY": "fcfs", "DASK_HPC__STORY_LENGTH": "7"}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["fcfs", "7"]
