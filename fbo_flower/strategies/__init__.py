"""Each algorithm as a Flower strategy: `FTS(...).start(grid, num_rounds=25)` in a ServerApp.

Each class is made from the record of its algorithm. `STRATEGIES["fts"]` returns the strategy of an algorithm
by its name, also for algorithms that another package adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fbo_flower.algorithms.registry import BUILT_IN, built_in_class
from fbo_flower.strategies.base import TuningStrategy
from fbo_flower.strategies.from_records import Strategies, strategy_class
from fbo_flower.strategies.recorder import RoundProgress

STRATEGIES = Strategies()

if TYPE_CHECKING:  # a test compares these names with the records

    class RandomSearch(TuningStrategy): ...

    class ThompsonSampling(TuningStrategy): ...

    class ExpectedImprovement(TuningStrategy): ...

    class FedEI(TuningStrategy): ...

    class FTS(TuningStrategy): ...

    class DPFTS(TuningStrategy): ...

    class RGPE(TuningStrategy): ...

    class TAF(TuningStrategy): ...

    class Consensus(TuningStrategy): ...

    class FMTBO(TuningStrategy): ...

    class FLoRA(TuningStrategy): ...

    class DPVote(TuningStrategy): ...

    class PFPNE(TuningStrategy): ...

    class FedPNE(TuningStrategy): ...

    class LocalPNE(TuningStrategy): ...

    class HCT(TuningStrategy): ...

    class Fed1UCB(TuningStrategy): ...

    class FNUCB(TuningStrategy): ...

    class RFMS(TuningStrategy): ...

    class CoKG(TuningStrategy): ...

else:

    def __getattr__(name):
        """Return the strategy class of this name, for `from fbo_flower.strategies import FTS`."""
        record = built_in_class(name)
        if record is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return strategy_class(record)

    def __dir__():
        return sorted([*globals(), *(record.class_name for record in BUILT_IN.values())])


__all__ = [
    "DPFTS",
    "FMTBO",
    "FNUCB",
    "FTS",
    "HCT",
    "PFPNE",
    "RFMS",
    "RGPE",
    "STRATEGIES",
    "TAF",
    "CoKG",
    "Consensus",
    "DPVote",
    "ExpectedImprovement",
    "FLoRA",
    "Fed1UCB",
    "FedEI",
    "FedPNE",
    "LocalPNE",
    "RandomSearch",
    "RoundProgress",
    "ThompsonSampling",
    "TuningStrategy",
]
