"""The algorithms: each a frozen dataclass of options with the server's half and the agent's half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fbo_flower.algorithms.fts import FTS
from fbo_flower.algorithms.hct import HCT
from fbo_flower.algorithms.pf_pne import PFPNE, FedPNE, LocalPNE
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.random_search import RandomSearch
from fbo_flower.algorithms.thompson import ThompsonSampling
from fbo_flower.errors import ConfigError

# State is the algorithm's own business: nobody outside looks into it.
ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "random": RandomSearch,
    "ts": ThompsonSampling,
    "fts": FTS,
    "pf-pne": PFPNE,
    "fed-pne": FedPNE,
    "local-pne": LocalPNE,
    "hct": HCT,
}


def make_algorithm(name: str, options: Mapping[str, object]) -> Algorithm[Any]:
    """Build an algorithm by name; an unknown name or option is an error that lists what there is."""
    if name not in ALGORITHMS:
        raise ConfigError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, got {name!r}")
    return ALGORITHMS[name].from_options(options)


__all__ = [
    "ALGORITHMS",
    "FTS",
    "HCT",
    "PFPNE",
    "Algorithm",
    "FedPNE",
    "LocalPNE",
    "RandomSearch",
    "ThompsonSampling",
    "make_algorithm",
]
