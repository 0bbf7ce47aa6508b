"""Agents that fail in every way there is: the run goes on, and nothing is lost, done or counted twice."""

import numpy as np
import pytest
from hostile import mutate
from waiting import LATE

from fbo_flower.clients import client_app
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import FTS, RandomSearch, ThompsonSampling

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
NUM_AGENTS, NUM_ROUNDS = 4, 7
SMALL = {"num_candidates": 64, "num_path_features": 32}
STRATEGIES = {
    "random": (RandomSearch, {}),
    "ts": (ThompsonSampling, SMALL),
    "fts-random": (FTS, {"advice": "random", "schedule": 0.5, **SMALL}),
}
FEDERATED = {
    "single": {"schedule": 0.0},
    "portfolio": {"advice": "portfolio", "schedule": 0.3},
    "mixture": {"advice": "mixture", "communication": "once"},
    "federated": {"lengthscale": "federated", "schedule": 0.3},
}


class Objective:
    def __init__(self):
        self.calls = []

    def __call__(self, config, context):
        self.calls.append((context.agent, context.trial))
        return -((config["x"] - 0.3) ** 2) - config["y"] ** 2 + 0.1 * context.rng.standard_normal()


def run(strategy=RandomSearch, faults=None, num_rounds=NUM_ROUNDS, num_agents=NUM_AGENTS, **options):
    objective = Objective()
    settings = {"num_agents": num_agents, "seed": 3, "round_timeout": 0.15, **options}
    instance = strategy(**settings)
    app = client_app(objective, SPACE, seed=3, disclose="trials")
    study = instance.start(InProcessGrid(app, NUM_AGENTS, faults=faults), num_rounds=num_rounds).study
    return study, objective.calls


def trials_of(study, agent):
    rows = study.trials.where(agent=agent)
    return [
        (int(t), c, float(v)) for t, c, v in zip(rows["trial"], rows["config"], rows["value"], strict=True)
    ]


def rounds_of(study, agent):
    rows = study.trials.where(agent=agent)
    return dict(zip(rows["trial"].tolist(), rows["round"].tolist(), strict=True))


def spoil(content):
    content["config"]["trial"] = 99
    return content


def spoil_arrays(content):
    content["config"]["names"] = "a,b,c"
    return content


def empty(content):
    return type(content)()


# in rounds 3 and 4: kind -> (fault, whether the work was done, column of the rounds table that counts it)
FAULTS = {
    "down": (Fault("down", rounds=[3, 4]), False, None),
    "silent": (Fault("silent", rounds=[3, 4]), False, "failures"),
    "raising": (Fault("raising", rounds=[3, 4]), False, "failures"),
    "slow": (Fault("slow", rounds=[3, 4], seconds=LATE), True, "failures"),
    "malformed": (Fault("malformed", rounds=[3, 4], change=spoil), True, "refused"),
    "malformed names": (Fault("malformed", rounds=[3, 4], change=spoil_arrays), True, "refused"),
    "empty": (Fault("malformed", rounds=[3, 4], change=empty), True, "refused"),
}


@pytest.fixture(scope="module")
def undisturbed():
    return {name: run(strategy, **options)[0] for name, (strategy, options) in STRATEGIES.items()}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_fault_costs_its_agent_two_rounds_and_nobody_else_anything(name, kind, undisturbed):
    fault, _, column = FAULTS[kind]
    strategy, options = STRATEGIES[name]
    study, calls = run(strategy, {1: fault}, **options)
    whole = undisturbed[name]
    for agent in ("0", "2", "3"):
        assert trials_of(study, agent) == trials_of(whole, agent)
        assert rounds_of(study, agent) == rounds_of(whole, agent)
    # the agent's own trials are the same ones, two rounds late
    mine = trials_of(study, "1")
    assert [trial for trial, _, _ in mine] == list(range(NUM_ROUNDS))
    if name != "fts-random":  # there, the coin belongs to the round
        assert mine == trials_of(whole, "1")[:NUM_ROUNDS]
    assert len(set(calls)) == len(calls), "no trial is evaluated twice"
    assert [t for agent, t in calls if agent == "1"] == list(range(NUM_ROUNDS))
    # the rounds table says so
    expected = [0, 0, 1, 1, 0, 0, 0]
    for other in ("failures", "refused"):
        assert study.rounds[other].tolist() == (expected if other == column else [0] * NUM_ROUNDS)
    tasks = [4, 4, 3, 3, 4, 4, 4] if kind == "down" else [4] * NUM_ROUNDS
    assert study.rounds["tasks"].tolist() == tasks
    assert study.rounds["replies"].tolist() == [4 - e for e in expected]


@pytest.mark.parametrize("kind", [k for k, (_, done, _) in FAULTS.items() if done])
def test_work_whose_reply_was_lost_is_not_repeated_and_comes_back_next_time(kind):
    study, calls = run(faults={1: FAULTS[kind][0]})
    # trial 4 was evaluated in round 3, and its reply accepted in round 5
    assert calls.count(("1", 4)) == 1
    assert calls.index(("1", 4)) < calls.index(("0", 5))
    assert rounds_of(study, "1")[4] == 5


@pytest.mark.parametrize("options", FEDERATED.values(), ids=FEDERATED)
@pytest.mark.parametrize("kind", FAULTS)
def test_federated_runs_finish_whatever_one_agent_does(options, kind):
    study, calls = run(FTS, {1: FAULTS[kind][0]}, num_features=24, **SMALL, **options)
    assert len(set(calls)) == len(calls)
    for agent, expected in (("0", NUM_ROUNDS + 2), ("1", NUM_ROUNDS), ("3", NUM_ROUNDS + 2)):
        assert [t for t, _, _ in trials_of(study, agent)] == list(range(expected))
    again, _ = run(FTS, {1: FAULTS[kind][0]}, num_features=24, **SMALL, **options)
    assert again.trials == study.trials, "faults or not: the same seed, the same run"


def test_fault_in_the_first_round_delays_the_initial_design():
    study, calls = run(ThompsonSampling, {1: Fault("malformed", rounds=[1], change=empty)}, **SMALL)
    assert [r for _, r in sorted(rounds_of(study, "1").items())] == [2, 2, 2, 3, 4, 5, 6, 7]
    assert calls.count(("1", 0)) == 1


def test_agent_that_is_down_all_the_time_is_never_missed():
    study, _ = run(faults={1: Fault("down")}, num_agents=3)
    assert set(study.trials["agent"].tolist()) == {"0", "2", "3"}
    assert study.rounds["tasks"].tolist() == [3] * NUM_ROUNDS


def test_agent_that_vanishes_for_good_leaves_its_trials_behind(undisturbed):
    study, _ = run(faults={1: Fault("down", rounds=range(4, 99))})
    assert trials_of(study, "1") == trials_of(undisturbed["random"], "1")[:5]


def test_late_joiner_starts_with_its_initial_design():
    study, _ = run(FTS, {1: Fault("down", rounds=range(4))}, num_agents=3, num_features=24, **SMALL)
    assert [r for _, r in sorted(rounds_of(study, "1").items())] == [4, 4, 4, 5, 6, 7]
    assert study.rounds["tasks"].tolist() == [3, 3, 3, 4, 4, 4, 4]


def test_run_without_a_single_answer_ends_as_failed():
    faults = {i: Fault("raising", rounds=range(1, 99)) for i in range(NUM_AGENTS)}
    strategy, objective = FTS(num_agents=NUM_AGENTS, seed=3, num_features=24), Objective()
    grid = InProcessGrid(client_app(objective, SPACE, seed=3), NUM_AGENTS, faults=faults)
    with pytest.raises(
        ObjectiveError, match=r"expected a valid reply to one of 28 tasks, got none \(error:28"
    ):
        strategy.start(grid, num_rounds=NUM_ROUNDS)
    study = strategy.study
    assert study.settings["runs"][0]["status"] == "failed"
    assert len(study.trials) == 0
    assert not objective.calls
    assert study.rounds["failures"].tolist() == [4] * NUM_ROUNDS
    assert np.isnan(study.rounds["best"]).all()


def test_all_but_one_down_for_a_while_is_a_pause_for_them():
    study, _ = run(faults={i: Fault("down", rounds=[3, 4]) for i in range(1, NUM_AGENTS)})
    assert study.rounds["tasks"].tolist() == [4, 4, 1, 1, 4, 4, 4]
    assert [len(trials_of(study, str(i))) for i in range(NUM_AGENTS)] == [NUM_ROUNDS + 2] + [NUM_ROUNDS] * 3


def test_nobody_left_is_no_error():
    study, _ = run(faults={i: Fault("down", rounds=range(3, 99)) for i in range(NUM_AGENTS)})
    assert study.rounds["tasks"].tolist() == [4, 4, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_agent_that_answers_nonsense_of_every_kind_disturbs_nobody(seed, undisturbed):
    rng = np.random.default_rng(seed)

    def change(content):
        for _ in range(rng.integers(1, 4)):
            content = mutate(content, rng)
        return content

    study, calls = run(faults={1: Fault("malformed", rounds=range(1, 99), change=change)}, num_rounds=60)
    refused, replies = int(study.rounds["refused"].sum()), int(study.rounds["replies"].sum())
    assert refused > 20
    assert refused + replies == 4 * 60
    assert study.rounds["failures"].sum() <= 60
    assert len(set(calls)) == len(calls)
    for agent in ("0", "2", "3"):
        assert trials_of(study, agent)[:9] == trials_of(undisturbed["random"], agent)
        assert len(trials_of(study, agent)) == 62
    mine = [t for t, _, _ in trials_of(study, "1")]
    assert len(set(mine)) == len(mine), "nothing is written down twice"


def test_fuzzed_messages_of_every_agent_do_not_stop_fts():
    rng = np.random.default_rng(9)
    faults = {
        i: Fault(
            "malformed", rounds=range(1, 99), change=lambda c: mutate(c, rng) if rng.random() < 0.5 else c
        )
        for i in range(NUM_AGENTS)
    }
    study, calls = run(FTS, faults, num_rounds=25, num_features=24, schedule=0.3, **SMALL)
    assert study.rounds["refused"].sum() > 10
    assert study.rounds["replies"].sum() > 10
    assert len(set(calls)) == len(calls)


def test_failed_trials_are_counted_apart_from_failed_agents():
    def sometimes(config, context):
        if context.trial == 3:
            raise ValueError("no luck")
        return 0.5

    app = client_app(sometimes, SPACE, seed=1, disclose="trials")
    study = RandomSearch(num_agents=2, seed=1).start(InProcessGrid(app, 2), num_rounds=3).study
    assert study.rounds["failed_trials"].tolist() == [0, 2, 0]
    assert study.rounds["replies"].tolist() == [2, 2, 2]
    assert study.rounds["failures"].tolist() == [0, 0, 0]
    failed = study.trials.take(study.trials["trial"] == 3)
    assert failed["failure"].tolist() == ["ValueError: no luck"] * 2
    assert np.isnan(failed["value"]).all()
