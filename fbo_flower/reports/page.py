"""`html_page`: a study as one HTML page with its pictures, its style and its script inside.

The page asks no other host for anything, and a content security policy forbids it to. The policy allows only
the script `page.js`, so a text of an agent could not run even if it were not escaped. Jinja2 escapes every
text, and control characters become escapes that can be seen. The script shows the value and the configuration
under the pointer, and hides agents that the reader does not choose. Without matplotlib the page says what to
install.

A page stays below a megabyte: it holds at most `MAX_AGENTS` agents, `_LINE_POINTS` points of lines and
`_DOTS` dots. It says so where it leaves something out.

Matplotlib draws the pictures as SVG. Each colour `#rrggbb` becomes the variable `--xrrggbb` of the style
sheet, so that a dark window has its own colours. What the `gid`s say is in a group (see `curves`,
`importance` and `selection`) becomes the attributes `data-a`, the number of an agent, and `data-n`, the
numbers of notes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
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
from fbo_flower.reports import curves, fronts, importance, selection, traffic
from fbo_flower.reports.figures import best_cells, ranked, shown_value, study_title
from fbo_flower.reports.importance import MIN_TRIALS, Importance, Share
from fbo_flower.reports.pictures import new_figure, report_style, shorten, study_styles
from fbo_flower.reports.summary import SummaryRow, summarise, summary_cells
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fbo_flower.study.study import Study

Draw = Callable[["Axes"], object]
Pictures = dict[tuple[str, str], Draw]  # caption and description of a picture -> what draws it
Part = tuple[str, Any]  # "text", "note", "table", "list" (a table that is not sorted), "pictures" or "html"
MAX_AGENTS = 200  # agents with lines, dots and rows: those with the best values
PAGE = "report.html"
_LINE_POINTS = 10_000  # points of all lines
_DOTS = 5_000  # dots in all slices
_NOTES = 150_000  # characters of configurations under the pointer
_MAX_REASONS, _MAX_REASON = 10, 300
_MAX_SLICES = 9
_MAX_SHARES = 12  # rows of a table of shares
_CONTOURS_OF = 3  # parameters, the most important ones, whose pairs are drawn
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
    pen = Pen(study)
    learned = traffic.privacy_page(study).partition("\n\n")[2]  # without its heading
    (_, names), *others = summary_cells(rows).items()  # a row per quantity and a column per run
    columns = {"": [heading for heading, _ in others]}
    columns |= {shorten(name, 60): [cells[k] for _, cells in others] for k, name in enumerate(names)}
    versions = ", ".join(f"{name} {version}" for name, version in study.settings.get("versions", {}).items())
    made = [f"Study of {created}." for created in [study.settings.get("created")] if created]
    made += [f"Made with {versions}."] if versions else []
    sections: dict[str, tuple[str, list[Part]]] = {"results": ("Results", [("list", (columns, None))])}
    if len(study.models):
        sections["models"] = ("Models", _models(pen))
    else:
        found = importance.study_importance(study)
        sections |= {
            "curves": ("Best value so far", _curves(pen, rows)),
            **({"outputs": ("Outputs", _outputs(pen))} if fronts.has_outputs(study) else {}),
            "best": ("Best configurations", _best(pen)),
            "importance": ("Which parameters matter", _about(found)),
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
    environment.filters |= {
        "digest": lambda script: base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "is_numeric": lambda cells: all(isinstance(cell, str) and _NUMBER.fullmatch(cell) for cell in cells),
    }
    return environment.get_template("page.html").render(
        title=study_title(study) or "Study",
        facts=_facts(study, rows),
        sections=sections,
        made=" ".join(made),
        agents=pen.agents,
        hues=curves.named_agents(study),
        more=len(pen.agents) > curves.MAX_LINES,
        data=pen.data(),
        colours=sorted(pen.colours),
        zip=zip,
    )


def _facts(study: Study, rows: list[SummaryRow]) -> dict[str, str]:
    best = [shown_best(entry) for _, entry in ranked(study)[:1]]
    values = study.rounds["best"][np.isfinite(study.rounds["best"])]
    if not best and len(values):
        best = [f"{values.min() if study.any_minimizes else values.max():.6g}"]
    rounds = {len(set(study.rounds.where(algorithm=name)["round"].tolist())) for name in study.algorithms}
    if len(study.models):
        sites = {int(run["num_agents"]) for run in study.settings["runs"] if run.get("num_agents")}
        models = f"{len(study.models):,}"
        return {"models": models, "sites": _either(sites) or "unknown", "rounds": _either(rounds)}
    return {
        f"best {curves.metric_of(study) or 'value'}": best[0] if best else "not disclosed",
        "agents": _either({row.num_agents for row in rows}),
        "rounds": _either(rounds),
        "evaluations": f"{int(study.trials['pulls'].sum()):,}" if len(study.trials) else "not disclosed",
        "failed evaluations": f"{sum(row.failed_evaluations for row in rows):,}",
        "lost or refused replies": f"{sum(row.lost_replies + row.refused_replies for row in rows):,}",
    }


def _either(numbers: set[int]) -> str:
    return " or ".join(f"{number:,}" for number in sorted(numbers))


def _best(pen: Pen) -> list[Part]:
    """Return each agent's best configuration with a button that copies it as JSON, the best values first."""
    study, none, best = pen.shown, pen.shown.infeasible, ranked(pen.shown)
    lacking = f"No configuration holds the limits of {shorten(', '.join(none), 200)}."
    notes: list[Part] = [("note", lacking)] if none else []
    if len(study.objectives) > 1:
        agents = list(dict.fromkeys(study.trials["agent"].tolist()))[:MAX_AGENTS]
        found = {agent: study.front(agent) for agent in agents}
        cells: dict[str, Any] = fronts.front_cells(found, study.objectives)
        owners, configs = cells["agent"], [config for front in found.values() for config in front.configs]
    else:
        cells, owners = best_cells(study, MAX_AGENTS), [agent for agent, _ in best]
        configs = [entry["config"] for _, entry in best]
        if not best and not none:
            where = "On each device, fbo-flower best JOURNAL prints the agent's own."
            return [("note", f"No agent disclosed a configuration. {where}")]
        if best and pen.num_agents > len(pen.agents):
            more = f"The best {len(pen.agents)} of {pen.num_agents:,} agents; all are in best.json."
            notes.append(("note", more))
    copy = Markup('<span class="copy"><code>{}</code><button type="button">Copy</button></span>')
    texts = (json.dumps(config, ensure_ascii=False, default=str) for config in configs)
    cells["configuration"] = [copy.format(printable(text)) for text in texts]
    return [*([("table", (cells, owners))] if owners else []), *notes]


def _outputs(pen: Pen) -> list[Part]:
    """Return pictures of some agents' outputs, and the shares of feasible trials of all agents."""
    study, styles, hues = pen.shown, pen.styles, curves.named_agents(pen.study)
    agents, which = fronts.agents_shown(study)
    pictures: Pictures = {
        (fronts.heading_of(study, agent), f"Outputs of the trials of {agent}"): partial(
            fronts.draw_outputs, study=study, agent=agent, styles=styles, colours=hues
        )
        for agent in agents
    }
    if "feasible" in study.trials.columns and len(agents) > 1:
        caption = "Share of each agent's trials that holds its limits"
        pictures[caption, caption] = partial(fronts.draw_shares, study=study, styles=styles)
    marks = f"{fronts.explained(study)}; {which}" if which else fronts.explained(study)
    return [("text", marks[0].upper() + marks[1:]), *pen.pictures(pictures, _SMALL)]


def _about(found: Importance | None) -> list[Part]:
    if found is None:
        needed = f"{MIN_TRIALS} disclosed evaluations with values that differ"
        return [("note", f"Not computed: it needs {needed}.")]
    how = (
        f"A random forest was fitted to {found.num_trials:,} evaluations, and the variance of its "
        "predictions was split among the parameters (functional ANOVA, exact for each tree). It predicts "
        "the rank of a value among the same agent's values."
    )
    good = ("text", f"On evaluations that its trees did not see, its R² is {found.score:.2f}.")
    badly = f"The forest predicts held-out evaluations badly (R² {found.score:.2f})"
    weak = ("note", f"{badly}: do not rely on these shares.")
    parts = [("text", how), weak if found.score < _WEAK else good, *_shares(found.singles, "parameter")]
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


def _traffic(pen: Pen) -> list[Part]:
    pictures: Pictures = {}
    for unit, what in (("floats", "Numbers"), ("bytes", "Bytes")):
        lines, note = traffic.sent_by_round(pen.study, unit)
        if lines:
            ends = ", ".join(f"{name} {total[-1]:,.0f}" for name, (_, total, _) in lines.items())
            caption = f"{what} that all agents together have exchanged" + f" ({note})" * bool(note)
            draw = partial(traffic.draw_sent, study=pen.study, styles=pen.styles, names=pen.detail.names)
            pictures[caption, f"{what} exchanged by round; at the end {ends}"] = partial(draw, unit=unit)
    table = ("table", (traffic.traffic_cells(pen.study), None))
    if not pictures:
        return [("note", "No bytes were counted.")]
    return [*pen.pictures(pictures, _LARGE), ("text", "Per agent, in the whole run:"), table]


def _failures(pen: Pen, rows: list[SummaryRow]) -> list[Part]:
    if not any(row.lost_replies or row.refused_replies or row.failed_evaluations for row in rows):
        return [("text", "None: every reply came and could be used, and every evaluation succeeded.")]
    cells = {
        "algorithm": [shorten(row.algorithm, 60) for row in rows],
        "lost replies": [f"{row.lost_replies:,}" for row in rows],
        "refused replies": [f"{row.refused_replies:,}" for row in rows],
        "why": [", ".join(f"{why}: {k:,}" for why, k in row.reasons.items()) or "-" for row in rows],
        "failed evaluations": [f"{row.failed_evaluations:,}" for row in rows],
    }
    parts: list[Part] = [("table", (cells, None))]
    failed = pen.study.trials.take(pen.study.trials["failure"] != "")
    if len(failed):
        reasons = Counter(" ".join(reason.split())[:_MAX_REASON] for reason in failed["failure"].tolist())
        common, agents = (
            counter.most_common(_MAX_REASONS) for counter in (reasons, Counter(failed["agent"].tolist()))
        )
        times, counts = ([f"{number:,}" for _, number in own] for own in (common, agents))
        names = [agent for agent, _ in agents]
        named = {"agents with most failures": [shorten(agent, 60) for agent in names]}
        parts.append(
            ("table", ({"times": times, "why evaluations failed": [why for why, _ in common]}, None))
        )
        parts.append(("table", (named | {"failed evaluations": counts}, names)))
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


def _curves(pen: Pen, rows: list[SummaryRow]) -> list[Part]:
    """Return a picture per algorithm, and one of all algorithms' means if there are several."""
    study, parts = pen.study, dict[str, Any]()
    if not np.isfinite(np.concatenate([study.trials["value"], study.rounds["mean_incumbent"]])).any():
        return [("note", curves.nothing_to_draw(study))]
    for row in rows:
        if row.num_with_value and row.num_evaluations[1]:
            caption = f"{row.algorithm}, {row.num_agents:,} agent{'' if row.num_agents == 1 else 's'}"
            if row.num_with_value > 1:
                caption += f"; {curves.what_is_drawn(row.num_with_value)}"
            parts[caption] = study.only(row.algorithm)
    if not parts:
        means = "Mean of the best values that agents disclosed, by round"
        parts = {f"{means}; they did not disclose their trials": study}
    elif len(parts) > 1:
        parts = {"All algorithms: mean over agents, band one standard error": study, **parts}
    pictures: Pictures = {}
    ends = {row.algorithm: f"{row.algorithm} {row.final}" for row in rows}
    for caption, part in parts.items():
        end = ", ".join(ends[algorithm] for algorithm in part.algorithms)
        described = f"{caption}: best value so far against evaluations; the mean ends at {end}"
        draw = partial(curves.draw_curves, study=part, styles=pen.styles, detail=pen.detail)
        pictures[caption, described] = draw
    longest = max(row.num_evaluations[1] for row in rows)
    fewer = f"Lines have {pen.detail.points:,} of {longest:,} points." if longest > pen.detail.points else ""
    return [*pen.pictures(pictures, _LARGE), *([("note", fewer)] if fewer else [])]


def _slices(pen: Pen, found: Importance | None) -> list[Part]:
    """Return a picture per parameter: values of trials against it; of many, the most important ones."""
    study = pen.shown
    axes = importance.study_axes(study) if len(study.recommendations) else []
    if not axes:
        return [("note", "No configurations were disclosed.")]
    shown, why = importance.most_important(axes, found, _MAX_SLICES)
    text = max(len(shown_config(config)) for config in study.recommendations["config"][:50].tolist())
    dots = max(min(_DOTS // len(shown), _NOTES // (text + 40)) // len(study.algorithms), 1)
    draw = partial(importance.draw_slice, study=study, styles=pen.styles, dots=dots, rasterized=False)
    pictures: Pictures = {
        ("", f"Values of evaluations against {axis.name}"): partial(draw, axis=axis) for axis in shown
    }
    note = f"Ringed: best of each agent{importance.by_mean(study)}."
    if hidden := importance.shown_values(study)[2]:
        note += f" {hidden:,} much worse values are not shown."
    fewer = any(len(study.trials.where(algorithm=name)) > dots for name in study.algorithms)
    if fewer:
        note += f" At most {dots:,} evaluations of an algorithm are drawn, evenly chosen."
    if len(shown) < len(axes):
        note += f" Shown are {why}."
    return [*pen.pictures(pictures, _SMALL), ("note", note)]


def _models(pen: Pen) -> list[Part]:
    rows = selection.selections(pen.study)
    table = ("table", (selection.selection_cells(rows), None))
    if not selection.judged(pen.study).any():
        return [table, ("note", "No model was judged.")]
    front = "Configurations in the losses that the search has seen; stars are shipped"
    given: dict[str, Any] = {"study": pen.study, "styles": pen.styles}
    pictures: Pictures = {
        (front, front): partial(selection.draw_front, **given),
        ("Held-out losses", "Losses on held-out rows"): partial(selection.draw_shipped, **given),
    }
    for protocol in selection.PROTOCOLS if len({row.contestant for row in rows}) > 1 else ():
        caption = f"How often a row's contestant beats a column's, {protocol} protocol"
        pictures[caption, caption] = partial(selection.draw_wins, rows=rows, protocol=protocol)
    return [*pen.pictures(pictures, _LARGE), table]


def _contours(pen: Pen, found: Importance | None) -> list[Part]:
    """Return a picture per pair of the most important parameters: the predicted rank in eight levels."""
    if found is None or len(found.axes) < 2:
        return [("note", "Not drawn: it needs two parameters and the forest above.")]
    pictures: Pictures = {}
    for first, second in combinations([share.names[0] for share in found.singles[:_CONTOURS_OF]], 2):
        axes = [found.axes[found.place(name)] for name in (first, second)]
        x, y = ((np.arange(count) + 0.5) / count for count in map(importance.num_cells, axes))
        surface = found.surface(first, second, x, y)
        low, high = float(surface.min()), float(surface.max())
        best = np.unravel_index(int(surface.argmax()), surface.shape)
        described = (
            f"Predicted rank against {first} and {second}, from {low:.2f} to {high:.2f}; it is largest at "
            f"{x[best[0]]:.0%} of the range of {first} and {y[best[1]]:.0%} of that of {second}"
        )
        caption = f"{first} and {second}: predicted rank {low:.2f} (pale) to {high:.2f} (strong)"
        pictures[caption, described] = partial(importance.draw_contour, axes=axes, surface=surface)
    note = (
        "The stronger the colour, the better: the predicted rank of a configuration among an agent's own "
        "values, averaged over all other parameters."
    )
    return [*pen.pictures(pictures, _SMALL), ("note", note)]


class Pen:
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
        points = min(1000, max(12, _LINE_POINTS // num_lines))
        self.detail = curves.Detail(names=16, points=points, lines_of=frozenset(self.agents))

    def pictures(self, pictures: Pictures, size: tuple[float, float]) -> list[Part]:
        """Draw pictures; without matplotlib, say what to install."""
        try:
            drawn = [(self._svg(draw, text, size), caption) for (caption, text), draw in pictures.items()]
        except ConfigError as error:
            return [("note", str(error))]
        return [("pictures", drawn)]

    def data(self) -> dict[str, Any]:
        """Return what the script shows: each agent and its best; notes of agent, heading, configuration."""
        best = dict(ranked(self.study))
        agents = [[printable(agent[:60]), "", ""] for agent in self.agents]
        for row, agent in zip(agents, self.agents, strict=True):
            if agent in best:
                row[1:] = f"best {shown_best(best[agent])}", shown_config(best[agent]["config"])
        return {"agents": agents, "notes": [self._note(kind, row) for kind, row in self._notes]}

    def _note(self, kind: str, row: int) -> list[Any]:
        table = {"trials": self.shown.trials, "best": self.shown.recommendations}.get(kind, self.study.models)
        one = next(iter(table.take(np.array([row]))))
        algorithm = f"{one['algorithm']}, " if len(self.study.algorithms) > 1 else ""
        if kind == "models":
            known = [name for name in selection.LOSSES if np.isfinite(one[name])]
            losses = ", ".join(f"{name.replace('_', ' ')} {one[name]:.4g}" for name in known)
            place, head = -1, f"{algorithm}model {one['trial']}: {losses}"
        else:
            which = f"trial {one['trial']}" if kind == "trials" else "best"
            place = self._place[one["agent"]]
            outputs = ", ".join(f"{name} {number:.6g}" for name, number in one.get("outputs", {}).items())
            numbers = {
                name: one[name] for name in ("value", "mean") if math.isfinite(one.get(name, math.nan))
            }
            head = f"{one['agent'][:60]}, {algorithm}{which}: {outputs or shown_best(numbers)}"
        return [place, printable(head), shown_config(one["config"])]

    def _svg(self, draw: Draw, description: str, size: tuple[float, float]) -> Markup:
        """Return a drawing as SVG: its colours are variables, and its groups say whose they are."""
        stream = io.StringIO()
        plain = {"svg.fonttype": "none", "svg.hashsalt": description}  # texts stay texts; unique identifiers
        with report_style(plain), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # letters that matplotlib's font does not have are the browser's
            figure = new_figure(*size)
            draw(figure.subplots())
            without = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(stream, format="svg", metadata=without)
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


def shown_best(best: Mapping[str, Any]) -> str:
    """Return the numbers of an entry of `Study.best`: its value and, where values are noisy, its mean."""
    value = f"{best['value']:.6g}" if "value" in best else "not measured"
    return f"{value}, mean {best['mean']:.6g}" if "mean" in best else value


def shown_config(config: Mapping[str, Any]) -> str:
    """Return a configuration as a reader reads it, one parameter a line."""
    lines = [f"{name}: {shown_value(value)}" for name, value in config.items()]
    return "\n".join(printable(shorten(line, 60)) for line in lines[:12])
