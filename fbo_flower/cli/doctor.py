"""`fbo-flower doctor`: ask every node of a federation for its state and print what is wrong.

On a device, `--superlink` compares its clock with the SuperLink's before the SuperNode connects: the
SuperLink answers a node whose clock is off with 401, and the SuperNode ends without a reason. The SuperLink's
time is in the header `Date` of every answer of HTTP, to the second.
"""

from __future__ import annotations

import http.client
import io
import json
import ssl
import tempfile
import time
import tomllib
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from fbo_flower.cli.flower_cli import FlowerCLI, check_mark, missing_dependencies, read_app
from fbo_flower.cli.interruption import NOTHING, in_order
from fbo_flower.errors import ConfigError, FBOError, printable
from fbo_flower.storage.paths import path_of, read_text
from fbo_flower.version import __version__

MODULE, MARK, SETTINGS = "fbo_flower_doctor", "fbo-flower doctor: ", "fbo-flower-doctor"
MAX_AHEAD, MAX_BEHIND = 5.0, 300.0  # seconds by which Flower lets a node's clock be off
_NOT_NOW = (9, 10)  # codes of OpenSSL for a certificate that is not valid yet, or no longer
_START_SECONDS = 60.0  # how long the SuperLink may take to start the run


def doctor(
    connection: str | None = None,
    *,
    app: str = ".",
    nodes: int = 0,
    wait: float = 90.0,
    action: str | None = None,
    superlink: str | None = None,
    root_certificates: Path | None = None,
    insecure: bool = False,
) -> int:
    """Check versions, search spaces, journals, clocks and connections of a federation.

    Examples:
    fbo-flower doctor deploy --app my-app

    fbo-flower doctor --superlink superlink.example.org:8000 --root-certificates ca.crt

    Parameters
    ----------
    connection : Name of a SuperLink in Flower's config.toml; default: the one that config.toml names.
    app : Directory of the Flower app whose agents to check.
    nodes : Number of nodes to wait for; 0: only those that are connected.
    wait : Seconds to wait for nodes to connect, and again for their answers.
    action : Action name of the tuning agent, for an app that also does other work (see add_tuning).
    superlink : `HOST:PORT`: Check only this computer's clock against that SuperLink, as a device does before
        it starts its SuperNode.
    root_certificates : Certificate of that SuperLink's authority, as for flower-supernode.
    insecure : That SuperLink does not use TLS, as for flower-supernode.
    """
    if superlink is not None:
        ahead = seconds_ahead(superlink, root_certificates, insecure)
        wrong = not -MAX_BEHIND <= ahead <= MAX_AHEAD
        remedy = (
            f"; it refuses a node whose clock is more than {MAX_AHEAD:g} s ahead or {MAX_BEHIND:g} s behind, "
            "with 401: set the clock with NTP before the SuperNode starts"
        )
        typer.echo(f"clock: {ahead:+.0f} s against the SuperLink's{remedy * wrong}")
        return int(wrong)
    project = read_app(app)
    if project is None:
        raise ConfigError(f"app: expected the directory of a Flower app, got {app}")
    flower = FlowerCLI(connection, install_dependencies=bool(missing_dependencies(project)))
    known = flower.nodes()
    settings = {"num_nodes": nodes, "wait_seconds": wait, "action": action}
    with in_order(lambda: NOTHING), tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        examiner = write_examiner(path_of(app, "app").resolve(), Path(directory) / "doctor", settings)
        run_id = flower.submit(str(examiner))
        stack.callback(flower.stop, run_id)
        status = flower.wait(run_id, _START_SECONDS + 2 * wait)
        if status.is_over:
            stack.pop_all()
    if not status.is_over:
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


def seconds_ahead(superlink: str, root_certificates: Path | None, insecure: bool) -> float:
    """Return by how many seconds this computer's clock is ahead of a SuperLink's; negative: behind.

    ConfigError if there is no SuperLink, or if its certificate is not valid for another reason than the time.
    """
    host, colon, port = superlink.removeprefix("http://").removeprefix("https://").rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f"--superlink: expected HOST:PORT, got {superlink!r}")
    if not insecure and root_certificates is not None and not root_certificates.is_file():
        raise ConfigError(f"--root-certificates: expected a file, got {root_certificates}")
    try:
        address = host.strip("[]"), int(port)
        if insecure:
            return _seconds_ahead(http.client.HTTPConnection(*address, timeout=10.0))
        context = ssl.create_default_context(cafile=root_certificates)
        try:
            return _seconds_ahead(http.client.HTTPSConnection(*address, timeout=10.0, context=context))
        except ssl.SSLCertVerificationError as error:
            if error.verify_code not in _NOT_NOW:
                raise
        # a clock that is far off makes a good certificate invalid; only the time is read
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return _seconds_ahead(http.client.HTTPSConnection(*address, timeout=10.0, context=context))
    except (OSError, http.client.HTTPException, OverflowError, ValueError) as error:
        hint = "" if insecure else "; pass --insecure if it does not use TLS"
        raise ConfigError(
            f"--superlink: expected a SuperLink at {superlink}: {type(error).__name__}: {error}{hint}"
        ) from error


def _seconds_ahead(connection: http.client.HTTPConnection) -> float:
    with closing(connection):
        connection.connect()  # for which a slow device takes its time
        sent = time.time()
        connection.request("GET", "/")
        date = connection.getresponse().headers["Date"]
        heard = time.time()
    if date is None:
        raise ValueError("it does not say its time")
    server = parsedate_to_datetime(date).timestamp()  # of the second that has begun
    return max(0.0, sent - server - 2.0) - max(0.0, server - heard)


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
    from fbo_flower.strategies.node_report import node_differences  # it imports Flower

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
        wrong = [str(node["error"])] if "error" in node else []
        if not wrong and node.get("schema") != server["schema"]:
            wrong.append(f"message schema {node.get('schema')}, the server has {server['schema']}")
        others = [digest[:12] for digest in usual if digest != node.get("digest")]
        if others and "error" not in node:  # where several spaces are equally frequent, all nodes differ
            who = "most nodes have" if len(usual) == 1 else "as many nodes have"
            own, differing = str(node.get("digest"))[:12], report["differing"]
            wrong.append(f"search space {own}, {who} {', '.join(others)}; they differ in {differing}")
        wrong += [] if "error" in node else node_differences(node, server)
        if "agent" in node and names[node["agent"]] > 1:
            wrong.append(
                f"{names[node['agent']]} nodes call themselves so; set a different agent in each node_config"
            )
        found += [Diagnosis(subject, True, text) for text in wrong]
        if not wrong and node.get("journal") == "none":
            text = "keeps no journal: it loses its state when its SuperNode ends; set journal in node_config"
            found.append(Diagnosis(subject, False, text))
    return found


def show(report: Mapping[str, Any], findings: Sequence[Diagnosis], console: Console) -> None:
    """Print a block of lines for each node, none wider than 80 columns, and then the findings."""
    from fbo_flower.strategies.node_report import skew  # it imports Flower

    server = report["server"]
    text = f"server: fbo-flower {server['version']}, flwr {server['flwr']}, Python {server['python']}"
    console.print(text, highlight=False, soft_wrap=True)
    for node in report["nodes"]:
        lines = [f"agent {str(node.get('agent', '?'))[:40]}  (node {node['node']})", "  no answer"]
        if "error" not in node:
            got = defaultdict(lambda: "?", node)
            clock = f"{skew(node):+.0f} s" if "time" in node else "?"
            by = f" ({node['disclose_by']})" if "disclose_by" in node else ""
            lines[1:] = [
                f"  fbo-flower {got['version']}, flwr {got['flwr']}, Python {got['python']}",
                f"  space {str(got['digest'])[:12]}, role {node.get('role') or '-'}, "
                f"discloses {got['disclose']}{by}",
                f"  journal {got['journal']}, clock {clock}, "
                f"answered in {node['heard'] - node['sent']:.0f} s",
            ]
        for line in lines:
            console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
    for finding in findings:
        kind = "[red]wrong[/red] " if finding.is_wrong else "[yellow]note[/yellow] "
        console.print(kind, end="")
        text = printable(f"{finding.subject}: {finding.text}")
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if not any(finding.is_wrong for finding in findings):
        console.print("[green]nothing is wrong[/green]")
