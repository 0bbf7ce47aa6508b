"""What parameters do, as pictures of the page: importance, values against one, and contours of two."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.html.markup import figures, paragraph, table, text
from fbo_flower.reports.html.svg import Scale, Tick, axes, figure, round_numbers, short, x_of, y_of
from fbo_flower.reports.importance import MIN_TRIALS, Axis, Importance, Share
from fbo_flower.reports.slice_axes import value_limits
from fbo_flower.reports.titles import metric_of
from fbo_flower.study.study import Study

_MAX_SLICES = 9
_MAX_DOTS = 400  # of a picture
_MAX_BEST = 100  # ringed dots
_MAX_ROWS = 12  # of a table of shares
_CONTOURS_OF = 3  # parameters, the most important ones, whose pairs are drawn
_GRID = 36
LEVELS = 8
_WEAK = 0.1  # score below which the shares say little


def importance_tables(found: Importance | None) -> str:
    """Return the tables of shares, and sentences that say what they mean."""
    if found is None:
        sentence = f"Not computed: it needs {MIN_TRIALS} disclosed evaluations with values that differ."
        return paragraph(sentence, "note")
    parts = [
        paragraph(
            f"A random forest was fitted to {found.num_trials:,} evaluations, and the variance of its "
            "predictions was split among the parameters (functional ANOVA, exact for each tree). It predicts "
            "the rank of a value among the same agent's values."
        )
    ]
    if found.score < _WEAK:
        parts.append(
            paragraph(
                f"The forest predicts held-out evaluations badly (R² {found.score:.2f}): do not rely on "
                "these shares.",
                "note",
            )
        )
    else:
        parts.append(paragraph(f"On evaluations that its trees did not see, its R² is {found.score:.2f}."))
    parts.append(_shares(found.singles, "parameter"))
    if found.pairs:
        parts.append(_shares(found.pairs[: _MAX_ROWS // 2], "pair (beyond each alone)"))
    return "".join(parts)


def _shares(shares: Sequence[Share], heading: str) -> str:
    shown = shares[:_MAX_ROWS]
    cells = {
        heading: [" and ".join(text(name, 40) for name in share.names) for share in shown],
        "share of variance": [f"{share.mean:.1%} ± {share.stddev:.1%}" for share in shown],
        "": [f'<span class="bar" style="width:{100 * min(share.mean, 1):.0f}%"></span>' for share in shown],
    }
    hidden = len(shares) - len(shown)
    more = paragraph(f"{hidden} more parameters have smaller shares.", "note") if hidden > 0 else ""
    return f'<div class="shares">{table(cells, numeric=["share of variance"])}</div>{more}'


def slice_figures(study: Study, all_axes: Sequence[Axis], found: Importance | None) -> str:
    """Return a picture per parameter: values of trials against it; of many, the most important ones."""
    if not all_axes:
        return paragraph("No configurations were disclosed.", "note")
    shown = list(all_axes)
    if len(shown) > _MAX_SLICES:
        ranked = [share.names[0] for share in found.singles] if found else [a.slice.name for a in shown]
        top = set(ranked[:_MAX_SLICES])
        shown = [axis for axis in shown if axis.slice.name in top]
    both = np.concatenate([study.trials["value"], study.recommendations["value"]])
    low, high, hidden = value_limits(both, minimize=study.any_minimizes)
    y = Scale(low, high)
    pictures = [_slice(study, axis, y) for axis in shown]
    note = "Ringed: the best of each agent."
    if hidden:
        note += f" {hidden:,} much worse values stand at the edge of the pictures."
    if len(shown) < len(all_axes):
        note += f" Shown are the {len(shown)} parameters of {len(all_axes)} that explain most."
    return figures(pictures) + paragraph(note, "note")


def _slice(study: Study, axis: Axis, y: Scale) -> str:
    slice_ = axis.slice
    shapes = [axes(ticks_of(axis), y.ticks, _name(axis), (metric_of(study) or "value").capitalize())]
    share = max(_MAX_DOTS // max(len(study.algorithms), 1), 1)
    for number, algorithm in enumerate(study.algorithms):
        trials = study.trials.where(algorithm=algorithm)
        trials = trials.take(np.isfinite(trials["value"]))
        best = study.recommendations.where(algorithm=algorithm)
        for rows, kind, radius, most in ((trials, "dot", 2, share), (best, "best", 3, _MAX_BEST)):
            chosen = rows.take(np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(int))
            positions = slice_.positions(chosen["config"].tolist())
            known = np.isfinite(positions)
            at = axis.unit(positions)
            if slice_.choices is not None:
                at = at + _jitter(len(at)) * 0.5 / axis.high
            dots = zip(x_of(at)[known], y_of(y(chosen["value"]))[known], strict=True)
            marks = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}"/>' for a, b in dots)
            shapes.append(f'<g class="{kind} c{number}">{marks}</g>')
    caption = slice_.name + (f" (only if {slice_.condition})" if slice_.condition else "")
    return figure("".join(shapes), caption, f"Values of evaluations against {slice_.name}")


def contour_figures(found: Importance | None) -> str:
    """Return a picture per pair of the most important parameters: the predicted rank in eight levels."""
    if found is None or len(found.axes) < 2:
        return paragraph("Not drawn: it needs two parameters and the forest above.", "note")
    top = [share.names[0] for share in found.singles[:_CONTOURS_OF]]
    pairs = [(a, b) for place, a in enumerate(top) for b in top[place + 1 :]]
    return figures(_contour(found, first, second) for first, second in pairs) + paragraph(
        "The stronger the colour, the better: the predicted rank of a configuration among an agent's own "
        "values, averaged over all other parameters.",
        "note",
    )


def _contour(found: Importance, first: str, second: str) -> str:
    across, up = (found.axes[found.place(name)] for name in (first, second))
    columns, rows = (_num_cells(axis) for axis in (across, up))
    surface = found.surface(
        first, second, (np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows
    )
    low, high = float(surface.min()), float(surface.max())
    levels = np.floor((surface - low) / max(high - low, 1e-12) * LEVELS).clip(0, LEVELS - 1).astype(int)
    shapes = []
    x_edges, y_edges = x_of(np.arange(columns + 1) / columns), y_of(np.arange(rows + 1) / rows)
    for j in range(rows):
        start = 0
        for i in range(1, columns + 1):
            if i == columns or levels[i, j] != levels[start, j]:  # a run of equal cells is one rectangle
                width, height = x_edges[i] - x_edges[start], y_edges[j] - y_edges[j + 1]
                shapes.append(
                    f'<rect class="l{levels[start, j]}" x="{x_edges[start]:.1f}" y="{y_edges[j + 1]:.1f}" '
                    f'width="{width + 0.1:.1f}" height="{height + 0.1:.1f}"/>'
                )
                start = i
    best = np.unravel_index(int(surface.argmax()), surface.shape)
    shapes.append(axes(ticks_of(across), ticks_of(up), _name(across), _name(up)))
    description = (
        f"Predicted rank against {first} and {second}, from {low:.2f} to {high:.2f}; it is largest at "
        f"{(best[0] + 0.5) / columns:.0%} of the range of {first} and {(best[1] + 0.5) / rows:.0%} of that "
        f"of {second}"
    )
    caption = f"{first} and {second}: predicted rank {low:.2f} (pale) to {high:.2f} (strong)"
    return figure("".join(shapes), caption, description)


def ticks_of(axis: Axis) -> list[Tick]:
    """Return the marks of a parameter's axis, at most about eight."""
    slice_ = axis.slice
    if slice_.choices is not None:
        step = math.ceil(len(slice_.choices) / 8)
        shown = range(0, len(slice_.choices), step)
        return [Tick((k + 0.5) / axis.high, str(slice_.choices[k])) for k in shown]
    if slice_.log and axis.high > axis.low > 0:
        powers = np.arange(
            math.ceil(math.log10(axis.low) - 1e-9), math.floor(math.log10(axis.high) + 1e-9) + 1
        )
        if len(powers) >= 2:
            values = [(10.0**power, short(10.0**power)) for power in powers[:: math.ceil(len(powers) / 5)]]
        else:
            middle = math.sqrt(axis.low * axis.high)
            values = [(value, short(float(f"{value:.2g}"))) for value in (axis.low, middle, axis.high)]
    else:
        values = round_numbers(axis.low, axis.high)
    if axis.integer is not None:
        values = [(value, label) for value, label in values if value == int(value)]
    positions = axis.unit(np.array([value for value, _ in values]))
    return [Tick(float(p), label) for p, (_, label) in zip(positions, values, strict=True)]


def _num_cells(axis: Axis) -> int:
    if axis.slice.choices is not None:
        return len(axis.slice.choices)
    values = axis.integer.num_values if axis.integer is not None and not axis.slice.log else _GRID
    return min(values, _GRID)


def _name(axis: Axis) -> str:
    return axis.slice.name + (" (logarithmic)" if axis.slice.log else "")


def _jitter(number: int) -> Array:
    """Return shifts `(n,)` in [-1/2, 1/2] that spread dots evenly."""
    return np.asarray((np.arange(number) * 0.618034) % 1.0 - 0.5)
