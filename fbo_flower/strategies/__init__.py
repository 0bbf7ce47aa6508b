"""Each algorithm as a Flower strategy: `FTS(...).start(grid, num_rounds=25)` in a ServerApp.

Each class is made from the record of its algorithm. `STRATEGIES["fts"]` returns the strategy of an algorithm
by its name, also for algorithms that another package adds. Type checkers and editors know the options of
`TuningStrategy(algorithms.FTS(advice="portfolio"))`, because an algorithm is a dataclass.
"""

from __future__ import annotations

from fbo_flower.algorithms.registry import BUILT_IN, built_in_class
from fbo_flower.strategies.base import TuningStrategy
from fbo_flower.strategies.from_records import Strategies, strategy_class
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.result import TuningResult

STRATEGIES = Strategies()


def __getattr__(name: str) -> type[TuningStrategy]:
    """Return the strategy class of this name, for `from fbo_flower.strategies import FTS`."""
    record = built_in_class(name)
    if record is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return strategy_class(record)


def __dir__() -> list[str]:
    return sorted([*globals(), *(record.class_name for record in BUILT_IN.values())])


__all__ = [
    "DPFTS",
    "FNUCB",
    "FTS",
    "HCT",
    "PFPNE",
    "RFMS",
    "RGPE",
    "STRATEGIES",
    "TAF",
    "CoKG",
    "ExpectedImprovement",
    "Fed1UCB",
    "FedEI",
    "FedPNE",
    "LocalPNE",
    "RandomSearch",
    "RoundProgress",
    "ThompsonSampling",
    "TuningResult",
    "TuningStrategy",
]
