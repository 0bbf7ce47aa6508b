"""The lists of `docs/reference.md` and `docs/algorithms.md`, from commands, docstrings and records.

`python .ci/reference.py` renews them in place. They stand between comments `<!-- PLACE:begin -->` and
`<!-- PLACE:end -->`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

import typer
from typer.utils import get_params_from_function

from fbo_flower.algorithms.algorithm_record import AlgorithmRecord
from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.cli.common import texts_of
from fbo_flower.cli.main import app
from fbo_flower.clients.evaluator import Parallel
from fbo_flower.clients.model_site import SiteOptions
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError

ROOT = Path(__file__).parents[1]
# the modules whose names users import
MODULES = (
    *("", "simulation", "study", "trackers", "strategies", "federated", "clients", "models", "storage"),
    "errors",
)  # fmt: skip
# modules whose names get a line each; of the others the page lists the names
DESCRIBED = ("",)
# options of many commands, which the page says once
COMMON = {"debug", "quiet"}
# keys of `node_config` that no class of options holds
NODE_KEYS = {
    "agent": (
        "",
        "name of the agent, unique in the federation; without it a simulated agent has the name of its data "
        "file, else its `partition-id`",
    ),
    "partition-id": ("", "the node's number, for apps that share out a public data set; Flower sets it"),
    "num-partitions": ("", "number of nodes, for the same apps; Flower sets it"),
    "journal": ("", "file of the agent's memory; without it the agent forgets when its SuperNode ends"),
    "data": ("", "file with the node's data, for apps that read it with `data_file(context)`"),
    "model": ("", "in an app of `fbo-flower new`: file for the model that the node trains at the end"),
    "role": ("", "`rfms`: openbox, curator or lockbox"),
    "fixed": ("", "parameters that the agent does not tune, with its values: `depth=3, kernel=rbf`"),
    "limits": ("", "bounds of this agent for limits that the app names: `latency_ms <= 15, recall >= 0.9`"),
    "private": ("", "outputs of this agent whose values do not leave it: `latency_ms, watts`"),
    "pruning": ("median", 'rule by which trials stop early: "median", "federated" or "off"'),
}
_SETTING = re.compile(r"^([\w-]+) = (.+?) *# (.+)$")


def reference_blocks() -> dict[str, str]:
    """Return the tables of `docs/reference.md` by the name of their place."""
    return _blocks({
        "python": _python(),
        "commands": chain(
            (
                "Every command has `--debug`: show the traceback of an error, and Flower's own log where",
                "Flower runs. `run`, `report` and `simulate` have `--quiet`, `-q`: print nothing but",
                "warnings and errors.",
                "",
            ),
            _commands(typer.main.get_command(app)),
        ),
        "run-config": _run_config(ROOT / "pyproject.toml"),
        "node-config": _node_config(),
        "site-options": _rows(SiteOptions),
    })  # fmt: skip


def algorithm_blocks() -> dict[str, str]:
    """Return the tables of `docs/algorithms.md`; records name pages from the root, the page from `docs/`."""
    records = list(BUILT_IN.values())
    tables = {"messages": _message_table(records), "algorithms": _algorithm_table(records)}
    return _blocks({
        place: (line.replace("](docs/", "](") for line in lines) for place, lines in tables.items()
    })  # fmt: skip


def _blocks(tables: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {
        place: "\n".join([f"<!-- {place}:begin -->", *lines, f"<!-- {place}:end -->", ""])
        for place, lines in tables.items()
    }


PAGES = {"reference.md": reference_blocks, "algorithms.md": algorithm_blocks}


def renewed(text: str, blocks: Mapping[str, str]) -> str:
    """Return a page with the current tables; ConfigError if it has no place for one."""
    for place, block in blocks.items():
        pattern = rf"<!-- {place}:begin -->\n.*?<!-- {place}:end -->\n"
        if not re.search(pattern, text, re.DOTALL):
            raise ConfigError(f"expected the comments <!-- {place}:begin --> and :end, found none")
        text = re.sub(pattern, block.replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


# -- Python ------------------------------------------------------------------------------------


def _python() -> Iterator[str]:
    """Yield the public names of each module, of `DESCRIBED` ones with the first line of their docstrings.

    A name that two modules have is listed at the first.
    """
    seen: set[int] = set()
    for room in MODULES:
        module = importlib.import_module(f"fbo_flower.{room}".rstrip("."))
        yield from (f"### `{module.__name__}`", "")
        if room not in DESCRIBED:
            yield from (fill(", ".join(f"`{name}`" for name in _public(module)), 100), "")
            continue
        for name in _public(module):
            value = getattr(module, name)
            if id(value) not in seen and (inspect.isclass(value) or inspect.isfunction(value)):
                seen.add(id(value))
                yield f"- `{name}`: {_first_paragraph(value)}"
        yield ""


def _first_paragraph(value: object) -> str:
    return _line((inspect.getdoc(value) or "").partition("\n\n")[0])


def _public(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    return [name for name in own if not name.startswith("_")]


# -- commands ----------------------------------------------------------------------------------


def _commands(group: Any, prefix: str = "fbo-flower") -> Iterator[str]:
    """Yield every command with its options, groups of commands included."""
    for name, command in sorted(group.commands.items()):
        title = f"{prefix} {name}"
        if hasattr(command, "commands"):
            yield from _commands(command, title)
            continue
        text = (command.help or "").strip().partition("\n\n")[0]
        yield from (
            f"### `{title}`",
            "",
            fill(" ".join(text.split()), 100),
            "",
        )
        declared = get_params_from_function(command.callback)
        # the help of an argument gets lost between typer and newer click, so it comes from the function
        rows = [
            _parameter(parameter, declared[parameter.name].default.help)
            for parameter in command.params
            if parameter.name != "help" and parameter.name not in COMMON
        ]
        if rows:
            yield from (*rows, "")


def _parameter(parameter: Any, meaning: str | None) -> str:
    if parameter.param_type_name == "argument":
        shown = f"`{parameter.name.upper()}`"
    else:
        shown = ", ".join(f"`{option}`" for option in parameter.opts)
    default = parameter.default
    if parameter.required:
        default = " (required)"
    elif default is None or isinstance(default, bool) or default in {(), ""} or default == []:
        default = ""
    else:
        default = f"=`{default}`"
    return f"- {shown}{default}: {_line(meaning or '')}"


# -- configuration -----------------------------------------------------------------------------


def _run_config(pyproject: Path) -> Iterator[str]:
    """Yield the settings of the bundled app with their defaults and comments."""
    section = pyproject.read_text(encoding="utf-8").partition("[tool.flwr.app.config]\n")[2]
    for line in section.partition("\n\n")[0].splitlines():
        found = _SETTING.match(line)
        if found is None:
            raise ConfigError(f"{pyproject}: expected `key = value  # meaning`, got {line!r}")
        yield f"- `{found[1]}`=`{found[2].strip()}`: {_line(found[3])}"


def _node_config() -> Iterator[str]:
    """Yield the keys that every agent reads from `node_config`."""
    for key, (default, meaning) in NODE_KEYS.items():
        yield _key(key, default, meaning)
    yield from _rows(Operator, without=("chosen_by",))
    yield from _rows(Parallel)


def _rows(options: type[Any], without: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield an item per field of a dataclass of options; its docstring says what each means."""
    meanings = texts_of(options)
    for field in fields(options):
        if field.name not in without:
            yield _key(field.name, _default(field.default), meanings[field.name])


def _key(name: str, default: str, meaning: str) -> str:
    return f"- `{name}`{default and f'=`{default}`'}: {_line(meaning)}"


def _default(value: object) -> str:
    if value in {"", frozenset()}:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line(text: str) -> str:
    r"""Return a text in one line.

    >>> _line("one or\n  two")
    'one or two'
    """
    return " ".join(text.split())


# -- algorithms --------------------------------------------------------------------------------


def _message_table(records: list[AlgorithmRecord]) -> Iterator[str]:
    """Yield what travels; algorithms with the same messages share a row."""
    yield "| | from the server | from an agent |"
    yield "|---|---|---|"
    for sent in dict.fromkeys((record.server_sends, record.agent_sends) for record in records):
        names = [f"`{r.name}`" for r in records if (r.server_sends, r.agent_sends) == sent]
        yield f"| {', '.join(names)} | {' | '.join(sent)} |"


def _algorithm_table(records: list[AlgorithmRecord]) -> Iterator[str]:
    yield "| name | strategy | what it does |"
    yield "|---|---|---|"
    for record in records:
        name = f"[`{record.name}`]({record.page})" if record.page else f"`{record.name}`"
        yield f"| {name} | `{record.class_name}` | {record.summary} |"


if __name__ == "__main__":
    for name, blocks in PAGES.items():
        page = ROOT / "docs" / name
        page.write_text(renewed(page.read_text(encoding="utf-8"), blocks()), encoding="utf-8")
