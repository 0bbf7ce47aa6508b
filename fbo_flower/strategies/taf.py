"""`TAF` as a Flower strategy."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class TAF(TuningStrategy):
    """Run `algorithms.TAF`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.TAF
