"""Write a study's files together with its picture."""

from __future__ import annotations

from pathlib import Path

from fbo_flower.errors import ConfigError
from fbo_flower.reports.plots import plot_study
from fbo_flower.study.study import Study

PICTURE = "report.png"


def save_with_picture(study: Study, directory: Path) -> str:
    """Write the study's files and `report.png` into `directory`.

    Returns
    -------
    The reason if no picture could be drawn, else "".
    """
    study.save(directory)
    return draw(study, directory / PICTURE)


def draw(study: Study, path: Path) -> str:
    """Draw the study; if that fails, return the reason instead of an error, because the data matter more."""
    try:
        plot_study(study, path)
    except ConfigError as error:
        path.unlink(missing_ok=True)  # otherwise the picture of an earlier study would stay
        return str(error)
    return ""
