"""Pictures of an HTML page: SVG inside it, and what stands under the pointer.

Matplotlib draws them. Each colour `#rrggbb` becomes the variable `--xrrggbb` of the style sheet, so that a
dark window has its own colours. What the `gid`s say is in a group (see `curves`, `importance` and
`selection`) becomes the attributes `data-a`, the number of an agent, and `data-n`, the numbers of notes.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from fbo_flower.errors import ConfigError, printable
from fbo_flower.reports.curves import Detail
from fbo_flower.reports.figures import ranked, shown_value
from fbo_flower.reports.pictures import new_figure, report_style, shorten, study_styles
from fbo_flower.reports.selection import LOSSES
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fbo_flower.study.study import Study

Draw = Callable[["Axes"], object]
Pictures = dict[tuple[str, str], Draw]  # caption and description of a picture -> what draws it
Part = tuple[str, Any]  # "text", "note", "table", "list" (a table that is not sorted), "pictures" or "html"
MAX_AGENTS = 200  # agents with lines, dots and rows: those with the best values
LINE_POINTS = 10_000  # points of all lines


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
        points = min(1000, max(12, LINE_POINTS // num_lines))
        self.detail = Detail(names=16, points=points, lines_of=frozenset(self.agents))

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
            told = ["", ""]
            if agent in best:
                told = [f"best {shown_best(best[agent])}", shown_config(best[agent]["config"])]
            agents.append([printable(agent[:60]), *told])
        return {"agents": agents, "notes": [self._note(kind, row) for kind, row in self._notes]}

    def _note(self, kind: str, row: int) -> list[Any]:
        table = {"trials": self.shown.trials, "best": self.shown.recommendations}.get(kind, self.study.models)
        one = next(iter(table.take(np.array([row]))))
        algorithm = f"{one['algorithm']}, " if len(self.study.algorithms) > 1 else ""
        if kind == "models":
            known = [name for name in LOSSES if np.isfinite(one[name])]
            losses = ", ".join(f"{name.replace('_', ' ')} {one[name]:.4g}" for name in known)
            place, head = -1, f"{algorithm}model {one['trial']}: {losses}"
        else:
            which = f"trial {one['trial']}" if kind == "trials" else "best"
            place = self._place[one["agent"]]
            told = ", ".join(f"{name} {number:.6g}" for name, number in one.get("outputs", {}).items())
            numbers = {
                name: one[name] for name in ("value", "mean") if math.isfinite(one.get(name, math.nan))
            }
            head = f"{one['agent'][:60]}, {algorithm}{which}: {told or shown_best(numbers)}"
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
