"""``dask-hpc plan colocation``: the tables, JSON, the picture, and what it says of bad input."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.cli.plan_colocation import colocation

CLASSES = "kind,seconds,mem_class,count,deadline\ncg,250s,I,100,3h\nsp, 7 min ,II,100,\nep,180,V,100,3h\n"


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "tasks.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def colocated(*args, code=0):
    result = CliRunner().invoke(cli, ("plan", "colocation", *args))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_tables_and_json_agree(table):
    path = table(CLASSES)
    out, found = colocated(path, "--cores", "4"), json.loads(colocated(path, "--cores", "4", "--json"))
    lines = out.splitlines()
    assert re.split(r"  +", lines[0]) == [
        "kind", "class", "alone", "at once", "beside 3 cg", "beside 3 sp", "beside 3 ep",
    ]  # fmt: skip
    for name, row in found["slowdowns"].items():
        line = next(line for line in lines if line.startswith(f"{name} "))
        assert line.split()[-3:] == [f"{value:.2f}" for value in row.values()]
    best = found["sharing"][0]
    assert f"{', '.join(best['kinds'])}  " in out and f"{best['saves']:.1%}" in out
    for phase in found["mix"]["phases"]:
        assert ", ".join(f"{count} {kind}" for kind, count in phase["mix"].items()) in out
    assert out.count(" NO") == sum(not one["kept"] for one in found["deadlines"]) + sum(
        one["plain_ends"] > one["deadline"] for one in found["deadlines"]
    )
    assert "; it rests on ".join(line.removeprefix("rests on: ") for line in lines[-2:]) == found["reason"]
    assert "law" in lines[-1] and "assumed" in lines[-1]


def test_more_nodes_and_one_core(table):
    path = table(CLASSES)
    one, two = (json.loads(colocated(path, "--cores", "4", "--nodes", n, "--json")) for n in "12")
    assert two["mix"]["seconds"] == pytest.approx(one["mix"]["seconds"] / 2)
    assert "on each node" in colocated(path, "--cores", "4", "--nodes", "2")
    out = colocated(path, "--cores", "1")
    assert "beside" not in out.splitlines()[0] and "two kinds" not in out and "on one core nothing" in out


def test_the_picture_of_slowdowns(table, tmp_path):
    picture = tmp_path / "plan.svg"
    found = json.loads(colocated(table(CLASSES), "--cores", "4", "--plot", str(picture), "--json"))
    root = ET.parse(picture).getroot()
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    for row in found["slowdowns"].values():
        for value in row.values():
            assert f"{value:.2f}" in texts
    assert texts[-1] == "1.00" and texts.count("cg") == 2 and any("other 3 cores" in text for text in texts)
    fills = {one.get("fill") for one in root.iter("{http://www.w3.org/2000/svg}rect")}
    assert "#8c2d04" in fills, "the worst is the darkest"


def test_the_example_of_the_help_works(table):
    text = re.search(r"tasks.csv:\n(.*)\n", colocation.help, re.S)[1]
    rows = "\n".join(line.strip() for line in text.splitlines() if "," in line)
    out = colocated(table(rows), "--cores", "4")
    assert "2 runs beside others" in out and "stream, count" in out


def test_ways_to_predict_are_said(table):
    rows = ["kind,seconds,beside,misses,accesses,instructions"]
    misses = {"a": 30, "b": 10, "c": 1}
    rows += [f"{kind},100,,{count},100,1000" for kind, count in misses.items()]
    rows += [
        f"{one},{100 + n * misses[one] * misses[other] / 10},{n} {other},,,"
        for one in misses
        for other in misses
        for n in range(1, 6)
    ]
    out = colocated(table("\n".join(rows)), "--cores", "6")
    assert "% off on average on runs held out" in out and "network" in out and "linear model" in out


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "found no run"),
        ("kind,seconds\n", "found no run"),
        ("kind,seconds\na,0\n", "run 1: seconds: found '0'"),
        ("kind,seconds\na,1,2\n", "line 2: not as many values"),
        ("kind,seconds\na\n", "line 2: not as many values"),
        ("kind,second\na,1\n", "second: unknown key (nearest: seconds)"),
        ("kind,seconds,beside\na,1,\na,2,b\n", "'b', of which no run alone"),
        ("kind,seconds,mem_class,deadline\na,1,I,-1h\n", "deadline: found '-1h'"),
        ("kind,seconds,misses,accesses,instructions\na,1,-5,9,9\n", "misses: found -5"),
        ("kind,seconds,misses,accesses,instructions\na,1,5,99e30,9\n", "accesses"),
        ("kind,seconds,misses,accesses,instructions\na,1,nan,9,9\n", "misses: found nan"),
        (b"\xff\xfe\x00", "is no text"),
        (b"kind,seconds\n" + b"a,1\n" * 2_500_000, "more than 10 MB"),
    ],
)
def test_bad_tables(table, text, words):
    told = colocated(table(text), "--cores", "4", code=2)
    assert words in told and "tasks.csv" in told and len(told.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "args, words",
    [
        (("--cores", "0"), "cores: found 0"),
        (("--cores", "4", "--nodes", "0"), "nodes: found 0"),
        (("--cores", "4", "--plot", "no/such/folder/a.svg"), "there is no folder"),
    ],
)
def test_bad_options_of_colocation(table, args, words):
    told = colocated(table(CLASSES), *args, code=2)
    assert words in told and "tasks.csv" not in told.split("cores")[0]
    assert "cannot be read" in colocated("no/such.csv", "--cores", "4", code=2)
