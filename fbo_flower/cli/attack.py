"""`fbo-flower attack`: what a curious server recovers from simulated agents, against somebody who guesses."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

EXAMPLE = "Example: fbo-flower attack co-kg"


def run_attack(
    name: Annotated[
        str | None, typer.Argument(help="An attack or an algorithm; without a name the attacks are listed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the agents that are attacked.")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Attack simulated agents as their server could, and print the errors: attacker's and guesser's."""
    from fbo_flower.algorithms.options import check_number
    from fbo_flower.attacks import ATTACKS, find

    if name is None:
        for key, listed in ATTACKS.items():
            typer.secho(key, bold=True, nl=False)
            typer.echo(f"  {listed.summary}")
        return
    attack = find(name)
    check_number("seed", seed, 0, integer=True)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if markdown:
        typer.echo("| secret | attacker's error | guesser's error | unit | tries |")
        typer.echo("|---|---:|---:|---|---:|")
    for found in attack.run(seed):
        if markdown:
            cells = found.secret, f"{found.error:.2g}", f"{found.guess:.2g}", found.unit, str(found.count)
            typer.echo(f"| {' | '.join(cells)} |")
        else:
            typer.echo(f"{found.secret}:")
            errors = f"attacker {found.error:.2g}, {found.how} {found.guess:.2g}"
            typer.echo(f"  {errors} ({found.unit}; {found.count} tries)")
