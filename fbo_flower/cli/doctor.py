"""`fbo-flower doctor`: ask every node of a federation for its state and print what is wrong."""

from __future__ import annotations

import io
import json
import tempfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fbo_flower import __version__
from fbo_flower.cli.common import Connected, Debug
from fbo_flower.cli.flower_cli import FlowerCLI, check_mark, missing_dependencies, read_app
from fbo_flower.errors import ConfigError, FBOError, printable
from fbo_flower.storage.paths import path_of, read_text

MODULE, MARK, SETTINGS = "fbo_flower_doctor", "fbo-flower doctor: ", "fbo-flower-doctor"
_START_SECONDS = 60.0  # how long the SuperLink may take to start the run


def doctor(
    connection: Connected = None,
    app: Annotated[str, typer.Option(help="Directory of the Flower app whose agents to check.")] = ".",
    nodes: Annotated[
        int, typer.Option(help="Number of nodes to wait for; 0: only those that are connected.")
    ] = 0,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for nodes to connect, and again for their answers.")
    ] = 90.0,
    action: Annotated[
        str | None,
        typer.Option(
            help="Action name of the tuning agent, for an app that also does other work (see add_tuning)."
        ),
    ] = None,
    debug: Debug = False,
) -> int:
    """Check versions, search spaces, journals, clocks and connections of a federation.

    Example: fbo-flower doctor deploy --app my-app
    """
    project = read_app(app)
    if project is None:
        raise ConfigError(f"app: expected the directory of a Flower app, got {app}")
    flower = FlowerCLI(connection, install_dependencies=bool(missing_dependencies(project)))
    known = flower.nodes()
    settings = {"num_nodes": nodes, "wait_seconds": wait, "action": action}
    with tempfile.TemporaryDirectory() as directory:
        examiner = write_examiner(path_of(app, "app").resolve(), Path(directory) / "doctor", settings)
        run_id = flower.submit(str(examiner))
        status = flower.wait(run_id, _START_SECONDS + 2 * wait)
    if not status.is_over:
        flower.stop(run_id)
        raise FBOError(
            f"doctor: expected run {run_id} to end within {_START_SECONDS + 2 * wait:g} s; raise --wait"
        )
    report = find_report(flower.log(run_id))
    if report is None:
        raise FBOError(
            f"doctor: run {run_id} {status.status}: {status.details or 'see flwr log for the reason'}"
        )
    findings = diagnose(report, known, __version__)
    show(report, findings, Console())
    return int(any(finding.is_wrong for finding in findings))


def write_examiner(app: Path, directory: Path, settings: Mapping[str, object]) -> Path:
    """Write an app that has the agents of `app` and the doctor's server; return its directory."""
    import tomli_w
    from flwr.cli.build import build_fab_from_disk

    check_mark(str(app))
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as bundle:
        bundle.extractall(directory)
    path = directory / "pyproject.toml"
    project: dict[str, Any] = tomllib.loads(read_text(path))
    described = project["tool"]["flwr"]["app"]
    described["components"]["serverapp"] = f"{MODULE}:app"
    described["config"] = {**described.get("config", {}), SETTINGS: json.dumps(dict(settings))}
    for key in ("fab-include", "fab-exclude"):
        described.pop(key, None)
    path.write_text(tomli_w.dumps(project), encoding="utf-8")
    source = (
        '"""The doctor\'s server."""\n\nfrom fbo_flower.strategies.doctor import app\n\n__all__ = ["app"]\n'
    )
    (directory / f"{MODULE}.py").write_text(source, encoding="utf-8")
    return directory


def find_report(log: str) -> dict[str, Any] | None:
    """Return the doctor's report from a run's log; None if there is none."""
    for line in reversed(log.splitlines()):
        _, mark, text = line.partition(MARK)
        if mark:
            return dict(json.loads(text))
    return None


@dataclass(frozen=True)
class Diagnosis:
    """One line of the diagnosis: what was found, and what was expected."""

    subject: str  # "server", "agent north", "node 17", ...
    is_wrong: bool  # True: somebody has to fix it; False: a note
    text: str


def diagnose(report: Mapping[str, Any], known: Sequence[Mapping[str, Any]], here: str) -> list[Diagnosis]:
    """Return the errors and notes about a federation.

    From the result of `strategies.doctor.examine`, the SuperNodes that `flwr supernode list` knows, and the
    version of fbo-flower that runs this command.
    """
    server, nodes = report["server"], report["nodes"]
    found = []
    if server["version"] != here:
        text = f"runs fbo-flower {server['version']}, this computer {here}; install one version"
        found.append(Diagnosis("server", True, text))
    if not nodes:
        text = "expected at least one connected SuperNode, got none; start SuperNodes or raise --wait"
        found.append(Diagnosis("nodes", True, text))
    asked = {node["node"] for node in nodes}
    gone = {"offline": "is not connected any more", "registered": "has never connected"}
    for row in known:
        if str(row["node-id"]) not in asked and row["status"] in gone:
            found.append(Diagnosis(f"node {row['node-id']}", True, gone[row["status"]]))
    names = Counter(node.get("agent") for node in nodes)
    digests = Counter(node["digest"] for node in nodes if "digest" in node)
    most = max(digests.values(), default=0)
    usual = [digest for digest, count in digests.items() if count == most]
    for node in nodes:
        subject = f"agent {node['agent']}" if "agent" in node else f"node {node['node']}"
        wrong = list(_wrong(node, server, usual, str(report["differing"])))
        if "agent" in node and names[node["agent"]] > 1:
            wrong.append(
                f"{names[node['agent']]} nodes call themselves so; set a different agent in each node_config"
            )
        found += [Diagnosis(subject, True, text) for text in wrong]
        if not wrong and node.get("journal") == "none":
            text = "keeps no journal: it loses its state when its SuperNode ends; set journal in node_config"
            found.append(Diagnosis(subject, False, text))
    return found


def _wrong(
    node: Mapping[str, Any], server: Mapping[str, Any], usual: Sequence[str], differing: str
) -> list[str]:
    from fbo_flower.strategies.study_agents import node_differences  # it imports Flower

    if "error" in node:
        return [str(node["error"])]
    wrong = []
    if node.get("schema") != server["schema"]:
        wrong.append(f"message schema {node.get('schema')}, the server has {server['schema']}")
    others = [digest[:12] for digest in usual if digest != node.get("digest")]
    if others:  # where several spaces are equally frequent, every node differs from some others
        who = "most nodes have" if len(usual) == 1 else "as many nodes have"
        own = str(node.get("digest"))[:12]
        wrong.append(f"search space {own}, {who} {', '.join(others)}; they differ in {differing}")
    return wrong + node_differences(node, server)


def show(report: Mapping[str, Any], findings: Sequence[Diagnosis], console: Console) -> None:
    """Print a block of lines for each node, none wider than 80 columns, and then the findings."""
    server = report["server"]
    text = f"server: fbo-flower {server['version']}, flwr {server['flwr']}, Python {server['python']}"
    console.print(text, highlight=False, soft_wrap=True)
    for node in report["nodes"]:
        for line in _block(node):
            console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
    for finding in findings:
        style, word = ("red", "wrong") if finding.is_wrong else ("yellow", "note")
        console.print(f"[{style}]{word}[/{style}] ", end="")
        text = printable(f"{finding.subject}: {finding.text}")
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if not any(finding.is_wrong for finding in findings):
        console.print("[green]nothing is wrong[/green]")


def _block(node: Mapping[str, Any]) -> list[str]:
    from fbo_flower.strategies.study_agents import skew  # it imports Flower

    title = f"agent {str(node.get('agent', '?'))[:40]}  (node {node['node']})"
    if "error" in node:
        return [title, "  no answer"]
    clock = f"{skew(node):+.0f} s" if "time" in node else "?"
    journal, disclose = node.get("journal", "?"), node.get("disclose", "?")
    by = f" ({node['disclose_by']})" if "disclose_by" in node else ""
    return [
        title,
        f"  fbo-flower {node.get('version', '?')}, flwr {node.get('flwr', '?')}, "
        f"Python {node.get('python', '?')}",
        f"  space {str(node.get('digest', '?'))[:12]}, role {node.get('role') or '-'}, "
        f"discloses {disclose}{by}",
        f"  journal {journal}, clock {clock}, answered in {node['heard'] - node['sent']:.0f} s",
    ]
