"""What ``run.py`` names is there: it is run by hand, long after a file was moved."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_that_it_names_is_there():
    spec = spec_from_file_location("mutations_run", Path(__file__).with_name("run.py"))
    run = module_from_spec(spec)
    spec.loader.exec_module(run)
    named = {*run.TESTS, *(test.partition("::")[0] for test in run.LEFT_OUT)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
