"""Attacks of a server, curious or lying, on simulated agents, by name; each is compared with a guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fbo_flower.algorithms.algorithm_record import load_home
from fbo_flower.algorithms.registry import lookup
from fbo_flower.errors import ConfigError
from studies.attacks.harness import AttackResult


@dataclass(frozen=True)
class Attack:
    """An attack: one line for listings, and "package.module:function" of a function of the seed."""

    summary: str
    home: str

    def run(self, seed: int) -> Iterator[AttackResult]:
        """Run the attack and yield its results one by one."""
        attack: Callable[[int], Iterator[AttackResult]] = load_home("attack", self.home)
        return attack(seed)


ATTACKS = {
    name: Attack(summary, f"{__name__}.{home}")
    for name, home, summary in (
        ("co-kg", "co_kg:attack", "values and points from successive posteriors"),
        ("fts", "curious:fts", "points of foreign rounds, and values from the next weights"),
        ("fed-ei", "fed_ei:attack",
         "owners of anonymous rows, by their looks and by lies; members that lie; a sum of features"),
        ("consensus", "curious:consensus", "points that agents evaluate, from their designs"),
        ("fmtbo", "curious:fmtbo", "best points, from ranks of public points"),
        ("posterior", "curious:posterior", "points and values from the posteriors of RGPE and TAF"),
        ("pf-pne", "curious:pf_pne", "values from the means of cells"),
        ("secure-sums", "secure_sums:attack",
         "reports from secure sums: from one sum, and from many with changing members"),
        ("lying-server", "lying_server:attack",
         "repeated questions and decoy studies, beside an agent that forgets"),
        ("rfms", "rfms:attack", "rows inside models, and membership from a curator's answers"),
    )
}  # fmt: skip


def find(name: str) -> Attack:
    """Return an attack by its own name or that of an algorithm; ConfigError if there is none."""
    record = None if name in ATTACKS else lookup(name)
    if name not in ATTACKS and record is None:
        raise ConfigError(
            f"attack: expected one of {', '.join(ATTACKS)}, or the name of an algorithm, got {name!r}"
        )
    known = name if record is None else record.attack
    if record is not None and known is not None and ":" in known:
        return Attack(f"the messages of {name}, by the package of {record.home}", known)
    if known is None:
        raise ConfigError(f"attack: nobody has written one on {name!r}; choose one of {', '.join(ATTACKS)}")
    if known not in ATTACKS:
        raise ConfigError(f"{name}: attack: expected one of {', '.join(ATTACKS)}, got {known!r}")
    return ATTACKS[known]


__all__ = ["ATTACKS", "Attack", "AttackResult", "find"]
