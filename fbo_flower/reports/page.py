"""`html_page`: a study as one HTML page with its pictures, its style and its script inside.

The page asks no other host for anything, and a content security policy forbids it to. The policy allows only
the script of the template, so a text of an agent could not run even if it were not escaped. Jinja2 escapes
every text, and control characters become escapes that can be seen.

Matplotlib draws the pictures. In their SVG each colour `#rrggbb` becomes the variable `--xrrggbb` of the
style sheet, so that a dark window has its own colours, and a line of an agent gets the agent's name as its
title. Without matplotlib the page says what to install.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from fbo_flower.errors import ConfigError, printable
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.axes import dress, shorten
from fbo_flower.reports.figures import (
    draw_curves,
    draw_slice,
    metric_of,
    nothing_to_draw,
    shown_values,
    study_title,
)
from fbo_flower.reports.importance import (
    MIN_TRIALS,
    Axis,
    Importance,
    Share,
    most_important,
    study_axes,
    study_importance,
)
from fbo_flower.reports.pictures import new_figure, report_style
from fbo_flower.reports.privacy_page import privacy_page
from fbo_flower.reports.selection import selection_cells, selections
from fbo_flower.reports.styles import study_styles
from fbo_flower.reports.summary import SummaryRow, summarise
from fbo_flower.reports.summary_table import format_bytes, summary_cells
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE = "report.html"
Draw = Callable[["Axes"], object]
_MAX_BEST = 100  # rows of the best configurations
_MAX_REASONS, _MAX_REASON = 10, 300
_MAX_AGENTS = 10  # agents that are named as the ones with most failures
_MAX_SLICES = 9
_MAX_DOTS = 400  # of a picture
_MAX_SHARES = 12  # rows of a table of shares
_CONTOURS_OF = 3  # parameters, the most important ones, whose pairs are drawn
_GRID = 36  # cells of an axis of a contour
_LEVELS = 8
_CONTOUR = "#0072b2"
_WEAK = 0.1  # score below which the shares say little


@dataclass(frozen=True)
class Part:
    """A part of a section: a paragraph, a table or pictures.

    Parameters
    ----------
    text, note : a sentence, and one in grey
    html : what is HTML already
    cells, numeric : columns of a table by heading, and the headings whose cells stand at the right
    pictures : SVG and caption
    """

    text: str = ""
    note: str = ""
    html: str = ""
    cells: Mapping[str, Sequence[str]] = field(default_factory=dict)
    numeric: Sequence[str] = ()
    pictures: Sequence[tuple[Markup, str]] = ()


def write_html_page(study: Study, path: Path, reference: str | None = None) -> None:
    """Write the page of a study; an interrupted write leaves the old file."""
    page = html_page(study, reference)
    with atomic_file(path, text=True) as stream:
        stream.write(page)


def html_page(study: Study, reference: str | None = None) -> str:
    """Return the page of a study.

    Parameters
    ----------
    reference : see `summarise`

    Raises
    ------
    ConfigError
        If the study has no run with the reference's label.
    """
    rows = summarise(study, reference)
    found = study_importance(study)
    learned = privacy_page(study).partition("\n\n")[2]  # without its heading
    sections = {
        "results": ("Results", _results(study, rows)),
        "curves": ("Best value so far", _curves(study, rows)),
        "best": ("Best configurations", _best(study)),
        "importance": ("Which parameters matter", _importance(found)),
        "slices": ("Value against each parameter", _slices(study, found)),
        "contours": ("Two parameters at a time", _contours(found)),
        "traffic": ("Traffic", [_traffic(rows)]),
        "privacy": ("What the server learned", [Part(html=_from_markdown(learned))]),
        "failures": ("Failures", _failures(study, rows)),
    }
    environment = Environment(
        loader=PackageLoader("fbo_flower", "reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["zip"] = zip
    environment.filters["digest"] = _digest
    pictures = "".join(svg for _, parts in sections.values() for part in parts for svg, _ in part.pictures)
    return environment.get_template("page.html").render(
        title=study_title(study) or "Study",
        facts=_facts(study, rows),
        sections=sections,
        made=_made(study),
        colours=sorted(set(re.findall(r"var\(--x([0-9a-f]{6})\)", pictures))),
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _facts(study: Study, rows: list[SummaryRow]) -> dict[str, str]:
    """Return the few numbers that a reader looks for first."""
    values = study.recommendations["value"]
    if not len(values):
        values = study.rounds["best"][np.isfinite(study.rounds["best"])]
    best = (values.min() if study.any_minimizes else values.max()) if len(values) else None
    rounds = {len(set(study.rounds.where(algorithm=name)["round"].tolist())) for name in study.algorithms}
    return {
        f"best {metric_of(study) or 'value'}": "not disclosed" if best is None else f"{best:.5g}",
        "agents": " or ".join(f"{k:,}" for k in sorted({row.num_agents for row in rows})),
        "rounds": " or ".join(f"{k:,}" for k in sorted(rounds)),
        "evaluations": f"{int(study.trials['pulls'].sum()):,}" if len(study.trials) else "not disclosed",
        "failed evaluations": f"{sum(row.failed_evaluations for row in rows):,}",
        "lost or refused replies": f"{sum(row.lost_replies + row.refused_replies for row in rows):,}",
    }


def _made(study: Study) -> str:
    versions = dict(study.settings.get("versions", {})).items()
    created = f"Study of {study.settings['created']}. " if study.settings.get("created") else ""
    named = ", ".join(f"{name} {version}" for name, version in versions)
    return f"{created}Made with {named}." if named else created


# -- tables -----------------------------------------------------------------------------------------------


def _results(study: Study, rows: list[SummaryRow]) -> list[Part]:
    """Return the table that `fbo-flower report` prints, with a row per quantity and a column per run."""
    (_, names), *others = summary_cells(rows).items()
    columns = {"": [heading for heading, _ in others]}
    for number, name in enumerate(names):
        columns[shorten(name, 60)] = [cells[number] for _, cells in others]
    models = selections(study)
    chosen = [Part(cells=selection_cells(models))] if models else []
    return [Part(cells=columns, numeric=list(columns)[1:]), *chosen]


def _best(study: Study) -> list[Part]:
    """Return each agent's best configuration with a button that copies it as JSON, the best values first."""
    best = sorted(study.best.items(), key=lambda item: item[1]["value"], reverse=not study.any_minimizes)
    if not best:
        sentence = "No agent disclosed a configuration. On each device, fbo-flower best JOURNAL prints the"
        return [Part(note=f"{sentence} agent's own.")]
    shown = best[:_MAX_BEST]
    cells: dict[str, Sequence[str]] = {"agent": [shorten(agent, 60) for agent, _ in shown]}
    cells["value"] = [f"{found['value']:.6g}" for _, found in shown]
    if len(study.algorithms) > 1:
        cells["algorithm"] = [shorten(found["algorithm"], 40) for _, found in shown]
    copy = Markup('<span class="copy"><code>{}</code><button type="button">Copy</button></span>')
    texts = [json.dumps(found["config"], ensure_ascii=False, default=str) for _, found in shown]
    cells["configuration"] = [copy.format(printable(text)) for text in texts]
    more = f"The best {_MAX_BEST} of {len(best):,} agents; all are in best.json."
    return [Part(cells=cells, numeric=["value"])] + [Part(note=more)] * (len(best) > len(shown))


def _bar(share: float, kind: str = "bar") -> Markup:
    return Markup('<span class="{}" style="width:{:.0f}%"></span>').format(kind, 100 * min(share, 1.0))


def _importance(found: Importance | None) -> list[Part]:
    """Return the tables of shares, and sentences that say what they mean."""
    if found is None:
        needed = f"Not computed: it needs {MIN_TRIALS} disclosed evaluations with values that differ."
        return [Part(note=needed)]
    how = (
        f"A random forest was fitted to {found.num_trials:,} evaluations, and the variance of its "
        "predictions was split among the parameters (functional ANOVA, exact for each tree). It predicts "
        "the rank of a value among the same agent's values."
    )
    good = Part(text=f"On evaluations that its trees did not see, its R² is {found.score:.2f}.")
    weak = (
        f"The forest predicts held-out evaluations badly (R² {found.score:.2f}): do not rely on these shares."
    )
    parts = [Part(text=how), Part(note=weak) if found.score < _WEAK else good]
    parts += _shares(found.singles, "parameter")
    return parts + (
        _shares(found.pairs[: _MAX_SHARES // 2], "pair (beyond each alone)") if found.pairs else []
    )


def _shares(shares: Sequence[Share], heading: str) -> list[Part]:
    shown = shares[:_MAX_SHARES]
    cells: dict[str, Sequence[str]] = {
        heading: [" and ".join(shorten(name, 40) for name in share.names) for share in shown],
        "share of variance": [f"{share.mean:.1%} ± {share.stddev:.1%}" for share in shown],
        "": [_bar(share.mean) for share in shown],
    }
    hidden = len(shares) - len(shown)
    more = [Part(note=f"{hidden} more parameters have smaller shares.")] if hidden > 0 else []
    return [Part(cells=cells, numeric=["share of variance"]), *more]


def _traffic(rows: list[SummaryRow]) -> Part:
    """Return bytes and numbers that were sent, per algorithm."""
    most = max((row.bytes_down + row.bytes_up for row in rows if np.isfinite(row.bytes_down)), default=0.0)
    if not most:
        return Part(note="No bytes were counted.")
    sizes = [np.nan_to_num([row.bytes_down, row.bytes_up]) / most for row in rows]
    floats = [row.floats_per_agent for row in rows]
    cells: dict[str, Sequence[str]] = {
        "algorithm": [shorten(row.algorithm, 60) for row in rows],
        "to an agent and round": [format_bytes(row.bytes_down) for row in rows],
        "from an agent and round": [format_bytes(row.bytes_up) for row in rows],
        "numbers per agent": ["-" if np.isnan(number) else f"{number:,.0f}" for number in floats],
        "full: to the agent, light: from it": [_bar(down) + _bar(up, "bar light") for down, up in sizes],
    }
    return Part(cells=cells, numeric=list(cells)[1:4])


def _failures(study: Study, rows: list[SummaryRow]) -> list[Part]:
    """Return lost and refused replies and failed evaluations: how many, why, and at which agents most."""
    if not any(row.lost_replies or row.refused_replies or row.failed_evaluations for row in rows):
        return [Part(text="None: every reply came and could be used, and every evaluation succeeded.")]
    whys = [", ".join(f"{why}: {k:,}" for why, k in row.reasons.items()) for row in rows]
    cells = {
        "algorithm": [shorten(row.algorithm, 60) for row in rows],
        "lost replies": [f"{row.lost_replies:,}" for row in rows],
        "refused replies": [f"{row.refused_replies:,}" for row in rows],
        "why": [why or "-" for why in whys],
        "failed evaluations": [f"{row.failed_evaluations:,}" for row in rows],
    }
    parts = [Part(cells=cells, numeric=["lost replies", "refused replies", "failed evaluations"])]
    failed = study.trials.take(study.trials["failure"] != "")
    if len(failed):
        reasons = Counter(" ".join(reason.split())[:_MAX_REASON] for reason in failed["failure"].tolist())
        common = reasons.most_common(_MAX_REASONS)
        cells = {
            "times": [f"{number:,}" for _, number in common],
            "why evaluations failed": [reason for reason, _ in common],
        }
        agents = Counter(failed["agent"].tolist()).most_common(_MAX_AGENTS)
        named = ", ".join(f"{agent[:60]} ({number:,})" for agent, number in agents)
        parts += [Part(cells=cells, numeric=["times"])]
        parts += [Part(text=f"Agents with most failed evaluations: {named}.")]
    return parts


def _from_markdown(source: str) -> Markup:
    r"""Return the HTML of headings, paragraphs, tables and `code` in Markdown; nothing else is interpreted.

    >>> _from_markdown("## a\n\nb `c` <d>")
    Markup('<h4>a</h4>\n<p>b <code>c</code> &lt;d&gt;</p>\n')
    """
    parser = MarkdownIt("zero").enable(["heading", "table", "backticks"])
    tokens = parser.parse("\n".join(map(printable, source.splitlines())))
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
    html = parser.renderer.render(tokens, parser.options, {})
    region = '<div class="wide" tabindex="0" role="region" aria-label="table"><table>'
    return Markup(html.replace("<table>", region).replace("</table>", "</table></div>"))


# -- pictures ---------------------------------------------------------------------------------------------


def _curves(study: Study, rows: list[SummaryRow]) -> list[Part]:
    """Return a picture per algorithm, and one of all algorithms' means if there are several."""
    if not np.isfinite(np.concatenate([study.trials["value"], study.rounds["mean_incumbent"]])).any():
        return [Part(note=nothing_to_draw(study))]
    styles, ends = study_styles(study), {row.algorithm: str(row.final) for row in rows}
    shown = {
        f"{row.algorithm} ({row.num_agents:,} agent{'' if row.num_agents == 1 else 's'})": row.algorithm
        for row in rows
        if row.num_with_value and row.num_evaluations[1]
    }
    parts = {caption: study.only(algorithm) for caption, algorithm in shown.items()}
    if not parts:
        said = "Mean of the best values that agents disclosed, by round; they did not disclose their trials"
        parts = {said: study}
    elif len(parts) > 1:
        parts = {"All algorithms: mean over agents, band one standard error": study, **parts}
    pictures: dict[tuple[str, str], Draw] = {}
    for caption, part in parts.items():
        end = ", ".join(f"{algorithm} {ends[algorithm]}" for algorithm in part.algorithms)
        described = f"{caption}: best value so far against evaluations; the mean ends at {end}"
        pictures[caption, described] = partial(draw_curves, study=part, styles=styles, width=16)
    return _drawn(pictures)


def _slices(study: Study, found: Importance | None) -> list[Part]:
    """Return a picture per parameter: values of trials against it; of many, the most important ones."""
    axes = study_axes(study) if len(study.recommendations) else []
    if not axes:
        return [Part(note="No configurations were disclosed.")]
    shown, why = most_important(axes, found, _MAX_SLICES)
    styles, most = study_styles(study), max(_MAX_DOTS // len(study.algorithms), 1)
    pictures: dict[tuple[str, str], Draw] = {}
    for axis in shown:
        caption = axis.name + (f" (only if {axis.condition})" if axis.condition else "")
        described = f"Values of evaluations against {axis.name}"
        pictures[caption, described] = partial(draw_slice, study=study, axis=axis, styles=styles, most=most)
    parts = _drawn(pictures)
    note = "Ringed: the best of each agent."
    if hidden := shown_values(study)[2]:
        note += f" {hidden:,} much worse values are not shown."
    if len(shown) < len(axes):
        note += f" Shown are {why}."
    return [*parts, Part(note=note)]


def _contours(found: Importance | None) -> list[Part]:
    """Return a picture per pair of the most important parameters: the predicted rank in eight levels."""
    if found is None or len(found.axes) < 2:
        return [Part(note="Not drawn: it needs two parameters and the forest above.")]
    top = [share.names[0] for share in found.singles[:_CONTOURS_OF]]
    pictures: dict[tuple[str, str], Draw] = {}
    for first, second in ((a, b) for place, a in enumerate(top) for b in top[place + 1 :]):
        axes = [found.axes[found.place(name)] for name in (first, second)]
        x, y = ((np.arange(count) + 0.5) / count for count in map(_num_cells, axes))
        surface = found.surface(first, second, x, y)
        low, high = float(surface.min()), float(surface.max())
        best = np.unravel_index(int(surface.argmax()), surface.shape)
        described = (
            f"Predicted rank against {first} and {second}, from {low:.2f} to {high:.2f}; it is largest at "
            f"{x[best[0]]:.0%} of the range of {first} and {y[best[1]]:.0%} of that of {second}"
        )
        caption = f"{first} and {second}: predicted rank {low:.2f} (pale) to {high:.2f} (strong)"
        pictures[caption, described] = partial(_draw_contour, axes=axes, surface=surface)
    note = (
        "The stronger the colour, the better: the predicted rank of a configuration among an agent's own "
        "values, averaged over all other parameters."
    )
    return [*_drawn(pictures), Part(note=note)]


def _num_cells(axis: Axis) -> int:
    if axis.choices is not None:
        return len(axis.choices)
    return min(axis.integer.num_values, _GRID) if axis.integer and not axis.log else _GRID


def _draw_contour(ax: Axes, axes: Sequence[Axis], surface: Array) -> None:
    """Draw the levels of a surface whose cells have the same size, each cell in one colour."""
    from matplotlib.colors import to_rgba

    low, high = float(surface.min()), float(surface.max())
    edges = [np.repeat(np.arange(n + 1) / n, 2)[1:-1] for n in surface.shape]
    cells = np.repeat(np.repeat(surface, 2, axis=0), 2, axis=1)
    levels = np.linspace(low, max(high, low + 1e-12), _LEVELS + 1)
    colours = [to_rgba(_CONTOUR, 0.06 + 0.86 * level / (_LEVELS - 1)) for level in range(_LEVELS)]
    ax.contourf(*edges, cells.T, levels=levels, colors=colours)
    dress(ax)
    ax.grid(visible=False)
    for parameter, axis in zip(axes, (ax.xaxis, ax.yaxis), strict=True):
        axis.set_ticks(*_ticks(parameter))
        logarithmic = " (logarithmic)" if parameter.log else ""
        axis.set_label_text(shorten(parameter.name, 34) + logarithmic)


def _ticks(axis: Axis) -> tuple[Array, list[str]]:
    """Return the marks of a parameter's axis in [0, 1], at most about eight, and their labels."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if axis.choices is not None:
        shown = range(0, len(axis.choices), -(-len(axis.choices) // 8))
        return axis.unit(np.array(shown)), [shorten(str(axis.choices[k]), 10) for k in shown]
    logarithmic = axis.log and axis.high >= 100 * axis.low
    locator = LogLocator(numticks=6) if logarithmic else MaxNLocator(4, integer=axis.integer is not None)
    values = np.asarray(locator.tick_values(axis.low, axis.high))
    values = values[(values >= axis.low) & (values <= axis.high)]
    return axis.unit(values), [f"{value:.4g}" for value in values]


def _drawn(pictures: Mapping[tuple[str, str], Draw]) -> list[Part]:
    """Draw pictures, given by caption and description; without matplotlib, say what to install."""
    try:
        return [Part(pictures=[(_svg(draw, said), caption) for (caption, said), draw in pictures.items()])]
    except ConfigError as error:
        return [Part(note=str(error))]


def _svg(draw: Draw, description: str) -> Markup:
    """Return a drawing as SVG inside HTML: its colours are variables, and its agents' lines have titles."""
    stream = io.StringIO()
    plain = {"svg.fonttype": "none", "svg.hashsalt": description}  # texts stay texts; unique identifiers
    with report_style(plain), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that matplotlib's font does not have are the browser's
        figure = new_figure(5.0, 3.4)
        draw(figure.subplots())
        figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    root = ElementTree.fromstring("\n".join(map(printable, stream.getvalue().splitlines())))
    for element in root.iter():
        for style in [child for child in element if child.tag.endswith("}style")]:
            element.remove(style)  # it would hold for the whole page
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = dict(_attributes(element.items()))
        name = element.attrib.pop("id", "") if element.tag == "g" else ""
        if name.startswith("agent "):
            element.set("class", "agent")
            title = ElementTree.Element("title")
            title.text = name.removeprefix("agent ")
            element.insert(0, title)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": printable(description)}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _attributes(items: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for name, value in items:
        if name == "style":  # the page has fonts of its own
            inherited = re.sub(r"font-family:[^;]*;", "", value)
            yield name, re.sub(r"#([0-9a-f]{6})\b", r"var(--x\1)", inherited)
        else:
            yield name.rpartition("}")[2], value
