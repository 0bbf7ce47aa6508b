"""How pictures look, and their files; matplotlib is optional, and without it the error says what to install.

The colours of algorithms are those of Okabe and Ito, which most colour-blind readers can tell apart; line
styles tell the algorithms apart in print. Tuning alone is dashed. The colours of agents are dark enough for
their names to be read in them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from fbo_flower.algorithms import PlotStyle
from fbo_flower.algorithms.registry import lookup
from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fbo_flower.study.study import Study

FORMATS = (".pdf", ".png", ".svg")
GREY = "#5f5f5f"  # colour of all that is not data
AGENTS = ("#1f6fb2", "#c2410c", "#0f766e", "#a21caf", "#8a5a00", "#4d7c0f", "#be123c", "#475569")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a")
_SPARE = [PlotStyle(colour, line) for line in ("-", "-.", ":", "--") for colour in _COLOURS]
_STYLE: dict[Any, Any] = {  # what matplotlib reads when it makes axes and texts
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
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
    """Write a figure as PDF, PNG or SVG and return the path; an interrupted write leaves the old file.

    Raises
    ------
    ConfigError
        If the name has another ending, or the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(FORMATS)}, got {path.suffix!r}")
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix.lower()[1:], dpi=dpi)
    with atomic_file(path) as stream:
        stream.write(picture.getvalue())
    return path


def algorithm_style(name: str) -> PlotStyle:
    """Return the style of an algorithm's record; without one, a style that depends on the name alone.

    >>> algorithm_style("fts")
    PlotStyle(color='#0072B2', line='-')
    >>> algorithm_style("unheard-of") == algorithm_style("unheard-of")
    True
    """
    record = lookup(name)
    if record is None or record.style is None:
        return _SPARE[crc32(name.encode()) % len(_SPARE)]
    return record.style


def study_styles(study: Study) -> dict[str, PlotStyle]:
    """Return a style of its own for every label: its algorithm's, else the first one that is still free."""
    styles: dict[str, PlotStyle] = {}
    for label in study.algorithms:
        style = algorithm_style(str(study.run(label).get("algorithm", label)))
        if style not in styles.values():
            styles[label] = style
    for label in study.algorithms:
        if label not in styles:
            taken = list(styles.values())
            styles[label] = next((style for style in _SPARE if style not in taken), _SPARE[0])
    return {label: styles[label] for label in study.algorithms}
