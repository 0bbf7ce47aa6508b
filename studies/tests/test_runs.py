from typing import Any

import numpy as np
import pytest

from fbo_flower.simulation import make_problem
from studies.report import Estimate
from studies.runs import curve_of, evaluations, run_budget


class Doubled:
    """A problem that knows the value without noise: twice `x`."""

    def score(self, config: Any, partition: int) -> float:
        return 2.0 * config["x"]


def test_a_curve_is_the_true_score_of_the_best_value_seen_and_failures_improve_nothing() -> None:
    configs, values = [{"x": x} for x in (3.0, 1.0, 9.0, 4.0)], np.array([0.5, 0.9, np.nan, 0.7])
    assert curve_of(Doubled(), 0, configs, values).tolist() == [6.0, 2.0, 2.0, 2.0]  # type: ignore[arg-type]
    assert curve_of(object(), 0, configs, values).tolist() == [0.5, 0.9, 0.9, 0.9]  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["ei", "fed-ei"])
def test_a_budget_is_the_evaluations_of_every_agent(algorithm: str) -> None:
    study = run_budget(make_problem("f1", 4, 0), algorithm, {"num_initial": 3}, 0, 5)
    assert [len(evaluations(study, agent)[1]) for agent in range(4)] == [5, 5, 5, 5]


def test_a_mean_is_told_in_its_standard_errors() -> None:
    assert Estimate(3.0, 0.5).z == 6.0
    assert Estimate(3.0, 0.0).z == 0.0
