"""`DPFTS` as a Flower strategy."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class DPFTS(TuningStrategy):
    """Run `algorithms.DPFTS`; takes its options beside the settings of `TuningStrategy`.

    The noise is drawn from the strategy's `seed`: outside simulation leave it at None, for whoever knows it
    can take the noise away.
    """

    algorithm_class = algorithms.DPFTS
