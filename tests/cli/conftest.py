"""Fixtures of the tests of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fbo_flower.reports.figures import traffic_path


@pytest.fixture
def unpictured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write empty pictures, because drawing takes longer than a small study."""

    def draw(study: Any, path: Path, x: str = "evaluations") -> str:
        for picture in (path, traffic_path(path)):
            picture.write_bytes(b"")
        return ""

    monkeypatch.setattr("fbo_flower.reports.figures.draw", draw)
