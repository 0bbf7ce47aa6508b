"""Attacks of a server, curious or lying, on simulated agents, by name; each is compared with a guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fbo_flower.algorithms.algorithm_record import load_home
from fbo_flower.algorithms.registry import lookup
from fbo_flower.errors import ConfigError
from studies.attacks.records import AttackResult


@dataclass(frozen=True)
class Attack:
    """An attack that can be started by name.

    Parameters
    ----------
    summary : one line for listings
    home : "package.module:function" of a function that takes the seed and yields results
    """

    summary: str
    home: str

    def run(self, seed: int) -> Iterator[AttackResult]:
        """Run the attack and yield its results one by one."""
        attack: Callable[[int], Iterator[AttackResult]] = load_home("attack", self.home)
        return attack(seed)


ATTACKS: dict[str, Attack] = {
    "co-kg": Attack("values and points from successive posteriors", f"{__name__}.co_kg:attack"),
    "fts": Attack("points of foreign rounds, and values from the next weights", f"{__name__}.fts:attack"),
    "fed-ei": Attack(
        "owners of anonymous rows, by their looks and by lies; members that lie; a sum of features",
        f"{__name__}.fed_ei:attack",
    ),
    "consensus": Attack("points that agents evaluate, from their designs", f"{__name__}.peers:consensus"),
    "fmtbo": Attack("best points, from ranks of public points", f"{__name__}.peers:fmtbo"),
    "posterior": Attack(
        "points and values from the posteriors of RGPE and TAF", f"{__name__}.posterior:attack"
    ),
    "pf-pne": Attack("values from the means of cells", f"{__name__}.pf_pne:attack"),
    "secure-sums": Attack(
        "reports from secure sums: from one sum, and from many with changing members",
        f"{__name__}.secure_sums:attack",
    ),
    "lying-server": Attack(
        "repeated questions and decoy studies, beside an agent that forgets",
        f"{__name__}.lying_server:attack",
    ),
    "rfms": Attack("rows inside models, and membership from a curator's answers", f"{__name__}.rfms:attack"),
}


def find(name: str) -> Attack:
    """Return an attack by its own name or by the name of an algorithm that it attacks.

    Raises
    ------
    ConfigError
        If there is no such attack, which lists those that there are.
    """
    if name in ATTACKS:
        return ATTACKS[name]
    record = lookup(name)
    if record is None:
        raise ConfigError(
            f"attack: expected one of {', '.join(ATTACKS)}, or the name of an algorithm, got {name!r}"
        )
    if record.attack is None:
        raise ConfigError(f"attack: nobody has written one on {name!r}; choose one of {', '.join(ATTACKS)}")
    if ":" in record.attack:
        return Attack(f"the messages of {name}, by the package of {record.home}", record.attack)
    if record.attack not in ATTACKS:
        raise ConfigError(f"{name}: attack: expected one of {', '.join(ATTACKS)}, got {record.attack!r}")
    return ATTACKS[record.attack]


__all__ = ["ATTACKS", "Attack", "AttackResult", "find"]
