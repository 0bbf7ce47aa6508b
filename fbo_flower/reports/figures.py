"""Draw a study as two pictures: `figure` shows what was found, `traffic_figure` what it cost.

The first has the best values so far, values against the parameters that matter most, and the agents' best
configurations. With one algorithm there is a faint line per agent, or bands of quantiles of many agents, and
their mean. With several, there is one line per algorithm, the mean over agents, with a band of one standard
error to either side. If the optimum is known, the figure shows simple regret (logarithmic) and cumulative
regret instead of best values; otherwise the axis starts near the end of the initial design, whose values are
often very low. What agents did not disclose is missing, and the picture says so.

Best values can also be drawn against time: seconds since the first evaluation of a run began, by the
simulated clock if the run had one, otherwise by the clocks of the agents. Only trials with a disclosed time
count. An agent's value changes when a trial ends and holds until its next better one, to the end of the run.
An agent counts from the end of its first trial with a value; before that, the mean is over the other agents.

If models were exchanged, the first picture has the fronts in the losses that the search has seen, the shipped
models' losses on other rows and, of several contestants, win matrices.

The second has the floats exchanged by round, bytes per agent and round, and what left the agents.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray
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
    explain_bands,
    label_ends,
    mark_initial_design,
    scale_regret,
    shorten,
    use_logarithm,
    value_limits,
    zoom,
)
from fbo_flower.reports.importance import Axis, most_important, study_axes, study_importance
from fbo_flower.reports.pictures import report_style
from fbo_flower.reports.selection import OUTBAG, PROTOCOLS, selections, volume_matrix, win_matrix
from fbo_flower.reports.styles import study_styles
from fbo_flower.reports.summary import agent_curves, mean_and_stderr, summarise, target_rows
from fbo_flower.reports.summary_table import format_bytes
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PICTURE, TRAFFIC = "report.png", "traffic.png"
AXES = ("evaluations", "time")  # what best values are drawn against
FORMATS = (".pdf", ".png", ".svg")
MAX_LINES = 100  # agents that get a line each; of more, quantiles are drawn
WIDTH = 10.0  # inches of a picture, so that its text is readable on a page
_MAX_POINTS = 1000  # points of a line; bandits make 10^5 evaluations
_MAX_DOTS = 3000  # per algorithm; bandits have 10^5 trials
_MAX_CHOICES = 12  # labels on an axis
_MAX_SLICES = 6
_MAX_BEST = 5  # rows of the table of best configurations
_LINE_HEIGHT = 0.18  # inches of a table's row
_FAR_APART = 20.0  # totals with a larger ratio get a logarithmic axis
_FEW_ROUNDS = 40  # up to this many rounds, each gets a dot
_HOW_TO_DISCLOSE = 'set disclose = "trials" in the node_config of the agents that may show them.'
_PLACES = ("openbox\n(trains)", "curators\n(judge)", "lockbox\n(held out)")


# -- files ------------------------------------------------------------------------------------------------


def plot_study(
    study: Study, path: str | os.PathLike[str], *, title: str | None = None, x: str = "evaluations"
) -> None:
    """Draw what a study found and write the picture; an error leaves no partial file.

    Parameters
    ----------
    study : with at least one run
    path : ends in .png, .pdf or .svg
    title : None: the problem, the metric and the number of agents
    x : one of `AXES`: what best values are drawn against

    Raises
    ------
    ConfigError
        If matplotlib is not installed, times are wanted and unknown, or the file cannot be written.
    """
    _write(path, lambda: figure(study, title=title, x=x))


def plot_traffic(study: Study, path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Draw what a study sent and write the picture; parameters and errors are those of `plot_study`."""
    _write(path, lambda: traffic_figure(study, title=title))


def _write(path: str | os.PathLike[str], make: Callable[[], Figure]) -> None:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(FORMATS)}, got {suffix!r}")
    picture = io.BytesIO()
    make().savefig(picture, format=suffix[1:], dpi=200)
    with atomic_file(path) as file:
        file.write(picture.getvalue())


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


# -- what was found ---------------------------------------------------------------------------------------


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
        _draw_selections(drawing, study, styles)
        _write_title(drawing, title)
        return drawing

    chosen, why = study_axes(study) if len(study.recommendations) else [], "each parameter"
    if len(chosen) > _MAX_SLICES:
        chosen, why = most_important(chosen, study_importance(study), _MAX_SLICES)
    num_best = min(len(study.best), _MAX_BEST)
    heights = [3.5, 2.5 * -(-len(chosen) // 3) if chosen else 0.7]
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
    if len(heights) == 1:
        pass  # the curves' axes have said why there is nothing to draw
    elif chosen:
        _draw_slices(parts[1], study, chosen, why, styles)
    else:
        draw_message(
            parts[1].subplots(), f"No configurations were disclosed; to see them, {_HOW_TO_DISCLOSE}"
        )
    if num_best:
        _draw_best(parts[2].subplots(), study, chosen, _MAX_BEST)
    _write_title(parts[0], title)
    return drawing


def _write_title(drawing: Figure | SubFigure, title: str) -> None:
    drawing.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")


def study_title(study: Study) -> str:
    """Return problem or app, metric if known, number of agents, and how many of them have a value."""
    name, metric, agents = _name(study), metric_of(study), _num_agents(study)
    parts = [f"{name}: {metric}" if name and metric else name or metric, _agents(agents)]
    if len(agents) == 1 and not len(study.models):
        parts.append(_with_value(study, agents[0]))
    return _joined(parts)


def metric_of(study: Study) -> str:
    """Return the name of the metric if all runs have the same, else an empty text."""
    metrics = {str(run["metric"]) for run in study.settings["runs"] if run.get("metric")}
    return metrics.pop() if len(metrics) == 1 else ""


def _joined(parts: list[str]) -> str:
    return textwrap.fill(", ".join(part for part in parts if part), 88)  # characters of a bold line


def _name(study: Study) -> str:
    problems = dict.fromkeys(str(run["problem"]) for run in study.settings["runs"] if run.get("problem"))
    return ", ".join(problems) or str(study.settings.get("name", ""))


def _num_agents(study: Study) -> list[int]:
    runs = study.settings["runs"]
    return list(dict.fromkeys(int(run["num_agents"]) for run in runs if run.get("num_agents")))


def _agents(numbers: list[int]) -> str:
    if not numbers:
        return ""
    return f"{' or '.join(map(str, numbers))} agent{'' if numbers == [1] else 's'}"


def _with_value(study: Study, num_agents: int) -> str:
    counts = []
    for algorithm in study.algorithms:
        tables = [table.where(algorithm=algorithm) for table in (study.trials, study.recommendations)]
        counts.append(len({a for rows in tables for a in rows["agent"][np.isfinite(rows["value"])].tolist()}))
    if not any(counts):
        return "" if np.isfinite(study.rounds["mean_incumbent"]).any() else "no value disclosed"
    low, high = min(counts), max(counts)
    if low == high == num_agents:
        return "all with a value" if num_agents > 1 else ""
    return f"{low if low == high else f'{low} to {high}'} with a value"


def draw_curves(
    ax: Axes, study: Study, styles: Mapping[str, Style], x: str = "evaluations", width: int = 0
) -> None:
    """Draw the mean best value so far per algorithm; for one algorithm also its agents.

    Without disclosed trials the means that the server saw are drawn against rounds; without these, the axes
    say why there is nothing to draw.

    Parameters
    ----------
    x : one of `AXES`; over time, a value holds until the next one
    width : characters after which a label is cut; 0: it is not
    """
    by_time = x == "time"
    lines: dict[str, Line] = {}
    agents, own = list[str](), np.empty((0, 0))
    for algorithm in study.algorithms:
        if by_time:
            agents, grid, own = best_by_time(study, algorithm)
        else:
            agents, own = agent_curves(study, algorithm)
            points = evenly(own.shape[1], _MAX_POINTS)
            grid, own = points.astype(np.float64) + 1, own[:, points]
        lines[algorithm] = (grid, *mean_and_stderr(own))
    by_round = not by_time and not any(len(grid) for grid, _, _ in lines.values())
    if by_round:  # no trials disclosed
        for algorithm in study.algorithms:
            rounds = study.rounds.where(algorithm=algorithm)
            mean = rounds["mean_incumbent"]
            lines[algorithm] = (rounds["round"].astype(float), mean, np.full(len(mean), np.nan))
    lines = {name: line for name, line in lines.items() if np.isfinite(line[1]).any()}
    if not lines:
        draw_message(ax, nothing_to_draw(study))
        return
    minimize = study.any_minimizes
    num_initial = 0 if by_round else _initial_design(study)
    start = _end_of_initial_design(study) if by_time else num_initial
    known = np.asarray(np.isfinite(own).any(axis=1))
    if len(study.algorithms) == 1 and known.sum() > 1:
        names = [agent for agent, is_known in zip(agents, known.tolist(), strict=True) if is_known]
        _draw_agents(ax, names, own[known], lines, styles, by_time)
        nothing = np.full(own.shape[1], np.nan)
        (grid, _, _), *_ = lines.values()
        curves: dict[str, Line] = {str(k): (grid, curve, nothing) for k, curve in enumerate(own[known])}
        zoom(ax, curves, start, minimize=minimize)
        what = "one agent each" if len(names) <= MAX_LINES else "quantiles 10 to 90 % and 25 to 75 %, median"
        corner_note(ax, f"bold: mean, faint: {what}", at_top=minimize)
    else:
        draw_lines(ax, lines, styles, steps=by_time)
        zoom(ax, lines, start, minimize=minimize)
        explain_bands(ax, lines, at_top=minimize)
    ax.set_ylabel(f"Best {shorten(metric_of(study)) or 'value'} so far")
    ax.yaxis.set_major_formatter("{x:g}")  # no exponent beside the axis, where the next label is
    ax.set_xlabel("Round" if by_round else "Evaluations per agent")
    if by_time:
        from matplotlib.ticker import MaxNLocator

        ax.set_xlim(left=0.0)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter("{x:,g}")
        ax.set_xlabel("Seconds since the first evaluation began; an agent counts from its first value")
    else:
        mark_initial_design(ax, num_initial)
    label_ends(ax, lines, styles, width)


def _draw_agents(
    ax: Axes, agents: list[str], own: Array, lines: dict[str, Line], styles: Mapping[str, Style], steps: bool
) -> None:
    """Draw the mean of one algorithm, and a faint line per agent or, of many, bands of quantiles."""
    ((name, (x, mean, _)),) = lines.items()
    colour = styles[name][0]
    draw_lines(ax, {name: (x, mean, np.full(len(x), np.nan))}, styles, steps=steps)
    thin: dict[str, Any] = {"color": colour, "drawstyle": "steps-post" if steps else "default", "zorder": 2}
    if len(agents) > MAX_LINES:
        columns = np.isfinite(own).any(axis=0)
        low, first, median, third, high = np.nanquantile(own[:, columns], (0.1, 0.25, 0.5, 0.75, 0.9), axis=0)
        draw_band(ax, x[columns], low, high, colour, steps=steps)
        draw_band(ax, x[columns], first, third, colour, steps=steps)
        ax.plot(x[columns], median, linewidth=0.7, **thin)
        return
    for agent, curve in zip(agents, own, strict=True):
        ax.plot(x, curve, linewidth=0.7, alpha=0.35, gid=f"agent {agent}", **thin)


def best_by_time(study: Study, algorithm: str) -> tuple[list[str], Array, Array]:
    """Return the target agents' best values so far on one grid of times, see `_held`.

    The times are seconds, at which a trial of any of the agents ended; agents are in the order of their
    trials.
    """
    times = study.times.where(algorithm=algorithm)
    origin = float(times["started"].min(initial=np.inf))
    seconds = {(row["agent"], row["trial"]): row["ended"] - origin for row in times}
    rows = [
        row for row in target_rows(study, study.trials, algorithm) if (row["agent"], row["trial"]) in seconds
    ]
    events = ((row["agent"], seconds[row["agent"], row["trial"]], row["value"]) for row in rows)
    return _held(events, np.fmin if study.minimizes(algorithm) else np.fmax)


def _held(
    events: Iterable[tuple[str, float, float]], better: np.ufunc | None = None
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
    grid = grid[evenly(len(grid), _MAX_POINTS)]
    curves = np.empty((len(found), len(grid)))
    for curve, own in zip(curves, found.values(), strict=True):
        at, values = np.array(sorted(own), dtype=np.float64).T
        values = np.concatenate([[np.nan], values if better is None else better.accumulate(values)])
        curve[:] = values[np.searchsorted(at, grid, side="right")]
        if better is None:
            curve[grid > at[-1]] = np.nan
    return list(found), grid, curves


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
        explain_bands(ax, lines, at_top=column == "simple")
        ax.set_xlabel("Evaluations per agent")
        ax.set_ylabel(name)
        mark_initial_design(ax, _initial_design(study))
        label_ends(ax, lines, styles)


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
    ax: Axes, study: Study, axis: Axis, styles: Mapping[str, Style], most: int = _MAX_DOTS
) -> None:
    """Draw values against a parameter: dots are trials, ringed dots each agent's best configuration.

    Parameters
    ----------
    most : the largest number of dots per algorithm, evenly chosen; the default number is drawn as one bitmap
    """
    from matplotlib.ticker import MaxNLocator

    count = len(study.algorithms)
    for number, name in enumerate(study.algorithms):
        trials = study.trials.where(algorithm=name)
        trials = trials.take(np.isfinite(trials["value"]))
        best = study.recommendations.where(algorithm=name)
        for rows, style in (
            (trials.take(evenly(len(trials), most)), {"s": 9, "alpha": 0.35, "linewidths": 0}),
            (
                best.take(evenly(len(best), most)),
                {"s": 20, "edgecolors": "k", "linewidths": 0.8, "zorder": 3},
            ),
        ):
            x = axis.positions(rows["config"].tolist())
            if axis.choices is not None:  # beside those of the other algorithms, and a little apart
                x = x + 0.7 * ((number + 0.5) / count - 0.5) + _jitter(len(x)) * 0.6 / count
            if len(rows):
                ax.scatter(x, rows["value"], color=styles[name][0], rasterized=most == _MAX_DOTS, **style)
    dress(ax)
    if axis.log:
        use_logarithm(ax.set_xscale, ax.xaxis)
    elif axis.choices is not None:
        _name_choices(ax, axis.choices)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=axis.integer is not None))
        ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    condition = f" (if {axis.condition})" if axis.condition else ""
    ax.set_xlabel(shorten(f"{axis.name}{condition}"))
    ax.set_ylabel((shorten(metric_of(study)) or "value").capitalize())
    ax.set_ylim(*shown_values(study)[:2])


def _name_choices(ax: Axes, choices: Sequence[object]) -> None:
    shown = range(0, len(choices), -(-len(choices) // _MAX_CHOICES))
    labels = [shorten(str(choices[number]), 12) for number in shown]
    crowded = sum(map(len, labels)) > 24
    ax.set_xticks(list(shown), labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    ax.set_xlim(-0.5, len(choices) - 0.5)


def _jitter(count: int) -> Array:
    """Return numbers in [-0.5, 0.5) that look random and are always the same."""
    numbers: Array = np.arange(1.0, count + 1) * 0.6180339887498949
    return numbers % 1.0 - 0.5


def _draw_best(ax: Axes, study: Study, axes: Sequence[Axis], limit: int) -> None:
    """Draw a table of the agents' best configurations, the best values first."""
    best = sorted(study.best.items(), key=lambda item: item[1]["value"], reverse=not study.any_minimizes)
    several = len(study.algorithms) > 1
    head = ["agent", "value", *(["algorithm"] if several else []), *(axis.name for axis in axes)]
    rows = [
        [agent, f"{found['value']:.4g}", *([found["algorithm"]] if several else [])]
        + [_cell(found["config"].get(axis.name, "-")) for axis in axes]
        for agent, found in best[:limit]
    ]
    hidden = len(best) - len(rows)
    note = f"; the other {hidden} are in best.json" if hidden > 0 else ""
    order = "smallest" if study.any_minimizes else "largest"
    draw_table(ax, head, rows, f"Best configuration of each agent, {order} values first{note}")


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# -- models that were selected ----------------------------------------------------------------------------


def _draw_selections(drawing: Figure, study: Study, styles: Mapping[str, Style]) -> None:
    rows = selections(study)
    losses = np.array([study.models["local_loss"], study.models["remote_loss"]]).T
    if not np.isfinite(losses).all(axis=1).any():
        raise ConfigError("figure: expected a study with judged models, got none")
    several = len({row.contestant for row in rows}) > 1
    widths = [4.4, 3.6] + [2.9, 2.9] * several
    drawing.set_size_inches(sum(widths) + 0.6, 4.2)
    axes = drawing.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    _draw_front(axes[0], study, styles)
    _zoom_to_fronts(axes[0], losses, study.models["on_front"] | study.models["shipped"])
    _draw_shipped(axes[1], study, styles)
    for ax, protocol in zip(axes[2:], PROTOCOLS, strict=False):
        names, volumes = volume_matrix(rows, protocol)
        _draw_wins(ax, names, win_matrix(volumes), protocol, len(volumes))


def _draw_front(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw all configurations as dots, the non-dominated ones as a staircase, the shipped one as a star."""
    for name in study.algorithms:
        rows = study.models.where(algorithm=name)
        losses = np.array([rows["local_loss"], rows["remote_loss"]]).T.reshape(-1, 2)
        known = np.isfinite(losses).all(axis=1)
        if not known.any():
            continue
        colour, line = styles[name]
        front, shipped = losses[known & rows["on_front"]], losses[known & rows["shipped"]]
        front = front[np.argsort(front[:, 0])]
        ax.scatter(losses[known, 0], losses[known, 1], s=12, color=colour, alpha=0.35, linewidths=0)
        shape: dict[str, Any] = {"color": colour, "linestyle": line, "linewidth": 1.6}
        ax.step(front[:, 0], front[:, 1], where="post", label=f"{name}: front of {len(front)}", **shape)
        ax.scatter(front[:, 0], front[:, 1], s=26, color=colour, zorder=3)
        ax.scatter(
            shipped[:, 0], shipped[:, 1], s=190, marker="*", color=colour, edgecolors="white", zorder=4
        )
    ax.set_xlabel("Cross-validated loss at the openbox, which trains")
    ax.set_ylabel("Loss at the curators, who judge")
    ax.set_title("Configurations; stars are shipped")
    ax.legend(frameon=False, fontsize=8, loc="upper right")


def _zoom_to_fronts(ax: Axes, losses: Array, chosen: BoolArray) -> None:
    """Limit the axes to the region of the fronts, since many configurations are as bad as a constant."""
    known = np.isfinite(losses).all(axis=1)
    front = losses[known & chosen]
    low, high = front.min(axis=0), front.max(axis=0)
    margin = np.maximum(high - low, 0.05)
    low, high = low - 0.2 * margin, np.minimum(high + margin, losses[known].max(axis=0) + 0.2 * margin)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    beyond = int((losses[known] > high).any(axis=1).sum())
    if beyond:
        corner_note(ax, f"{beyond} of {len(losses)} not shown", at_top=False)


def _draw_shipped(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw the shipped models' losses on rows unseen by the search, and those of the front as ticks."""
    names = [name for name in study.algorithms if len(study.models.where(algorithm=name))]
    for place, column in enumerate(OUTBAG):
        for number, name in enumerate(names):
            rows = study.models.where(algorithm=name)
            x = place + 0.7 * ((number + 0.5) / len(names) - 0.5)
            front, shipped = rows[column][rows["on_front"]], rows[column][rows["shipped"]]
            colour = styles[name][0]
            ax.scatter(np.full(len(front), x), front, marker="_", s=60, color=colour, alpha=0.6)
            ax.scatter(np.full(len(shipped), x), shipped, marker="*", s=110, color=colour, zorder=3)
    ax.set_xticks(range(len(OUTBAG)), _PLACES)
    ax.set_xlim(-0.5, len(OUTBAG) - 0.5)
    ax.set_ylim(bottom=0.0)
    ax.set_title("Loss on held-out rows")
    ax.set_xlabel("dashes: the models of the front", loc="left", **SMALL)


def _draw_wins(ax: Axes, names: list[str], wins: Array, protocol: str, replications: int) -> None:
    """Draw a win matrix: how often the contestant of the row beats that of the column."""
    ax.imshow(wins, vmin=-0.6, vmax=1.6, cmap="PRGn")  # pale enough for figures
    ax.spines[:].set_visible(True)
    for (i, j), share in np.ndenumerate(wins):
        if np.isfinite(share):
            ax.text(j, i, f"{share:.2f}", ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    runs = f"{replications} replication{'' if replications == 1 else 's'}"
    ax.set_title(f"Row beats column by volume,\n{protocol} protocol, {runs}", fontsize=9)


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
    styles = study_styles(study)
    head, *rows = _privacy_cells(study)
    heights = [max(3.4, 0.6 * len(study.algorithms) + 1.0), 0.55 + _LINE_HEIGHT * (len(rows) + 1)]
    drawing = Figure(figsize=(WIDTH, sum(heights)))
    above, below = drawing.subfigures(2, 1, height_ratios=heights, squeeze=False).ravel()
    floats = _floats_by_round(study)
    if any(total[-1] > 0 for _, total, _ in floats.values()):
        left, right = above.subplots(1, 2, width_ratios=[1.6, 1.0])
        _draw_floats(left, floats, study.algorithms, styles)
    else:
        right = above.subplots()
    _draw_bytes(right, study, styles)
    draw_table(below.subplots(), head, rows, "What left each agent")
    usual = _joined([_name(study), f"{_agents(_num_agents(study))}: traffic and privacy".removeprefix(": ")])
    _write_title(above, usual if title is None else title)
    return drawing


def _floats_by_round(study: Study) -> dict[str, Line]:
    """Return the floats that all agents together have sent and received until the end of each round.

    Returns
    -------
    algorithm -> rounds, floats, and NaN as standard error (a count has none), each `(num_rounds,)`. Floats
    are 0 if an algorithm exchanges nothing; algorithms whose floats were not counted are left out.
    """
    lines: dict[str, Line] = {}
    for algorithm in study.algorithms:
        rounds = study.rounds.where(algorithm=algorithm)
        total = np.cumsum(rounds["floats_down"] + rounds["floats_up"])
        if len(total) and np.isfinite(total).all():
            lines[algorithm] = (rounds["round"].astype(np.float64), total, np.full(len(total), np.nan))
    return lines


def _draw_floats(
    ax: Axes, known: dict[str, Line], algorithms: Sequence[str], styles: Mapping[str, Style]
) -> None:
    """Draw `_floats_by_round` and list the algorithms without a line; at least one must have sent floats."""
    lines = {name: line for name, line in known.items() if line[1][-1] > 0}
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
        ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("Round")
    ax.set_ylabel("Floats exchanged, all agents")
    notes = {
        "nothing exchanged": [name for name, line in known.items() if line[1][-1] == 0],
        "not counted": [name for name in algorithms if name not in known],
    }
    texts = [f"{note}: {', '.join(names)}" for note, names in notes.items() if names]
    shown = "\n".join(textwrap.fill(text, 64, break_on_hyphens=False) for text in texts)
    ax.text(0.0, 1.01, shown, transform=ax.transAxes, ha="left", va="bottom", **SMALL)
    label_ends(ax, lines, styles)


def _draw_bytes(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw bytes per agent and round as bars."""
    rows = summarise(study)
    names = [row.algorithm for row in rows]
    down, up = np.nan_to_num([(row.bytes_down, row.bytes_up) for row in rows]).T
    place, colours = np.arange(len(names)), [styles[name][0] for name in names]
    ax.barh(place, down, color=colours, height=0.5)
    ax.barh(place, up, left=down, color=colours, alpha=0.4, height=0.5)
    for y, name, total in zip(place.tolist(), names, (down + up).tolist(), strict=True):
        ax.text(0, y - 0.3, shorten(name), color=styles[name][0], fontsize=9, fontweight="bold")
        ax.text(total, y, f" {format_bytes(total)}", va="center", fontsize=9)
    ax.set_ylim(max(len(names), 3) - 0.4, -0.7)
    ax.set_xlim(0, 1.35 * max((down + up).max(), 1.0))
    ax.set_title("Bytes per agent and round")
    ax.set_xlabel("full: to the agent, light: from it", loc="left", **SMALL)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _privacy_cells(study: Study) -> list[list[str]]:
    """Return the table that says what left each agent: its head, and a row per algorithm."""
    rows = [["algorithm", "numbers sent", "bytes sent", "trials disclosed", "differential privacy"]]
    for algorithm in study.algorithms:
        run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
        trials = study.trials.where(algorithm=algorithm)
        num_agents = int(run.get("num_agents") or len(set(trials["agent"].tolist())) or 1)
        floats, sent = (float(rounds[f"{what}_up"].sum()) / num_agents for what in ("floats", "bytes"))
        counted = "not counted" if np.isnan(floats) else f"{floats:,.0f}"
        shown = f"{len(trials) / num_agents:.3g}" if len(trials) else "none"
        rows.append([algorithm, counted, format_bytes(sent), shown, _epsilon(study, algorithm)])
    return rows


def _epsilon(study: Study, algorithm: str) -> str:
    privacy = study.run(algorithm).get("privacy")
    spent = privacy.get("epsilon") if isinstance(privacy, Mapping) else None
    if spent is None:  # the noise of sites that judge models
        spent = float(np.max(study.judgements.where(algorithm=algorithm)["epsilon"], initial=0.0))
    return f"epsilon {spent:.3g}" if spent else "none"
