"""`KnownConfigs`: evaluate configurations that are known to be good as an agent's first trials.

It stands between an algorithm's session and the evaluation, so no algorithm has to know of it. The session
asks for a point, and gets the outcome of the known configuration, as of any other trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Array, Outcome, Query
from fbo_flower.clients.task_context import Evaluator
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class KnownConfigs:
    """Replaces the points of an agent's first trials.

    Parameters
    ----------
    inner : evaluates the queries
    points : `(k, D)` in the unit cube, the configurations of the trials 0 to k - 1
    """

    inner: Evaluator
    points: Array

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        """Return the outcome of a query whose first trials are known configurations."""
        if first_trial >= len(self.points):
            return self.inner(query, first_trial)
        if query.repeats is not None:
            raise ConfigError(
                "initial: expected an algorithm that evaluates any point, got one that evaluates only "
                "its own cells or arms; leave out initial"
            )
        known = self.points[first_trial : first_trial + len(query.points)]
        points = np.concatenate([known, query.points[len(known) :]])
        return self.inner(replace(query, points=points), first_trial)

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return the arrays of the inner evaluator."""
        return self.inner.arrays()


def points_of(initial: object, space: SearchSpace) -> Array | None:
    """Return the points `(k, D)` of a list of known configurations; None if it is empty.

    Raises
    ------
    ConfigError
        If it is no list, or a configuration is not one of the search space.
    """
    if isinstance(initial, Mapping | str) or not isinstance(initial, Sequence):
        raise ConfigError(
            f"initial: expected a list of configurations, as in [{{'C': 1.0}}], got {kind_of(initial)}"
        )
    points = []
    for number, config in enumerate(initial):
        if not isinstance(config, Mapping):
            raise ConfigError(f"initial[{number}]: expected a dict, got {kind_of(config)}")
        try:
            points.append(space.encode(config))
        except ConfigError as error:
            raise ConfigError(f"initial[{number}]: {error}") from error
    return np.array(points) if points else None
