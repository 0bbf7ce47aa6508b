"""`RGPE` as a Flower strategy."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class RGPE(TuningStrategy):
    """Run `algorithms.RGPE`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.RGPE
