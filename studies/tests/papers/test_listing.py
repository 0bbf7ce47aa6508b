"""`python -m studies experiment` lists the experiments, and so does `docs/results/README.md`."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.__main__ import run
from studies.papers import EXPERIMENTS


def test_the_list_and_the_page_say_how_long_the_small_versions_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["experiment"]) == 0
    out = capsys.readouterr().out
    page = (Path(__file__).parents[3] / "docs" / "results" / "README.md").read_text(encoding="utf-8")
    for name, experiment in EXPERIMENTS.items():
        assert f"--quick takes about {experiment.quick} on two cores" in out.partition(f"{name}  ")[2]
        start = f"| `python -m studies experiment {name}` |"
        row = next(line for line in page.splitlines() if line.startswith(start))
        assert row.endswith(f" {experiment.quick} |")
