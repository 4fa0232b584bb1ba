"""Our defaults, their schema, and what a bad configuration says."""

import os
import subprocess
import sys

import dask
import jsonschema
import pytest
import yaml

from dask_hpc import InputError, config

SCHEMA = yaml.safe_load(config.FILE.with_name("hpc-schema.yaml").read_text())


def test_schema_validates_the_defaults():
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
    ("key", "read", "bad"),
    [
        ("policy", config.policy, 3),
        ("node", config.node, "rack"),
        ("node", config.node, ["host"]),
        ("story-length", config.story_length, 0),
        ("story-length", config.story_length, "many"),
        ("max-errors", config.max_errors, True),
    ],
)
def test_bad_values_name_the_key(key, read, bad):
    with dask.config.set({f"hpc.{key}": bad}), pytest.raises(InputError, match=f"hpc.{key}"):
        read()


def test_environment_variables():
    code = "from dask_hpc import config; print(config.policy(), config.story_length())"
    env = os.environ | {"DASK_HPC__POLICY": "fcfs", "DASK_HPC__STORY_LENGTH": "7"}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["fcfs", "7"]
