"""`fbo-flower key`: print the public identity key of an agent, for the `secure_peers` of other agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fbo_flower.errors import ConfigError

EXAMPLE = "Example: fbo-flower key agent-3.db --agent 3"


def run_key(
    journal: Annotated[Path, typer.Argument(help="The agent's journal, as in `journal` of its node_config.")],
    agent: Annotated[
        str | None, typer.Option(help="The agent's id; needed only if the journal does not exist yet.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print an agent's public identity key; make the key, and the journal, if there is none.

    Operators give the keys of their agents to each other, and list them in `secure_peers` of node_config.
    """
    from fbo_flower.clients.guards import public_identity
    from fbo_flower.storage import AgentJournal
    from fbo_flower.storage.read_agent_journal import read_ledger

    if not journal.exists() and agent is None:
        raise ConfigError(
            f"journal: expected an agent's journal, got {journal}, which does not exist; pass --agent ID to "
            "create it"
        )
    owner = read_ledger(journal).agent if journal.exists() else agent
    with AgentJournal(journal, agent if agent is not None else str(owner)) as memory:
        typer.echo(public_identity(memory).hex())
