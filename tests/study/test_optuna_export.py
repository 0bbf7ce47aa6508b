"""`Study.to_optuna` and `Study.from_optuna` with the real Optuna."""

import math

import numpy as np
import pytest
from tracked import SPACE, tune

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Start, simulate
from fbo_flower.study import Study
from fbo_flower.study.optuna import open_storage
from fbo_flower.trackers import OptunaTracker

optuna = pytest.importorskip("optuna", reason="needs fbo-flower[optuna]")
from optuna.trial import TrialState  # noqa: E402


@pytest.fixture(scope="module")
def study():
    return tune([])


def load(storage, name=None):
    """Return the studies of a storage, or the one of this name."""
    opened = open_storage(storage)
    found = optuna.get_all_study_names(opened) if name is None else [name]
    return [optuna.load_study(study_name=one, storage=opened) for one in found]


def names(studies):
    return [study.study_name for study in studies]


def test_each_agent_has_a_study_with_its_trials(study):
    stored = study.to_optuna()
    assert names(stored) == ["by chance: 0", "by chance: 1", "by chance: 2"]
    for agent, written in zip("012", stored, strict=True):
        rows = study.trials.where(agent=agent)
        assert written.direction.name == "MAXIMIZE"
        assert written.best_value == study.best[agent]["value"]
        assert written.best_params == study.best[agent]["config"]
        for row, trial in zip(rows, written.trials, strict=True):
            assert trial.params == row["config"], "inactive parameters are missing"
            own = [trial.user_attrs[name] for name in ("agent", "trial", "round")]
            assert own == [agent, row["trial"], row["round"]]
            if math.isnan(row["value"]):
                assert trial.state is TrialState.FAIL
                assert "n is three" in trial.user_attrs["failure"]
            else:
                assert trial.state is TrialState.COMPLETE
                assert trial.value == row["value"]
            (times,) = study.times.where(agent=agent, trial=row["trial"])
            assert trial.datetime_complete.timestamp() == pytest.approx(times["ended"], abs=1e-5)


@pytest.mark.parametrize(("file", "one_study"), [("study.db", True), ("study.log", False)])
def test_a_study_comes_back_as_it_was_and_nothing_is_written_twice(study, tmp_path, file, one_study):
    early = study.trials.take(study.trials["round"] < 3)
    Study(study.settings, early, study.rounds).to_optuna(tmp_path / file, one_study=one_study)
    for _ in range(2):
        written = study.to_optuna(tmp_path / file, one_study=one_study)
    assert (tmp_path / file).read_bytes().startswith(b"SQLite format 3") is (file == "study.db")
    if one_study:
        assert names(written) == ["by chance"]
    back = Study.from_optuna(tmp_path / file, space=SPACE)
    assert back.trials == study.trials
    np.testing.assert_allclose(back.times["ended"], study.times["ended"], atol=1e-5)
    assert back.best == study.best


def test_another_run_with_the_same_label_and_somebody_elses_study_are_left_alone(study, tmp_path):
    file = tmp_path / "study.log"
    study.to_optuna(file)
    assert names(tune([], num_rounds=1).to_optuna(file))[0] == "by chance (2): 0"
    assert names(study.to_optuna(file))[0] == "by chance: 0"
    other = tmp_path / "other.log"
    optuna.create_study(storage=open_storage(other), study_name="by chance: 1")
    assert names(study.to_optuna(other)) == ["by chance: 0", "by chance (2): 1", "by chance (2): 2"]
    assert load(other, "by chance: 1")[0].trials == []


def test_a_loss_is_minimised_in_optuna_and_back(tmp_path):
    space = SearchSpace({"x": Float(0, 1)})
    agents, given = {"north": 0.2, "south": 0.3}, {"num_rounds": 3, "minimize": True, "engine": "inline"}
    study = simulate(lambda config, centre: (config["x"] - centre) ** 2, space, agents, **given)
    written, _ = study.to_optuna(tmp_path / "study.log")
    assert written.study_name == "fed-ei: north"
    assert written.direction.name == "MINIMIZE"
    assert written.best_value == study.best["north"]["value"]
    back = Study.from_optuna(tmp_path / "study.log")
    assert back.best == study.best


def test_an_agent_begins_with_what_it_found_with_optuna(tmp_path):
    """A user of Optuna has made a study before, with a wider range of n."""
    file, sampler = tmp_path / "own.log", optuna.samplers.RandomSampler(1)
    own = optuna.create_study(storage=open_storage(file), study_name="before", sampler=sampler)

    def objective(trial):
        n = trial.suggest_int("n", 1, 8)
        if trial.number == 4:
            trial.report(0.5, step=1)
            raise optuna.TrialPruned
        return (trial.suggest_float("x", 0, 1) - 0.5) ** 2 + n

    own.optimize(objective, n_trials=12)
    own.ask()  # stays running
    space = SearchSpace({"x": Float(0, 1), "n": Int(1, 4)})
    with pytest.warns(UserWarning, match=r"of 11 trials are not in the search space"):
        before = Study.from_optuna(file, "before", agent="0", space=space)
    inside = [trial for trial in own.trials if trial.state is TrialState.COMPLETE and trial.params["n"] <= 4]
    assert 1 < len(inside) < 11
    prior = before.observations(space)
    points, values = prior["0"]
    assert values.tolist() == [trial.value for trial in inside]
    assert [space.decode(point)["n"] for point in points] == [trial.params["n"] for trial in inside]

    given = {"minimize": True, "engine": "inline", "start": Start(observations=before)}
    study = simulate(lambda config, _: config["x"], space, {"0": 1, "1": 2}, num_rounds=2, **given)
    assert study.settings["runs"][0]["prior_trials"] == {"0": len(inside)}


def test_a_storage_that_cannot_be_one_and_a_study_without_a_space_are_refused(study):
    run = {name: value for name, value in study.settings["runs"][0].items() if name != "space"}
    with pytest.raises(ConfigError, match="pass space="):
        Study({**study.settings, "runs": [run]}, study.trials, study.rounds).to_optuna()
    for storage, message in (
        ("study.txt", "a file that ends in .db"),
        (3, "expected a URL such as"),
        ("sqlite:///nowhere/study.db", "in an existing directory"),
        ("nosuch://host/db", "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=message):
            study.to_optuna(storage)


def test_a_study_that_cannot_be_read_is_refused_and_the_error_names_what_is_there(study, tmp_path):
    study.to_optuna(tmp_path / "study.log", one_study=True)
    with pytest.raises(ConfigError, match=r"expected one of by chance in .*, got 'mine'"):
        Study.from_optuna(tmp_path / "study.log", "mine")
    with pytest.raises(ConfigError, match=r"none\.db: expected an Optuna study, found none"):
        Study.from_optuna(tmp_path / "none.db")
    two = open_storage(tmp_path / "two.log")
    optuna.create_study(storage=two, directions=["minimize", "maximize"])
    with pytest.raises(ConfigError, match="expected names of its 2 objectives, found none"):
        Study.from_optuna(two)


def test_an_agent_begins_with_the_outputs_that_it_found_with_optuna(tmp_path):
    url, space = open_storage(tmp_path / "own.log"), SearchSpace({"x": Float(0, 1)})
    names, directions = ["loss", "size"], ["minimize", "maximize"]
    sampler = optuna.samplers.RandomSampler(seed=1)
    own = optuna.create_study(storage=url, study_name="own", directions=directions, sampler=sampler)
    own.set_metric_names(names)

    def objective(trial):
        found = measured({"x": trial.suggest_float("x", 0, 1)}, 0.4)
        trial.set_user_attr("milliseconds", found["milliseconds"])
        trial.storage.set_trial_system_attr(trial._trial_id, "constraints", [found["milliseconds"] - 15])
        return [found[name] for name in names]

    own.optimize(objective, n_trials=8)
    before = Study.from_optuna(url, agent="a")
    points, outputs = before.observations(space)["a"]
    assert set(outputs) == {*names, "milliseconds"}
    assert before.trials["feasible"].tolist() == [30 * x <= 15 for x in points[:, 0]]
    assert len(before.front("a").values) == len(own.best_trials)
    goals = {"objectives": {"loss": "min", "size": "max"}, "limits": {"milliseconds": 15.0}}
    given = {"engine": "inline", "start": Start(observations=before)}
    study = simulate(measured, space, {"a": 0.4, "b": 0.3}, "ei", 2, **goals, **given)
    assert study.settings["runs"][0]["prior_trials"] == {"a": 8}
    with pytest.raises(ConfigError, match="expected observations of loss, watts, got outputs"):
        simulate(measured, space, {"a": 0.4}, "ei", objectives={"loss": "min"}, limits={"watts": 1}, **given)


def test_a_trial_that_was_stopped_early_is_pruned_in_optuna_and_back(tmp_path):
    def curved(config, slope, context):
        for step in range(4):
            context.report(step, slope * config["x"] * (step + 1))
            if context.should_stop():
                break
        return float(slope * config["x"] * 4)

    space = SearchSpace({"x": Float(0.0, 1.0)})
    study = simulate(curved, space, [1.0, 2.0], "random", 12, engine="inline")
    stopped = np.isfinite(study.trials["stopped_at"])
    assert stopped.any()
    (kept,) = study.to_optuna(tmp_path / "study.log", one_study=True)
    written = [trial for trial in kept.trials if trial.state is TrialState.PRUNED]
    assert sorted(trial.value for trial in written) == sorted(study.trials["value"][stopped].tolist())
    again = Study.from_optuna(tmp_path / "study.log")
    for column in ("value", "stopped_at"):
        np.testing.assert_array_equal(again.trials[column], study.trials[column])


def measured(config, centre):
    return {"loss": (config["x"] - centre) ** 2, "milliseconds": 30 * config["x"], "size": 1 - config["x"]}


def test_several_objectives_and_limits_are_directions_and_constraints(tmp_path):
    objectives = {"loss": "min", "size": "max"}
    goals = {"objectives": objectives, "limits": {"milliseconds": 15.0}}
    file, space = tmp_path / "tracked.log", SearchSpace({"x": Float(0, 1)})
    given = {"engine": "inline", "callbacks": [OptunaTracker(file)]}
    study = simulate(measured, space, {"a": 0.7, "b": 0.3}, "random", 6, **given, **goals)
    for written in (*study.to_optuna(), *load(file)):
        rows = list(study.trials.where(agent=written.user_attrs["agent"]))
        assert [way.name.lower()[:3] for way in written.directions] == list(objectives.values())
        for row, trial in zip(rows, written.trials, strict=True):
            assert trial.values == [row["outputs"][name] for name in objectives]
            assert trial.user_attrs["outputs.milliseconds"] == row["outputs"]["milliseconds"]
            assert (trial.system_attrs["constraints"][0] <= 0) == row["feasible"]
        assert written.metric_names == list(objectives)
    back = Study.from_optuna(file)
    for name in ("outputs", "feasible", "value"):
        assert back.trials[name].tolist() == study.trials[name].tolist()


def test_steps_are_kept_and_choices_that_no_space_has_are_left_out():
    def objective(trial):
        if trial.number >= 20:
            trial.suggest_categorical("odd", [(1, 2), {"a": 1}])
        trial.set_user_attr("round", ["no", "number"])
        return -trial.suggest_float("x", 0, 0.3, step=0.1)

    own = optuna.create_study(study_name="mine")
    own.enqueue_trial({"x": 0.3})
    with pytest.warns(UserWarning, match="Choices"):
        own.optimize(objective, n_trials=22)
    said = r"2 of 22 trials are not in .*odd: expected str, int, float, bool or None, got"
    with pytest.warns(UserWarning, match=said):
        found = Study.from_optuna(own._storage)
    assert found.best["mine"]["config"] == {"x": 0.3}
