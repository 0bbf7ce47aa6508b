"""`fbo-flower experiment` lists the experiments, and so does `docs/results/README.md`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fbo_flower.cli.main import run
from fbo_flower.experiments import EXPERIMENTS


def test_the_list_and_the_page_say_how_long_the_small_versions_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["experiment"]) == 0
    out = capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "results" / "README.md").read_text(encoding="utf-8")
    for name, experiment in EXPERIMENTS.items():
        assert f"--quick takes about {experiment.quick} on two cores" in out.partition(f"{name}  ")[2]
        row = next(
            line for line in page.splitlines() if line.startswith(f"| `fbo-flower experiment {name}` |")
        )
        assert row.endswith(f" {experiment.quick} |")
