"""PF-PNE and its two halves as Flower strategies."""

from __future__ import annotations

from fbo_flower import algorithms
from fbo_flower.strategies.base import TuningStrategy


class PFPNE(TuningStrategy):
    """Run `algorithms.PFPNE`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.PFPNE


class FedPNE(TuningStrategy):
    """Run `algorithms.FedPNE`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.FedPNE


class LocalPNE(TuningStrategy):
    """Run `algorithms.LocalPNE`; takes its options beside the settings of `TuningStrategy`."""

    algorithm_class = algorithms.LocalPNE
