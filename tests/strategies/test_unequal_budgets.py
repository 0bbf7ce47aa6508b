"""Agents with budgets of their own: the study goes on without those that have used theirs up."""

from __future__ import annotations

import logging

import pytest
from federation import SPACE, agents, hill, log_lines
from grouped import grouped

from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.durations import log_normal
from fbo_flower.strategies import STRATEGIES, RandomSearch
from fbo_flower.strategies.registration import takes_part

BUDGETS = {"0": 2, "1": 7}
OPTIONS = {
    "random": {}, "ei": {}, "fts": {"num_features": 16}, "fed-ei": {"num_initial": 3, "secure_sums": 0},
    "rgpe": {"num_features": 16},
}  # fmt: skip
BOTH_MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def run(algorithm="random", mode="sync", num_rounds=12, max_trials=None, **more):
    more = {"options": OPTIONS.get(algorithm, {}), **more}
    given = {"agents": 4, "algorithm": algorithm, "num_rounds": num_rounds, "max_trials": max_trials, **more}
    durations = log_normal() if mode == "async" else None
    return simulate(hill, SPACE, seed=1, engine="inline", **grouped(**given, mode=mode, durations=durations))


def done(study, names="0123"):
    return [int(study.trials.where(agent=a)["pulls"].sum()) for a in names]


@BOTH_MODES
@pytest.mark.parametrize("algorithm", OPTIONS)
def test_an_agent_makes_its_budget_and_the_others_go_on(algorithm, mode):
    study = run(algorithm, mode, max_trials=BUDGETS)
    made = done(study)
    assert made[:2] == [2, 7]  # 2 of its 3 initial trials
    if mode == "sync":
        assert made[2:] == [13 if algorithm == "fed-ei" else 14] * 2  # it has an exchange without a trial
    assert study.rounds["failures"].sum() == study.rounds["refused"].sum() == 0
    assert len(study.rounds) == 12


@BOTH_MODES
def test_the_study_ends_when_all_budgets_are_used_up(mode):
    with log_lines(logging.INFO) as lines:
        study = run(mode=mode, num_rounds=100, max_trials=[4, 5, 6, 7])
    assert done(study) == [4, 5, 6, 7]
    assert len(study.rounds) < 12
    assert "4 agents have used up the budget of evaluations (max_trials)" in "\n".join(lines)


@pytest.mark.parametrize(
    ("algorithm", "num_rounds"),
    [("pf-pne", None), ("fed-pne", 60), ("hct", None), ("fed1-ucb", None), ("fn-ucb", 60)],
)
def test_a_bandit_goes_on_without_an_agent_whose_budget_is_used_up(algorithm, num_rounds):
    budget = 12 if algorithm == "fn-ucb" else 120
    grid = agents(4, node_configs={3: {"max_trials": 10}, 2: {"max_trials": budget // 2}})
    options = {"noise_stddev": 0.05} if algorithm == "fed1-ucb" else {}
    strategy = STRATEGIES[algorithm](num_agents=4, seed=3, budget=budget, round_timeout=5.0, **options)
    made = done(strategy.start(grid, num_rounds=num_rounds).study)
    assert made[:2] == [budget, budget]
    assert made[3] <= 10
    assert made[2] <= budget // 2


@BOTH_MODES
def test_an_agent_takes_part_in_its_share_of_the_rounds(mode):
    shares = {"0": 0.5, "1": 0.1}
    study = run(mode=mode, num_rounds=20, participation=shares, options={"num_initial": 1})
    made = done(study)
    if mode == "sync":
        assert made == [10, 2, 20, 20]
    else:
        rounds = [len(set(study.trials.where(agent=a)["round"].tolist())) for a in "01"]
        assert made[0] >= 5
        assert made[1] >= 1
        assert rounds[0] <= 11
        assert rounds[1] <= 3


def test_shares_of_rounds_are_even_and_seeded():
    for share in (0.1, 0.3, 0.5, 0.9, 1.0):
        taken = [takes_part(7, "a", r, share) for r in range(1, 1001)]
        assert abs(sum(taken) - 1000 * share) <= 1
        assert taken == [takes_part(7, "a", r, share) for r in range(1, 1001)]
    assert len({takes_part(7, str(a), 1, 0.5) for a in range(20)}) == 2


@BOTH_MODES
def test_a_resumed_study_remembers_who_has_nothing_left(mode, tmp_path):
    def study(num_rounds, **keep):
        keep = Keep(**keep) if keep else None
        return run("ts", mode, num_rounds, BUDGETS, participation={"2": 0.5}, keep=keep)

    whole = study(9)
    study(5, journals=tmp_path)
    resumed = study(9, journals=tmp_path, resume=True)
    for column in ("agent", "round", "trial", "value"):
        assert resumed.trials[column].tolist() == whole.trials[column].tolist()
    assert resumed.rounds["replies"].tolist() == whole.rounds["replies"].tolist()


def test_an_operator_overrides_the_budget_of_the_app_and_may_raise_it(tmp_path):
    for own, expected in (({}, [5, 3]), ({"max_trials": 6}, [5, 6])):
        grid = agents(2, max_trials=3, journals=tmp_path, node_configs={0: {"max_trials": 5}, 1: own})
        strategy = RandomSearch(num_agents=2, seed=1, num_initial=1)
        study = strategy.start(grid, num_rounds=10, journal=tmp_path / "study.db", resume=True).study
        assert done(study, "01") == expected


def test_an_agent_without_a_budget_left_is_told_apart_at_registration(tmp_path):
    for expected in ([6, 2], [6, 0]):  # a second study of the same devices
        grid = agents(2, journals=tmp_path, node_configs={1: {"max_trials": 2}})
        study = RandomSearch(num_agents=2, seed=1, num_initial=1).start(grid, num_rounds=6).study
        assert done(study, "01") == expected
        assert study.rounds["failures"].sum() == 0


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"max_trials": {"9": 3}}, "expected agents of the simulation"),
        ({"max_trials": [3, 4]}, "one item for each of 4 agents"),
        ({"max_trials": "many"}, "expected a number"),
        ({"max_trials": -1}, "max_trials"),
        ({"participation": 0.0}, "participation"),
        ({"participation": 1.5}, "participation"),
    ],
)
def test_nonsense_is_refused(argument, message):
    with pytest.raises(ConfigError, match=message):
        run(**argument)
    if "participation" in argument:
        with pytest.raises(ConfigError, match=message):
            client_app(hill, SPACE, **argument)
