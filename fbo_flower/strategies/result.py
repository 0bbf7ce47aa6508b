"""What a run returns to a user of Flower: arrays, metrics of its rounds, and the study."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result

from fbo_flower.algorithms.records import Phase
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.study.study import Study

TRAIN, EVALUATE = "train", "evaluate"  # the halves of Flower's rounds
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass
class TuningResult(Result):
    """Flower's result of a run, and the study.

    Attributes
    ----------
    arrays : the messages from which another study can start, see `initial_arrays`; empty if the algorithm
        keeps none
    train_metrics_clientapp, evaluate_metrics_clientapp : round -> numbers of the half-round: valid `replies`,
        `evaluations` and `failed` ones in them, and, if agents disclose values, `best` and `mean` of the
        agents' best values so far. Secure sums need the second half of a round; their shares are replies
    evaluate_metrics_serverapp : round -> what `evaluate_fn` returned
    study : disclosed trials and measured rounds
    """

    study: Study = field(init=False, repr=False)

    def note(self, half: str, server_round: int, numbers: Mapping[str, float]) -> None:
        """Add the numbers of an exchange to those of its half-round."""
        rounds = self.train_metrics_clientapp if half == TRAIN else self.evaluate_metrics_clientapp
        before: Mapping[str, Any] = rounds.get(server_round, {})
        added = {name: numbers[name] + before.get(name, 0) for name in ("replies", "evaluations", "failed")}
        values = {name: numbers[name] for name in ("best", "mean") if not math.isnan(numbers[name])}
        rounds[server_round] = MetricRecord({**added, **values})


def half_of(phase: Phase) -> str:
    """Return the half of a round in which Flower carries the messages of a phase."""
    return TRAIN if phase in (Phase.TRAIN, Phase.FINISH) else EVALUATE


def check_no_config(name: str, config: ConfigRecord | None) -> None:
    """Raise ConfigError if a config for clients holds anything: tasks hold only what an algorithm sends."""
    if config:
        raise ConfigError(
            f"{name}: expected none, got {', '.join(config)}; agents take tasks of the algorithm only, and "
            "read settings of their own from the run config and their node_config"
        )


def messages_of(
    arrays: ArrayRecord | None, path: str | os.PathLike[str] | None, algorithm: str
) -> WarmStart | None:
    """Return the messages from which a study starts, given as Flower's arrays or as a file; None: neither."""
    if arrays is not None and not isinstance(arrays, ArrayRecord):
        raise ConfigError(
            f"initial_arrays: expected an ArrayRecord, got {kind_of(arrays)}; pass num_rounds by name"
        )
    if arrays and path is not None:
        raise ConfigError("warm_start: expected a file or initial_arrays, got both")
    if arrays:
        return WarmStart(algorithm, "", {name: array.numpy() for name, array in arrays.items()})
    return None if path is None else WarmStart.load(Path(path), algorithm)
