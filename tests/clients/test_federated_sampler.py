"""`FederatedSampler`: Optuna scripts of sites whose trials the sites' agents choose."""

import json
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from federation import agents

from fbo_flower import Asked, Categorical, Float, Int, SearchSpace, Site
from fbo_flower.clients import asking
from fbo_flower.errors import ConfigError, NotInTimeError
from fbo_flower.storage.store import opened
from fbo_flower.strategies import ExpectedImprovement, FedEI

optuna = pytest.importorskip("optuna")
from fbo_flower import FederatedSampler  # noqa: E402  # it needs Optuna

SPACE = SearchSpace({"rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 8), "kind": Categorical(["a", "b"])})

NUM_TRIALS = 5  # of an agent of `fed_ei` in 5 rounds: two have no trials, three in the first


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.002)
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def loss(config, context=None):
    return float(np.log10(config["rate"]) + 2) ** 2 + 0.1 * config["depth"] + (config["kind"] == "b")


def objective(trial):
    """The objective of a site's own script."""
    return loss(
        {
            "rate": trial.suggest_float("rate", 1e-4, 1.0, log=True),
            "depth": trial.suggest_int("depth", 1, 8),
            "kind": trial.suggest_categorical("kind", ["a", "b"]),
        }
    )


def made(journal, timeout=60.0, **given):
    sampler = FederatedSampler(journal, timeout)
    return optuna.create_study(sampler=sampler, **{"direction": "minimize", **given})


def script(journal, number=1, function=objective, catch=(), **given):
    """Run what differs from a site's own script by its sampler; return the study."""
    study = made(journal, **given)
    study.optimize(function, n_trials=number, catch=catch)
    return study


def known(place):
    """Return the configurations that agent 0 was told beside its trials."""
    with opened(asking.mail_of(place / "agent-0.db"), asking.MAIL) as mail:
        return [json.loads(row["config"]) for row in mail.select("known", "ORDER BY id")]


@contextmanager
def federation(place, strategy, num_rounds, num_agents=1, **wanted):
    """Run a federated study of agents that are asked beside the block; yield a list that will hold it."""
    grid = agents(num_agents, Asked(), journals=place, space=SPACE, **(wanted or {"minimize": True}))
    found = []
    thread = threading.Thread(
        target=lambda: found.append(strategy.start(grid, num_rounds=num_rounds)), daemon=True
    )
    thread.start()
    yield found
    thread.join()


def fed_ei():
    return FedEI(num_agents=2, seed=1, num_candidates=32, secure_sums=0)


def ei():
    return ExpectedImprovement(num_agents=1, seed=1, num_initial=2, num_candidates=32)


def test_the_trials_of_the_scripts_are_those_of_the_federated_study(tmp_path):
    expected = fed_ei().start(agents(2, loss, space=SPACE, minimize=True), num_rounds=5).study.trials
    assert len(expected) == 2 * NUM_TRIALS
    studies = {}

    def other_script():
        studies["1"] = script(tmp_path / "agent-1.db", NUM_TRIALS)

    with federation(tmp_path, fed_ei(), 5, 2) as found:
        other = threading.Thread(target=other_script)
        other.start()
        studies["0"] = script(tmp_path / "agent-0.db", NUM_TRIALS)
        other.join()
    assert found[0].study.trials == expected
    for agent, study in studies.items():
        own = expected.where(agent=agent)
        assert [trial.params for trial in study.trials] == list(own["config"])
        assert [trial.value for trial in study.trials] == own["value"].tolist()


def test_earlier_trials_enter_the_history_of_their_site_and_no_message(tmp_path):
    storage = f"sqlite:///{tmp_path / 'optuna.db'}"
    earlier = optuna.create_study(storage=storage, study_name="mine", direction="minimize")
    earlier.optimize(objective, n_trials=5)
    before = [trial.params for trial in earlier.trials]
    strategy = fed_ei()
    with federation(tmp_path, strategy, 5, 2):
        other = threading.Thread(target=script, args=(tmp_path / "agent-1.db", NUM_TRIALS))
        other.start()
        for count in (1, NUM_TRIALS - 1):  # the script is started again
            script(tmp_path / "agent-0.db", count, storage=storage, study_name="mine", load_if_exists=True)
        other.join()
    assert known(tmp_path) == before
    messages = strategy.export_messages()
    shared = messages.arrays["rows"][:, :-1]
    assert len(shared) >= 4
    for config in before:
        assert np.abs(shared - SPACE.encode(config)).max(axis=1).min() > 1e-6


def test_trials_of_an_earlier_federated_study_are_known_in_the_next_one(tmp_path):
    given = {"storage": f"sqlite:///{tmp_path / 'optuna.db'}", "study_name": "mine", "load_if_exists": True}
    for _ in range(2):
        with federation(tmp_path, ei(), 1):
            study = script(tmp_path / "agent-0.db", 2, **given)
    assert known(tmp_path) == [trial.params for trial in study.trials[:2]]
    assert len(study.trials) == 4


def test_failed_and_pruned_trials_are_told_as_failed(tmp_path):
    def fails(trial):
        value = objective(trial)
        if trial.number == 0:
            raise optuna.TrialPruned
        if trial.number == 1:
            raise ValueError("no memory")
        return value

    with federation(tmp_path, ei(), 2) as found:
        study = script(tmp_path / "agent-0.db", 3, fails, catch=ValueError)
    trials = found[0].study.trials
    assert trials["failure"].tolist() == ["told as failed", "told as failed", ""]
    assert trials["value"][2] == study.best_value


@pytest.mark.parametrize("says", ["attribute", "constraint"][: 1 + hasattr(optuna.Trial, "set_constraint")])
def test_directions_and_constraints_of_a_script_are_objectives_and_limits(tmp_path, says):
    def two(trial):
        value = objective(trial)
        grams = 10.0 * trial.params["depth"]
        if says == "attribute":
            trial.set_user_attr("grams", grams)
        else:
            trial.set_constraint("grams", grams - 45)
        return value, float(trial.params["depth"])

    wanted = {"objectives": {"loss": "min", "depth": "min"}, "limits": {"grams": 45.0}}
    given = {"direction": None, "directions": ["minimize"] * 2, "storage": f"sqlite:///{tmp_path / 'o.db'}"}
    study = made(tmp_path / "agent-0.db", **given)
    with federation(tmp_path, ei(), 3, **wanted) as found:
        with pytest.raises(ConfigError, match=r"grams: expected a user attribute, .* trial.set_user_attr"):
            script(tmp_path / "agent-0.db", 1, lambda trial: (objective(trial), 1.0), **given)
        study.enqueue_trial({"rate": 0.01, "depth": 2, "kind": "a"})
        study.optimize(two, n_trials=5)
    trials = found[0].study.trials
    assert [row["outputs"]["grams"] for row in trials] == [10 * row["outputs"]["depth"] for row in trials]
    mine = [trial for trial in study.trials if trial.number]
    assert [trial.system_attrs["constraints"][0] <= 0 for trial in mine] == trials["feasible"].tolist()


def test_an_enqueued_trial_is_evaluated_first_and_is_no_trial_of_the_federation(tmp_path):
    enqueued = {"rate": 0.01, "depth": 1, "kind": "a"}
    with federation(tmp_path, ei(), 1) as found:
        study = made(tmp_path / "agent-0.db")
        study.enqueue_trial(enqueued)
        study.optimize(objective, n_trials=3)
    assert study.trials[0].params == enqueued
    assert len(found[0].study.trials) == 2
    assert known(tmp_path) == [enqueued]


def test_a_script_that_does_not_fit_the_app_is_refused_and_loses_no_trial(tmp_path):
    journal = tmp_path / "agent-0.db"
    with federation(tmp_path, ei(), 1) as found:
        with pytest.raises(ConfigError, match="direction: expected minimize, as in the app, got maximize"):
            script(journal, direction="maximize")
        with pytest.raises(ConfigError, match="expected minimize, as in the app, got minimize, minimize"):
            script(journal, direction=None, directions=["minimize", "minimize"])
        for suggest in (
            lambda trial: trial.suggest_float("momentum", 0.0, 1.0),
            lambda trial: trial.suggest_float("rate", 2.0, 3.0),
        ):
            study = made(journal)
            with pytest.raises(ConfigError, match="give script and app the same names, ranges and choices"):
                study.optimize(suggest, n_trials=1)
            assert [trial.state.name for trial in study.trials] == ["FAIL"]
        script(journal, 2)
    assert found[0].study.trials["failure"].tolist() == ["", ""]
    study = made(journal, timeout=0.01)
    with pytest.raises(NotInTimeError):
        study.optimize(objective, n_trials=1)
    assert [trial.state.name for trial in study.trials] == ["FAIL"]


def test_earlier_trials_of_another_search_space_are_left_out_with_a_warning(tmp_path):
    storage = f"sqlite:///{tmp_path / 'o.db'}"
    study = optuna.create_study(storage=storage, study_name="a", direction="minimize")
    study.optimize(lambda trial: trial.suggest_float("rate", 2.0, 3.0, log=True), n_trials=2)
    with federation(tmp_path, ei(), 1), pytest.warns(UserWarning, match="2 of 2 earlier trials"):
        script(tmp_path / "agent-0.db", 2, storage=storage, study_name="a", load_if_exists=True)
    assert Site(tmp_path / "agent-0.db").pending == []
