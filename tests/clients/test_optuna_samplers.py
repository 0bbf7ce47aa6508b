"""Optuna: scripts of sites whose trials the agents choose, and `EISampler`, which does what `ei` does."""

import json
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from federation import agents

from fbo_flower import Asked, Categorical, Float, Int, SearchSpace, algorithms
from fbo_flower.clients import asking
from fbo_flower.errors import ConfigError, NotInTimeError
from fbo_flower.storage.store import opened
from fbo_flower.strategies import ExpectedImprovement, FedEI

optuna = pytest.importorskip("optuna")
suite = pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna 5 has tests of samplers")
from fbo_flower import EISampler, FederatedSampler  # noqa: E402  # they need Optuna
from fbo_flower.clients import optuna_sampler  # noqa: E402

SPACE = SearchSpace(
    {
        "rate": Float(1e-4, 1.0, log=True),
        "depth": Int(1, 8),
        "kind": Categorical(["a", "b"]),
        "share": Float(0.0, 1.0, active_when={"kind": "b"}),
    }
)
QUICK = algorithms.ExpectedImprovement(num_candidates=16)
TWO = {"direction": None, "directions": ["minimize"] * 2}
NUM_TRIALS = 5  # of an agent of `fed_ei` in 5 rounds: two have no trials, three in the first


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.002)
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def loss(config, context=None):
    return float(np.log10(config["rate"]) + 2) ** 2 + 0.1 * config["depth"] + (config["kind"] == "b")


def objective(trial):
    """The objective of a site's own script."""
    config = {
        "rate": trial.suggest_float("rate", 1e-4, 1.0, log=True),
        "depth": trial.suggest_int("depth", 1, 8),
        "kind": trial.suggest_categorical("kind", ["a", "b"]),
    }
    if config["kind"] == "b":
        config["share"] = trial.suggest_float("share", 0.0, 1.0)
    return loss(config)


def made(journal, timeout=60.0, **given):
    """Create or load the study of a script, with a sampler as of a new process."""
    sampler = FederatedSampler(journal, timeout)
    return optuna.create_study(sampler=sampler, **{"direction": "minimize", **given})


def script(journal, number=1, function=objective, **given):
    """Run what differs from a site's own script by its sampler; return the study."""
    study = made(journal, **given)
    study.optimize(function, n_trials=number)
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
    given = {"storage": f"sqlite:///{tmp_path / 'o.db'}", "study_name": "mine", "load_if_exists": True}
    earlier = optuna.create_study(direction="minimize", **given)
    earlier.optimize(objective, n_trials=5)
    before = [trial.params for trial in earlier.trials]
    earlier.optimize(lambda trial: trial.suggest_float("rate", 2.0, 3.0, log=True), n_trials=1)
    strategy = fed_ei()
    with federation(tmp_path, strategy, 5, 2):
        other = threading.Thread(target=script, args=(tmp_path / "agent-1.db", NUM_TRIALS))
        other.start()
        for count in (1, NUM_TRIALS - 1):  # the script is started again
            with pytest.warns(UserWarning, match="1 of [67] earlier trials do not fit the app"):
                script(tmp_path / "agent-0.db", count, **given)
        other.join()
    assert known(tmp_path) == before
    messages = strategy.export_messages()
    shared = messages.arrays["rows"][:, :-1]
    assert len(shared) >= 4
    for config in before:
        assert np.abs(shared - SPACE.encode(config)).max(axis=1).min() > 1e-6


@pytest.mark.parametrize("says", ["attribute", "constraint", "function"])
def test_directions_and_constraints_of_a_script_are_objectives_and_limits(tmp_path, says):
    def two(trial):
        value = objective(trial)
        grams = 10.0 * trial.params["depth"]
        if says == "attribute":
            trial.set_user_attr("grams", grams)
        elif says == "constraint":
            trial.set_constraint("grams", grams - 45.678)
        return value, float(trial.params["depth"])

    def clumsy(trial):
        return [10.0 * trial.params.pop("depth") - 45.678]

    journal = tmp_path / "agent-0.db"
    wanted = {"objectives": {"loss": "min", "depth": "min"}, "limits": {"grams": 45.678}}
    with federation(tmp_path, ei(), 3, **wanted) as found:
        with pytest.raises(ConfigError, match=r"grams: expected a number as a user .*set_user_attr"):
            script(journal, 1, lambda trial: (objective(trial), 1.0), **TWO)
        function = clumsy if says == "function" else None
        sampler = FederatedSampler(journal, 60, constraints_func=function)
        study = optuna.create_study(sampler=sampler, directions=TWO["directions"])
        study.enqueue_trial({"rate": 0.01, "depth": 2, "kind": "a"})
        study.optimize(two, n_trials=5)
    trials = found[0].study.trials
    expected = [10 * config["depth"] for config in trials["config"]]
    assert [row["outputs"]["grams"] for row in trials] == pytest.approx(expected)
    mine = [trial for trial in study.trials if trial.number]
    assert [trial.system_attrs["constraints"][0] <= 0 for trial in mine] == trials["feasible"].tolist()
    if says == "attribute":
        assert "45.6" not in str([trial.system_attrs for trial in mine]), "the bound is the device's"


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
        for suggest in (
            lambda trial: trial.suggest_float("momentum", 0.0, 1.0),
            lambda trial: trial.suggest_float("rate", 2.0, 3.0),
        ):
            study = made(journal)
            with pytest.raises(ConfigError, match="give script and app the same names, ranges and choices"):
                study.optimize(suggest, n_trials=1)
            assert [trial.state.name for trial in study.trials] == ["FAIL"]
        study = made(journal)
        study.sampler = optuna.samplers.PartialFixedSampler({"depth": 9}, study.sampler)
        with pytest.raises(ConfigError, match='give the agent fixed = "depth=9" in node_config'):
            study.optimize(lambda trial: trial.suggest_int("depth", 1, 9), n_trials=1)
        script(journal, 2)
    assert found[0].study.trials["failure"].tolist() == ["", ""]
    study = made(tmp_path / "no-agent.db", timeout=0.01)
    with pytest.raises(NotInTimeError):
        study.optimize(objective, n_trials=1)
    assert [trial.state.name for trial in study.trials] == ["FAIL"]


def test_each_thread_has_a_trial_of_its_own_and_failed_and_pruned_ones_are_told_as_failed(tmp_path):
    seen = []

    def slow(trial):
        value = objective(trial)
        seen.append(str(trial.params))
        time.sleep(0.05)
        if trial.number == 0:
            raise optuna.TrialPruned
        if trial.number == 1:
            raise ValueError("no memory")
        return value

    strategy = ExpectedImprovement(num_agents=1, seed=1, num_initial=2, trials_per_round=2)
    with federation(tmp_path, strategy, 2, minimize=True, num_parallel=2) as found:
        made(tmp_path / "agent-0.db").optimize(slow, n_trials=4, n_jobs=2, catch=ValueError)
    own = found[0].study.trials
    assert sorted(set(seen)) == sorted(seen) == sorted(map(str, own["config"]))
    assert sorted(own["failure"]) == ["", "", "told as failed", "told as failed"]


def test_a_trial_is_asked_in_one_process_and_told_in_another(tmp_path, monkeypatch):
    given = {"storage": f"sqlite:///{tmp_path / 'o.db'}", "study_name": "mine", "load_if_exists": True}
    wanted = {"objectives": {"loss": "min"}, "limits": {"grams": 45.0}}
    with federation(tmp_path, ei(), 2, **wanted) as found:
        for sampler in (FederatedSampler(tmp_path / "agent-0.db"), None, None):
            trial = made(tmp_path / "agent-0.db", **given).ask()
            value = objective(trial)
            trial.set_user_attr("grams", 1.0)
            optuna_sampler._UNDER_WAY.clear()  # as in another process
            other = optuna.load_study(study_name="mine", storage=given["storage"], sampler=sampler)
            other.tell(trial.number, value)  # without the sampler the agent learns it at the next `ask`
        monkeypatch.setattr(optuna_sampler, "NEXT_STUDY_SECONDS", 0.1)
        with pytest.raises(NotInTimeError, match="has ended; for its next one start the script again"):
            made(tmp_path / "agent-0.db", None, **given).ask()
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
        objective(study.ask())
        with pytest.raises(KeyboardInterrupt):
            study.optimize(interrupted, n_trials=1)
        died = study.ask()
        objective(died)
        frozen = study.trials[died.number]
        study._storage.set_trial_state_values(frozen._trial_id, optuna.trial.TrialState.FAIL)
        retried = {name: getattr(frozen, name) for name in ("params", "distributions", "system_attrs")}
        study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.WAITING, **retried))
        study.optimize(objective, n_trials=2)
    trials, params = found[0].study.trials, [trial.params for trial in study.trials]
    assert trials["failure"].tolist() == ["", ""]
    assert params == [trials["config"][0]] * 4 + [trials["config"][1]]


def test_a_script_ends_when_the_federated_study_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(optuna_sampler, "NEXT_STUDY_SECONDS", 0.1)
    with federation(tmp_path, ei(), 2):
        study = script(tmp_path / "agent-0.db", 100)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3 + ["PRUNED"]
    study.sampler = FederatedSampler(tmp_path / "agent-0.db")  # the script is started again
    study.optimize(objective, n_trials=100)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3 + ["PRUNED"] * 2


# -- `EISampler` ------------------------------------------------------------------------------------------


def hill(trial):
    x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 1e-3, 1e3, log=True)
    kind = trial.suggest_categorical("kind", [(1, 2), "b", None])
    return (x - 0.3) ** 2 + (y < 1) + (kind == "b")


def run(number, function=hill, seed=0, **given):
    own = {"sampler": EISampler(seed, algorithm=QUICK), "load_if_exists": "storage" in given, **given}
    study = optuna.create_study(**own)
    study.optimize(function, n_trials=number, catch=ValueError)
    return study


# Optuna's whole suite but `SingleOnlySamplerTestCase`: it expects an error for several objectives
@pytest.mark.filterwarnings("ignore")
class TestSuiteOfOptuna(
    suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.MultiObjectiveSamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return lambda: EISampler(0, algorithm=QUICK)


def test_trials_at_once_are_different():
    study = run(5)
    trials = [study.ask() for _ in range(4)]
    for trial in trials:
        hill(trial)
    assert len({(round(t.params["x"], 3), round(np.log(t.params["y"]), 2)) for t in trials}) == 4


def test_constraints_and_objectives():
    def two(trial):
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        trial.set_constraint("sum", 0.5 - x - y)
        return x, y

    front = run(20, two, directions=["minimize", "minimize"]).best_trials
    assert len(front) >= 3
    assert all(0.5 <= sum(trial.values) < 0.75 for trial in front)
    # and a constraint may change the trial that it is given
    limited = EISampler(0, algorithm=QUICK, constraints_func=lambda trial: [0.7 - trial.params.pop("x")])
    assert 0.7 <= run(15, sampler=limited).best_value ** 0.5 + 0.3 < 0.8
    with pytest.raises(ConfigError, match="directions: expected at most 3 objectives, got 4; use optuna"):
        run(3, lambda trial: (trial.suggest_float("x", 0, 1),) * 4, directions=["minimize"] * 4)
