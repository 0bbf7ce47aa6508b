"""A study's files together with its picture."""

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
    Why there is no picture; "" if there is one.
    """
    study.save(directory)
    return draw(study, directory / PICTURE)


def draw(study: Study, path: Path) -> str:
    """Draw the study; return why that was not possible, "" if it was. Data come before pictures."""
    try:
        plot_study(study, path)
    except ConfigError as error:
        path.unlink(missing_ok=True)  # of an earlier study in this directory
        return str(error)
    return ""
