"""Draw a study as two pictures: `figure` shows what was found, `traffic_figure` what it cost.

The first has the best values so far or, if the optimum is known, simple and cumulative regret (`curves`);
values against the parameters that matter most (`importance`); and the agents' best configurations. If models
were exchanged, it has the fronts in the losses that the search has seen, the shipped models' losses on other
rows and, of several contestants, win matrices (`selection`).

`plot` returns the first one for a notebook: a picture or, with plotly, curves and trials that explain
themselves.
"""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.algorithms.options import check_choice
from fbo_flower.errors import ConfigError, number_text, printable
from fbo_flower.lazy import required
from fbo_flower.reports.curves import draw_curves, draw_regret, mean_lines, metric_of, named_agents
from fbo_flower.reports.fronts import COLUMNS, MOST_AXES, draw_all, feasible, feasible_shares, has_outputs
from fbo_flower.reports.importance import draw_slices, most_important, study_axes, study_importance
from fbo_flower.reports.pictures import (
    FORMATS,
    draw_message,
    draw_table,
    report_style,
    save_figure,
    study_styles,
)
from fbo_flower.reports.selection import draw_models
from fbo_flower.reports.summary import result_rows
from fbo_flower.reports.traffic import draw_sent, has_traffic, sent_by_round, traffic_cells
from fbo_flower.study.ranking import expected_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

    from fbo_flower.study.study import Study

PICTURE, TRAFFIC = "report.png", "traffic.png"
AXES = ("evaluations", "time")  # what best values are drawn against
WIDTH = 10.0  # inches of a picture, so that its text is readable on a page
_MAX_SLICES = 6
_MAX_BEST = 5  # rows of the table of best configurations
_LINE_HEIGHT = 0.18  # inches of a table's row
MOST_POINTS = 5000  # trials that plotly draws
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}  # of matplotlib in plotly's terms
_HOW_TO_DISCLOSE = 'set disclose = "trials" in the node_config of the agents that may show them.'


def draw(study: Study, path: Path, x: str = "evaluations", *, wide: bool | None = None) -> str:
    """Draw the study, and its traffic if bytes were counted.

    If that fails, return the reason instead of an error, because the data matter more. For `x` and `wide` see
    `figure`.
    """
    traffic = traffic_path(path)
    try:
        save_figure(figure(study, x=x, wide=wide), path, dpi=200)
        if has_traffic(study):
            save_figure(traffic_figure(study), traffic, dpi=200)
        else:
            traffic.unlink(missing_ok=True)  # of an earlier study
    except ConfigError as error:
        for old in (path, traffic):
            if old.suffix.lower() in FORMATS:
                old.unlink(missing_ok=True)  # otherwise the picture of an earlier study would stay
        return str(error)
    return ""


def traffic_path(path: Path) -> Path:
    """Return where the picture of the traffic lies, beside the first picture.

    >>> traffic_path(Path("runs/report.png")).name, traffic_path(Path("both.svg")).name
    ('traffic.png', 'both-traffic.svg')
    """
    return path.with_name(TRAFFIC if path.name == PICTURE else f"{path.stem}-traffic{path.suffix}")


def check_x(study: Study, x: str) -> None:
    """Raise ConfigError if best values cannot be drawn against `x`."""
    check_choice("x", x, AXES)
    if x == "time" and len(study.models):
        raise ConfigError("--x time: expected a study of best values, got one that selected models")
    missing = [name for name in study.algorithms if not len(study.times.where(algorithm=name))]
    if x == "time" and missing:
        raise ConfigError(
            f"--x time: expected times of trials, got none of {', '.join(missing)}; agents send them with "
            f"their trials: {_HOW_TO_DISCLOSE}"
        )


def plot(study: Study, x: str = "evaluations", *, title: str | None = None) -> Figure:
    """Return `figure`; notebooks show it as a picture or, if plotly is installed, as `hover_figure`."""
    drawing = figure(study, title=title, x=x)

    def shown(**chosen: Any) -> dict[str, Any]:  # by MIME type, as IPython asks for it
        picture = io.BytesIO()
        drawing.savefig(picture, format="png", dpi=100)
        bundle: dict[str, Any] = {"text/plain": repr(drawing), "image/png": picture.getvalue()}
        if find_spec("plotly") and find_spec("nbformat") and not len(study.models):  # which plotly needs
            bundle |= hover_figure(study, x)._repr_mimebundle_(**chosen)
        return bundle

    drawing._repr_mimebundle_ = shown  # type: ignore[attr-defined]
    return drawing


@report_style()
def figure(
    study: Study, *, title: str | None = None, x: str = "evaluations", wide: bool | None = None
) -> Figure:
    """Draw what a study found and return the figure, which the caller may change.

    Parameters
    ----------
    title : None: the problem, the metric and the number of agents
    x : "evaluations", or "time": best values as steps against seconds, also where the optimum is known
    wide : whether values against parameters and the best configurations are drawn too; None: unless
        algorithms are compared

    Raises
    ------
    ConfigError
        If matplotlib is not installed, models were exchanged and none was judged, or times are wanted and
        unknown.
    """
    from matplotlib.figure import Figure

    check_x(study, x)
    styles = study_styles(study)
    title = study_title(study) if title is None else title
    if len(study.models):
        drawing = Figure()
        draw_models(drawing, study, styles)
        _write_title(drawing, title)
        return drawing

    wide = len(study.algorithms) == 1 if wide is None else wide
    chosen, why = study_axes(study) if wide and len(study.recommendations) else [], "each parameter"
    if len(chosen) > _MAX_SLICES:
        chosen, why = most_important(chosen, study_importance(study), _MAX_SLICES)
    best = ranked(study) if wide else []
    first = best[:_MAX_BEST]
    outputs = has_outputs(study)
    heights = [3.5]
    if wide or outputs:
        heights.append(2.5 * -(-len(chosen) // 3) if chosen else 0.01 if outputs else 0.7)
    heights += [0.5 + 2.3 * -(-min(len(feasible_shares(study)), MOST_AXES) // COLUMNS)] if outputs else []
    heights += [0.55 + _LINE_HEIGHT * (len(first) + 1)] if first else []
    known = study.rounds["mean_incumbent"], study.recommendations["value"], study.regret["simple"]
    if not any(np.isfinite(values).any() for values in (study.trials["value"], *known)):
        heights = [1.4]  # a message instead of all the rest
    drawing = Figure(figsize=(WIDTH, sum(heights)))
    parts = drawing.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).ravel()
    if x == "evaluations" and len(study.regret):
        draw_regret(parts[0].subplots(1, 2), study, styles)
    else:
        draw_curves(parts[0].subplots(), study, styles, x)
    if len(heights) > 1 and chosen:
        draw_slices(parts[1], study, chosen, why, styles)
    elif len(heights) > 1 and not outputs:
        message = f"No configurations were disclosed; to see them, {_HOW_TO_DISCLOSE}"
        draw_message(parts[1].subplots(), message)
    if outputs and len(heights) > 1:
        draw_all(parts[2], study, styles, named_agents(study))
    if first:
        cells = best_cells(study, _MAX_BEST)
        for axis in chosen:
            cells[axis.name] = [shown_value(found["config"].get(axis.name, "-")) for _, found in first]
        hidden = len(best) - len(first)
        note = f"; {hidden} more in best.json" if hidden else ""
        order = "smallest" if study.any_minimizes else "largest"
        by = "means" if is_noisy(study) else "values"
        heading = f"Best configuration of each agent, {order} {by} first{note}"
        draw_table(parts[-1].subplots(), cells, heading)
    _write_title(parts[0], title)
    return drawing


@report_style()
def traffic_figure(study: Study, *, title: str | None = None) -> Figure:
    """Draw what a study sent and return the figure, which the caller may change.

    Raises
    ------
    ConfigError
        If no bytes were counted or matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    if not has_traffic(study):
        raise ConfigError("traffic: expected a study with counted bytes, got none")
    heights = [3.4, 0.55 + _LINE_HEIGHT * (len(study.algorithms) + 1)]
    drawing = Figure(figsize=(WIDTH, sum(heights)))
    above, below = drawing.subfigures(2, 1, height_ratios=heights, squeeze=False).ravel()
    units = [unit for unit in ("floats", "bytes") if sent_by_round(study, unit)[0]]
    for ax, unit in zip(above.subplots(1, len(units), squeeze=False)[0], units, strict=True):
        draw_sent(ax, study, study_styles(study), unit)
    draw_table(below.subplots(), traffic_cells(study), "What each agent received and sent in the whole run")
    name, agents = _name_and_agents(study)
    parts = [name, f"{agents}: traffic and privacy".removeprefix(": ")]
    _write_title(above, _joined(parts) if title is None else title)
    return drawing


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
    go = required("plotly.graph_objects", "hover_figure", "plotly", "notebook")

    def plain(text: str) -> str:
        return html.escape(printable(text))

    def of_trial(algorithm: str, row: dict[str, Any]) -> str:  # what is shown beside the mouse, in lines
        settings = [f"{name}: {shown_value(value)}" for name, value in row["config"].items()]
        head = f"{algorithm}, {row['agent']}, trial {row['trial']}: {number_text(row['value'])}"
        return "<br>".join(map(plain, [head, *settings]))

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
                x=ends, y=[row["value"] for row in own], mode="markers", marker=marker, name=plain(name),
                legendgroup=plain(name), showlegend=False, hovertemplate="%{text}<extra></extra>",
                text=[of_trial(algorithm, row) for row in own],
            )  # fmt: skip
    curves = {**(agents if hues else {}), **lines}
    for name, (grid, mean, _) in curves.items():
        colour, dash = (hues[name], "solid") if name in agents and hues else styles[name]
        drawing.add_scatter(
            x=grid.tolist(), y=mean.tolist(), mode="lines", name=plain(name), legendgroup=plain(name),
            line={"color": colour, "dash": _DASHES.get(dash, "solid"), "width": 2},
        )  # fmt: skip
    what = f"{plain(metric_of(study) or 'value')}; lines: best so far"
    unit = {"time": "seconds", "rounds": "round"}.get(x, "evaluations per agent")
    drawing.update_layout(template="plotly_white", xaxis_title=unit, yaxis_title=what)
    return drawing


def ranked(study: Study) -> list[tuple[str, dict[str, Any]]]:
    """Return the agents and their entries of `study.best`, the best values first."""
    if len(study.objectives) > 1:
        return []
    return sorted(study.best.items(), key=lambda item: expected_of(item[1]), reverse=not study.any_minimizes)


def is_noisy(study: Study) -> bool:
    """Return whether an agent's best was chosen by its mean, because values are noisy."""
    return bool(np.isfinite(study.recommendations["mean"]).any())


def best_cells(study: Study, limit: int) -> dict[str, Sequence[str]]:
    """Return a table's columns: the agents with the best values, their values, and by which algorithm."""
    best = ranked(study)[:limit]
    cells = {"agent": [agent for agent, _ in best]}
    for name in ("value", "mean") if is_noisy(study) else ("value",):
        cells[name] = [f"{found[name]:.6g}" if name in found else "-" for _, found in best]
    for name in dict.fromkeys(name for _, found in best for name in found.get("outputs", {})):
        cells[name] = [shown_value(found.get("outputs", {}).get(name, "-")) for _, found in best]
    if len(study.algorithms) > 1:
        cells["algorithm"] = [found["algorithm"] for _, found in best]
    return dict(cells)


def shown_value(value: object) -> str:
    """Return a value of a configuration as a cell of a table."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_title(drawing: Figure | SubFigure, title: str) -> None:
    drawing.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")


def study_title(study: Study) -> str:
    """Return problem or app, metric if known, number of agents, and how many of them have a value."""
    (name, agents), metric = _name_and_agents(study), metric_of(study)
    parts = [f"{name}: {metric}" if name and metric else name or metric, agents, _with_value(study)]
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    return textwrap.fill(", ".join(part for part in parts if part), 88)  # characters of a bold line


def _name_and_agents(study: Study) -> tuple[str, str]:
    runs = study.settings["runs"]
    problems = dict.fromkeys(str(run["problem"]) for run in runs if run.get("problem"))
    numbers = dict.fromkeys(str(run["num_agents"]) for run in runs if run.get("num_agents"))
    agents = f"{' or '.join(numbers)} agent{'' if list(numbers) == ['1'] else 's'}" if numbers else ""
    return ", ".join(problems) or str(study.settings.get("name", "")), agents


def _with_value(study: Study) -> str:
    """Return how many agents have a value, if all runs have as many agents."""
    numbers = {int(run["num_agents"]) for run in study.settings["runs"] if run.get("num_agents")}
    if len(numbers) != 1 or len(study.models):
        return ""
    counts = []
    for algorithm in study.algorithms:
        trials = study.trials.where(algorithm=algorithm)
        tables = [trials.take(feasible(trials)), study.recommendations.where(algorithm=algorithm)]
        counts.append(len({a for rows in tables for a in rows["agent"][np.isfinite(rows["value"])].tolist()}))
    low, high = min(counts), max(counts)
    if not high:
        return "" if np.isfinite(study.rounds["mean_incumbent"]).any() else "no value disclosed"
    if {low, high} == numbers:
        return "all with a value" if high > 1 else ""
    return f"{low if low == high else f'{low} to {high}'} with a value"
