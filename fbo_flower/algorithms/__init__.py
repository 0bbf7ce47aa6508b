"""The algorithms: each a frozen dataclass of options with the server's half and the agent's half.

An algorithm is imported when it is asked for: a device imports this package anew for every message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fbo_flower.algorithms.capabilities import Summable
from fbo_flower.algorithms.catalogue import Catalogue
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.errors import ConfigError

if TYPE_CHECKING:
    from fbo_flower.algorithms.bandits.fed1_ucb import Fed1UCB
    from fbo_flower.algorithms.bandits.fn_ucb import FNUCB
    from fbo_flower.algorithms.bandits.hct import HCT
    from fbo_flower.algorithms.co_kg.co_kg import CoKG
    from fbo_flower.algorithms.fts.dp_fts import DPFTS
    from fbo_flower.algorithms.fts.fts import FTS
    from fbo_flower.algorithms.pne.pf_pne import PFPNE, FedPNE, LocalPNE
    from fbo_flower.algorithms.random_search import RandomSearch
    from fbo_flower.algorithms.rfms.rfms import RFMS
    from fbo_flower.algorithms.thompson import ThompsonSampling
    from fbo_flower.algorithms.transfer.rgpe import RGPE
    from fbo_flower.algorithms.transfer.taf import TAF

# State is the algorithm's own business: nobody outside looks into it.
ALGORITHMS = Catalogue(
    {
        "random": "random_search:RandomSearch",
        "ts": "thompson:ThompsonSampling",
        "fts": "fts.fts:FTS",
        "dp-fts": "fts.dp_fts:DPFTS",
        "rgpe": "transfer.rgpe:RGPE",
        "taf": "transfer.taf:TAF",
        "pf-pne": "pne.pf_pne:PFPNE",
        "fed-pne": "pne.pf_pne:FedPNE",
        "local-pne": "pne.pf_pne:LocalPNE",
        "hct": "bandits.hct:HCT",
        "co-kg": "co_kg.co_kg:CoKG",
        "fed1-ucb": "bandits.fed1_ucb:Fed1UCB",
        "fn-ucb": "bandits.fn_ucb:FNUCB",
        "rfms": "rfms.rfms:RFMS",
    }
)


def __getattr__(name: str) -> type[Algorithm[Any]]:
    return ALGORITHMS.find(name)


def make_algorithm(name: str, options: Mapping[str, object]) -> Algorithm[Any]:
    """Build an algorithm by name; an unknown name or option is an error that lists what there is."""
    if name not in ALGORITHMS:
        raise ConfigError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, got {name!r}")
    return with_secure_sums(ALGORITHMS[name].from_options(options))


def with_secure_sums(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return the algorithm, within secure sums if its option `secure_sums` asks for them."""
    if not isinstance(algorithm, Summable) or not algorithm.secure_sums:
        return algorithm
    from fbo_flower.algorithms.secure_aggregation import SecureAggregation  # needs cryptography

    return SecureAggregation(inner=algorithm, least=algorithm.secure_sums)


__all__ = [
    "ALGORITHMS",
    "DPFTS",
    "FNUCB",
    "FTS",
    "HCT",
    "PFPNE",
    "RFMS",
    "RGPE",
    "TAF",
    "Algorithm",
    "CoKG",
    "Fed1UCB",
    "FedPNE",
    "LocalPNE",
    "RandomSearch",
    "ThompsonSampling",
    "make_algorithm",
    "with_secure_sums",
]
