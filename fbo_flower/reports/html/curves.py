"""Best values so far as pictures of the page: a line per agent, or quantiles of many agents."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.curve_axes import initial_design, nothing_to_draw
from fbo_flower.reports.html.markup import figures, paragraph, text
from fbo_flower.reports.html.svg import Scale, axes, band_path, figure, line_path, step_path, x_of, y_of
from fbo_flower.reports.slice_axes import value_limits
from fbo_flower.reports.summary import agent_curves, mean_and_stderr
from fbo_flower.reports.titles import metric_of
from fbo_flower.study.study import Study

MAX_LINES = 100  # agents that get a line each; of more, quantiles are drawn
_MAX_POINTS = 200  # of a band
_BANDS = ((0.1, 0.9), (0.25, 0.75))


def curve_figures(study: Study) -> str:
    """Return a picture per algorithm, and one of all algorithms' means if there are several."""
    own = {algorithm: agent_curves(study, algorithm) for algorithm in study.algorithms}
    own = {name: (agents, curves) for name, (agents, curves) in own.items() if np.isfinite(curves).any()}
    if not own:
        return _by_round(study)
    longest = max(curves.shape[1] for _, curves in own.values())
    x = Scale(1.0, float(max(longest, 2)))
    y = _value_scale(study, [curves for _, curves in own.values()], longest)
    names = {algorithm: number for number, algorithm in enumerate(study.algorithms)}
    pictures = []
    if len(own) > 1:
        pictures.append(_overview(study, {name: curves for name, (_, curves) in own.items()}, names, x, y))
    for algorithm, (agents, curves) in own.items():
        pictures.append(_one(study, algorithm, agents, curves, names[algorithm], x, y))
    return figures(pictures)


def _one(
    study: Study, algorithm: str, agents: list[str], curves: Array, number: int, x: Scale, y: Scale
) -> str:
    known = np.isfinite(curves).any(axis=1)
    agents, curves = [agents[row] for row in np.flatnonzero(known)], curves[known]
    at = x_of(x(np.arange(1.0, curves.shape[1] + 1)))
    shapes = [_axes(study, x, y)]
    if len(curves) <= MAX_LINES:
        for agent, curve in zip(agents, curves, strict=True):
            path = step_path(at, y_of(y(curve)))
            shapes.append(f'<path class="agent c{number}" d="{path}"><title>{text(agent, 80)}</title></path>')
        mean = step_path(at, y_of(y(mean_and_stderr(curves)[0])))
        shapes.append(f'<path class="halo" d="{mean}"/><path class="mean c{number}" d="{mean}"/>')
        said = "bold: mean; faint: one line per agent" if len(curves) > 1 else "one agent"
    else:
        shapes += _quantiles(at, y, curves, number)
        said = f"{len(curves):,} agents: line median, bands quantiles 10 to 90 % and 25 to 75 %"
    final = mean_and_stderr(curves)[0][-1]
    description = (
        f"Best value so far of {len(curves)} agents of {algorithm} against evaluations; the mean ends at "
        f"{final:.4g}"
    )
    return figure("".join(shapes), f"{algorithm} ({said})", description)


def _quantiles(at: Array, y: Scale, curves: Array, number: int) -> Iterator[str]:
    columns = np.flatnonzero(np.isfinite(curves).any(axis=0))
    chosen = columns[np.linspace(0, len(columns) - 1, min(len(columns), _MAX_POINTS)).round().astype(int)]
    values = curves[:, chosen]
    for low, high in _BANDS:
        edges = np.nanquantile(values, [low, high], axis=0)
        path = band_path(at[chosen], y_of(y(edges[0])), y_of(y(edges[1])))
        yield f'<path class="band c{number}" d="{path}"/>'
    median = np.full(curves.shape[1], np.nan)
    median[chosen] = np.nanmedian(values, axis=0)
    yield f'<path class="mean c{number}" d="{step_path(at, y_of(y(median)))}"/>'


def _overview(study: Study, curves: dict[str, Array], names: dict[str, int], x: Scale, y: Scale) -> str:
    shapes = [_axes(study, x, y)]
    ends = []
    for algorithm, own in curves.items():
        at = x_of(x(np.arange(1.0, own.shape[1] + 1)))
        mean, stderr = mean_and_stderr(own)
        there = np.flatnonzero(np.isfinite(mean) & np.isfinite(stderr))
        there = there[np.linspace(0, len(there) - 1, min(len(there), _MAX_POINTS)).round().astype(int)]
        low, high = (y_of(y(mean[there] + way * stderr[there])) for way in (-1, 1))
        number = names[algorithm]
        shapes.append(f'<path class="band c{number}" d="{band_path(at[there], low, high)}"/>')
        shapes.append(f'<path class="mean c{number}" d="{line_path(at[there], y_of(y(mean[there])))}"/>')
        ends.append(f"{algorithm} {mean[np.isfinite(mean)][-1]:.4g}")
    keys = "".join(
        f'<tspan class="key c{names[name]}" dx="{8 if place else 0}">■</tspan><tspan dx="3">{text(name, 16)}'
        "</tspan>"
        for place, name in enumerate(list(curves)[:4])
    )
    place = 'y="20"' if study.any_minimizes else 'y="190"'
    shapes.append(f'<text x="350" {place} class="last">{keys}</text>')
    description = f"Mean best value so far by algorithm; at the end: {', '.join(ends)}"
    caption = "All algorithms: mean over agents, band one standard error"
    return figure("".join(shapes), caption, description)


def _by_round(study: Study) -> str:
    """Return the means that the server saw, against rounds; without these, why there is nothing to draw."""
    means = study.rounds["mean_incumbent"]
    if not np.isfinite(means).any():
        return paragraph(nothing_to_draw(study), "note")
    x, y = Scale(1.0, float(max(study.rounds["round"].max(), 2))), _limits(study, means)
    shapes = [_axes(study, x, y, "Round")]
    for number, algorithm in enumerate(study.algorithms):
        rows = study.rounds.where(algorithm=algorithm)
        at = x_of(x(rows["round"].astype(np.float64)))
        path = step_path(at, y_of(y(rows["mean_incumbent"])))
        shapes.append(f'<path class="mean c{number}" d="{path}"><title>{text(algorithm, 80)}</title></path>')
    caption = "Mean of the best values that agents disclosed, by round; they did not disclose their trials"
    return figures([figure("".join(shapes), caption, caption)])


def _axes(study: Study, x: Scale, y: Scale, label: str = "Evaluations per agent") -> str:
    ticks = [tick for tick in x.ticks if float(tick.label).is_integer()]
    return axes(ticks, y.ticks, label, f"Best {metric_of(study) or 'value'} so far")


def _value_scale(study: Study, curves: list[Array], longest: int) -> Scale:
    """Return the axis of the values after the initial design, which are often very low before."""
    start = initial_design(study)
    start = start - 1 if 0 < start < longest else 0
    values = np.concatenate([own[:, start:].ravel() for own in curves])
    return _limits(
        study, values if np.isfinite(values).any() else np.concatenate([c.ravel() for c in curves])
    )


def _limits(study: Study, values: Array) -> Scale:
    low, high, _ = value_limits(values, minimize=study.any_minimizes)
    return Scale(low, high)
