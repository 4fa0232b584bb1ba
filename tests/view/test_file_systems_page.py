"""What the dashboard says of file systems."""

from dask_hpc.view.dashboard.file_systems import FileSystems, file_systems_html

LANE = {
    "file_system": "/scratch<x>",
    "limit": 4,
    "tuned": True,
    "in_flight": 3,
    "waiting": 20,
    "done": 7,
    "reads_per_second": 12.345,
    "seconds_per_read": 0.3,
    "reason": "4 at once are served best",
}


class Watched:
    def __init__(self, lanes):
        self.lanes = lanes

    def status(self):
        return {"io": self.lanes}


def test_rows():
    other = LANE | {"file_system": "s3://b", "limit": None, "reads_per_second": None, "done": 9}
    text = file_systems_html([LANE, other])
    assert "/scratch&lt;x&gt;" in text and "3 (at most 4)" in text and "12.3" in text
    assert "no limit" in text and text.index("s3://b") < text.index("/scratch")
    assert "4 at once are served best" in text
    assert text.count("<tr>") == 3 and file_systems_html([LANE] * 99).count("<tr>") == 21


def test_it_is_seen_when_there_is_something():
    beside, alone = FileSystems(is_alone=False), FileSystems()
    for panel in (beside, alone):
        panel.update(Watched([]))
    assert not beside.root.visible and alone.root.visible and "io-lanes" in alone.root.text
    beside.update(Watched([LANE]))
    assert beside.root.visible and "/scratch" in beside.root.text
