"""What every strategy takes and returns: its settings, as journals and studies hold them, and its result."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.options import Settings, bounded, checked, choice, flag, integer
from fbo_flower.algorithms.records import Phase
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.space.checks import check_integer
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.study_run import StudyRun
from fbo_flower.study.directory import check_label
from fbo_flower.study.study import Study
from fbo_flower.trackers.callback import Callback

SYNC, ASYNC = "sync", "async"  # whether agents wait for each other at the end of a round, or not


def _check_action(action: object) -> None:
    if not (isinstance(action, str) and action.isidentifier()):  # Flower's rule
        raise ConfigError(f"action: expected a Python name such as 'tune', got {kind_of(action)}")


@dataclass(frozen=True, kw_only=True)
class StrategySettings(Settings):
    """The settings of a strategy; `TuningStrategy` explains each of them.

    Raises
    ------
    ConfigError
        If a number is out of bounds.
    """

    num_agents: int | None = integer(None, 1)
    seed: int | None = integer(None, 0)
    fraction: float = bounded(1.0, 1e-9, 1.0)
    wait_seconds: float = bounded(0.0, 0.0)
    round_timeout: float = bounded(0.0, 0.0)
    quorum: float = bounded(1.0, 1e-9, 1.0)
    space: SearchSpace | None = None
    action: str | None = checked(None, _check_action)
    label: str = checked(MISSING, check_label)
    callbacks: Sequence[Callback | Callable[[RoundProgress], None]] = ()
    pool_curves: bool = flag(False)
    mode: str = choice(SYNC, (SYNC, ASYNC))
    max_staleness: int | None = integer(None, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_staleness is not None and self.mode != ASYNC:
            raise ConfigError(
                f"max_staleness: expected the mode 'async', got {self.mode!r}, in which no answer is "
                "older than its round; leave max_staleness out"
            )

    @property
    def message_suffix(self) -> str:
        """The end of every message type, ".action"; "" without an action."""
        return "" if self.action is None else f".{self.action}"

    def check_algorithm(self, algorithm: Algorithm[Any]) -> None:
        """Raise ConfigError unless the algorithm can run in this mode."""
        check_barrier(algorithm, self.mode)
        if self.mode == ASYNC and (self.fraction < 1.0 or self.quorum < 1.0):
            raise ConfigError(
                f"mode: expected no fraction and no quorum in an asynchronous study, got {self.fraction:g} "
                f"and {self.quorum:g}; no agent waits for another one there"
            )

    def fixed(self, algorithm: Algorithm[Any], seed: int, warm_start: WarmStart | None) -> dict[str, object]:
        """Return the settings that must not change when a study is resumed."""
        return {
            "algorithm": algorithm.name,
            "options": algorithm.options(),
            "seed": str(seed),
            "fraction": self.fraction,
            "label": self.label,
            **({} if warm_start is None else {"warm_start": warm_start.digest}),
            **({} if self.mode == SYNC else {"mode": self.mode}),
            **({} if self.max_staleness is None else {"max_staleness": self.max_staleness}),
            **({"pool_curves": True} if self.pool_curves else {}),
        }


def check_barrier(algorithm: Algorithm[Any], mode: str) -> None:
    """Raise ConfigError if a study without rounds is asked of an algorithm that needs all answers at once."""
    if mode == ASYNC and algorithm.barrier:
        raise ConfigError(f"mode: expected 'sync' for {algorithm.name}, because {algorithm.barrier}")


def check_extent(num_rounds: object, num_trials: object) -> tuple[int | None, int | None]:
    """Return the rounds of a study, or the evaluations of each agent; ConfigError if both are given."""
    if num_rounds is not None and num_trials is not None:
        raise ConfigError(
            "num_trials: expected either num_rounds or num_trials (evaluations of each agent), got both; "
            "leave one out"
        )
    return (
        None if num_rounds is None else check_integer("num_rounds", num_rounds, 1),
        None if num_trials is None else check_integer("num_trials", num_trials, 1),
    )


def study_settings(settings: StrategySettings, run: StudyRun, status: str, seconds: float) -> dict[str, Any]:
    """Return what `study.json` says about a run.

    Parameters
    ----------
    status : "finished", "interrupted" or "failed"
    seconds : duration of this process's part of the run
    """
    algorithm, recorder = run.algorithm, run.recorder
    registry, core = run.registry, algorithm.inner
    fixed = {name: list(a.registration.fixed) for name, a in registry.agents.items() if a.registration.fixed}
    targets = core.targets
    disclosures = dict(sorted(registry.disclosures().items()))
    found = core.description(algorithm.inner_state(run.state))
    return {
        "algorithm": algorithm.name,
        "label": settings.label,
        "options": algorithm.options(),
        "num_agents": len(registry.nodes),
        "num_rounds": run.num_rounds or len(recorder.rounds),
        **({"num_trials": registry.num_trials} if registry.num_trials else {}),
        "num_initial": core.num_initial,
        "target_agents": None if targets == "all" else list(targets),
        "fraction": settings.fraction,
        **({"mode": ASYNC} if run.asynchronous else {}),
        **({} if run.pool is None else {"pool_curves": True}),
        **({"fixed": fixed} if fixed else {}),
        **({} if run.max_staleness is None else {"max_staleness": run.max_staleness}),
        "seed": run.seed,
        "study": run.study,
        "space": recorder.space.to_json(),
        **recorder.aims.settings(),
        **({"evaluations": dict(recorder.evaluations)} if recorder.evaluations else {}),
        **({"disclosures": disclosures} if disclosures else {}),
        "num_with_value": len(recorder.incumbents) if recorder.disclosed else None,
        "status": status,
        "seconds": run.seconds_before + seconds,
        **({"found": found} if found else {}),
    }


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


# methods of Flower's older strategies
LEGACY = frozenset({"initialize_parameters", "configure_fit", "aggregate_fit", "evaluate"})
# parameters of Flower's `FedAvg`, of both generations, and what to write in their place
_FEDAVG = {
    r"fraction_(train|fit)": "pass fraction",
    r"min_(available|train|fit)_\w+": "pass num_agents",
    r"initial_parameters": "pass initial_arrays to start",
    r"evaluate_fn": "pass it to start",
    r"(fraction|min)_evaluate\w*|\w+_key|\w+_fn|accept_failures|inplace": "leave it out",
}


def check_no_fedavg(names: Iterable[str]) -> None:
    """Raise ConfigError if a name is a parameter of `FedAvg`, which averages models."""
    for name in names:
        remedy = next((what for pattern, what in _FEDAVG.items() if re.fullmatch(pattern, name)), None)
        if remedy is not None:
            raise ConfigError(f"{name}: expected a setting of a tuning strategy, got one of FedAvg; {remedy}")


def check_evaluate_fn(evaluate_fn: object) -> None:
    """Raise ConfigError unless it is None or takes a round and arrays."""
    if evaluate_fn is None:
        return
    try:
        inspect.signature(cast(EvaluateFn, evaluate_fn)).bind(0, None)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"evaluate_fn: expected evaluate_fn(server_round, arrays), got {kind_of(evaluate_fn)}: {error}"
        ) from error


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
    return None if path is None else WarmStart.load(path, algorithm)
