"""The picture of a machine with its jobs and full links."""

import xml.etree.ElementTree as ET

from dask_hpc.model.topology import fat_tree, slurm_tree, xc30
from dask_hpc.view.network import DrawnJob, DrawnLevel, DrawnLink, network_svg
from dask_hpc.view.page import COLOURS

SVG = "{http://www.w3.org/2000/svg}"
LEVELS = {"cabinet": DrawnLevel(12.5e9, 192, 48, 1.0, 0.25)}


def drawn(topology, jobs, links=(), levels=LEVELS, reason="one; another"):
    return ET.fromstring(network_svg("Title <&>", reason, topology, jobs, list(links), levels))


def hints(root):
    """By what it says: the parts below a hint."""
    return {group.find(f"{SVG}title").text: group for group in root.iter(f"{SVG}g")}


def rects(group):
    return group.findall(f"{SVG}rect")


def test_each_node_is_a_cell_in_the_colour_of_its_jobs():
    topology = xc30()
    jobs = {"heat": DrawnJob(topology.nodes[:94], 0.5), "save": DrawnJob(topology.nodes[90:100], 1.0)}
    root = drawn(topology, jobs)
    cells = {words: group for words, group in hints(root).items() if words.startswith("cabinet")}
    assert len(cells) == 192
    fills = {words: [box.get("fill") for box in rects(group)] for words, group in cells.items()}
    assert fills["cabinet0-chassis0-blade1: heat"] == [COLOURS[0]]
    assert fills["cabinet0-chassis5-blade14: heat, save"] == list(COLOURS[:2])
    assert fills["cabinet0-chassis0-blade0: service"] != fills["cabinet1-chassis5-blade14: no job"]
    places = [(box.get("x"), box.get("y")) for group in cells.values() for box in rects(group)]
    assert len(set(places)) == len(places), "none is upon another"
    shared = rects(cells["cabinet0-chassis5-blade14: heat, save"])
    whole = rects(cells["cabinet0-chassis0-blade1: heat"])[0]
    assert sum(float(box.get("width")) for box in shared) - float(whole.get("width")) < 0.01
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "heat: 50% of its demand, 94 nodes" in texts and "Title <&>" in texts and "another" in texts
    assert "cabinet1" in texts and texts.count("chassis3") == 2
    assert "25% used on average, the fullest 100%; 48 of 192 full" in texts
    assert root.get("aria-label").endswith("heat: 50% of its demand; save: 100% of its demand")


def test_everything_is_inside_the_picture():
    machines = [xc30(), xc30(1), xc30(7), fat_tree(16, 3), fat_tree(200, 1), fat_tree(3, 5),
                slurm_tree({f"n{one}": () for one in range(40)})]  # fmt: skip
    for topology in machines:
        root = drawn(topology, {"a": DrawnJob(topology.nodes[:3], 0.1)})
        width, height = map(float, root.get("viewBox").split()[2:])
        for box in root.iter(f"{SVG}rect"):
            x, y = float(box.get("x", 0)), float(box.get("y", 0))
            assert x >= 0 and x + float(box.get("width")) <= width + 0.5
            assert y >= 0 and y + float(box.get("height")) <= height + 0.5


def test_full_links_begin_at_red_dots_and_some_are_drawn():
    topology = xc30()
    places = [topology.places[name] for name in topology.nodes]
    across = [
        DrawnLink(place, ("cabinet1", *place[1:]), 1.0 if number < 30 else 0.6, f"link {number}")
        for number, place in enumerate(places[:40])
    ]
    root = drawn(topology, {"a": DrawnJob(topology.nodes[:2], 0.1)}, across)
    dots = list(root.iter(f"{SVG}circle"))
    assert len(dots) == 40 and len({dot.get("fill") for dot in dots}) == 2
    curves = {words: group for words, group in hints(root).items() if words.startswith("link")}
    assert len(curves) == 24 and "link 0" in curves and any(int(words[5:]) >= 30 for words in curves)


def test_a_tree_has_dots_at_its_parts():
    topology = slurm_tree({"a": ("r0",), "b": ("r0",), "c": ("r1",)})
    links = [DrawnLink(("r0",), (), 1.0, "up"), DrawnLink((), ("r1",), 1.0, "down"),
             DrawnLink(("r0", "a"), ("r0",), 0.7, "port")]  # fmt: skip
    root = drawn(topology, {"j": DrawnJob(("a", "c"), 0.1)}, links)
    assert len(list(root.iter(f"{SVG}circle"))) == 2
    assert {"up", "down"} <= set(hints(root)) and "port" not in hints(root)


def test_a_machine_too_large_to_be_drawn_in_full_is_still_drawn():
    topology = fat_tree(20, 3)
    words = network_svg("t", "r", topology, {"a": DrawnJob(topology.nodes, 1.0)}, [], LEVELS)
    assert len(words) < 3_000_000
