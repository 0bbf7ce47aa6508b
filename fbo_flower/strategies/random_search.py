"""`RandomSearch` as a Flower strategy."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class RandomSearch(TuningStrategy):
    """Run `algorithms.RandomSearch`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.RandomSearch
