"""Draw the value at each agent's best so far, and regret where the optimum is known.

Where an agent's model finds noise, this is what was measured at the configuration that was best by its mean
then, see `Study.best`. So the line may fall, and it ends at the value of `best.json`.

With one algorithm there is a line per agent, named if the agents are few, or bands of quantiles of many
agents, and their mean. With several, there is one line per algorithm, the mean over agents, with a band of
one standard error to either side. The axis starts near the end of the initial design, whose values are often
very low. What agents did not disclose is missing, and the picture says so.

Against time, x is seconds since the first evaluation of a run began, by the simulated clock if the run had
one, otherwise by the clocks of the agents. Only trials with a disclosed time count. An agent's value changes
when a trial ends and holds until its next better one, to the end of the run. An agent counts from the end of
its first trial with a value; before that, the mean is over the other agents.

The HTML page is made of the same drawings. In their SVG, a group's `gid` says what is in it: `agent NAME` is
the line of an agent, and `many NAME` one that is shown only if some agents are chosen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics import finite
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports import pictures
from fbo_flower.reports.pictures import Line, Style
from fbo_flower.reports.summary import agent_curves, result_rows, target_rows
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fbo_flower.study.study import Study

_QUANTILES = 0.1, 0.25, 0.5, 0.75, 0.9
MAX_LINES = 100  # agents that get a line each; of more, quantiles are drawn


@dataclass(frozen=True)
class Detail:
    """How much a drawing holds.

    Parameters
    ----------
    names : characters after which a name beside a line is cut; 0: it is not
    points : of a line; bandits make 10^5 evaluations
    lines_of : agents that have a line also where there are more than `MAX_LINES`, for a page to show and hide
    """

    names: int = 0
    points: int = 1000
    lines_of: frozenset[str] | None = None


def metric_of(study: Study) -> str:
    """Return the name of the metric if all runs have the same, else an empty text."""
    metrics = {str(run["metric"]) for run in study.settings["runs"] if run.get("metric")}
    return metrics.pop() if len(metrics) == 1 else ""


def named_agents(study: Study) -> dict[str, str]:
    """Return a colour for each agent of a study of one algorithm; none if they are too many for names."""
    tables = study.trials, study.recommendations
    agents = sorted({agent for table in tables for agent in table["agent"].tolist()}, key=natural_order)
    few = len(study.algorithms) == 1 and 1 < len(agents) <= len(pictures.AGENTS)
    return dict(zip(agents, pictures.AGENTS, strict=False)) if few else {}


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
    lines, agents, x = mean_lines(study, x, detail.points)
    if not lines:
        pictures.draw_message(ax, nothing_to_draw(study))
        return
    by_time, minimize = x == "time", study.any_minimizes
    num_initial = 0 if x == "rounds" else _initial_design(study)
    start = float(num_initial)
    if by_time and num_initial:  # when the median agent of the fastest algorithm has ended its initial design
        ends = [math.inf]
        for algorithm in study.algorithms:
            times = study.times.where(algorithm=algorithm)
            own = [np.sort(times["ended"][times["agent"] == agent]) for agent in set(times["agent"].tolist())]
            middle = np.median([ended[min(num_initial, len(ended)) - 1] for ended in own])
            ends.append(float(middle - times["started"].min()))
        start = min(ends)
    shown = agents if len(agents) > 1 else lines
    scale = pictures.zoomed(shown.values(), start, minimize=minimize)
    lines, agents = ({n: scale.line(line) for n, line in all_.items()} for all_ in (lines, agents))
    named, colours = lines, dict(styles)
    if len(agents) > 1:
        ((name, (grid, mean, _)),) = lines.items()
        hues = named_agents(study)
        if hues:  # the mean is black, and beside it every agent has a colour and its name
            colours |= {agent: (hue, "-") for agent, hue in hues.items()} | {name: ("#000000", "-")}
            named = agents | lines
        pictures.draw_lines(ax, {name: (grid, mean, np.full(len(grid), np.nan))}, colours, steps=by_time)
        _draw_agents(ax, agents, hues, styles[name][0], by_time, detail)
        if detail.lines_of is None:  # a page says it below the picture
            pictures.corner_note(ax, what_is_drawn(len(agents)), at_top=minimize)
    else:
        pictures.draw_lines(ax, lines, styles, steps=by_time)
        for agent in agents:
            ax.lines[0].set_gid(f"agent {quoted(agent)}")
        pictures.explain_bands(ax, lines, at_top=minimize)
    what = pictures.shorten(metric_of(study)) or "value"
    chosen = "best" in study.trials.columns and np.isfinite(study.recommendations["mean"]).any()
    ax.set_ylabel(
        f"{what[:1].upper()}{what[1:]} at the best mean so far" if chosen else f"Best {what} so far"
    )
    scale.limit(ax.yaxis)
    ax.set_xlabel("Round" if x == "rounds" else "Evaluations per agent")
    if by_time:
        from matplotlib.ticker import MaxNLocator

        ax.set_xlim(left=0.0)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter("{x:,g}")
        ax.set_xlabel("Seconds since the first evaluation began; an agent counts from its first value")
    else:
        pictures.mark_initial_design(ax, num_initial)
    pictures.label_ends(ax, named, colours, detail.names)


def mean_lines(study: Study, x: str, points: int) -> tuple[dict[str, Line], dict[str, Line], str]:
    """Return the mean of each algorithm that has one, the agents of a single one, and what x is."""
    lines: dict[str, Line] = {}
    agents: dict[str, Line] = {}
    for algorithm in study.algorithms:
        if x == "time":
            names, grid, own = best_by_time(study, algorithm, points)
        else:
            names, own = agent_curves(study, algorithm)
            shown = pictures.evenly(own.shape[1], points)
            grid, own = shown.astype(np.float64) + 1, own[:, shown]
        lines[algorithm] = (grid, *finite.mean_and_stderr(own))
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
    """Return what the lines of a picture of one algorithm show, for this number of agents."""
    few = num_agents <= MAX_LINES
    return f"bold: mean, faint: {'one agent each' if few else 'quantiles 10 to 90 % and 25 to 75 %, median'}"


def _draw_agents(
    ax: Axes, lines: Mapping[str, Line], hues: Mapping[str, str], colour: str, steps: bool, detail: Detail
) -> None:
    """Draw a thin line per agent or, of many agents, bands of quantiles."""
    thin: dict[str, Any] = {"drawstyle": "steps-post" if steps else "default", "zorder": 2}
    if many := len(lines) > MAX_LINES:
        x, own = next(iter(lines.values()))[0], np.array([curve for _, curve, _ in lines.values()])
        columns = np.isfinite(own).any(axis=0)
        low, first, median, third, high = np.nanquantile(own[:, columns], _QUANTILES, axis=0)
        for edges in ((low, high), (first, third)):
            pictures.draw_band(ax, x[columns], *edges, colour, steps=steps)
        ax.plot(x[columns], median, color=colour, linewidth=0.7, **thin)
    thin |= {"linewidth": 1.1, "alpha": 0.8} if hues else {"linewidth": 0.7, "alpha": 0.35}
    for agent, (x, curve, _) in lines.items():
        if not many or agent in (detail.lines_of or ()):
            turns = curve[1:] != curve[:-1]  # points between two that are as high need not be drawn
            corners = np.r_[True, turns] | np.r_[turns, True]
            gid = f"{'many' if many else 'agent'} {quoted(agent)}"
            ax.plot(x[corners], curve[corners], color=hues.get(agent, colour), gid=gid, **thin)


def best_by_time(study: Study, algorithm: str, points: int = 1000) -> tuple[list[str], Array, Array]:
    """Return the target agents' best values so far on one grid of times, see `_held`.

    The times are seconds, at which a trial of any of the agents ended; agents are in the order of their
    trials.
    """
    times = study.times.where(algorithm=algorithm)
    origin = float(times["started"].min(initial=np.inf))
    seconds = {(row["agent"], row["trial"]): row["ended"] - origin for row in times}
    rows = [row for row in result_rows(study, algorithm) if (row["agent"], row["trial"]) in seconds]
    nothing = math.nan
    events = (
        (row["agent"], seconds[row["agent"], row["trial"]], row["value"], row.get("best", nothing))
        for row in rows
    )
    return _held(events, points, np.fmin if study.minimizes(algorithm) else np.fmax)


def _held(
    events: Iterable[tuple[str, float, float, float]], points: int = 1000, better: np.ufunc | None = None
) -> tuple[list[str], Array, Array]:
    """Return agents' values on one grid; a value holds until the agent's next event.

    Parameters
    ----------
    events : agent, position, value, and the value at the agent's best if that is another one, else NaN
    better : `np.fmax` or `np.fmin`, which ignore NaN where they can: draw an agent's best value so far, to
        the end of the grid; None: draw its values, and NaN after its last event

    Returns
    -------
    agents : in the order of their first events
    grid : `(num_points,)`, ascending positions of events
    curves : `(n, num_points)`; NaN before an agent's first value
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for agent, *event in events:
        found.setdefault(agent, []).append((event[0], event[1], event[2]))
    grid = np.unique([x for own in found.values() for x, _, _ in own])
    grid = grid[pictures.evenly(len(grid), points)]
    curves = np.empty((len(found), len(grid)))
    for curve, own in zip(curves, found.values(), strict=True):
        at, values, chosen = np.array(sorted(own), dtype=np.float64).T
        values = values if better is None else better.accumulate(values)
        values = np.concatenate([[np.nan], np.where(np.isfinite(chosen), chosen, values)])
        curve[:] = values[np.searchsorted(at, grid, side="right")]
        if better is None:
            curve[grid > at[-1]] = np.nan
    return list(found), grid, curves


def _initial_design(study: Study) -> int:
    """Return the size of the initial design if it is the same in all runs, else 0."""
    sizes = {int(run.get("num_initial") or 0) for run in study.settings["runs"]}
    return sizes.pop() if len(sizes) == 1 else 0


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
        'To see a curve here, set disclose = "incumbent" or "trials" in the node_config of the agents that '
        "may show them."
    )


def draw_regret(axes: Sequence[Axes], study: Study, styles: Mapping[str, Style]) -> None:
    """Draw simple regret on a logarithmic axis and cumulative regret, means with bands of one s.e."""
    for ax, column in zip(axes, ("simple", "cumulative"), strict=True):
        name = f"{column.capitalize()} regret"
        lines: dict[str, Line] = {}
        for algorithm in study.algorithms:
            rows = target_rows(study, study.regret, algorithm)
            if np.isfinite(rows[column]).any():
                _, x, curves = _held(
                    (row["agent"], row["evaluations"], row[column], math.nan) for row in rows
                )
                lines[algorithm] = (x, *finite.mean_and_stderr(curves))
        if not lines:
            raise ConfigError(f"figure: expected known values of {name.lower()}, got only NaN")
        values = np.concatenate([mean for _, mean, _ in lines.values()])
        simple = column == "simple"  # on a logarithmic axis, with a regret of zero at its lower edge
        scale = pictures.AxisScale.of(values[np.isfinite(values) & ((values > 0) | (not simple))], log=simple)
        lines = {name: scale.line(line) for name, line in lines.items()}
        scale.limit(ax.yaxis)
        pictures.draw_lines(ax, lines, styles)
        pictures.explain_bands(ax, lines, at_top=simple)
        ax.set_xlabel("Evaluations per agent")
        ax.set_ylabel(name)
        pictures.mark_initial_design(ax, _initial_design(study))
        pictures.label_ends(ax, lines, styles)
