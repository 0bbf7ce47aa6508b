"""Tasks that an honest server does not send are refused before anything is evaluated."""

from __future__ import annotations

import numpy as np
import pytest
from contract import SQUARE

from fbo_flower.algorithms.records import AgentState, History, Phase, Task
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.errors import WireError
from studies.peers.dp_vote import DPVote
from studies.peers.flora import FLoRA
from studies.peers.fmtbo import FMTBO

FEATURES = {"frequencies": np.ones((5, 2)), "phases": np.ones(5)}
CASES = [
    (FLoRA(num_features=5, secure_sums=0), {}, {"share": True}),
    (FLoRA(num_features=5, secure_sums=0), {"phases": FEATURES["phases"]}, {"share": True}),
    (DPVote(), {}, {}),
    (DPVote(), {}, {"seed": -1}),
    (DPVote(), {}, {"seed": 2**40, "vote": True}),
    (FMTBO(), {}, {"seed": -1}),
]


@pytest.mark.parametrize(("algorithm", "arrays", "values"), CASES)
def test_a_task_that_cannot_be_answered_is_refused_before_anything_is_evaluated(algorithm, arrays, values):
    def evaluate(query, first):
        raise AssertionError("it was evaluated")

    task = Task(Phase.TRAIN, 1, 0, 2, arrays, values)
    state = AgentState(SQUARE, History.empty(2))
    with pytest.raises(WireError):
        run_task(algorithm, task, state, evaluate, lambda *keys: np.random.default_rng(0))


def test_a_list_is_not_evaluated_beyond_its_end():
    algorithm = DPVote(num_configs=4, num_votes=1)
    task = Task(Phase.TRAIN, 1, 0, 5, {}, {"seed": 1})
    state = AgentState(SQUARE, History.empty(2))
    with pytest.raises(WireError, match="at most 4"):
        run_task(algorithm, task, state, lambda q, n: None, lambda *keys: np.random.default_rng(0))


@pytest.mark.parametrize(("algorithm", "values"), [(FLoRA(), {"share": True}), (DPVote(), {"vote": True})])
def test_a_sum_of_an_incomplete_task_is_refused(algorithm, values):
    with pytest.raises(WireError):
        algorithm.sum_content(Task(Phase.TRAIN, 1, 0, 0, {}, values))
