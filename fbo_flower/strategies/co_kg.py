"""`CoKG` as a Flower strategy."""

from __future__ import annotations

from logging import INFO
from typing import Any

from flwr.common.logger import log

from fbo_flower import algorithms
from fbo_flower.algorithms.co_kg import findings
from fbo_flower.algorithms.co_kg.state import CoKGState
from fbo_flower.algorithms.records import Phase
from fbo_flower.strategies.base import TuningStrategy


class CoKG(TuningStrategy):
    """Run `algorithms.CoKG`; takes its options beside the settings of `TuningStrategy`.

    The run's settings in the study have `found`: the shared hyperparameters, what the server would have
    recommended after every round, and with `central="product"` whether the agents share one objective.
    """

    algorithm_class = algorithms.CoKG
    algorithm: algorithms.CoKG

    def _tell(self, phase: Phase, server_round: int) -> None:
        before = self._unwrap_state()
        super()._tell(phase, server_round)
        for line in findings.report_metrics(self._unwrap_state(), before):
            log(INFO, "%s", line)

    def _settings(self, num_rounds: int | None, status: str, seconds: float) -> dict[str, Any]:
        found = findings.summary(self.algorithm, self._unwrap_state())
        return super()._settings(num_rounds, status, seconds) | {"found": found}

    def _unwrap_state(self) -> CoKGState:
        return self.algorithm.unwrap_state(self._current().state)
