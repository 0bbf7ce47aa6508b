"""`fbo-flower run`: run a Flower app and exit with the status of the run; `flwr run` only submits it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from fbo_flower.cli.flower_cli import NO_INSTALLATION, FlowerCLI, missing_dependencies, read_app
from fbo_flower.cli.simulate import Debug, Interrupted, Quiet
from fbo_flower.errors import FBOError

EXAMPLE = "Example: fbo-flower run my-app deploy -c 'num-agents=3'"
_PAUSE = 2.0  # seconds between two queries for the status, once the log has ended


def run_app(
    app: Annotated[str, typer.Argument(help="Directory of the Flower app.")] = ".",
    connection: Annotated[
        str | None,
        typer.Argument(
            help="Name of a SuperLink in Flower's config.toml; default: the one that config.toml names."
        ),
    ] = None,
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
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Run a Flower app and show its log.

    The exit status is 0 only if the run succeeded.
    """
    project = read_app(app)
    missing = [] if project is None else missing_dependencies(project)
    flower = FlowerCLI(connection, install_dependencies=bool(missing))
    if missing and not quiet:
        typer.echo(
            f"Not installed here, Flower needs an index for them: {', '.join(missing)}",
            err=True,
        )
    run_id = flower.submit(app, run_config or (), federation_config or ())
    if not quiet:
        typer.echo(f"Run {run_id}", err=True)
    try:
        if not quiet:
            flower.stream(run_id)
        while not (status := flower.status(run_id)).is_over:
            time.sleep(_PAUSE)
            if not quiet:
                flower.stream(run_id)
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
        raise FBOError(f"run {run_id} {status.status}: {reason}{hint}")
    if not quiet:
        typer.echo(f"Run {run_id} {status.status}", err=True)
