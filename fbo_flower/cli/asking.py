"""`fbo-flower ask` and `tell`: evaluate what an agent asks for, by hand or in a script of the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fbo_flower.cli.common import Debug
from fbo_flower.errors import ConfigError

AgentJournal = Annotated[
    Path, typer.Argument(help="The agent's journal, as in `journal` of its node_config.")
]


def ask(
    journal: AgentJournal,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait for the agent; default: any number.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Wait for a configuration that the agent asks for; print it as JSON.

    The line is the same at every call until the value was told.

    Example: fbo-flower ask north.db
    """
    from fbo_flower.clients import Site

    typer.echo(json.dumps(Site(journal).ask(timeout)))


def tell(
    journal: AgentJournal,
    value: Annotated[
        list[str] | None,
        typer.Option(
            help="The value of the configuration; or NAME=NUMBER for each of several outputs, repeatable."
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The evaluation has failed.")] = False,
    config: Annotated[
        str | None,
        typer.Option(help="The configuration as JSON; needed only if the agent has asked for several."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Tell the agent the value of the configuration that it asks for.

    Examples:
    fbo-flower tell north.db --value 0.93

    fbo-flower tell north.db --value accuracy=0.93 --value latency_ms=12
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
        told = pending[0]
    else:
        try:
            told = dict(json.loads(config))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"--config: expected a JSON object as fbo-flower ask prints it, got {config[:80]!r}"
            ) from error
    site.tell(told, None if failed else _number_or_outputs(value or []), failed=failed)


def _number_or_outputs(texts: list[str]) -> float | dict[str, float]:
    """Return the values of `--value`: one number, or numbers by name."""
    named = [text.rpartition("=") for text in texts]
    try:
        found = {name.strip(): float(number) for name, _, number in named}
    except ValueError:
        found = {}
    if len(found) < len(texts) or ("" in found and len(found) > 1):
        raise ConfigError(
            f"--value: expected a number, or NAME=NUMBER once for each output, got {', '.join(texts)}"
        )
    return found.get("", found)
