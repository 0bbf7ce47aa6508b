"""Draw a study as two pictures: `figure` shows what was found, `traffic_figure` what it cost.

The first has the best values so far, values against the parameters that matter most, and the agents' best
configurations. With one algorithm there is a line per agent, named if the agents are few, or bands of
quantiles of many agents, and their mean. With several, there is one line per algorithm, the mean over agents,
with a band of one standard error to either side. If the optimum is known, the figure shows simple regret
(logarithmic) and cumulative regret instead of best values; otherwise the axis starts near the end of the
initial design, whose values are often very low. What agents did not disclose is missing, and the picture says
so.

Best values can also be drawn against time: seconds since the first evaluation of a run began, by the
simulated clock if the run had one, otherwise by the clocks of the agents. Only trials with a disclosed time
count. An agent's value changes when a trial ends and holds until its next better one, to the end of the run.
An agent counts from the end of its first trial with a value; before that, the mean is over the other agents.

If models were exchanged, the first picture has the fronts in the losses that the search has seen, the shipped
models' losses on other rows and, of several contestants, win matrices (`selection.draw_models`).

The HTML page is made of the same drawings. In their SVG, a group's `gid` says what is in it: `agent NAME` is
the line of an agent, `many NAME` one that is shown only if some agents are chosen, and `trials 3 7` are two
dots, of rows 3 and 7 of `study.trials`.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.reports.axes import (
    SMALL,
    Line,
    Style,
    corner_note,
    draw_band,
    draw_lines,
    draw_message,
    draw_table,
    dress,
    evenly,
    label_ends,
    mark_initial_design,
    scale_regret,
    shorten,
    use_logarithm,
    value_limits,
    zoom,
)
from fbo_flower.reports.fronts import draw_all, feasible, has_outputs, rows_of_axes
from fbo_flower.reports.importance import Axis, most_important, study_axes, study_importance
from fbo_flower.reports.pictures import AGENTS, FORMATS, report_style, save_figure, study_styles
from fbo_flower.reports.selection import draw_models
from fbo_flower.reports.summary import (
    agent_curves,
    format_bytes,
    mean_and_stderr,
    result_rows,
    target_rows,
    traffic_cells,
)
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from fbo_flower.study.study import Study

PICTURE, TRAFFIC = "report.png", "traffic.png"
AXES = ("evaluations", "time")  # what best values are drawn against
MAX_LINES = 100  # agents that get a line each; of more, quantiles are drawn
WIDTH = 10.0  # inches of a picture, so that its text is readable on a page
_MAX_CHOICES = 12  # labels on an axis
_MAX_SLICES = 6
_MAX_BEST = 5  # rows of the table of best configurations
_LINE_HEIGHT = 0.18  # inches of a table's row
_FAR_APART = 20.0  # totals with a larger ratio get a logarithmic axis
_FEW_ROUNDS = 40  # up to this many rounds, each gets a dot
_HOW_TO_DISCLOSE = 'set disclose = "trials" in the node_config of the agents that may show them.'


@dataclass(frozen=True)
class Detail:
    """How much a drawing holds.

    Parameters
    ----------
    names : characters after which a name beside a line is cut; 0: it is not
    points : of a line; bandits make 10^5 evaluations
    dots : trials of an algorithm in a slice
    lines_of : agents that have a line also where there are more than `MAX_LINES`, for a page to show and hide
    """

    names: int = 0
    points: int = 1000
    dots: int = 3000
    lines_of: frozenset[str] | None = None


# -- whole pictures ---------------------------------------------------------------------------------------


def draw(study: Study, path: Path, x: str = "evaluations") -> str:
    """Draw the study, and its traffic if bytes were counted.

    If that fails, return the reason instead of an error, because the data matter more. For `x` see `figure`.
    """
    traffic = traffic_path(path)
    try:
        save_figure(figure(study, x=x), path, dpi=200)
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
    if x not in AXES:
        raise ConfigError(f"--x: expected {' or '.join(AXES)}, got {x!r}")
    if x == "time" and len(study.models):
        raise ConfigError("--x time: expected a study of best values, got one that selected models")
    missing = [name for name in study.algorithms if not len(study.times.where(algorithm=name))]
    if x == "time" and missing:
        raise ConfigError(
            f"--x time: expected times of trials, got none of {', '.join(missing)}; agents send them with "
            f"their trials: {_HOW_TO_DISCLOSE}"
        )


@report_style()
def figure(study: Study, *, title: str | None = None, x: str = "evaluations") -> Figure:
    """Draw what a study found and return the figure, which the caller may change.

    Parameters
    ----------
    title : None: the problem, the metric and the number of agents
    x : "evaluations", or "time": best values as steps against seconds, also where the optimum is known

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

    chosen, why = study_axes(study) if len(study.recommendations) else [], "each parameter"
    if len(chosen) > _MAX_SLICES:
        chosen, why = most_important(chosen, study_importance(study), _MAX_SLICES)
    num_best = min(len(ranked(study)), _MAX_BEST)
    outputs = has_outputs(study)
    heights = [3.5, 2.5 * -(-len(chosen) // 3) if chosen else 0.01 if outputs else 0.7]
    heights += [0.5 + 2.3 * rows_of_axes(study)] if outputs else []
    heights += [0.55 + _LINE_HEIGHT * (num_best + 1)] if num_best else []
    known = study.rounds["mean_incumbent"], study.recommendations["value"], study.regret["simple"]
    if not any(np.isfinite(values).any() for values in (study.trials["value"], *known)):
        heights = [1.4]  # a message instead of all the rest
    drawing = Figure(figsize=(WIDTH, sum(heights)))
    parts = drawing.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).ravel()
    if x == "evaluations" and len(study.regret):
        _draw_regret(parts[0].subplots(1, 2), study, styles)
    else:
        draw_curves(parts[0].subplots(), study, styles, x)
    if len(heights) > 1 and chosen:
        _draw_slices(parts[1], study, chosen, why, styles)
    elif len(heights) > 1 and not outputs:
        draw_message(
            parts[1].subplots(), f"No configurations were disclosed; to see them, {_HOW_TO_DISCLOSE}"
        )
    if outputs and len(heights) > 1:
        draw_all(parts[2], study, styles, named_agents(study))
    if num_best:
        cells = best_cells(study, _MAX_BEST) | {
            axis.name: [_cell(found["config"].get(axis.name, "-")) for _, found in ranked(study)[:_MAX_BEST]]
            for axis in chosen
        }
        hidden = len(ranked(study)) - num_best
        note = f"; the other {hidden} are in best.json" if hidden else ""
        order = "smallest" if study.any_minimizes else "largest"
        heading = f"Best configuration of each agent, {order} values first{note}"
        draw_table(parts[-1].subplots(), cells, heading)
    _write_title(parts[0], title)
    return drawing


def ranked(study: Study) -> list[tuple[str, dict[str, Any]]]:
    """Return the agents and their entries of `study.best`, the best values first."""
    if len(study.objectives) > 1:
        return []
    return sorted(study.best.items(), key=lambda item: item[1]["value"], reverse=not study.any_minimizes)


def best_cells(study: Study, limit: int) -> dict[str, Sequence[str]]:
    """Return a table's columns: the agents with the best values, their values, and by which algorithm."""
    best = ranked(study)[:limit]
    cells = {"agent": [agent for agent, _ in best], "value": [f"{found['value']:.6g}" for _, found in best]}
    for name in dict.fromkeys(name for _, found in best for name in found.get("outputs", {})):
        cells[name] = [_cell(found.get("outputs", {}).get(name, "-")) for _, found in best]
    if len(study.algorithms) > 1:
        cells["algorithm"] = [found["algorithm"] for _, found in best]
    return dict(cells)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_title(drawing: Figure | SubFigure, title: str) -> None:
    drawing.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")


def study_title(study: Study) -> str:
    """Return problem or app, metric if known, number of agents, and how many of them have a value."""
    (name, agents), metric = _name_and_agents(study), metric_of(study)
    parts = [f"{name}: {metric}" if name and metric else name or metric, agents, _with_value(study)]
    return _joined(parts)


def metric_of(study: Study) -> str:
    """Return the name of the metric if all runs have the same, else an empty text."""
    metrics = {str(run["metric"]) for run in study.settings["runs"] if run.get("metric")}
    return metrics.pop() if len(metrics) == 1 else ""


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


# -- curves -----------------------------------------------------------------------------------------------


def named_agents(study: Study) -> dict[str, str]:
    """Return a colour for each agent of a study of one algorithm; none if they are too many for names."""
    tables = study.trials, study.recommendations
    agents = sorted({agent for table in tables for agent in table["agent"].tolist()}, key=natural_order)
    few = len(study.algorithms) == 1 and 1 < len(agents) <= len(AGENTS)
    return dict(zip(agents, AGENTS, strict=False)) if few else {}


def draw_curves(
    ax: Axes,
    study: Study,
    styles: Mapping[str, Style],
    x: str = "evaluations",
    detail: Detail = Detail(),  # frozen
) -> None:
    """Draw the mean best value so far per algorithm; for one algorithm also its agents.

    Without disclosed trials the means that the server saw are drawn against rounds; without these, the axes
    say why there is nothing to draw.

    Parameters
    ----------
    x : one of `AXES`; over time, a value holds until the next one
    """
    lines, agents, x = _mean_lines(study, x, detail.points)
    if not lines:
        draw_message(ax, nothing_to_draw(study))
        return
    by_time, minimize = x == "time", study.any_minimizes
    num_initial = 0 if x == "rounds" else _initial_design(study)
    start = _end_of_initial_design(study) if by_time else num_initial
    named, colours = lines, dict(styles)
    if len(agents) > 1:
        ((name, (grid, mean, _)),) = lines.items()
        hues = named_agents(study)
        if hues:  # the mean is black, and beside it every agent has a colour and its name
            colours |= {agent: (hue, "-") for agent, hue in hues.items()} | {name: ("#000000", "-")}
            named = agents | lines
        draw_lines(ax, {name: (grid, mean, np.full(len(grid), np.nan))}, colours, steps=by_time)
        _draw_agents(ax, agents, hues, styles[name][0], steps=by_time, detail=detail)
        zoom(ax, agents.values(), start, minimize=minimize)
        if detail.lines_of is None:  # a page says it below the picture
            corner_note(ax, what_is_drawn(len(agents)), at_top=minimize)
    else:
        draw_lines(ax, lines, styles, steps=by_time)
        for agent in agents:
            ax.lines[0].set_gid(f"agent {quoted(agent)}")
        zoom(ax, lines.values(), start, minimize=minimize)
        _explain_bands(ax, lines, at_top=minimize)
    ax.set_ylabel(f"Best {shorten(metric_of(study)) or 'value'} so far")
    ax.yaxis.set_major_formatter("{x:g}")  # no exponent beside the axis, where the next label is
    ax.set_xlabel("Round" if x == "rounds" else "Evaluations per agent")
    if by_time:
        from matplotlib.ticker import MaxNLocator

        ax.set_xlim(left=0.0)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter("{x:,g}")
        ax.set_xlabel("Seconds since the first evaluation began; an agent counts from its first value")
    else:
        mark_initial_design(ax, num_initial)
    label_ends(ax, named, colours, detail.names)


def _mean_lines(study: Study, x: str, points: int) -> tuple[dict[str, Line], dict[str, Line], str]:
    """Return the mean of each algorithm that has one, the agents of a single one, and what x is."""
    lines: dict[str, Line] = {}
    agents: dict[str, Line] = {}
    for algorithm in study.algorithms:
        if x == "time":
            names, grid, own = best_by_time(study, algorithm, points)
        else:
            names, own = agent_curves(study, algorithm)
            shown = evenly(own.shape[1], points)
            grid, own = shown.astype(np.float64) + 1, own[:, shown]
        lines[algorithm] = (grid, *mean_and_stderr(own))
        if len(study.algorithms) == 1:
            known = np.asarray(np.isfinite(own).any(axis=1)).tolist()
            nothing = np.full(len(grid), np.nan)
            agents = {
                agent: (grid, curve, nothing) for agent, curve, k in zip(names, own, known, strict=True) if k
            }
    if x != "time" and not any(len(grid) for grid, _, _ in lines.values()):  # no trials disclosed
        x = "rounds"
        for algorithm in study.algorithms:
            rounds = study.rounds.where(algorithm=algorithm)
            mean = rounds["mean_incumbent"]
            lines[algorithm] = (rounds["round"].astype(float), mean, np.full(len(mean), np.nan))
    return {name: line for name, line in lines.items() if np.isfinite(line[1]).any()}, agents, x


def quoted(agent: str) -> str:
    """Return a name for a `gid`; `urllib.parse.unquote` undoes it. An agent may be called anything."""
    return quote(agent, safe="", errors="surrogatepass")


def what_is_drawn(num_agents: int) -> str:
    """Say in words what the lines are in the picture of one algorithm with so many agents."""
    few = num_agents <= MAX_LINES
    return f"bold: mean, faint: {'one agent each' if few else 'quantiles 10 to 90 % and 25 to 75 %, median'}"


def _draw_agents(
    ax: Axes, lines: Mapping[str, Line], hues: Mapping[str, str], colour: str, *, steps: bool, detail: Detail
) -> None:
    """Draw a thin line per agent or, of many agents, bands of quantiles."""
    thin: dict[str, Any] = {"drawstyle": "steps-post" if steps else "default", "zorder": 2}
    shown: Iterable[str] = lines
    if len(lines) > MAX_LINES:
        x, own = next(iter(lines.values()))[0], np.array([curve for _, curve, _ in lines.values()])
        columns = np.isfinite(own).any(axis=0)
        low, first, median, third, high = np.nanquantile(own[:, columns], (0.1, 0.25, 0.5, 0.75, 0.9), axis=0)
        draw_band(ax, x[columns], low, high, colour, steps=steps)
        draw_band(ax, x[columns], first, third, colour, steps=steps)
        ax.plot(x[columns], median, color=colour, linewidth=0.7, **thin)
        shown = [agent for agent in lines if agent in (detail.lines_of or ())]
    width, alpha = (1.1, 0.8) if hues else (0.7, 0.35)
    kind = "many" if len(lines) > MAX_LINES else "agent"
    for agent in shown:
        x, curve, _ = lines[agent]
        turns = curve[1:] != curve[:-1]  # points between two that are as high need not be drawn
        corners = np.r_[True, turns] | np.r_[turns, True]
        style: dict[str, Any] = {"color": hues.get(agent, colour), "linewidth": width, "alpha": alpha}
        ax.plot(x[corners], curve[corners], gid=f"{kind} {quoted(agent)}", **style, **thin)


def best_by_time(study: Study, algorithm: str, points: int = 1000) -> tuple[list[str], Array, Array]:
    """Return the target agents' best values so far on one grid of times, see `_held`.

    The times are seconds, at which a trial of any of the agents ended; agents are in the order of their
    trials.
    """
    times = study.times.where(algorithm=algorithm)
    origin = float(times["started"].min(initial=np.inf))
    seconds = {(row["agent"], row["trial"]): row["ended"] - origin for row in times}
    rows = [row for row in result_rows(study, algorithm) if (row["agent"], row["trial"]) in seconds]
    events = ((row["agent"], seconds[row["agent"], row["trial"]], row["value"]) for row in rows)
    return _held(events, points, np.fmin if study.minimizes(algorithm) else np.fmax)


def _held(
    events: Iterable[tuple[str, float, float]], points: int = 1000, better: np.ufunc | None = None
) -> tuple[list[str], Array, Array]:
    """Return agents' values on one grid; a value holds until the agent's next event.

    Parameters
    ----------
    events : agent, position and value
    better : `np.fmax` or `np.fmin`, which ignore NaN where they can: draw an agent's best value so far, to
        the end of the grid; None: draw its values, and NaN after its last event

    Returns
    -------
    agents : in the order of their first events
    grid : `(num_points,)`, ascending positions of events
    curves : `(n, num_points)`; NaN before an agent's first value
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for agent, x, value in events:
        found.setdefault(agent, []).append((x, value))
    grid = np.unique([x for own in found.values() for x, _ in own])
    grid = grid[evenly(len(grid), points)]
    curves = np.empty((len(found), len(grid)))
    for curve, own in zip(curves, found.values(), strict=True):
        at, values = np.array(sorted(own), dtype=np.float64).T
        values = np.concatenate([[np.nan], values if better is None else better.accumulate(values)])
        curve[:] = values[np.searchsorted(at, grid, side="right")]
        if better is None:
            curve[grid > at[-1]] = np.nan
    return list(found), grid, curves


def _explain_bands(ax: Axes, lines: Mapping[str, Line], *, at_top: bool) -> None:
    if any(np.isfinite(stderr).any() for _, _, stderr in lines.values()):
        corner_note(ax, "mean over agents ± 1 s.e.", at_top=at_top)


def _initial_design(study: Study) -> int:
    """Return the size of the initial design if it is the same in all runs, else 0."""
    sizes = {int(run.get("num_initial") or 0) for run in study.settings["runs"]}
    return sizes.pop() if len(sizes) == 1 else 0


def _end_of_initial_design(study: Study) -> float:
    """Return when the median agent of the fastest algorithm has ended its initial design; 0 without one."""
    number, ends = _initial_design(study), [np.inf]
    for algorithm in study.algorithms if number else ():
        times = study.times.where(algorithm=algorithm)
        groups = [np.sort(times["ended"][times["agent"] == agent]) for agent in set(times["agent"].tolist())]
        middle = np.median([own[min(number, len(own)) - 1] for own in groups])
        ends.append(float(middle - times["started"].min()))
    return min(ends) if number else 0.0


def nothing_to_draw(study: Study) -> str:
    """Return why a study has no curve of values, and what to do."""
    reasons = Counter(" ".join(text.split()) for text in study.trials["failure"].tolist())
    if len(study.trials):
        reason = reasons.most_common(1)[0][0] or "no reason was given"
        return f"All {len(study.trials)} disclosed evaluations failed. Most common reason: {reason}"
    if not len(study.rounds):
        return "The study has no finished round."
    return (
        "The agents disclosed no values: nothing is wrong, they keep them on their devices.\n"
        'To see a curve here, set disclose = "incumbent" or "trials" in the node_config of the agents that\n'
        "may show them."
    )


def _draw_regret(axes: Sequence[Axes], study: Study, styles: Mapping[str, Style]) -> None:
    """Draw simple regret on a logarithmic axis and cumulative regret, means with bands of one s.e."""
    for ax, column in zip(axes, ("simple", "cumulative"), strict=True):
        name = f"{column.capitalize()} regret"
        lines: dict[str, Line] = {}
        for algorithm in study.algorithms:
            rows = target_rows(study, study.regret, algorithm)
            if np.isfinite(rows[column]).any():
                _, x, curves = _held((row["agent"], row["evaluations"], row[column]) for row in rows)
                lines[algorithm] = (x, *mean_and_stderr(curves))
        if not lines:
            raise ConfigError(f"figure: expected known values of {name.lower()}, got only NaN")
        if column == "simple":
            lines = scale_regret(ax, lines)
        draw_lines(ax, lines, styles)
        _explain_bands(ax, lines, at_top=column == "simple")
        ax.set_xlabel("Evaluations per agent")
        ax.set_ylabel(name)
        mark_initial_design(ax, _initial_design(study))
        label_ends(ax, lines, styles)


# -- slices -----------------------------------------------------------------------------------------------


def _draw_slices(
    part: SubFigure, study: Study, chosen: list[Axis], why: str, styles: Mapping[str, Style]
) -> None:
    columns = min(len(chosen), 3) if len(chosen) != 4 else 2
    axes = part.subplots(-(-len(chosen) // columns), columns, squeeze=False, sharey=True).ravel()
    for ax, axis in zip(axes, chosen, strict=False):
        draw_slice(ax, study, axis, styles)
    for ax in set(axes) - set(axes[::columns]):
        ax.set_ylabel("")
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    axes[0].set_title(f"Value against {why}")
    hidden = shown_values(study)[2]
    worse = f"; {hidden} {'higher' if study.any_minimizes else 'lower'} values not shown" if hidden else ""
    axes[columns - 1].set_title(f"ringed: best of each agent{worse}", loc="right", **SMALL)


def shown_values(study: Study) -> tuple[float, float, int]:
    """Return the limits of the axis of disclosed values, and how many are so bad that they lie outside."""
    disclosed = np.concatenate([study.trials["value"], study.recommendations["value"]])
    return value_limits(disclosed, minimize=study.any_minimizes)


def draw_slice(
    ax: Axes,
    study: Study,
    axis: Axis,
    styles: Mapping[str, Style],
    detail: Detail = Detail(),  # frozen
) -> None:
    """Draw values against a parameter: dots are trials, ringed dots each agent's best configuration.

    Of one algorithm with few agents the dots have the colours of the agents' lines. The range of the axis is
    that of the dots; whole numbers have whole marks.
    """
    from matplotlib.ticker import MaxNLocator

    dress(ax)
    if axis.log:
        use_logarithm(ax.set_xscale, ax.xaxis, whole=axis.whole)
    elif axis.choices is not None:
        _name_choices(ax, axis.choices)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=axis.whole, min_n_ticks=1))
        ax.xaxis.set_major_formatter("{x:g}")
    low, high, _ = shown_values(study)
    hues, count = named_agents(study), len(study.algorithms)
    ring: dict[str, Any] = {"s": 20, "edgecolors": "k", "linewidths": 0.8, "zorder": 3}
    dot: dict[str, Any] = {"s": 12 if hues else 9, "alpha": 0.7 if hues else 0.35, "linewidths": 0}
    dot["rasterized"] = detail.lines_of is None
    for kind, table, look in (("trials", study.trials, dot), ("best", study.recommendations, ring)):
        place = axis.positions(table["config"].tolist())
        drawn = np.isfinite(place) & (table["value"] >= low) & (table["value"] <= high)
        for number, name in enumerate(study.algorithms):
            rows = sampled(drawn & (table["algorithm"] == name), detail.dots)
            x = place[rows]
            if axis.choices is not None:  # beside those of the other algorithms, and a little apart
                jitter = (rows + 1) * 0.6180339887498949 % 1.0 - 0.5  # looks random, always the same
                x = x + 0.7 * ((number + 0.5) / count - 0.5) + jitter * 0.6 / count
            owners = table["agent"][rows]
            for owner, colour in hues.items() if hues else [("", styles[name][0])]:
                own = (owners == owner) if hues else np.ones(len(rows), dtype=bool)
                if own.any():
                    gid = f"{kind} {' '.join(map(str, rows[own].tolist()))}"
                    ax.scatter(x[own], table["value"][rows[own]], color=colour, gid=gid, **look)
    ax.yaxis.set_major_formatter("{x:g}")
    condition = f" (if {axis.condition})" if axis.condition else ""
    ax.set_xlabel(shorten(f"{axis.name}{condition}"))
    ax.set_ylabel((shorten(metric_of(study)) or "value").capitalize())
    ax.set_ylim(low, high)


def sampled(mask: BoolArray, most: int) -> IntArray:
    """Return the numbers of the rows that a mask selects, evenly chosen if they are more than `most`."""
    rows = np.flatnonzero(mask)
    return rows[evenly(len(rows), most)]


def _name_choices(ax: Axes, choices: Sequence[object]) -> None:
    shown = range(0, len(choices), -(-len(choices) // _MAX_CHOICES))
    labels = [shorten(str(choices[number]), 12) for number in shown]
    crowded = sum(map(len, labels)) > 24
    ax.set_xticks(list(shown), labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    ax.set_xlim(-0.5, len(choices) - 0.5)


# -- what was sent ----------------------------------------------------------------------------------------


def has_traffic(study: Study) -> bool:
    """Return whether any bytes were counted."""
    return bool((study.rounds["bytes_down"] + study.rounds["bytes_up"]).sum() > 0)


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
    usual = _joined([name, f"{agents}: traffic and privacy".removeprefix(": ")])
    _write_title(above, usual if title is None else title)
    return drawing


def sent_by_round(study: Study, unit: str) -> tuple[dict[str, Line], str]:
    """Return what all agents together have sent and received by the end of each round.

    Parameters
    ----------
    unit : "bytes" or "floats"

    Returns
    -------
    lines : algorithm -> rounds, totals, and NaN as standard error (a count has none)
    note : the algorithms without a line, and why
    """
    lines: dict[str, Line] = {}
    missing: dict[str, list[str]] = {}
    for algorithm in study.algorithms:
        rounds = study.rounds.where(algorithm=algorithm)
        total = np.cumsum(rounds[f"{unit}_down"] + rounds[f"{unit}_up"]).astype(np.float64)
        if not len(total) or not np.isfinite(total).all():
            missing.setdefault("not counted", []).append(algorithm)
        elif total[-1] == 0:
            missing.setdefault("nothing exchanged", []).append(algorithm)
        else:
            lines[algorithm] = (rounds["round"].astype(np.float64), total, np.full(len(total), np.nan))
    return lines, "; ".join(f"{why}: {', '.join(names)}" for why, names in missing.items())


def draw_sent(
    ax: Axes, study: Study, styles: Mapping[str, Style], unit: str, detail: Detail = Detail()
) -> None:
    """Draw `sent_by_round`; at least one algorithm must have sent something."""
    lines, note = sent_by_round(study, unit)
    totals = [float(total[-1]) for _, total, _ in lines.values()]
    logarithmic = max(totals) > _FAR_APART * min(totals)
    if logarithmic:
        use_logarithm(ax.set_yscale, ax.yaxis)
        lines = {name: (x, np.where(y > 0, y, np.nan), error) for name, (x, y, error) in lines.items()}
    draw_lines(ax, lines, styles)
    for line in ax.lines:
        if len(np.asarray(line.get_xdata())) <= _FEW_ROUNDS:
            line.set(marker="o", markersize=3, clip_on=False)
    if not logarithmic:
        ax.set_ylim(0, 1.08 * max(totals))
    show: Any = (lambda x, _: format_bytes(x)) if unit == "bytes" else "{x:,.0f}"
    ax.yaxis.set_major_formatter(show)
    ax.set_xlabel("Round")
    ax.set_ylabel(f"{'Numbers' if unit == 'floats' else 'Bytes'} exchanged, all agents")
    shown = textwrap.fill(note, 48, break_on_hyphens=False)
    ax.text(0.0, 1.01, shown, transform=ax.transAxes, ha="left", va="bottom", **SMALL)
    label_ends(ax, lines, styles, detail.names)
