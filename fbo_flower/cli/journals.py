"""`fbo-flower best`, `ledger`, `key`, `ask` and `tell`: an agent's journal, on the agent's own device."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fbo_flower.cli.common import plural
from fbo_flower.errors import ConfigError, printable
from fbo_flower.storage.paths import path_of

if TYPE_CHECKING:
    from fbo_flower.storage.ledger import Ledger
    from fbo_flower.study.study import Study


_ENTRY: dict[str, Any] = {  # of the JSON list of `best`
    **dict.fromkeys(("agent", "study", "algorithm", "journal", "config", "value", "mean")), "outputs": {},
    "nearest": None, "front": [], "evaluations": None, "failed": 0, "failure": "", "unreadable": "",
}  # fmt: skip


def best(journals: list[Path], *, study: str | None = None, as_json: bool = False) -> None:
    """Print each agent's best configuration, its value, and the number of evaluations.

    From a journal, which may be in use, it is the agent's own answer, and has not left its device. From the
    results of a study it is what the agents have disclosed.

    Example: fbo-flower best /srv/north.db --json

    Parameters
    ----------
    journals : Journals of agents (`agent-NAME.db`), or directories that contain them, or else results
        (`best.json`).
    study : Id of the study; default: all studies in the journal.
    as_json : Print a JSON list instead of text.
    """
    entries = [entry for path in journals for entry in _best_of(path)]
    found = [entry for entry in entries if study in {None, entry["study"]}]
    if study is not None and not found:
        raise ConfigError(f"--study: expected a study in the journal, got {study}; leave it out to see all")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    if not found:
        typer.echo("The journal holds no study yet.")
    for entry in found:
        typer.secho(printable(f"Agent {entry['agent']}"), bold=True, nl=False)
        typer.echo("\n".join(map(printable, _lines_of(entry))))


def _best_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the best configurations in a journal or a directory, as the entries of the JSON list."""
    from fbo_flower.clients.own_answer import read_answers
    from fbo_flower.study.directory import holds_study
    from fbo_flower.study.study import Study

    path = path_of(path)
    if path.is_dir() and holds_study(path) and not any(path.rglob("agent*.db")):
        results = Study.load(path)
        disclosed = _disclosed(results)
        for agent, entry in disclosed.items():
            run = results.trials if entry["algorithm"] is None else results.only(entry["algorithm"]).trials
            trials = run.where(agent=agent)
            failures = list(filter(None, trials["failure"].tolist()))
            yield (
                _ENTRY
                | entry
                | {
                    "agent": agent,
                    "study": results.settings["name"],
                    "algorithm": entry["algorithm"] or ", ".join(results.algorithms),
                    "evaluations": int(trials["pulls"].sum()) or None,
                    "failed": len(failures),
                    "failure": next(iter(failures), ""),
                }
            )
        if not disclosed:
            raise ConfigError(
                f"{path}: expected disclosed values, got none; each device has its own: fbo-flower best "
                "JOURNAL"
            )
        return
    for journal in journal_files([path]):
        for stored in read_answers(journal):
            answer = stored.answer
            yield _ENTRY | {
                "agent": answer.agent,
                "study": answer.study,
                "algorithm": answer.algorithm,
                "journal": str(journal),
                "config": answer.config,
                "value": None if math.isnan(answer.value) else answer.value,
                "mean": None if math.isnan(answer.mean) else answer.mean,
                "outputs": dict(answer.outputs),
                "nearest": dict(answer.nearest) or None,
                "front": [{"config": config, "outputs": outputs} for config, outputs in answer.front],
                "evaluations": answer.num_evaluations,
                "failed": stored.num_failed,
                "failure": stored.failure,
                "unreadable": stored.unreadable,
            }


def _disclosed(results: Study) -> dict[str, dict[str, Any]]:
    """Return each agent's best, or with several objectives its front; nothing if it holds no limits."""
    found: dict[str, dict[str, Any]] = {agent: {"algorithm": None} for agent in results.infeasible}
    if len(results.objectives) < 2:
        return found | results.best
    for agent in dict.fromkeys(results.trials["agent"].tolist()):
        front = results.front(agent)
        points = [dict(zip(results.objectives, row, strict=True)) for row in front.values.tolist()]
        shown = [{"config": c, "outputs": o} for c, o in zip(front.configs, points, strict=True)]
        found[agent] = {"algorithm": None, "front": shown}
    return found


def _lines_of(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that show an agent's best configuration; the first one follows its name."""
    place = "" if entry["journal"] is None else f", {entry['journal']}"
    yield f", study {entry['study']}, {entry['algorithm']}{place}"
    if entry["unreadable"]:
        yield f"  cannot be read: {entry['unreadable']}"
        return
    if entry["nearest"]:
        yield "  no configuration holds the limits; the nearest has"
        yield from (f"    {name}: {value}" for name, value in (entry["outputs"] | entry["nearest"]).items())
    elif entry["front"]:
        yield f"  front of {len(entry['front'])}:"
        for point in entry["front"]:
            numbers = ", ".join(f"{name} {value:.6g}" for name, value in point["outputs"].items())
            yield f"    {numbers}: {json.dumps(point['config'])}"
    elif entry["config"] is None:
        yield "  no configuration holds the limits" if entry["journal"] is None else "  best value: none yet"
    else:
        yield f"  best value: {'not measured' if entry['value'] is None else format(entry['value'], '.6g')}"
        if entry["mean"] is not None:
            yield f"  mean: {entry['mean']:.6g}, what the model expects there, because values are noisy"
        yield from (f"    {name}: {value}" for name, value in entry["config"].items())
        yield from (f"  {name}: {value:.6g}" for name, value in entry["outputs"].items())
    failed = f", {entry['failed']} failed, the first with: {entry['failure']}" if entry["failed"] else ""
    if entry["evaluations"] is not None:
        yield f"  evaluations: {entry['evaluations']}{failed}"


def key(journal: Path, *, agent: str | None = None) -> None:
    """Print an agent's public identity key; make it, and the journal, if there is none.

    Operators give the keys of their agents to each other, and list them in `secure_peers` of node_config.

    Example: fbo-flower key agent-3.db --agent 3

    Parameters
    ----------
    journal : The agent's journal, as in `journal` of its node_config.
    agent : The agent's id; needed only if the journal does not exist yet.
    """
    from fbo_flower.clients.guards import public_identity
    from fbo_flower.storage import AgentJournal
    from fbo_flower.storage.agent_journal import read_ledger

    journal = path_of(journal, "journal")
    if not journal.exists() and agent is None:
        raise ConfigError(
            f"journal: expected an agent's journal, got {journal}, which does not exist; pass --agent ID to "
            "create it"
        )
    owner = read_ledger(journal).agent if journal.exists() else agent
    with AgentJournal(journal, agent if agent is not None else str(owner)) as memory:
        typer.echo(public_identity(memory).hex())


def ledger(journals: list[Path], *, rounds: bool = False) -> None:
    """Print what agents have sent, and what it discloses by design.

    Names every array and number, says what it is, and counts messages and bytes.

    Example: fbo-flower ledger runs/mine/journals/1-fed-ei/agents --rounds

    Parameters
    ----------
    journals : Journals of agents (`agent-NAME.db`), or directories that contain them.
    rounds : Also print a table with the size of each round's message.
    """
    from fbo_flower.storage.agent_journal import read_ledger

    for path in journal_files(journals):
        sent = read_ledger(path)
        typer.secho(printable(f"Agent {sent.agent}"), bold=True, nl=False)
        typer.echo(printable(f", {path}"))
        for line in describe(sent, rounds):
            typer.echo(printable(line))


def describe(ledger: Ledger, rounds: bool = False) -> Iterator[str]:
    """Yield the lines that describe what an agent has sent, study by study."""
    from fbo_flower.algorithms.algorithm_record import BOTH, POINTS, ROWS, UNKNOWN, VALUES
    from fbo_flower.algorithms.registry import inference, meaning
    from fbo_flower.reports.summary import format_bytes

    if ledger.roll_call:
        yield f"  At every registration: {', '.join(ledger.roll_call)}."
    if ledger.disclosure:
        yield f"  Discloses beyond the algorithm's messages: {ledger.disclosure}."
    if not ledger.rows:
        yield "  has sent nothing."
    for study in dict.fromkeys(row.study for row in ledger.rows):
        rows = [row for row in ledger.rows if row.study == study]
        named = [*filter(None, (row.algorithm for row in rows)), "algorithm not recorded in the journal"][0]
        times, size = sum(row.name == "header" for row in rows), sum(row.num_bytes for row in rows)
        yield f"  Study {study}, {named}: {plural(times, 'message')}, {format_bytes(size)}"
        disclosed: dict[str, str] = {}
        for name in dict.fromkeys(row.name for row in rows):
            same = [row for row in rows if row.name == name]
            what = meaning(same[0].algorithm, name)
            disclosed[name] = meaning(same[-1].algorithm, name).discloses
            shapes = {row.shape for row in same}
            shape = f" of shape {same[0].shape}" if len(shapes) == 1 and same[0].shape else ""
            repeated, numbers = sum(row.again for row in same), sum(row.num_numbers for row in same)
            again = f", {repeated} of them repeated" if repeated else ""
            amount = f"{numbers:,} numbers, " if numbers else ""
            size = sum(row.num_bytes for row in same)
            yield f"    {name}: {plural(len(same), 'time')}{shape}{again}; {amount}{format_bytes(size)}"
            yield f"      what: {what.text}"
            if name != "header":
                first, last = same[0].made_from, same[-1].made_from
                yield f"      made from: {what.source}; {first if first == last else f'{first} .. {last}'}"
                yield f"      discloses by design: {what.discloses}"
            if name.startswith("disclosed."):
                chosen = ", ".join(dict.fromkeys(row.chosen_by for row in same if row.chosen_by))
                yield f"      chosen by: {chosen or 'not recorded'}"
        if rounds:
            yield "    round  phase     numbers      bytes  names"
            for number, phase in dict.fromkeys((row.round, row.phase) for row in rows):
                here = [row for row in rows if (row.round, row.phase) == (number, phase)]
                names = ", ".join(dict.fromkeys(row.name for row in here if row.name != "header"))
                numbers, size = sum(row.num_numbers for row in here), sum(row.num_bytes for row in here)
                yield f"    {number:5d}  {phase:8s}{numbers:9,d}  {size:9,d}  {names or 'header only'}"
        things = ("Points", (POINTS, BOTH)), ("Values", (VALUES, BOTH)), ("Rows of data", (ROWS,))
        for thing, kinds in things:
            by = ", ".join(name for name, discloses in disclosed.items() if discloses in kinds)
            yield f"    {thing}: {f'sent by design, in {by}' if by else 'not sent by design'}."
        if unknown := [name for name, discloses in disclosed.items() if discloses == UNKNOWN]:
            yield f"    Not known here: {', '.join(unknown)}."
        least = 2 if "secure.words" in disclosed else 0  # the journal does not say how many agents a sum had
        yield f"    What can be inferred: {inference(rows[-1].algorithm, least)}"


def journal_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the journals of agents: the files in `paths`, and those in its directories."""
    for path in map(path_of, paths):
        if path.is_dir():
            found = sorted(path.rglob("agent*.db"), key=lambda p: (p.parent, len(p.name), p.name))
            if not found:
                raise ConfigError(f"journal: expected agents' journals (agent*.db) in {path}, found none")
            yield from found
        else:
            yield path


def ask(journal: Path, *, timeout: float | None = None) -> None:
    """Wait for a configuration that the agent asks for; print it as JSON.

    The line is the same at every call until the value was told.

    Example: fbo-flower ask north.db

    Parameters
    ----------
    journal : The agent's journal, as in `journal` of its node_config.
    timeout : Seconds to wait for the agent; default: any number.
    """
    from fbo_flower.clients import Site

    typer.echo(json.dumps(Site(journal).ask(timeout)))


def tell(
    journal: Path, *, value: list[str] | None = None, failed: bool = False, config: str | None = None
) -> None:
    """Tell the agent the value of the configuration that it asks for.

    Examples:
    fbo-flower tell north.db --value 0.93

    fbo-flower tell north.db --value accuracy=0.93 --value latency_ms=12

    Parameters
    ----------
    journal : The agent's journal, as in `journal` of its node_config.
    value : The value of the configuration; or NAME=NUMBER for each of several outputs, repeatable.
    failed : The evaluation has failed.
    config : The configuration as JSON; needed only if the agent has asked for several.
    """
    from fbo_flower.clients import Site

    if (not value) != failed:
        raise ConfigError("--value: expected a number, or else --failed; give one of them")
    site = Site(journal)
    if config is None:
        pending = site.pending
        if len(pending) != 1:
            raise ConfigError(
                f"--config: expected one configuration that was asked for and not told, got {len(pending)}; "
                "see them with fbo-flower ask, and pass one as JSON"
            )
        chosen = pending[0]
    else:
        try:
            chosen = dict(json.loads(config))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"--config: expected a JSON object as fbo-flower ask prints it, got {config[:80]!r}"
            ) from error
    named = [text.rpartition("=") for text in value or ()]
    try:
        found = {name.strip(): float(number) for name, _, number in named}
    except ValueError:
        found = {}
    if len(found) < len(named) or ("" in found and len(found) > 1):
        expected = "a number, or NAME=NUMBER once for each output"
        raise ConfigError(f"--value: expected {expected}, got {', '.join(value or ())}")
    site.tell(chosen, None if failed else found.get("", found), failed=failed)
