"""`Fed1UCB` as a Flower strategy."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class Fed1UCB(TuningStrategy):
    """Run `algorithms.Fed1UCB`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.Fed1UCB
