"""Write a study's files together with its pictures."""

from __future__ import annotations

from pathlib import Path

from fbo_flower.errors import ConfigError
from fbo_flower.reports.plots import FORMATS, has_traffic, plot_study, plot_traffic
from fbo_flower.study.study import Study

PICTURE = "report.png"
TRAFFIC = "traffic.png"


def save_with_picture(study: Study, directory: Path) -> str:
    """Write the study's files, `report.png` and `traffic.png` into `directory`.

    Returns
    -------
    The reason if no picture could be drawn, else "".
    """
    study.save(directory)
    return draw(study, directory / PICTURE)


def traffic_path(path: Path) -> Path:
    """Return where the picture of the traffic lies, beside the first picture.

    >>> traffic_path(Path("runs/report.png")).name, traffic_path(Path("both.svg")).name
    ('traffic.png', 'both-traffic.svg')
    """
    return path.with_name(TRAFFIC if path.name == PICTURE else f"{path.stem}-traffic{path.suffix}")


def draw(study: Study, path: Path, x: str = "evaluations") -> str:
    """Draw the study, and its traffic if bytes were counted.

    If that fails, return the reason instead of an error, because the data matter more. For `x` see `figure`.
    """
    try:
        plot_study(study, path, x=x)
        if has_traffic(study):
            plot_traffic(study, traffic_path(path))
        else:
            traffic_path(path).unlink(missing_ok=True)  # of an earlier study
    except ConfigError as error:
        for old in (path, traffic_path(path)):
            if old.suffix.lower() in FORMATS:
                old.unlink(missing_ok=True)  # otherwise the picture of an earlier study would stay
        return str(error)
    return ""
