"""The groups of settings that `simulate` takes: what is kept on disk, what agents know, how Ray runs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.options import check_number
from fbo_flower.clients.agent import Prior
from fbo_flower.errors import ConfigError
from fbo_flower.study.study import Study

Directory = str | os.PathLike[str]


@dataclass(frozen=True)
class Checkpoint:
    """Directories in which a run keeps what it, or a later study, can continue from.

    Parameters
    ----------
    journals : directory for the journals of the study and of every agent; a run that dies can be resumed
        from them. They cost some milliseconds per agent and round. None: no journals
    resume : continue the study in `journals` where it stopped, without repeating its evaluations
    messages : directory in whose folder `messages` the server saves the agents' messages, so that a later
        study can start from them with `PriorKnowledge(warm_start=...)`. None: the directory `out` of the
        study, if it has one

    Raises
    ------
    ConfigError
        If `resume` is set without `journals`.

    Examples
    --------
    >>> Checkpoint(resume=True)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: checkpoint: resume=True needs journals, the directory of the run to resume
    """

    journals: Directory | None = None
    resume: bool = False
    messages: Directory | None = None

    def __post_init__(self) -> None:
        if self.resume and self.journals is None:
            raise ConfigError("checkpoint: resume=True needs journals, the directory of the run to resume")


@dataclass(frozen=True)
class PriorKnowledge:
    """What the agents and the server know before the study begins.

    Parameters
    ----------
    rounds : number of rounds in which every agent tunes for itself before the study. If the algorithm's
        option `targets` is a list of agents, those agents start without observations
    algorithm : name of the algorithm that tunes in these rounds
    observations : the agents' observations, in place of `rounds`: an earlier study, whose trials they are, or
        agent -> `(points (n, D), values (n,))`
    warm_start : directory of an earlier study with the same algorithm; this study starts from the messages
        that the earlier study's server saved

    Raises
    ------
    ConfigError
        If `rounds` is negative, if both `rounds` and `observations` are given, or if the algorithm is
        unknown.

    Examples
    --------
    >>> PriorKnowledge(rounds=-1)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: prior rounds: expected an integer >= 0, got -1
    """

    rounds: int = 0
    algorithm: str = "ts"
    observations: Study | Prior | None = None
    warm_start: Directory | None = None

    def __post_init__(self) -> None:
        check_number("prior rounds", self.rounds, 0, integer=True)
        if self.rounds and self.observations is not None:
            raise ConfigError("prior: expected either rounds or observations, got both")
        if self.rounds:
            make_algorithm(self.algorithm, {})

    @property
    def gives_observations(self) -> bool:
        """Whether agents begin with observations of their own."""
        return self.rounds > 0 or self.observations is not None


@dataclass(frozen=True)
class RayEngine:
    """The engine "ray" with settings: `simulate(..., engine=RayEngine(num_workers=8))`.

    Parameters
    ----------
    num_workers : worker processes, each with one CPU; None: one per CPU of the cluster
    address : of a Ray cluster to join, "auto" for the cluster that this machine belongs to. None: start a
        cluster on this machine, or use the one that this process has started
    timeout : seconds that one message may take; then its worker is ended and replaced. None: no limit

    Raises
    ------
    ConfigError
        If `num_workers` or `timeout` is not positive.

    Examples
    --------
    >>> RayEngine(num_workers=0)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: num_workers: expected an integer >= 1, got 0
    """

    num_workers: int | None = None
    address: str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.num_workers is not None:
            check_number("num_workers", self.num_workers, 1, integer=True)
        if self.timeout is not None:
            check_number("timeout", self.timeout, 1e-9)
