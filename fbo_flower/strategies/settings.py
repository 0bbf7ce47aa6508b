"""The settings that every strategy takes, and what is written about them in journals and studies."""

from __future__ import annotations

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
    callbacks: Sequence[Callback | Callable[[RoundProgress], None]] = ()
    pool_curves: bool = False
    mode: str = SYNC
    max_staleness: int | None = None

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
        if self.mode not in (SYNC, ASYNC):
            raise ConfigError(f"mode: expected 'sync' or 'async', got {self.mode!r}")
        if self.max_staleness is not None:
            check_number("max_staleness", self.max_staleness, 0, integer=True)
            if self.mode != ASYNC:
                raise ConfigError(
                    f"max_staleness: expected the mode 'async', got {self.mode!r}, in which no answer is "
                    "older than its round; leave max_staleness out"
                )

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
    fixed = {name: list(a.said.fixed) for name, a in registry.agents.items() if a.said.fixed}
    targets = core.targets
    disclosures = dict(sorted(registry.disclosures().items()))
    found = core.description(algorithm.inner_state(run.state))
    return {
        "algorithm": algorithm.name,
        "label": settings.label,
        "options": algorithm.options(),
        "num_agents": len(registry.nodes),
        "num_rounds": num_rounds or len(recorder.rounds),
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
