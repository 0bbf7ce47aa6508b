"""Options that cannot be, and tasks that an honest server does not send, are refused."""

from __future__ import annotations

import golden_trials
import numpy as np
import pytest
from contract import SQUARE

from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.errors import ConfigError, WireError
from studies.peers.consensus import Consensus
from studies.peers.dp_vote import DPVote
from studies.peers.flora import FLoRA
from studies.peers.fmtbo import FMTBO
from studies.peers.sharing import ShareBest

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
    state = AgentState(SQUARE, Trials.empty(2))
    with pytest.raises(WireError):
        run_task(algorithm, task, state, evaluate, lambda *keys: np.random.default_rng(0))


def test_a_list_is_not_evaluated_beyond_its_end():
    algorithm = DPVote(num_configs=4, num_votes=1)
    task = Task(Phase.TRAIN, 1, 0, 5, {}, {"seed": 1})
    state = AgentState(SQUARE, Trials.empty(2))
    with pytest.raises(WireError, match="at most 4"):
        run_task(algorithm, task, state, lambda q, n: None, lambda *keys: np.random.default_rng(0))


@pytest.mark.parametrize(("algorithm", "values"), [(FLoRA(), {"share": True}), (DPVote(), {"vote": True})])
def test_a_sum_of_an_incomplete_task_is_refused(algorithm, values):
    with pytest.raises(WireError):
        algorithm.report_content.sum_content(Task(Phase.TRAIN, 1, 0, 0, {}, values))


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (Consensus, {"transition": -1}, "transition"),
        (Consensus, {"transition": 1.5}, "transition"),
        (Consensus, {"num_initial": 0}, "num_initial"),
        (DPVote, {"num_configs": 1}, "num_configs"),
        (DPVote, {"num_votes": 0}, "num_votes"),
        (DPVote, {"num_votes": 20}, "num_votes"),
        (DPVote, {"noise_multiplier": -1}, "noise_multiplier"),
        (DPVote, {"secure_sums": 1}, "secure_sums"),
        (DPVote, {"delta": 0}, "delta"),
        (DPVote, {"max_evaluations_per_round": 0}, "max_evaluations_per_round"),
        (FLoRA, {"budget": 1}, "budget"),
        (FLoRA, {"combine": "median"}, "combine"),
        (FLoRA, {"combine": "average"}, "secure_sums=0"),
        (FLoRA, {"secure_sums": 1}, "from 2 on"),
        (FLoRA, {"ridge": 0}, "ridge"),
        (FMTBO, {"num_points": 1}, "num_points"),
        (FMTBO, {"global_weight": 1.5}, "global_weight"),
        (FMTBO, {"num_candidates": 0}, "num_candidates"),
        (ShareBest, {"every": 0}, "every"),
    ],
)
def test_an_option_that_cannot_be_is_named(kind, options, text):
    with pytest.raises(ConfigError, match=text):
        kind(**options)


# -- the peers' trials are the stored ones -------------------------------------------------------


@pytest.mark.parametrize("seed", golden_trials.BY_SEED)
@pytest.mark.parametrize("name", golden_trials.PEERS)
def test_the_trials_of_a_peer_are_the_stored_ones(name: str, seed: int) -> None:
    golden_trials.check(name, seed)
