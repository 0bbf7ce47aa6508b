"""Several outputs in pictures and tables: an agent's trials, which hold its limits, and its Pareto front.

With several objectives the axes are the first two, and the front is joined by steps; of three objectives its
projection has no line. With one objective and limits the axes are the objective and the first limited output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.numerics.arrays import Array, BoolArray
from fbo_flower.reports import pictures
from fbo_flower.reports.pictures import SMALL, AxisScale, Style
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from fbo_flower.study.study import Study
    from fbo_flower.study.table import Table

MOST_AXES, COLUMNS = 6, 3
WIDE = 20.0  # values that differ by a larger factor get a logarithmic axis


def has_outputs(study: Study) -> bool:
    """Return whether agents have disclosed trials with several outputs."""
    return "outputs" in study.trials.columns and any(study.trials["outputs"].tolist())


def agents_shown(study: Study, most: int = MOST_AXES) -> tuple[list[str], str]:
    """Return the agents that get axes, and which they are of how many: from few feasible trials to many."""
    shares = feasible_shares(study)
    if len(shares) <= most:
        return list(shares), ""
    ordered = sorted(shares, key=lambda agent: shares[agent])
    chosen = [ordered[place] for place in pictures.evenly(len(ordered), most)]
    order = ", from the fewest feasible trials to the most" if "feasible" in study.trials.columns else ""
    return chosen, f"{most} of {len(shares)} agents{order}"


def explained(study: Study) -> str:
    """Say in words what the marks are."""
    held = "dot: holds the agent's limits, cross: does not; " if "feasible" in study.trials.columns else ""
    return f"{held}ringed: {'Pareto front' if len(study.objectives) > 1 else 'best'}"


def feasible(trials: Table) -> BoolArray:
    """Return which trials hold the limits of their agents; without limits all do."""
    if "feasible" not in trials.columns:
        return np.ones(len(trials), dtype=np.bool_)
    return np.asarray(trials["feasible"], dtype=np.bool_)


def feasible_shares(study: Study, algorithm: str | None = None) -> dict[str, float]:
    """Return which share of its trials holds an agent's limits, in natural order of the agents."""
    trials = study.trials if algorithm is None else study.trials.where(algorithm=algorithm)
    holds, agents = feasible(trials), trials["agent"]
    names = sorted(set(agents.tolist()), key=natural_order)
    return {agent: float(holds[agents == agent].mean()) for agent in names}


def draw_outputs(
    ax: Axes,
    study: Study,
    agent: str,
    styles: Mapping[str, Style],
    colours: Mapping[str, str],
    legend: bool = True,
) -> None:
    """Draw the trials of one agent in two outputs, and its front or its best trial of each algorithm.

    Parameters
    ----------
    colours : agent -> its colour in the curves; others have that of the algorithm
    legend : whether to name the algorithms, if they are several
    """
    pictures.dress(ax)
    known = study.objectives
    for run in study.settings["runs"]:
        known |= {name: "min" if side == "<=" else "max" for name, side in run.get("limits", {}).items()}
    (y_name, y_way), *other = known.items()  # no other, if none is known
    x_name, x_way = other[0] if other else ("trial", "max")
    trials = study.trials
    outputs = trials["outputs"].tolist()
    y = np.array([row.get(y_name, np.nan) for row in outputs])
    x = np.array([row.get(x_name, np.nan) for row in outputs]) if other else trials["trial"].astype(float)
    own = (trials["agent"] == agent) & np.isfinite(x) & np.isfinite(y)
    holds = feasible(trials)
    scales = _scale_of(x[own], x_way), _scale_of(y[own], y_way)
    x, y = (scale.places(values) for scale, values in zip(scales, (x, y), strict=True))
    for algorithm in study.algorithms:
        colour, line = colours.get(agent, styles[algorithm][0]), styles[algorithm][1]
        mine = own & (trials["algorithm"] == algorithm)
        looks: tuple[tuple[Any, dict[str, Any]], ...] = (
            (mine & ~holds, {"marker": "x", "color": pictures.GREY, "linewidths": 0.8, "alpha": 0.5}),
            (mine & holds, {"color": colour, "linewidths": 0, "alpha": 0.6}),
        )
        for chosen, look in looks:
            if chosen.any():
                gid = f"trials {' '.join(map(str, np.flatnonzero(chosen).tolist()))}"
                ax.scatter(x[chosen], y[chosen], s=14, gid=gid, **look)
        if len(study.objectives) > 1:
            ringed = study.front(agent, algorithm).configs
        else:
            best = study.recommendations.where(agent=agent, algorithm=algorithm)
            ringed = best["config"].tolist()
        rows = np.flatnonzero(mine & holds)
        rows = rows[[config in ringed for config in trials["config"][rows]]] if len(rows) else rows
        rows = rows[np.argsort(x[rows], kind="stable")]
        ring: dict[str, Any] = {"edgecolors": "k", "linewidths": 0.8, "zorder": 3}
        ax.scatter(x[rows], y[rows], s=24, color=colour, label=pictures.shorten(algorithm, 16), **ring)
        if len(study.objectives) == 2:
            steps = "steps-post" if x_way == "min" else "steps-pre"
            ax.plot(x[rows], y[rows], color=colour, linestyle=line, linewidth=1.2, drawstyle=steps)
    if legend and len(study.algorithms) > 1:
        ax.legend(fontsize=8, frameon=False)
    scales[0].limit(ax.xaxis)
    scales[1].limit(ax.yaxis)
    ax.set_xlabel(pictures.shorten(x_name if x_name == "trial" else f"{x_name} ({x_way})", 30))
    ax.set_ylabel(pictures.shorten(f"{y_name} ({y_way})", 24))


def _scale_of(values: Array, way: str) -> AxisScale:
    if len(values) and values.min() > 0 and values.max() / WIDE > values.min():
        return AxisScale.of(values, log=True)
    return AxisScale(*pictures.value_limits(values, minimize=way == "min")[:2])


def draw_shares(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw which share of its trials holds an agent's limits, the agents in the order of that share."""
    pictures.dress(ax)
    for algorithm in study.algorithms:
        shares = np.sort(list(feasible_shares(study, algorithm).values()))
        colour, line = styles[algorithm]
        ax.plot(np.arange(1, len(shares) + 1), 100 * shares, color=colour, linestyle=line, label=algorithm)
    ax.set_ylim(0, 100)
    ax.set_xlabel("agents, by their share")
    ax.set_ylabel("% of trials feasible")


def draw_all(part: SubFigure, study: Study, styles: Mapping[str, Style], colours: Mapping[str, str]) -> None:
    """Draw the outputs of some agents side by side and, of many, the shares of all."""
    shares = feasible_shares(study)
    of_all = len(shares) > MOST_AXES and "feasible" in study.trials.columns
    agents, which = agents_shown(study, MOST_AXES - of_all)
    count = len(agents) + of_all
    columns = min(count, COLUMNS)
    axes = part.subplots(-(-count // columns), columns, squeeze=False).ravel()
    for ax, agent in zip(axes, agents, strict=False):
        draw_outputs(ax, study, agent, styles, colours, legend=agent == agents[0])
        ax.set_title(heading_of(study, agent), **SMALL)
    if of_all:
        draw_shares(axes[len(agents)], study, styles)
        none = len(study.infeasible)
        axes[len(agents)].set_title(f"all {len(shares)} agents; {none or 'none'} without any", **SMALL)
    for ax in axes[count:]:
        ax.set_visible(False)
    which = f" of {which}" if which else ""
    part.suptitle(f"Outputs{which}\n{explained(study)}", x=0.01, ha="left", fontsize=10)


def heading_of(study: Study, agent: str) -> str:
    """Return the name of an agent, and how many of its trials hold its limits."""
    rows = study.trials.where(agent=agent)
    if "feasible" not in rows.columns:
        return pictures.shorten(agent, 40)
    number = int(feasible(rows).sum())
    held = f"{number or 'none'} of {len(rows)} hold its limits"
    return f"{pictures.shorten(agent, 22)}: {held}"
