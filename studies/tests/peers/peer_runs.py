"""What the tests of several comparators share: runs and studies, equal trials, slopes, and consent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from contract import Run
from scipy.optimize import check_grad

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.records import Report
from fbo_flower.clients.guards import consented
from fbo_flower.simulation import simulate
from fbo_flower.space import Float, SearchSpace
from fbo_flower.study import Study

CUBE = SearchSpace({f"x{i}": Float(0, 1) for i in range(4)})


def study_of(name: str, agents: int, **options: Any) -> Study:
    """Run a study of agents on Himmelblau's function."""
    algorithm = make_algorithm(name, options)
    return simulate("himmelblau", agents=agents, algorithm=algorithm, seed=1, engine="inline")


def finish(run: Run, most: int = 30) -> Run:
    """Go on until the algorithm has finished."""
    while not run.algorithm.finished(run.state) and run.server_round < most:
        run.step()
    return run


def same_trials(one: Any, two: Any, num_agents: int, num_rounds: int = 6) -> None:
    """Assert that the agents of both algorithms try the same."""
    first, second = (Run.begin(a, num_agents=num_agents).steps(num_rounds).histories() for a in (one, two))
    for agent in first:
        np.testing.assert_array_equal(first[agent].points, second[agent].points)


def assert_slopes(function: Any, points: Iterable[np.ndarray], error: float) -> None:
    """Assert that gradients are those of the values."""
    for z in points:
        found = check_grad(
            lambda p: float(function(p[None])[0]), lambda p: function.value_and_gradient(p[None])[1][0], z
        )
        assert found < error


def assert_leave_with_trials_only(algorithm: Any, report: Report, names: set[str]) -> None:
    """Assert that a report's arrays leave an agent only if its operator discloses trials."""
    for disclose in ("none", "incumbent"):
        assert not consented(algorithm, report, disclose).arrays
    assert set(consented(algorithm, report, "trials").arrays) == names
