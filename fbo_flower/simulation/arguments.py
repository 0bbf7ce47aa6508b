"""Checks of the arguments of `simulate` that would otherwise fail far away, with a message per mistake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fbo_flower.algorithms import Algorithm
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.simulation.problems import Problem
from fbo_flower.simulation.settings import Checkpoint, PriorKnowledge
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class Arguments:
    """Arguments of `simulate`, of any type, as the caller passed them."""

    options: object
    problem_options: object
    site_options: object
    prior: object
    checkpoint: object
    out: object
    on_round: object
    on_study: object

    def check(self, problem: object, algorithm: object) -> None:
        """Raise ConfigError if an argument has the wrong type."""
        if callable(problem) and not isinstance(problem, Problem):
            raise ConfigError(
                "problem: expected a problem's name, got a function; pass your own function by name: "
                "simulate(objective=f, space=space, agents=data)"
            )
        if isinstance(problem, SearchSpace):
            raise ConfigError("problem: expected a problem's name, got a SearchSpace; pass it as space=...")
        if problem is not None and not isinstance(problem, str | Problem):
            raise ConfigError(f"problem: expected a problem's name, got {kind_of(problem)}")
        self._check_algorithm(algorithm)
        for name, example in (
            ("options", '{"num_initial": 5}'),
            ("problem_options", '{"noise": 0.1}'),
            ("site_options", '{"query_budget": 100}'),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise ConfigError(f"{name}: expected a dict such as {example}, got {kind_of(value)}")
            if not all(isinstance(key, str) for key in value or ()):
                raise ConfigError(
                    f"{name}: expected a dict with texts as keys such as {example}, got {value!r}"
                )
        for name, kind in (("prior", PriorKnowledge), ("checkpoint", Checkpoint)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name}: expected {kind.__name__}(...), got {kind_of(value)}")
        if self.out is not None and not isinstance(self.out, str | os.PathLike):
            raise ConfigError(f"out: expected the path of a directory, got {kind_of(self.out)}")
        for name in ("on_round", "on_study"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigError(f"{name}: expected a function of one argument, got {kind_of(value)}")

    def _check_algorithm(self, algorithm: object) -> None:
        if isinstance(algorithm, Algorithm) and self.options:
            raise ConfigError("options: expected none, because the algorithm is an object that has its own")
        if algorithm is not None and not isinstance(algorithm, str | Algorithm):
            raise ConfigError(
                "algorithm: expected a name such as 'fts', or an object such as algorithms.FTS(), got "
                f"{kind_of(algorithm)}"
            )
