"""The experiment with liars runs, and compares honest agents with the same agents alone."""

from __future__ import annotations

import numpy as np
import pytest

from studies.papers import robustness
from studies.papers.robustness import Family

SMALL = {"num_candidates": 32, "num_path_features": 32, "num_features": 30, "num_initial": 2}


def test_every_lie_passes_the_checks_and_is_reported(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family("f1", "simple", 5, ("random", {"num_initial": 2}), {"single": ("fts", SMALL)})
    monkeypatch.setattr(robustness, "families", lambda quick: {"fts": family})
    monkeypatch.setattr(robustness, "NUM_AGENTS", 3)
    monkeypatch.setattr(robustness, "CASES", [(kind, n) for kind, n in robustness.CASES if n < 2])
    (file,) = robustness.run(tmp_path, True, 1, lambda *_: None)
    text = file.read_text(encoding="utf-8")
    assert text.count("| flipped | 1 |") == 2, "with as many evaluations, and with fewer"
    assert "nan" not in text


def test_only_honest_agents_are_compared() -> None:
    alone = np.zeros((2, robustness.NUM_AGENTS))
    mine = alone + 1.0
    mine[:, -4:] = 100.0  # the liars
    found = robustness.behind(mine, alone, 4)
    assert (found.mean, found.stderr) == (1.0, 0.0)
