from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from fbo_flower.simulation.problems import Problem
from fbo_flower.simulation.runner import regret_table, with_regret
from fbo_flower.space import Float, SearchSpace
from fbo_flower.study import Study
from fbo_flower.study.schema import ROUNDS, SCHEMA, TRIALS
from fbo_flower.study.table import Table

NAN = float("nan")


@dataclass(frozen=True)
class Slope(Problem):
    """`x + agent`, seen with a large error; the optimum is `1 + agent`."""

    known: bool = True

    name: ClassVar[str] = "slope"
    metric: ClassVar[str] = "height"
    default_agents: ClassVar[int] = 2

    @property
    def space(self):
        return SearchSpace({"x": Float(0.0, 1.0)})

    def __call__(self, config, context):
        return self.true_value(config, context.partition) + 100.0

    def true_value(self, config, partition):
        return config["x"] + partition

    def optimum(self, partition):
        return 1.0 + partition if self.known else None


def row(agent, trial, x, value=0.0, failure="", algorithm="a", regret=NAN):
    return {
        "algorithm": algorithm,
        "agent": agent,
        "round": trial + 1,
        "trial": trial,
        "pulls": 1,
        "config": {"x": x},
        "value": value,
        "failure": failure,
        "regret": regret,
    }


def study(rows):
    settings = {"schema": SCHEMA, "name": "s", "runs": [{"algorithm": "a"}]}
    return Study(settings, Table.from_rows(rows, TRIALS), Table.from_rows([], ROUNDS))


ROWS = [row("0", 0, 0.25), row("0", 1, 0.75), row("0", 2, 0.5), row("1", 0, 1.0), row("1", 1, 0.5)]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [2, 0, 1, 4, 3]])
def test_cumulative_and_simple_regret_are_as_worked_by_hand_without_the_noise(order):
    found = with_regret(study([ROWS[i] for i in order]), Slope(2, 0))
    assert found.trials["regret"].tolist() == [0.75, 0.25, 0.5, 0.0, 0.5]
    assert found.trials["value"].tolist() == [0.0] * 5
    assert found.regret["agent"].tolist() == ["0", "0", "0", "1", "1"]
    assert found.regret["evaluations"].tolist() == [1, 2, 3, 1, 2]
    assert found.regret["cumulative"].tolist() == [0.75, 1.0, 1.5, 0.0, 0.5]
    assert found.regret["simple"].tolist() == [0.75, 0.25, 0.25, 0.0, 0.0]


def test_a_failed_trial_costs_as_much_as_the_worst_of_its_agent_and_finds_nothing():
    rows = [row("0", 0, 0.5, NAN, "no"), row("0", 1, 0.75), row("0", 2, 0.25), row("0", 3, 1.0, NAN, "no")]
    found = with_regret(study(rows), Slope(1, 0))
    np.testing.assert_array_equal(found.trials["regret"], [NAN, 0.25, 0.75, NAN])
    assert found.regret["cumulative"].tolist() == [0.75, 1.0, 1.75, 2.5]
    np.testing.assert_array_equal(found.regret["simple"], [NAN, 0.25, 0.25, 0.25])
    rows = [row("0", 0, 0.5, NAN, "no"), row("1", 0, 0.75)]
    assert with_regret(study(rows), Slope(2, 0)).regret["agent"].tolist() == ["1"], "the other has no success"


def test_unknown_optimum_leaves_the_study_alone():
    plain = study(ROWS)
    assert with_regret(plain, Slope(2, 0, known=False)) is plain
    empty = study([])
    assert with_regret(empty, Slope(2, 0)) is empty


def test_algorithms_are_kept_apart():
    rows = [row("0", 0, 0.0, algorithm=a, regret=r) for a, r in (("a", 0.5), ("b", 0.25))]
    table = regret_table(Table.from_rows(rows, TRIALS))
    assert table["algorithm"].tolist() == ["a", "b"]
    assert table["cumulative"].tolist() == [0.5, 0.25]
