"""`python -m studies attack`: what a curious server recovers from the messages of simulated agents."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

EXAMPLE = "Example: python -m studies attack co-kg"


def run_attack(
    name: Annotated[
        str | None, typer.Argument(help="An attack, or an algorithm to attack; without a name, list them.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the simulated agents.")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Attack simulated agents as their server could.

    Prints the attacker's error beside the error of a guess that uses no messages. The closer the two are, the
    less the messages reveal.
    """
    from fbo_flower.algorithms.options import check_number
    from studies.attacks import ATTACKS, find

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
