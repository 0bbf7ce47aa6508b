"""An agent that stops answering delays nobody: the others do all their evaluations, and the run ends."""

import numpy as np
import pytest
from waiting import LATE

from fbo_flower.algorithms.progress import MAX_MISSED, Attendance, Progress
from fbo_flower.clients import client_app
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import FNUCB, HCT, PFPNE, Fed1UCB, FedPNE, LocalPNE, RandomSearch

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
NUM_AGENTS, BUDGET = 4, 240
EVER = range(1, 100_000)
FAMILIES = {
    "pf-pne": (PFPNE, {}),
    "pf-pne secure": (PFPNE, {"secure_sums": 2}),
    "pf-pne racing": (PFPNE, {"variant": "racing"}),
    "fed-pne": (FedPNE, {}),
    "local-pne": (LocalPNE, {}),
    "hct": (HCT, {}),
    "fed1-ucb": (Fed1UCB, {"noise_stddev": 0.05}),
    "fn-ucb": (FNUCB, {"budget": 24}),
}


def hill(config, context):
    return 0.9 - (config["x"] - 0.3) ** 2 - config["y"] ** 2 + 0.01 * context.rng.standard_normal()


def run(family, faults, num_rounds, **options):
    strategy, own = FAMILIES[family]
    settings = {
        "budget": BUDGET,
        "seed": 3,
        "num_agents": NUM_AGENTS,
        "round_timeout": 0.02,
        **own,
        **options,
    }
    app = client_app(hill, SPACE, seed=3, disclose="trials")
    return (
        strategy(**settings).start(InProcessGrid(app, NUM_AGENTS, faults=faults), num_rounds=num_rounds).study
    )


def spent(study):
    return {m: int(study.trials.where(agent=str(m))["pulls"].sum()) for m in range(NUM_AGENTS)}


@pytest.mark.parametrize("num_rounds", [None, 60], ids=["until-finished", "60-rounds"])
@pytest.mark.parametrize("silent", [[3], [1, 2]], ids=["one", "half"])
@pytest.mark.parametrize("since", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_agents_silent_for_ever_cost_the_others_nothing(family, since, silent, num_rounds):
    faults = {m: Fault("silent", rounds=EVER[since - 1 :]) for m in silent}
    study = run(family, faults, num_rounds)
    done = spent(study)
    expected = 24 if family == "fn-ucb" else BUDGET
    assert [done[m] for m in range(NUM_AGENTS) if m not in silent] == [expected] * (NUM_AGENTS - len(silent))
    assert len(study.rounds) <= 60


@pytest.mark.parametrize("kind", ["silent", "raising", "slow"])
@pytest.mark.parametrize("rounds", [[1], [2, 3], range(1, 8)])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_agent_that_answers_again_is_readmitted(family, rounds, kind):
    options = {} if family == "fn-ucb" else {"max_evaluations_per_round": 20}
    study = run(family, {3: Fault(kind, rounds=rounds, seconds=LATE)}, 90, **options)
    done, expected = spent(study), 24 if family == "fn-ucb" else BUDGET
    assert [done[m] for m in range(3)] == [expected] * 3
    # in a secure sum, the trials of a lost report are not disclosed a second time
    lost = 2 if (family, kind) == ("pf-pne secure", "slow") else 0
    assert expected - lost <= done[3] <= expected
    assert study.rounds["refused"].sum() == 0


@pytest.mark.parametrize("family", ["pf-pne", "pf-pne racing"])
def test_a_late_report_of_an_earlier_stage_counts_trials_and_is_followed_by_the_result_of_the_stage(family):
    """The server must not believe that the agent has received what came after its earlier task."""
    faults = {3: Fault("slow", rounds=range(1, 12), seconds=LATE)}
    study = run(family, faults, 90, max_evaluations_per_round=10)
    assert study.rounds["refused"].sum() == 0
    assert spent(study) == dict.fromkeys(range(NUM_AGENTS), BUDGET)


def test_all_agents_silent_from_the_start_end_a_run_with_an_error():
    faults = {m: Fault("silent", rounds=EVER) for m in range(NUM_AGENTS)}
    with pytest.raises(ObjectiveError, match="expected a valid reply"):
        run("pf-pne", faults, None)


def test_a_silent_agent_is_asked_less_and_less_often_and_at_once_after_it_answered():
    def rounds_with_failures(rounds):
        app = client_app(hill, SPACE, seed=3)
        grid = InProcessGrid(app, 2, faults={1: Fault("silent", rounds=rounds)})
        study = RandomSearch(num_agents=2, seed=3, round_timeout=0.02).start(grid, num_rounds=40).study
        tasks, failures = study.rounds["tasks"], study.rounds["failures"]
        return (np.flatnonzero(failures) + 1).tolist(), (np.flatnonzero(tasks < 2) + 1).tolist()

    assert rounds_with_failures(EVER)[0] == [1, 2, 3, 5, 9, 17, 25, 33]
    assert rounds_with_failures(range(1, 9)) == ([1, 2, 3, 5], [4, 6, 7, 8])
    assert rounds_with_failures([1, 2, 5, 6]) == ([1, 2, 5, 6], [])


def test_a_run_is_over_when_the_agents_that_answer_have_spent_their_budgets():
    silent = Attendance()
    for _ in range(MAX_MISSED - 1):
        silent = silent.ask("ab").tell("a")
    assert silent.responsive("ab") == ["a"]
    spent_by_a = Progress({"a": 10, "b": 4})
    assert not silent.is_over("ab", spent_by_a, 10)
    silent = silent.ask("b").tell("")
    assert silent.is_over("ab", spent_by_a, 10)
    assert not silent.is_over("ab", Progress({"a": 9, "b": 4}), 10), "an agent that answers is not finished"
    assert not silent.ask("b").tell("b").is_over("ab", spent_by_a, 10), "the agent is back"
    everybody = Attendance(("a", "b"), {"a": MAX_MISSED, "b": MAX_MISSED}).tell("")
    assert not everybody.is_over("ab", Progress({"a": 9, "b": 4}), 10), "the network may be down"
