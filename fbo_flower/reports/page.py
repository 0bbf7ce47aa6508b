"""`html_page`: a study as one HTML page with its pictures, its style and its script inside.

The page asks no other host for anything, and a content security policy forbids it to. The policy allows only
the script `page.js`, so a text of an agent could not run even if it were not escaped. Jinja2 escapes every
text, and control characters become escapes that can be seen.

Matplotlib draws the pictures. In their SVG each colour `#rrggbb` becomes the variable `--xrrggbb` of the
style sheet, so that a dark window has its own colours. What the `gid`s say is in a group (see `figures`)
becomes the attributes `data-a`, the number of an agent, and `data-n`, the numbers of notes. With them the
script shows the value and the configuration under the pointer, and hides agents that the reader does not
choose. Without matplotlib the page says what to install.

A page stays below a megabyte: it holds at most `MAX_AGENTS` agents, `_LINE_POINTS` points of lines and
`_DOTS` dots. It says so where it leaves something out.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from fbo_flower.errors import ConfigError, printable
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.axes import dress, shorten
from fbo_flower.reports.figures import (
    MAX_LINES,
    Detail,
    best_cells,
    draw_curves,
    draw_sent,
    draw_slice,
    metric_of,
    named_agents,
    nothing_to_draw,
    ranked,
    sent_by_round,
    shown_values,
    study_title,
    what_is_drawn,
)
from fbo_flower.reports.fronts import (
    agents_shown,
    draw_outputs,
    draw_shares,
    explained,
    front_cells,
    has_outputs,
    heading_of,
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
from fbo_flower.reports.pictures import new_figure, report_style, study_styles
from fbo_flower.reports.privacy_page import privacy_page
from fbo_flower.reports.selection import (
    LOSSES,
    PROTOCOLS,
    draw_front,
    draw_shipped,
    draw_wins,
    judged,
    selection_cells,
    selections,
)
from fbo_flower.reports.summary import SummaryRow, summarise, summary_cells, traffic_cells
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fbo_flower.study.study import Study

PAGE = "report.html"
Draw = Callable[["Axes"], object]
Pictures = dict[tuple[str, str], Draw]  # caption and description of a picture -> what draws it
Part = tuple[str, Any]  # "text", "note", "table", "list" (a table that is not sorted), "pictures" or "html"
MAX_AGENTS = 200  # agents with lines, dots and rows: those with the best values
_LINE_POINTS = 10_000  # points of all lines
_DOTS = 5_000  # dots in all slices
_NOTES = 150_000  # characters of configurations under the pointer
_MAX_REASONS, _MAX_REASON = 10, 300
_MAX_SLICES = 9
_MAX_SHARES = 12  # rows of a table of shares
_CONTOURS_OF = 3  # parameters, the most important ones, whose pairs are drawn
_GRID = 36  # cells of an axis of a contour
_LEVELS = 8
_CONTOUR = "#0072b2"
_WEAK = 0.1  # score below which the shares say little
_NUMBER = re.compile(r"(-|not reached|not disclosed|[+-]?[\d,.]+(e[+-]?\d+)?)( ?[kMG]?B|%)?( ± \S+)?")
_LARGE, _SMALL = (4.8, 3.2), (4.0, 2.9)  # inches of a picture; its text has the size of the page's


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
    pen = _Pen(study)
    learned = privacy_page(study).partition("\n\n")[2]  # without its heading
    sections = {"results": ("Results", _results(rows))}
    if len(study.models):
        sections["models"] = ("Models", _models(pen))
    else:
        found = study_importance(study)
        sections |= {
            "curves": ("Best value so far", _curves(pen, rows)),
            **({"outputs": ("Outputs", _outputs(pen))} if has_outputs(study) else {}),
            "best": ("Best configurations", _best(pen)),
            "importance": ("Which parameters matter", _importance(found)),
            "slices": ("Value against each parameter", _slices(pen, found)),
            "contours": ("Two parameters at a time", _contours(pen, found)),
        }
    sections |= {
        "traffic": ("Traffic", _traffic(pen)),
        "privacy": ("What the server learned", [("html", _from_markdown(learned))]),
        "failures": ("Failures", _failures(pen, rows)),
    }
    environment = Environment(
        loader=PackageLoader("fbo_flower", "reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["digest"] = lambda script: base64.b64encode(
        hashlib.sha256(script.encode()).digest()
    ).decode()
    environment.filters["is_numeric"] = lambda cells: all(
        isinstance(cell, str) and _NUMBER.fullmatch(cell) for cell in cells
    )
    return environment.get_template("page.html").render(
        title=study_title(study) or "Study",
        facts=_facts(study, rows),
        sections=sections,
        made=_made(study),
        agents=pen.agents,
        hues=named_agents(study),
        more=len(pen.agents) > MAX_LINES,
        data=pen.data(),
        colours=sorted(pen.colours),
        zip=zip,
    )


def _facts(study: Study, rows: list[SummaryRow]) -> dict[str, str]:
    """Return the few numbers that a reader looks for first."""
    values = study.recommendations["value"]
    if not len(values):
        values = study.rounds["best"][np.isfinite(study.rounds["best"])]
    best = (values.min() if study.any_minimizes else values.max()) if len(values) else None
    rounds = {len(set(study.rounds.where(algorithm=name)["round"].tolist())) for name in study.algorithms}
    facts = {
        f"best {metric_of(study) or 'value'}": "not disclosed" if best is None else f"{best:.5g}",
        "agents": " or ".join(f"{k:,}" for k in sorted({row.num_agents for row in rows})),
        "rounds": " or ".join(f"{k:,}" for k in sorted(rounds)),
        "evaluations": f"{int(study.trials['pulls'].sum()):,}" if len(study.trials) else "not disclosed",
        "failed evaluations": f"{sum(row.failed_evaluations for row in rows):,}",
        "lost or refused replies": f"{sum(row.lost_replies + row.refused_replies for row in rows):,}",
    }
    if len(study.models):
        sites = {int(run["num_agents"]) for run in study.settings["runs"] if run.get("num_agents")}
        known = {
            "sites": " or ".join(f"{k:,}" for k in sorted(sites)) or "unknown",
            "rounds": facts["rounds"],
        }
        return {"models": f"{len(study.models):,}"} | known
    return facts


def _made(study: Study) -> str:
    versions = dict(study.settings.get("versions", {})).items()
    created = f"Study of {study.settings['created']}. " if study.settings.get("created") else ""
    named = ", ".join(f"{name} {version}" for name, version in versions)
    return f"{created}Made with {named}." if named else created


# -- pictures ---------------------------------------------------------------------------------------------


class _Pen:
    """Draws a study's pictures as SVG inside HTML, and collects what stands under the pointer.

    Parameters
    ----------
    study : the study; `shown` is the same with the agents of the page only
    """

    def __init__(self, study: Study) -> None:
        tables = study.trials, study.recommendations
        known = {agent for table in tables for agent in table["agent"].tolist()}
        best = [agent for agent, _ in ranked(study)]
        chosen = known if len(known) <= MAX_AGENTS else set(best[:MAX_AGENTS])
        self.study, self.num_agents = study, len(known)
        self.agents = [] if len(study.models) else sorted(chosen, key=natural_order)
        self.styles = study_styles(study)
        trials, recommendations = (
            table.take(np.array([agent in chosen for agent in table["agent"].tolist()], dtype=bool))
            for table in tables
        )
        self.shown = replace(study, trials=trials, recommendations=recommendations)
        self.colours: set[str] = set()
        self._place = {agent: number for number, agent in enumerate(self.agents)}
        self._notes: dict[tuple[str, int], int] = {}
        num_lines = max(len(self.agents) * len(study.algorithms), 1)
        self.detail = Detail(
            names=16,
            points=min(1000, max(12, _LINE_POINTS // num_lines)),
            lines_of=frozenset(self.agents),
        )

    def pictures(self, pictures: Pictures, size: tuple[float, float]) -> list[Part]:
        """Draw pictures; without matplotlib, say what to install."""
        try:
            drawn = [(self._svg(draw, said, size), caption) for (caption, said), draw in pictures.items()]
        except ConfigError as error:
            return [("note", str(error))]
        return [("pictures", drawn)]

    def data(self) -> dict[str, Any]:
        """Return what the script shows: each agent and its best; notes of agent, heading, configuration."""
        best = dict(ranked(self.study))
        agents = []
        for agent in self.agents:
            found = best.get(agent)
            told = ("", "") if found is None else (f"best {found['value']:.6g}", _config(found["config"]))
            agents.append([printable(agent[:60]), *told])
        tables = {
            "trials": self.shown.trials,
            "best": self.shown.recommendations,
            "models": self.study.models,
        }
        return {"agents": agents, "notes": [self._note(tables[kind], kind, row) for kind, row in self._notes]}

    def _note(self, table: Any, kind: str, row: int) -> list[Any]:
        one = {name: table[name][row] for name in table.columns}
        algorithm = f"{one['algorithm']}, " if len(self.study.algorithms) > 1 else ""
        if kind == "models":
            losses = (
                f"{name.replace('_', ' ')} {one[name]:.4g}" for name in LOSSES if np.isfinite(one[name])
            )
            return [
                -1,
                printable(f"{algorithm}model {one['trial']}: {', '.join(losses)}"),
                _config(one["config"]),
            ]
        which = f"trial {one['trial']}" if kind == "trials" else "best"
        told = ", ".join(f"{name} {number:.6g}" for name, number in one.get("outputs", {}).items())
        head = f"{one['agent'][:60]}, {algorithm}{which}: {told or format(one['value'], '.6g')}"
        return [self._place[one["agent"]], printable(head), _config(one["config"])]

    def _svg(self, draw: Draw, description: str, size: tuple[float, float]) -> Markup:
        """Return a drawing as SVG: its colours are variables, and its groups say whose they are."""
        stream = io.StringIO()
        plain = {"svg.fonttype": "none", "svg.hashsalt": description}  # texts stay texts; unique identifiers
        with report_style(plain), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # letters that matplotlib's font does not have are the browser's
            figure = new_figure(*size)
            draw(figure.subplots())
            figure.savefig(
                stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
            )
        root = ElementTree.fromstring("\n".join(map(printable, stream.getvalue().splitlines())))
        for element in root.iter():
            for style in [child for child in element if child.tag.endswith("}style")]:
                element.remove(style)  # it would hold for the whole page
            element.tag = element.tag.rpartition("}")[2]
            element.attrib = dict(self._attribute(element.tag, *item) for item in element.items())
            element.text, element.tail = (
                None if text is None or text.isspace() else text for text in (element.text, element.tail)
            )
        for group in root.iter("g"):
            self._say_whose(group)
        root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": printable(description)}
        return Markup(ElementTree.tostring(root, encoding="unicode"))

    def _attribute(self, tag: str, name: str, value: str) -> tuple[str, str]:
        """Return an attribute for the page: fonts are the page's, colours variables, numbers short."""
        if name == "style":
            self.colours |= set(re.findall(r"#([0-9a-f]{6})\b", value))
            inherited = re.sub(r"font-family:[^;]*;", "", value)
            return name, re.sub(r"#([0-9a-f]{6})\b", r"var(--x\1)", inherited)
        if name in {"d", "x", "y"}:
            places = 1 if tag == "use" or len(value) > 300 else 2
            short = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.{places}f}", value)
            return name, " ".join(short.split())
        return name.rpartition("}")[2], value

    def _say_whose(self, group: ElementTree.Element) -> None:
        uses = group.findall("use")
        if len({use.get("style") for use in uses}) == 1 and "style" in uses[0].attrib:
            group.set("style", uses[0].attrib["style"])  # once for all of them
            for use in uses:
                del use.attrib["style"]
        kind, _, what = group.attrib.pop("id", "").partition(" ")
        if kind in {"agent", "many"}:
            group.set("data-a", str(self._place[unquote(what, errors="surrogatepass")]))
            group.set("class", kind)
        elif kind in {"trials", "best", "models"}:
            notes = self._notes
            keys = [(kind, int(row)) for row in what.split()]
            group.set("data-n", " ".join(str(notes.setdefault(key, len(notes))) for key in keys))


def _config(config: Mapping[str, Any]) -> str:
    """Return a configuration as a reader reads it, one parameter a line."""
    shown = (
        f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}"
        for name, value in config.items()
    )
    return "\n".join(printable(shorten(line, 60)) for line in list(shown)[:12])


# -- sections ---------------------------------------------------------------------------------------------


def _results(rows: list[SummaryRow]) -> list[Part]:
    """Return the table that `fbo-flower report` prints, with a row per quantity and a column per run."""
    (_, names), *others = summary_cells(rows).items()
    columns = {"": [heading for heading, _ in others]}
    for number, name in enumerate(names):
        columns[shorten(name, 60)] = [cells[number] for _, cells in others]
    return [("list", (columns, None))]


def _best(pen: _Pen) -> list[Part]:
    """Return each agent's best configuration with a button that copies it as JSON, the best values first."""
    none = pen.shown.infeasible
    lacking = f"No configuration holds the limits of {shorten(', '.join(none), 200)}." if none else ""
    notes: list[Part] = [("note", lacking)] if none else []
    if len(pen.shown.objectives) > 1:
        return [*_fronts(pen), *notes]
    best = ranked(pen.shown)
    if not best and none:
        return notes
    if not best:
        sentence = "No agent disclosed a configuration. On each device, fbo-flower best JOURNAL prints the"
        return [("note", f"{sentence} agent's own.")]
    cells = best_cells(pen.shown, MAX_AGENTS)
    cells["configuration"] = [_copied(found["config"]) for _, found in best]
    return [("table", (cells, [agent for agent, _ in best])), *notes, *_fewer_agents(pen)]


def _fronts(pen: _Pen) -> list[Part]:
    """Return each agent's own Pareto front, a row per configuration."""
    study, agents = pen.shown, list(dict.fromkeys(pen.shown.trials["agent"].tolist()))
    fronts = {agent: study.front(agent) for agent in agents[:MAX_AGENTS]}
    cells = front_cells(fronts, study.objectives)
    cells["configuration"] = [_copied(config) for front in fronts.values() for config in front.configs]
    return [("table", (cells, cells["agent"]))] if cells["agent"] else []


def _outputs(pen: _Pen) -> list[Part]:
    """Return pictures of some agents' outputs, and the shares of feasible trials of all agents."""
    (agents, which), hues = agents_shown(pen.shown), named_agents(pen.study)
    pictures: Pictures = {
        (heading_of(pen.shown, agent), f"Outputs of the trials of {agent}"): partial(
            draw_outputs, study=pen.shown, agent=agent, styles=pen.styles, colours=hues
        )
        for agent in agents
    }
    if "feasible" in pen.shown.trials.columns and len(agents) > 1:
        caption = "Share of each agent's trials that holds its limits"
        pictures[caption, caption] = partial(draw_shares, study=pen.shown, styles=pen.styles)
    said = f"{explained(pen.shown)}; {which}" if which else explained(pen.shown)
    return [("text", said[0].upper() + said[1:]), *pen.pictures(pictures, _SMALL)]


def _copied(config: Mapping[str, Any]) -> Markup:
    """Return a configuration as JSON with a button that copies it."""
    copy = Markup('<span class="copy"><code>{}</code><button type="button">Copy</button></span>')
    return copy.format(printable(json.dumps(config, ensure_ascii=False, default=str)))


def _fewer_agents(pen: _Pen) -> list[Part]:
    if pen.num_agents == len(pen.agents):
        return []
    return [("note", f"The best {len(pen.agents)} of {pen.num_agents:,} agents; all are in best.json.")]


def _importance(found: Importance | None) -> list[Part]:
    """Return the tables of shares, and sentences that say what they mean."""
    if found is None:
        return [
            ("note", f"Not computed: it needs {MIN_TRIALS} disclosed evaluations with values that differ.")
        ]
    how = (
        f"A random forest was fitted to {found.num_trials:,} evaluations, and the variance of its "
        "predictions was split among the parameters (functional ANOVA, exact for each tree). It predicts "
        "the rank of a value among the same agent's values."
    )
    good = ("text", f"On evaluations that its trees did not see, its R² is {found.score:.2f}.")
    weak = (
        f"The forest predicts held-out evaluations badly (R² {found.score:.2f}): do not rely on these shares."
    )
    parts = [("text", how), ("note", weak) if found.score < _WEAK else good]
    parts += _shares(found.singles, "parameter")
    return parts + (_shares(found.pairs[: _MAX_SHARES // 2], "pair, beyond each") if found.pairs else [])


def _shares(shares: Sequence[Share], heading: str) -> list[Part]:
    shown = shares[:_MAX_SHARES]
    bar = Markup('<span class="bar" style="width:{:.0f}%"></span>')
    cells: dict[str, Sequence[str]] = {
        heading: [" and ".join(shorten(name, 40) for name in share.names) for share in shown],
        "share of variance": [f"{share.mean:.1%} ± {share.stddev:.1%}" for share in shown],
        "": [bar.format(100 * min(share.mean, 1.0)) for share in shown],
    }
    hidden = len(shares) - len(shown)
    more: list[Part] = [("note", f"{hidden} more parameters have smaller shares.")] if hidden > 0 else []
    return [("table", (cells, None)), *more]


def _traffic(pen: _Pen) -> list[Part]:
    """Return what was sent by round, and per agent in the whole run."""
    pictures: Pictures = {}
    for unit, what in (("floats", "Numbers"), ("bytes", "Bytes")):
        lines, note = sent_by_round(pen.study, unit)
        if lines:
            ends = ", ".join(f"{name} {total[-1]:,.0f}" for name, (_, total, _) in lines.items())
            caption = f"{what} that all agents together have exchanged" + f" ({note})" * bool(note)
            draw = partial(draw_sent, study=pen.study, styles=pen.styles, unit=unit, detail=pen.detail)
            pictures[caption, f"{what} exchanged by round; at the end {ends}"] = draw
    if not pictures:
        return [("note", "No bytes were counted.")]
    table = ("table", (traffic_cells(pen.study), None))
    return [*pen.pictures(pictures, _LARGE), ("text", "Per agent, in the whole run:"), table]


def _failures(pen: _Pen, rows: list[SummaryRow]) -> list[Part]:
    """Return lost and refused replies and failed evaluations: how many, why, and at which agents."""
    if not any(row.lost_replies or row.refused_replies or row.failed_evaluations for row in rows):
        return [("text", "None: every reply came and could be used, and every evaluation succeeded.")]
    whys = [", ".join(f"{why}: {k:,}" for why, k in row.reasons.items()) for row in rows]
    cells = {
        "algorithm": [shorten(row.algorithm, 60) for row in rows],
        "lost replies": [f"{row.lost_replies:,}" for row in rows],
        "refused replies": [f"{row.refused_replies:,}" for row in rows],
        "why": [why or "-" for why in whys],
        "failed evaluations": [f"{row.failed_evaluations:,}" for row in rows],
    }
    parts: list[Part] = [("table", (cells, None))]
    failed = pen.study.trials.take(pen.study.trials["failure"] != "")
    if len(failed):
        reasons = Counter(" ".join(reason.split())[:_MAX_REASON] for reason in failed["failure"].tolist())
        common = reasons.most_common(_MAX_REASONS)
        cells = {
            "times": [f"{number:,}" for _, number in common],
            "why evaluations failed": [reason for reason, _ in common],
        }
        agents = Counter(failed["agent"].tolist()).most_common(_MAX_REASONS)
        named = {
            "agents with most failures": [shorten(agent, 60) for agent, _ in agents],
            "failed evaluations": [f"{number:,}" for _, number in agents],
        }
        parts += [("table", (cells, None)), ("table", (named, [agent for agent, _ in agents]))]
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


def _curves(pen: _Pen, rows: list[SummaryRow]) -> list[Part]:
    """Return a picture per algorithm, and one of all algorithms' means if there are several."""
    study = pen.study
    if not np.isfinite(np.concatenate([study.trials["value"], study.rounds["mean_incumbent"]])).any():
        return [("note", nothing_to_draw(study))]
    ends = {row.algorithm: str(row.final) for row in rows}
    shown = {
        f"{row.algorithm}, {row.num_agents:,} agents; {what_is_drawn(row.num_with_value)}"
        if row.num_with_value > 1
        else f"{row.algorithm}, {row.num_agents:,} agent{'' if row.num_agents == 1 else 's'}": row.algorithm
        for row in rows
        if row.num_with_value and row.num_evaluations[1]
    }
    parts = {caption: study.only(algorithm) for caption, algorithm in shown.items()}
    if not parts:
        said = "Mean of the best values that agents disclosed, by round; they did not disclose their trials"
        parts = {said: study}
    elif len(parts) > 1:
        parts = {"All algorithms: mean over agents, band one standard error": study, **parts}
    pictures: Pictures = {}
    for caption, part in parts.items():
        end = ", ".join(f"{algorithm} {ends[algorithm]}" for algorithm in part.algorithms)
        described = f"{caption}: best value so far against evaluations; the mean ends at {end}"
        pictures[caption, described] = partial(draw_curves, study=part, styles=pen.styles, detail=pen.detail)
    longest = max(row.num_evaluations[1] for row in rows)
    fewer = f"Lines have {pen.detail.points:,} of {longest:,} points." if longest > pen.detail.points else ""
    return [*pen.pictures(pictures, _LARGE), *([("note", fewer)] if fewer else [])]


def _slices(pen: _Pen, found: Importance | None) -> list[Part]:
    """Return a picture per parameter: values of trials against it; of many, the most important ones."""
    study = pen.shown
    axes = study_axes(study) if len(study.recommendations) else []
    if not axes:
        return [("note", "No configurations were disclosed.")]
    shown, why = most_important(axes, found, _MAX_SLICES)
    text = max(len(_config(config)) for config in study.recommendations["config"][:50].tolist())
    dots = min(_DOTS // len(shown), _NOTES // (text + 40))
    detail = replace(pen.detail, dots=max(dots // len(study.algorithms), 1))
    pictures: Pictures = {}
    for axis in shown:
        pictures["", f"Values of evaluations against {axis.name}"] = partial(
            draw_slice, study=study, axis=axis, styles=pen.styles, detail=detail
        )
    note = "Ringed: the best of each agent."
    if hidden := shown_values(study)[2]:
        note += f" {hidden:,} much worse values are not shown."
    fewer = any(len(study.trials.where(algorithm=name)) > detail.dots for name in study.algorithms)
    if fewer:
        note += f" At most {detail.dots:,} evaluations of an algorithm are drawn, evenly chosen."
    if len(shown) < len(axes):
        note += f" Shown are {why}."
    return [*pen.pictures(pictures, _SMALL), ("note", note)]


def _models(pen: _Pen) -> list[Part]:
    """Return fronts, losses of the shipped models and win matrices of a study that selected models."""
    rows = selections(pen.study)
    table = ("table", (selection_cells(rows), None))
    if not judged(pen.study).any():
        return [table, ("note", "No model was judged.")]
    front = "Configurations in the losses that the search has seen; stars are shipped"
    pictures: Pictures = {
        (front, front): partial(draw_front, study=pen.study, styles=pen.styles),
        ("Held-out losses", "Losses on held-out rows"): partial(
            draw_shipped, study=pen.study, styles=pen.styles
        ),
    }
    if len({row.contestant for row in rows}) > 1:
        for protocol in PROTOCOLS:
            caption = f"How often a row's contestant beats a column's, {protocol} protocol"
            pictures[caption, caption] = partial(draw_wins, rows=rows, protocol=protocol)
    return [*pen.pictures(pictures, _LARGE), table]


def _contours(pen: _Pen, found: Importance | None) -> list[Part]:
    """Return a picture per pair of the most important parameters: the predicted rank in eight levels."""
    if found is None or len(found.axes) < 2:
        return [("note", "Not drawn: it needs two parameters and the forest above.")]
    pictures: Pictures = {}
    for first, second in combinations([share.names[0] for share in found.singles[:_CONTOURS_OF]], 2):
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
    return [*pen.pictures(pictures, _SMALL), ("note", note)]


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
    locator = LogLocator(numticks=6) if logarithmic else MaxNLocator(4, integer=axis.whole)
    values = np.asarray(locator.tick_values(axis.low, axis.high))
    values = values[(values >= axis.low) & (values <= axis.high)]
    return axis.unit(values), [f"{value:.4g}" for value in values]
