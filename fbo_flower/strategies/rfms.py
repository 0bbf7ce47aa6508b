"""RFMS as a Flower strategy."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class RFMS(TuningStrategy):
    """Run `algorithms.RFMS`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.RFMS
