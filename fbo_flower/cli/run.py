"""`fbo-flower run`: run a Flower app and exit with the status of the run; `flwr run` only submits it."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from fbo_flower.cli.app_check import check_app
from fbo_flower.cli.common import Connected, Debug, Interrupted, Quiet
from fbo_flower.cli.flower_cli import (
    NO_INSTALLATION,
    FlowerCLI,
    RunStatus,
    check_simulation,
    missing_dependencies,
    read_app,
    read_connection,
)
from fbo_flower.cli.submission import Submission, prepare
from fbo_flower.errors import ConfigError, FBOError

_PAUSE = 2.0  # seconds between two queries for the status, once the log has ended
_ERROR = re.compile(r"fbo_flower\.errors\.(\w+Error): (.+)")  # the last line of a traceback
_MAX_REASON = 500  # characters
_ATTEMPTS = 3  # queries without an answer, after which the SuperLink counts as lost


def run_app(
    app: Annotated[str, typer.Argument(help="Directory of the Flower app.")] = ".",
    connection: Connected = None,
    run_config: Annotated[
        list[str] | None,
        typer.Option(
            "--run-config", "-c", help="Settings of the app, passed to flwr: 'key=value ...'; repeatable."
        ),
    ] = None,
    federation_config: Annotated[
        list[str] | None,
        typer.Option(help="Settings of the simulation, passed to flwr: 'num-supernodes=4'; repeatable."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Files of the simulated nodes, one each, in natural order: 'dir/*.csv'. They decide the "
            "number of nodes."
        ),
    ] = None,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Run a Flower app and show its log.

    The exit status is 0 only if the run succeeded. It is 2 if a setting cannot be used, and 1 after any other
    error.

    Example: fbo-flower run my-app deploy -c 'num-agents=3'
    """
    project = read_app(app)
    target = read_connection(connection)
    settings = prepare(project, target, run_config or (), federation_config or (), data)
    check_simulation(target)
    missing = [] if project is None else missing_dependencies(project)
    if project is not None and not missing:
        check_app(app, project, runs_here=target.is_background)
    flower = FlowerCLI(connection, install_dependencies=bool(missing))
    if missing and not quiet:
        typer.echo(
            f"Not installed here, Flower needs an index for them: {', '.join(missing)}",
            err=True,
        )
    run_id = flower.submit(app, settings.run_config, settings.federation_config)
    if not quiet:
        _announce(run_id, settings)
    try:
        if not quiet:
            flower.stream(run_id, everything=debug)
        while not (status := _status(flower, run_id, settings.journal)).is_over:
            time.sleep(_PAUSE)
            if not quiet:
                flower.stream(run_id, everything=debug)
    except KeyboardInterrupt as error:
        where = "" if connection is None else f" {connection}"
        raise Interrupted(f"run {run_id} is still running; flwr stop {run_id}{where} ends it") from error
    if not status.succeeded:
        reason = " ".join(status.details.split()) or "see flwr log for the reason"
        hint = (
            f"; the SuperLink installs dependencies itself unless it was started with {NO_INSTALLATION}=1 or "
            "--disable-runtime-dependency-installation"
            if not missing and any(word in reason.lower() for word in ("dependenc", "uv sync"))
            else ""
        )
        kind, found = _error_in(flower.log(run_id))
        raise kind(f"run {run_id} {status.status}: {found or reason}{hint}")
    if not quiet:
        typer.echo(f"Run {run_id} {status.status}", err=True)
        if settings.results is not None:
            typer.echo(f"Results: {settings.results}", err=True)


def _error_in(log: str) -> tuple[type[FBOError], str]:
    r"""Return the kind and the text of the last error of this package in a run's log; "" if there is none.

    An agent's error reaches the server as text, and the status of a run may say only that the run failed.

    >>> _error_in("Traceback ...\\nfbo_flower.errors.ConfigError: space: expected a SearchSpace, got a dict")
    (<class 'fbo_flower.errors.ConfigError'>, 'space: expected a SearchSpace, got a dict')
    """
    found = _ERROR.findall(log)
    if not found:
        return FBOError, ""
    name, text = found[-1]
    return (ConfigError if name == "ConfigError" else FBOError), text.strip()[:_MAX_REASON]


def _announce(run_id: str, settings: Submission) -> None:
    """Print the run's number, where its results will be, and which file each simulated agent has."""
    from fbo_flower.clients.node import names_of_files

    typer.echo(f"Run {run_id}", err=True)
    if settings.results is not None:
        typer.echo(f"Results will be in {settings.results}", err=True)
    for name, path in zip(names_of_files(settings.files), settings.files, strict=True):
        typer.echo(f"Agent {name}: {path}", err=True)


def _status(flower: FlowerCLI, run_id: str, journal: bool) -> RunStatus:
    """Return the status of a run; FBOError if the SuperLink cannot be reached any more."""
    for attempt in range(_ATTEMPTS):
        try:
            return flower.status(run_id)
        except ConfigError as error:
            reason = error
            if attempt < _ATTEMPTS - 1:
                time.sleep(_PAUSE)
    remedy = (
        "run the same command again to resume"
        if journal
        else "run the same command again; with journal='FILE' in --run-config it would resume"
    )
    raise FBOError(f"run {run_id}: the SuperLink cannot be reached any more; {remedy} ({reason})") from reason
