"""A study's figure in a notebook: a picture or, with plotly, curves and trials that explain themselves."""

from __future__ import annotations

import html
import io
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.errors import ConfigError, number_text, printable
from fbo_flower.reports.curves import mean_lines, metric_of, named_agents
from fbo_flower.reports.pictures import study_styles
from fbo_flower.reports.summary import result_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fbo_flower.study.study import Study

MOST_POINTS = 5000  # trials that are drawn
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}  # of matplotlib in plotly's words


def shown_in_notebooks(drawing: Figure, study: Study, x: str) -> Figure:
    """Let notebooks show this figure of a study, with plotly as `hover_figure`, and return it."""
    drawing._repr_mimebundle_ = partial(_bundle, drawing, study, x)  # type: ignore[attr-defined]
    return drawing


def _bundle(drawing: Figure, study: Study, x: str, **chosen: Any) -> dict[str, Any]:
    """Return the figure by MIME type, as IPython asks for it."""
    picture = io.BytesIO()
    drawing.savefig(picture, format="png", dpi=100)
    bundle: dict[str, Any] = {"text/plain": repr(drawing), "image/png": picture.getvalue()}
    if find_spec("plotly") and find_spec("nbformat") and not len(study.models):  # which plotly needs
        bundle |= hover_figure(study, x)._repr_mimebundle_(**chosen)
    return bundle


def hover_figure(study: Study, x: str = "evaluations") -> Any:  # of plotly, which is optional
    """Return a plotly figure of the mean best values so far, and of trials, which say what they are.

    Parameters
    ----------
    x : "evaluations" or "time", which best values are drawn against; trials have no place in time

    Raises
    ------
    ConfigError
        If plotly is not installed.
    """
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ConfigError(
            "hover_figure: plotly is not installed; run pip install 'fbo-flower[notebook]'"
        ) from error

    lines, agents, x = mean_lines(study, x, 1000)
    styles, hues = study_styles(study), named_agents(study)
    drawing, step = go.Figure(), 1 + len(study.trials) // MOST_POINTS
    for algorithm in study.algorithms:
        rows = list(result_rows(study, algorithm)) if x == "evaluations" else []
        for agent in list(dict.fromkeys(row["agent"] for row in rows)):
            own = [row for row in rows if row["agent"] == agent]
            ends = np.cumsum([row["pulls"] for row in own])[::step].tolist()
            own = own[::step]
            name = algorithm if not hues else agent
            marker = {"color": hues.get(agent, styles[algorithm].color), "size": 5, "opacity": 0.5}
            drawing.add_scatter(
                x=ends, y=[row["value"] for row in own], mode="markers", marker=marker, name=_plain(name),
                legendgroup=_plain(name), showlegend=False, hovertemplate="%{text}<extra></extra>",
                text=[_of_trial(algorithm, row) for row in own],
            )  # fmt: skip
    curves = {**(agents if hues else {}), **lines}
    for name, (grid, mean, _) in curves.items():
        colour, dash = (hues[name], "solid") if name in agents and hues else styles[name]
        drawing.add_scatter(
            x=grid.tolist(), y=mean.tolist(), mode="lines", name=_plain(name), legendgroup=_plain(name),
            line={"color": colour, "dash": _DASHES.get(dash, "solid"), "width": 2},
        )  # fmt: skip
    what = f"{_plain(metric_of(study) or 'value')}; lines: best so far"
    unit = {"time": "seconds", "rounds": "round"}.get(x, "evaluations per agent")
    drawing.update_layout(
        template="plotly_white", xaxis_title=unit, yaxis_title=f"{what}; lines: best so far"
    )
    return drawing


def _of_trial(algorithm: str, row: dict[str, Any]) -> str:
    """Return what is shown beside the mouse, in lines."""
    settings = [f"{name}: {f'{v:.4g}' if isinstance(v, float) else v}" for name, v in row["config"].items()]
    head = f"{algorithm}, {row['agent']}, trial {row['trial']}: {number_text(row['value'])}"
    return "<br>".join(map(_plain, [head, *settings]))


def _plain(text: str) -> str:
    return html.escape(printable(text))
