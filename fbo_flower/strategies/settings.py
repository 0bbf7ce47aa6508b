"""The settings that every strategy takes, and what is written about them in journals and studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.options import check_number
from fbo_flower.errors import ConfigError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.study_run import StudyRun
from fbo_flower.trackers.callback import Callback

SYNC, ASYNC = "sync", "async"  # whether agents wait for each other at the end of a round, or not


@dataclass(frozen=True)
class StrategySettings:
    """The settings of a strategy; `TuningStrategy` explains each of them.

    Parameters
    ----------
    message_suffix : ".action" at the end of every message type; "" without an action

    Raises
    ------
    ConfigError
        If a number is out of bounds.
    """

    num_agents: int | None
    seed: int | None
    fraction: float
    wait_seconds: float
    round_timeout: float
    quorum: float
    space: SearchSpace | None
    message_suffix: str
    label: str
    minimize: bool
    callbacks: Sequence[Callback | Callable[[RoundProgress], None]] = ()
    pool_curves: bool = False

    def __post_init__(self) -> None:
        if self.num_agents is not None:
            check_number("num_agents", self.num_agents, 1, integer=True)
        if self.seed is not None:
            check_number("seed", self.seed, 0, integer=True)
        if not isinstance(self.pool_curves, bool):
            raise ConfigError(f"pool_curves: expected True or False, got {self.pool_curves!r}")
        check_number("fraction", self.fraction, 1e-9, 1.0)
        check_number("quorum", self.quorum, 1e-9, 1.0)
        check_number("wait_seconds", self.wait_seconds, 0.0)
        check_number("round_timeout", self.round_timeout, 0.0)


def fixed_settings(
    settings: StrategySettings,
    algorithm: Algorithm[Any],
    seed: int,
    warm_start: WarmStart | None,
    mode: str = SYNC,
    max_staleness: int | None = None,
) -> dict[str, object]:
    """Return the settings that must not change when a study is resumed.

    Parameters
    ----------
    mode : "sync" or "async"
    max_staleness : see `TuningStrategy.start`
    """
    return {
        "algorithm": algorithm.name,
        "options": algorithm.options(),
        "seed": str(seed),
        "fraction": settings.fraction,
        "label": settings.label,
        **({} if warm_start is None else {"warm_start": warm_start.digest}),
        **({} if mode == SYNC else {"mode": mode}),
        **({} if max_staleness is None else {"max_staleness": max_staleness}),
        **({"pool_curves": True} if settings.pool_curves else {}),
    }


def study_settings(
    settings: StrategySettings, run: StudyRun, num_rounds: int | None, status: str, seconds: float
) -> dict[str, Any]:
    """Return what `study.json` says about a run.

    Parameters
    ----------
    num_rounds : as requested; None: the number of rounds that were run
    status : "finished", "interrupted" or "failed"
    seconds : duration of this process's part of the run
    """
    algorithm, recorder = run.algorithm, run.recorder
    registry, core = run.registry, algorithm.inner
    targets = core.targets
    disclosures = dict(sorted(Counter(run.registry.disclosures.values()).items()))
    found = core.description(algorithm.inner_state(run.state))
    return {
        "algorithm": algorithm.name,
        "label": settings.label,
        "options": algorithm.options(),
        "num_agents": len(run.registry.nodes),
        "num_rounds": num_rounds or len(recorder.rounds),
        "num_initial": core.num_initial,
        "target_agents": None if targets == "all" else list(targets),
        "fraction": settings.fraction,
        **({"mode": ASYNC} if run.asynchronous else {}),
        **({} if run.pool is None else {"pool_curves": True}),
        **({"fixed": {a: list(names) for a, names in registry.fixed.items()}} if registry.fixed else {}),
        **({} if run.max_staleness is None else {"max_staleness": run.max_staleness}),
        "seed": run.seed,
        "study": run.study,
        "space": recorder.space.to_json(),
        **({"minimize": True} if recorder.minimize else {}),
        **({"evaluations": dict(recorder.evaluations)} if recorder.evaluations else {}),
        **({"disclosures": disclosures} if disclosures else {}),
        "num_with_value": len(recorder.incumbents) if recorder.disclosed else None,
        "status": status,
        "seconds": run.seconds_before + seconds,
        **({"found": found} if found else {}),
    }
