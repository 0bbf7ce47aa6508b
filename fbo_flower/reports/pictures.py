"""Make and save figures; matplotlib is optional, and without it the error says what to install."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {  # what matplotlib reads when it makes axes and texts
    "axes.axisbelow": True,
    "axes.edgecolor": "#5f5f5f",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "text.parse_math": False,  # names may hold dollars
}


def require_matplotlib() -> None:
    """Raise ConfigError if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "pictures: matplotlib is not installed; run pip install 'fbo-flower[simulation]' to draw them"
        ) from error


@contextmanager
def report_style(more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Draw in the style of reports, with texts as they are; raise ConfigError without matplotlib.

    Parameters
    ----------
    more : further settings of matplotlib
    """
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(_STYLE | dict(more or {})):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, which needs no display.

    Raises
    ------
    ConfigError
        If matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure as PNG and return the path; an interrupted write leaves the old file."""
    with atomic_file(path) as stream:
        figure.savefig(stream, format="png", dpi=dpi)
    return path
