"""An agent that stops answering delays nobody: the others do all their evaluations, and the run ends."""

import pytest
from waiting import LATE

from fbo_flower.algorithms.progress import MAX_MISSED, Attendance, Progress
from fbo_flower.clients import client_app
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import FNUCB, HCT, PFPNE, Fed1UCB, FedPNE, LocalPNE
from fbo_flower.strategies.registration import Agent, AgentRegistry
from fbo_flower.strategies.registration_message import Registration

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
    "fn-ucb": (FNUCB, {"budget": 12}),
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


@pytest.mark.parametrize(("since", "silent", "num_rounds"), [(1, [1, 2], None), (3, [3], 60)])
@pytest.mark.parametrize("family", FAMILIES)
def test_agents_silent_for_ever_cost_the_others_nothing(family, since, silent, num_rounds):
    study = run(family, {m: Fault("silent", rounds=EVER[since - 1 :]) for m in silent}, num_rounds)
    expected = 12 if family == "fn-ucb" else BUDGET
    done = [pulls for m, pulls in spent(study).items() if m not in silent]
    assert done == [expected] * (NUM_AGENTS - len(silent))
    assert len(study.rounds) <= 60


@pytest.mark.parametrize(("kind", "rounds"), [("silent", range(1, 8)), ("raising", [1]), ("slow", [2, 3])])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_agent_that_answers_again_is_readmitted(family, rounds, kind):
    options = {} if family == "fn-ucb" else {"max_evaluations_per_round": 20}
    study = run(family, {3: Fault(kind, rounds=rounds, seconds=LATE)}, 90, **options)
    done, expected = spent(study), 12 if family == "fn-ucb" else BUDGET
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


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ((), [1, 2, 3, 5, 9, 17, 25, 33]),
        ((5,), [1, 2, 3, 5, 6, 7, 8, 10, 14, 22, 30, 38]),
        ((3, 4), [1, 2, 3, 4, 5, 6, 7, 9, 13, 21, 29, 37]),
    ],
)
def test_a_silent_agent_is_asked_less_and_less_often_and_at_once_after_it_answered(answers, asked):
    registry, found = AgentRegistry(SPACE, agents={name: Agent(Registration()) for name in "ab"}), []
    for server_round in range(1, 41):
        due = registry.due(["a", "b"], server_round)
        assert due[-1] == "b", "others are asked meanwhile"
        if "a" in due:
            found.append(server_round)
            for _ in range(2):  # two half-rounds of a round count once
                registry.agents["a"].note_silence(server_round, silent=server_round not in answers)
    assert found == asked


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
