"""The explorer of reservations in a real JupyterLab: a slider that is moved brings another plan."""

import importlib.util
import os
from pathlib import Path

import pytest
from rig import browser, chromium, new_page, run_cell, served, write_notebook

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.filterwarnings("ignore"),
]
SHOW = """\
from dask_hpc_widgets import ReservationExplorer
explorer = ReservationExplorer()
explorer"""


def test_a_longer_commit_leaves_fewer_of_them(tmp_path):
    pictures = Path(os.environ.get("DASK_HPC_PICTURES", "test-pictures"))
    pictures.mkdir(exist_ok=True)
    write_notebook(tmp_path / "explorer.ipynb", [SHOW])
    with served("lab", tmp_path, "explorer.ipynb") as address, browser(pictures, "reservations") as chrome:
        page = new_page(chrome)
        page.goto(address)
        run_cell(page, 0)
        view = page.locator(".dh-reservation")
        note = view.locator("[role=status]")
        note.get_by_text("with a commit").wait_for()
        before = note.inner_text()
        assert view.locator("table tr").count() == 8
        assert view.locator("canvas").get_attribute("aria-label").endswith(note.text_content())
        page.screenshot(path=pictures / "reservation-explorer.png")
        commit = view.get_by_label("a commit takes", exact=True)
        commit.focus()
        page.keyboard.press("End")
        page.wait_for_function(
            "before => document.querySelector('.dh-reservation [role=status]').innerText !== before",
            arg=before,
        )
        assert "never commit: 2.24 times" in note.inner_text(), "that does not depend on commits"
        page.keyboard.press("Home")
        note.get_by_text("1.27 times").first.wait_for()
        view.get_by_label("law").select_option("exponential")
        note.get_by_text("1.29 times").first.wait_for()
        assert view.locator("table tr").first.inner_text().endswith("100 % of jobs")
        page.screenshot(path=pictures / "reservation-explorer-exponential.png")
        assert page.complaints == []
