"""Attacks of an honest-but-curious server on simulated agents, by name; each is compared with a guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from fbo_flower.attacks.records import AttackResult
from fbo_flower.errors import ConfigError


@dataclass(frozen=True)
class Attack:
    """An attack that can be started by name.

    Parameters
    ----------
    summary : one line for listings
    module : module that defines `attack(seed)`
    """

    summary: str
    module: str

    def run(self, seed: int) -> Iterator[AttackResult]:
        """Run the attack and yield its results one by one."""
        made: Callable[[int], Iterator[AttackResult]] = import_module(f"{__name__}.{self.module}").attack
        return made(seed)


ATTACKS: dict[str, Attack] = {
    "co-kg": Attack("values and points from successive posteriors", "co_kg"),
    "fts": Attack("points of foreign rounds, and values from the next weights", "fts"),
    "posterior": Attack("points and values from the posteriors of RGPE and TAF", "posterior"),
    "pf-pne": Attack("values from the means of cells", "pf_pne"),
    "secure-sums": Attack(
        "reports from secure sums: from one sum, and from many with changing members", "secure_sums"
    ),
    "rfms": Attack("rows inside models, and membership from a curator's answers", "rfms"),
}


def find(name: str) -> Attack:
    """Return the attack with this name; ConfigError that lists all names if it is unknown."""
    if name not in ATTACKS:
        raise ConfigError(f"attack: expected one of {', '.join(ATTACKS)}, got {name!r}")
    return ATTACKS[name]


__all__ = ["ATTACKS", "Attack", "AttackResult", "find"]
