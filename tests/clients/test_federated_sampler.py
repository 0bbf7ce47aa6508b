"""`FederatedSampler`: Optuna scripts of sites whose trials the sites' agents choose."""

import json
import logging
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from federation import agents

from fbo_flower import Asked, Categorical, Float, Int, SearchSpace, Site
from fbo_flower.clients import asking
from fbo_flower.errors import ConfigError, NotInTimeError
from fbo_flower.space.optuna import from_distributions
from fbo_flower.storage.store import opened
from fbo_flower.strategies import ExpectedImprovement, FedEI

optuna = pytest.importorskip("optuna")
from fbo_flower import FederatedSampler  # noqa: E402  # it needs Optuna
from fbo_flower.clients import optuna_sampler  # noqa: E402

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
    """Create or load the study of a script, with a sampler as of a new process."""
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
    grid = agents(num_agents, Asked(), journals=place, **{"space": SPACE, **(wanted or {"minimize": True})})
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
        with pytest.raises(
            ConfigError, match=r"grams: expected a number as a user attribute, .* trial.set_user_attr"
        ):
            script(tmp_path / "agent-0.db", 1, lambda trial: (objective(trial), 1.0), **given)
        study.enqueue_trial({"rate": 0.01, "depth": 2, "kind": "a"})
        study.optimize(two, n_trials=5)
    trials = found[0].study.trials
    assert [row["outputs"]["grams"] for row in trials] == [10 * row["outputs"]["depth"] for row in trials]
    mine = [trial for trial in study.trials if trial.number]
    assert [trial.system_attrs["constraints"][0] <= 0 for trial in mine] == trials["feasible"].tolist()


def test_enqueued_trials_come_first_are_completed_by_the_agent_and_are_no_trials_of_the_federation(tmp_path):
    whole, part = {"rate": 0.01, "depth": 1, "kind": "a"}, {"rate": 0.02}
    with federation(tmp_path, ei(), 1) as found:
        study = made(tmp_path / "agent-0.db")
        for enqueued in (whole, part):
            study.enqueue_trial(enqueued)
        study.optimize(objective, n_trials=4)
    first, second, *others = (trial.params for trial in study.trials)
    assert (first, second) == (whole, {**others[0], **part})
    assert list(found[0].study.trials["config"]) == others
    assert {config["rate"]: config for config in known(tmp_path)} == {0.01: first, 0.02: second}


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
    study = made(tmp_path / "no-agent.db", timeout=0.01)
    with pytest.raises(NotInTimeError):
        study.optimize(objective, n_trials=1)
    assert [trial.state.name for trial in study.trials] == ["FAIL"]


def test_each_thread_has_a_trial_of_its_own(tmp_path):
    seen = []

    def slow(trial):
        value = objective(trial)
        seen.append(trial.params)
        time.sleep(0.05)
        return value

    strategy = ExpectedImprovement(num_agents=1, seed=1, num_candidates=32, trials_per_round=3)
    with federation(tmp_path, strategy, 3, minimize=True, num_parallel=2) as found:
        study = made(tmp_path / "agent-0.db")
        study.optimize(slow, n_trials=9, n_jobs=2)
    own = found[0].study.trials
    assert sorted(map(str, seen)) == sorted(map(str, own["config"]))
    assert len(set(map(str, seen))) == len(seen) == 9
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}


def test_a_trial_is_asked_in_one_process_and_told_in_another(tmp_path):
    given = {"storage": f"sqlite:///{tmp_path / 'o.db'}", "study_name": "mine", "load_if_exists": True}
    with federation(tmp_path, ei(), 2) as found:
        for sampler in (FederatedSampler(tmp_path / "agent-0.db"), None, None):
            trial = made(tmp_path / "agent-0.db", **given).ask()
            value = objective(trial)
            optuna_sampler._UNDER_WAY.clear()  # as in another process
            other = optuna.load_study(study_name="mine", storage=given["storage"], sampler=sampler)
            other.tell(trial.number, value)  # without the sampler the agent learns it at the next `ask`
        with pytest.raises(NotInTimeError, match="has ended; for its next one start the script again"):
            made(tmp_path / "agent-0.db", 10, **given).ask()
    study = optuna.load_study(study_name="mine", storage=given["storage"])
    assert list(found[0].study.trials["config"]) == [t.params for t in study.trials[:3]]
    assert found[0].study.trials["value"].tolist() == [t.value for t in study.trials[:3]]
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * 3 + ["FAIL"]


def test_what_was_interrupted_is_asked_again(tmp_path):
    """A dropped `ask`, Ctrl-C, and a process that died, whose trial Optuna retries."""

    def interrupted(trial):
        objective(trial)
        raise KeyboardInterrupt

    with federation(tmp_path, ei(), 1) as found:
        study = made(tmp_path / "agent-0.db")
        dropped = [objective(study.ask()) for _ in range(2)]
        with pytest.raises(KeyboardInterrupt):
            study.optimize(interrupted, n_trials=1)
        died = study.ask()
        objective(died)
        frozen = study.trials[died.number]
        study._storage.set_trial_state_values(frozen._trial_id, optuna.trial.TrialState.FAIL)
        retried = {name: getattr(frozen, name) for name in ("params", "distributions", "system_attrs")}
        study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.WAITING, **retried))
        study.optimize(objective, n_trials=2)
    assert len(dropped) == 2
    trials, params = found[0].study.trials, [trial.params for trial in study.trials]
    assert trials["failure"].tolist() == ["", ""]
    assert params[:5] == [trials["config"][0]] * 5
    assert params[5] == trials["config"][1]


def test_a_parameter_that_is_fixed_in_the_script_is_refused(tmp_path):
    with federation(tmp_path, ei(), 1):
        study = made(tmp_path / "agent-0.db")
        own, study.sampler = study.sampler, optuna.samplers.PartialFixedSampler({"depth": 9}, study.sampler)
        with pytest.raises(ConfigError, match='give the agent fixed = "depth=9" in node_config'):
            study.optimize(lambda trial: trial.suggest_int("depth", 1, 9), n_trials=1)
        study.sampler = own
        study.optimize(objective, n_trials=2)


def test_constraints_func_says_the_limits_and_the_storage_only_whether_they_hold(tmp_path):
    wanted = {"objectives": {"loss": "min"}, "limits": {"grams": 45.678, "watts": 7.0}}
    with federation(tmp_path, ei(), 1, **wanted) as found:
        journal = tmp_path / "agent-0.db"
        wrong = FederatedSampler(journal, 60, constraints_func=lambda trial: [1.0])
        with pytest.raises(ConfigError, match=r"constraints_func: expected 2 numbers, .* got 1"):
            optuna.create_study(sampler=wrong).optimize(objective, n_trials=1)

        def clumsy(trial):
            trial.params.clear()
            return [-3.0, 2.0]

        study = optuna.create_study(sampler=FederatedSampler(journal, 60, constraints_func=clumsy))
        study.enqueue_trial({"rate": 0.01, "depth": 1, "kind": "a"})
        study.optimize(objective, n_trials=3)
    assert [row["grams"] for row in found[0].study.trials["outputs"]] == pytest.approx([42.678] * 2)
    assert known(tmp_path) == [study.trials[0].params]
    assert list(found[0].study.trials["config"]) == [trial.params for trial in study.trials[1:]]
    assert [trial.system_attrs["constraints"] for trial in study.trials[1:]] == [[-1.0, 1.0]] * 2
    assert "45.6" not in str([trial.system_attrs for trial in study.trials])


def test_earlier_trials_of_other_ranges_choices_or_attributes_are_left_out_with_a_warning(tmp_path):
    def odd(trial):
        value = objective(trial)
        trial.set_user_attr("grams", ["light", None, {"a": 1}][trial.number % 3])
        return value

    given = {"storage": f"sqlite:///{tmp_path / 'o.db'}", "study_name": "mine", "load_if_exists": True}
    study = optuna.create_study(**given)
    study.optimize(odd, n_trials=3)
    with pytest.warns(UserWarning, match="Choices"):
        study.optimize(lambda trial: len(trial.suggest_categorical("kinds", [(1, 2), (3,)])), n_trials=1)
    study.optimize(lambda trial: trial.suggest_float("rate", 2.0, 3.0, log=True), n_trials=2)
    wanted = {"objectives": {"loss": "min"}, "limits": {"grams": 45.0}}

    def one(trial):
        trial.set_user_attr("grams", 1)
        return objective(trial)

    study = made(tmp_path / "agent-0.db", **given)
    with federation(tmp_path, ei(), 1, **wanted), pytest.warns(UserWarning, match="6 of 6 earlier trials"):
        study.optimize(one, n_trials=2)
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    assert Site(tmp_path / "agent-0.db").pending == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_script_ends_when_the_federated_study_has_ended(tmp_path, restarted, monkeypatch):
    monkeypatch.setattr(optuna_sampler, "NEXT_STUDY_SECONDS", 0.1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lines = []
    monkeypatch.setattr(logging.getLogger("optuna.fbo_flower"), "handle", lines.append)
    with federation(tmp_path, ei(), 2):
        study = script(tmp_path / "agent-0.db", 3 if restarted else 100)
    if restarted:
        study.sampler = FederatedSampler(tmp_path / "agent-0.db")
        study.optimize(objective, n_trials=100)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3 + ["PRUNED"]
    assert len(lines) == 1
    assert "has ended; for its next one start the script again" in lines[0].getMessage()


# -- Optuna's own tests of samplers --------------------------------------------------------------------

_ALONE = "it asks for the values of a parameter without a trial of the agent"
_SPACE = "it passes a space; the agent has the app's"
LEFT_OUT = {
    "test_float": _ALONE,
    "test_int": _ALONE,
    "test_categorical": _ALONE,
    "test_conditional_sample_independent": _ALONE,
    "test_multi_objective_sample_independent": _ALONE,
    "test_sample_relative_numerical": _SPACE,
    "test_sample_relative_categorical": _SPACE,
    "test_sample_relative_mixed": _SPACE,
    "test_dynamic_range_objective": "the ranges of an app do not change within a study",
    "test_partial_fixed_sampling": "the agent fixes parameters, see the refusal above",
    "test_raise_error_for_samplers_during_multi_objectives": "it takes several objectives",
}
APPS = {  # test -> number of trials, and what is tuned; by default what its objective suggests
    "test_nan_objective_value": (11, {"x": Float(0.1, 0.2)}),
    "test_sample_single_distribution": (2, {"a": Categorical([1]), "other": Float(0, 1)}),
    "test_single_parameter_objective": (10, {}),
    "test_combination_of_different_distributions_objective": (3, {}),
    "test_conditional_parameter_objective": (
        10,
        {
            "x": Categorical([True, False]),
            "y": Float(0, 1, active_when={"x": True}),
            "z": Float(0, 1, active_when={"x": False}),
        },
    ),
    "test_trial_relative_params": (10, {"x": Float(-10, 10), "y": Float(-10, 10)}),
}
suite = pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna 5 has tests of samplers")


@pytest.mark.filterwarnings("ignore")
class TestSuiteOfOptuna(
    suite.BasicSamplerTestCase,
    suite.RelativeSamplerTestCase,
    suite.MultiObjectiveSamplerTestCase,
    suite.SingleOnlySamplerTestCase,
):
    locals().update(dict.fromkeys(LEFT_OUT))

    @pytest.fixture
    def sampler(self, request, tmp_path):
        number, parameters = APPS[request.function.__name__]
        trial = optuna.create_study().ask()
        for name, suggest in (
            request.node.callspec.params.items() if hasattr(request.node, "callspec") else ()
        ):
            if name.startswith("suggest_method"):
                suggest(trial)
        space = SearchSpace(parameters) if parameters else from_distributions(trial.distributions)
        quick = ExpectedImprovement(num_agents=1, seed=1, num_initial=1, num_candidates=16)
        with federation(tmp_path, quick, number, minimize=True, space=space):
            yield lambda: FederatedSampler(tmp_path / "agent-0.db", 60)
