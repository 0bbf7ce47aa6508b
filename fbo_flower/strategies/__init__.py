"""Each algorithm as a Flower strategy: `FTS(...).start(grid, num_rounds=25)` in a ServerApp.

Each class is made from the record of its algorithm when it is first used. `STRATEGIES["fts"]` returns the
strategy of an algorithm by its name, also for algorithms that another package adds. Type checkers and editors
know the options of `TuningStrategy(algorithms.FTS(advice="portfolio"))`, because an algorithm is a dataclass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.algorithm_record import AlgorithmRecord
from fbo_flower.algorithms.registry import BUILT_IN, Algorithms, built_in_class, find
from fbo_flower.strategies.base import TuningStrategy
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.settings import TuningResult


class Strategies(Mapping[str, type[TuningStrategy]]):
    """Read-only mapping: name of an algorithm -> its strategy class; plugins are included."""

    def __getitem__(self, name: str) -> type[TuningStrategy]:
        if name not in self:
            raise KeyError(name)
        return strategy_class(find(name))

    def __iter__(self) -> Iterator[str]:
        return iter(Algorithms())

    def __len__(self) -> int:
        return len(Algorithms())

    def __contains__(self, name: object) -> bool:
        return name in Algorithms()


def strategy_class(record: AlgorithmRecord) -> type[TuningStrategy]:
    """Return the strategy class of an algorithm; raise ConfigError if its import fails."""
    return _make_class(record.load(), record.summary, record.caution)


@cache
def _make_class(algorithm: type[Algorithm[Any]], summary: str, caution: str) -> type[TuningStrategy]:
    paragraphs = [
        f"Run `{algorithm.name}`: {summary}.",
        *([caution] if caution else []),
        "`TuningStrategy` explains the settings that all strategies share.",
        "\n".join(["Options of the algorithm", "-" * 24, *algorithm.option_texts()]),
    ]
    body = {"algorithm_class": algorithm, "__module__": __name__, "__doc__": "\n\n".join(paragraphs)}
    return type(algorithm.__name__, (TuningStrategy,), body)


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
