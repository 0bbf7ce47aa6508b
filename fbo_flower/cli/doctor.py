"""`fbo-flower doctor`: ask every node of a federation for its state and print what is wrong."""

from __future__ import annotations

import io
import json
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fbo_flower import __version__
from fbo_flower.cli.diagnosis import Diagnosis, diagnose
from fbo_flower.cli.flower_cli import FlowerCLI, missing_dependencies, read_app
from fbo_flower.cli.simulate import Debug
from fbo_flower.errors import ConfigError, FBOError, printable
from fbo_flower.storage.node_differences import skew

EXAMPLE = "Example: fbo-flower doctor deploy --app my-app"
MODULE, MARK, SETTINGS = "fbo_flower_doctor", "fbo-flower doctor: ", "fbo-flower-doctor"
_START_SECONDS = 60.0  # how long the SuperLink may take to start the run


def run_doctor(
    connection: Annotated[
        str | None,
        typer.Argument(
            help="Name of a SuperLink in Flower's config.toml; default: the one that config.toml names."
        ),
    ] = None,
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
    """Check versions, search spaces, journals, clocks and connections of a federation."""
    project = read_app(app)
    if project is None:
        raise ConfigError(f"app: expected the directory of a Flower app, got {app}")
    flower = FlowerCLI(connection, install_dependencies=bool(missing_dependencies(project)))
    known = flower.nodes()
    settings = {"num_nodes": nodes, "wait_seconds": wait, "action": action}
    with tempfile.TemporaryDirectory() as directory:
        examiner = write_examiner(Path(app).expanduser().resolve(), Path(directory) / "doctor", settings)
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

    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as bundle:
        bundle.extractall(directory)
    path = directory / "pyproject.toml"
    project: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
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


def _disclosure(node: Mapping[str, Any]) -> str:
    by = f" ({node['disclose_by']})" if "disclose_by" in node else ""
    return f"{node.get('disclose', '?')}{by}"


def find_report(log: str) -> dict[str, Any] | None:
    """Return the doctor's report from a run's log; None if there is none."""
    for line in reversed(log.splitlines()):
        _, mark, text = line.partition(MARK)
        if mark:
            return dict(json.loads(text))
    return None


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
    """Return the lines that describe one node."""
    title = f"agent {str(node.get('agent', '?'))[:40]}  (node {node['node']})"
    if "error" in node:
        return [title, "  no answer"]
    clock = f"{skew(node):+.0f} s" if "time" in node else "?"
    journal, disclose = node.get("journal", "?"), _disclosure(node)
    return [
        title,
        f"  fbo-flower {node.get('version', '?')}, flwr {node.get('flwr', '?')}, "
        f"Python {node.get('python', '?')}",
        f"  space {str(node.get('digest', '?'))[:12]}, role {node.get('role') or '-'}, discloses {disclose}",
        f"  journal {journal}, clock {clock}, answered in {node['heard'] - node['sent']:.0f} s",
    ]
