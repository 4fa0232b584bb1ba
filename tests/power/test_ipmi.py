"""IPMI through a command that is a stand-in for ipmitool, and a made-up device."""

import pytest

from dask_hpc.power.worker.meters import Ipmi

ANSWER = (
    "    Instantaneous power reading:                   {} Watts\n    Minimum during sampling period: 3 Watts"
)


@pytest.fixture
def stand_in(tmp_path):
    """Makes a command that runs this script, and counts its runs in the file ``runs``."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ipmi0").write_text("")

    def make(script):
        command = tmp_path / "ipmitool"
        command.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/runs\n{script}\n')
        command.chmod(0o755)
        return str(command)

    return make


def ipmi_of(tmp_path, command, **more):
    return Ipmi(str(tmp_path), command, one=str(tmp_path)[-90:], **more)


def runs(tmp_path):
    return (tmp_path / "runs").read_text().splitlines() if (tmp_path / "runs").exists() else []


def test_the_controller_is_asked_now_and_then(tmp_path, stand_in):
    meter = ipmi_of(tmp_path, stand_in(f"echo '{ANSWER.format(280)}'"))
    for now in range(11):
        (row,) = meter.sense(float(now), 0)
        assert (row.covers, row.watts, row.uncertainty) == ("node", 280, 14)
    assert runs(tmp_path) == ["dcmi power reading"] * 2
    meter.close()


def test_only_one_process_asks(tmp_path, stand_in):
    command = stand_in(f"echo '{ANSWER.format(280)}'")
    first, second = ipmi_of(tmp_path, command), ipmi_of(tmp_path, command)
    assert first.sense(0, 0)[0].watts == 280
    assert "another process" in second.sense(0, 0)[0].problem
    first.close()
    assert second.sense(1000, 0)[0].watts == 280
    second.close()


@pytest.mark.parametrize(
    "script, problem",
    [
        (f"echo '{ANSWER.format(0)}'", "Instantaneous"),
        ("echo 'Could not open device' >&2; exit 1", "Could not open device"),
        ("exit 1", "it says nothing"),
        ("exec sleep 60", "no answer in 0.2 s"),
    ],
)
def test_a_controller_that_does_not_answer(tmp_path, stand_in, script, problem):
    meter = ipmi_of(tmp_path, stand_in(script), patience=0.2)
    for now in (0, 20):
        (row,) = meter.sense(float(now), 0)
        assert row.watts is None and problem in row.problem
    assert len(runs(tmp_path)) <= 1  # it is left in peace for a while
    meter.close()


def test_what_is_not_there(tmp_path, stand_in):
    assert "no command" in ipmi_of(tmp_path, "no-such-ipmitool").sense(0, 0)[0].problem
    command = stand_in("exit 1")
    (tmp_path / "dev/ipmi0").unlink()
    assert "ipmi_devintf" in ipmi_of(tmp_path, command).sense(0, 0)[0].fix
    assert runs(tmp_path) == []
