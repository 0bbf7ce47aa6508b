"""Attacks of an honest-but-curious server on simulated agents, by name: what it recovers, against a guess."""

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
    module : where its `attack(seed)` is
    """

    summary: str
    module: str

    def run(self, seed: int) -> Iterator[AttackResult]:
        """Return what it finds, one by one."""
        made: Callable[[int], Iterator[AttackResult]] = import_module(f"{__name__}.{self.module}").attack
        return made(seed)


ATTACKS: dict[str, Attack] = {
    "co-kg": Attack("values and points out of successive posteriors", "co_kg"),
    "fts": Attack("points of foreign rounds, and values out of the next weights", "fts"),
    "posterior": Attack("points and values out of the posteriors of RGPE and TAF", "posterior"),
    "pf-pne": Attack("values out of means of cells", "pf_pne"),
    "secure-sums": Attack(
        "reports out of secure sums: of one, and of many with changing members", "secure_sums"
    ),
    "rfms": Attack("rows inside models, and membership out of a curator's answers", "rfms"),
}


def find(name: str) -> Attack:
    """Return an attack; an unknown name is an error that lists what there is."""
    if name not in ATTACKS:
        raise ConfigError(f"attack: expected one of {', '.join(ATTACKS)}, got {name!r}")
    return ATTACKS[name]


__all__ = ["ATTACKS", "Attack", "AttackResult", "find"]
