"""The notebooks of the tutorials: every code cell runs, in order, in a process and a directory of their own.

No Jupyter is needed: the cells are plain Python.
"""

import json
import re
from pathlib import Path

import pytest
import site_pages
from processes import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
# what the reader has at the end
PRODUCTS = {
    "first-study": ("runs/first/report.png", "runs/first/report.html"),
    "choose-an-algorithm": ("comparison.png",),
    "deploy-to-three-devices": ("three-devices.png",),
    "privacy-for-operators": ("privacy.md",),
    "tune-an-existing-app": ("before-and-after.png",),
    "write-an-algorithm": ("meeting.png",),
}
# `make quick` runs the first, `make e2e` the one that starts programs that listen, `make test` the others
MARKS = {"first-study": (), "deploy-to-three-devices": pytest.mark.deployment}
RUN = [pytest.param(notebook, marks=MARKS.get(notebook.stem, pytest.mark.slow)) for notebook in NOTEBOOKS]


def cells(notebook):
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("notebook", RUN, ids=lambda notebook: notebook.stem)
def test_the_cells_of_a_tutorial_run_in_order_and_leave_what_they_promise(notebook, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra simulation")
    code = ["".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == "code"]
    outputs = site_pages.run_cells(code, tmp_path)
    assert len(outputs) == len(code)
    assert any(printed for printed, _ in outputs)
    drawn = {picture for _, pictures in outputs for picture in pictures}
    assert drawn == {Path(product).name for product in PRODUCTS[notebook.stem] if product.endswith(".png")}
    for product in PRODUCTS[notebook.stem]:
        assert (tmp_path / product).stat().st_size > 1000


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_tutorial_is_small_has_no_outputs_and_links_to_files(notebook):
    assert notebook.stem in PRODUCTS, "so that it is run"
    assert notebook.stat().st_size < 50_000
    for cell in cells(notebook):
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        if cell["cell_type"] == "markdown":
            for link in re.findall(r"\]\(([^)\s]+)\)", "".join(cell["source"])):
                assert (notebook.parent / link).is_file(), link
