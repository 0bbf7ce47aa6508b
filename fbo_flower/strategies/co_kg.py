"""`CoKG` as a Flower strategy."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class CoKG(TuningStrategy):
    """Run `algorithms.CoKG`; takes its options beside the settings of `TuningStrategy`.

    The run's settings in the study have `found`: the shared hyperparameters, what the server would have
    recommended after every round, and with `central="product"` whether the agents share one objective.
    """

    algorithm_class = algorithms.CoKG
