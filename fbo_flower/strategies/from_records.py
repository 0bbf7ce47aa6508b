"""Make one strategy class for each algorithm record, the first time that it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.algorithm_record import AlgorithmRecord
from fbo_flower.algorithms.registry import BUILT_IN, Algorithms, find
from fbo_flower.strategies.base import TuningStrategy


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
    module = "fbo_flower.strategies" if record.name in BUILT_IN else __name__
    return _make_class(record.load(), module, record.summary, record.caution)


@cache
def _make_class(
    algorithm: type[Algorithm[Any]], module: str, summary: str, caution: str
) -> type[TuningStrategy]:
    """Return the strategy class of an algorithm; equal arguments give the same class."""
    paragraphs = [
        f"Run `{algorithm.name}`: {summary}.",
        *([caution] if caution else []),
        "`TuningStrategy` explains the settings that all strategies share.",
        "\n".join(["Options of the algorithm", "-" * 24, *algorithm.option_texts()]),
    ]
    body = {"algorithm_class": algorithm, "__module__": module, "__doc__": "\n\n".join(paragraphs)}
    return type(algorithm.__name__, (TuningStrategy,), body)
