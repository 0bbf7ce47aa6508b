"""`EISampler`: Optuna's own tests of samplers, and that it does what `ei` does."""

import math

import pytest

from fbo_flower import algorithms
from fbo_flower.errors import ConfigError

optuna = pytest.importorskip("optuna")
suite = pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna 5 has tests of samplers")
from fbo_flower import EISampler  # noqa: E402  # it needs Optuna

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = algorithms.ExpectedImprovement(num_candidates=16)


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def hill(trial):
    x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 1e-3, 1e3, log=True)
    kind = trial.suggest_categorical("kind", [(1, 2), "b", None])
    return (x - 0.3) ** 2 + (y < 1) + (kind == "b")


def run(number, function=hill, seed=0, **given):
    own = {"sampler": EISampler(seed, algorithm=QUICK), "load_if_exists": "storage" in given, **given}
    study = optuna.create_study(**own)
    study.optimize(function, n_trials=number, catch=ValueError)
    return study


# the whole suite but `SingleOnlySamplerTestCase`: it expects an error for several objectives
class TestSuiteOfOptuna(
    suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.MultiObjectiveSamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return lambda: EISampler(0, algorithm=QUICK)


def test_it_improves_on_random_search():
    found = sum(run(15, seed=seed).best_value for seed in range(3))
    drawn = sum(run(15, sampler=optuna.samplers.RandomSampler(seed)).best_value for seed in range(3))
    assert found < drawn / 5


def test_a_storage_is_all_that_it_remembers(tmp_path):
    def plain(trial):
        return (trial.suggest_float("x", 0, 1) - 0.3) ** 2 + trial.suggest_int("n", 0, 40, step=8)

    given = {"storage": f"sqlite:///{tmp_path / 'o.db'}", "study_name": "mine"}
    for number in (3, 4):
        again = run(number, plain, **given)
    assert [trial.params for trial in again.trials] == [trial.params for trial in run(7, plain).trials]
    assert again.trials[-1].params != run(7, plain, seed=1).trials[-1].params


def test_trials_at_once_are_different(monkeypatch):
    believing, under_way = EISampler._believing, []

    def noted(self, task, state, points):
        under_way.append(len(points))
        return believing(self, task, state, points)

    monkeypatch.setattr(EISampler, "_believing", noted)
    sampler = EISampler(0, algorithm=QUICK)
    study = run(5, sampler=sampler)
    trials = [study.ask() for _ in range(4)]
    for trial in trials:
        hill(trial)
    assert len({(round(t.params["x"], 3), round(math.log(t.params["y"]), 2)) for t in trials}) == 4
    assert under_way == [1, 2, 3]


def test_failed_and_pruned_trials_are_avoided():
    def risky(trial):
        x = trial.suggest_float("x", 0, 1)
        trial.report(9.0, 0)
        if x < 0.4:
            raise ValueError if x < 0.2 else optuna.TrialPruned
        return x

    states = [trial.state.name for trial in run(20, risky).trials]
    assert states[-8:].count("COMPLETE") >= 5


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


@pytest.mark.parametrize("seed", [-1, 0.5, "a"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ConfigError, match="seed: expected"):
        EISampler(seed)


def test_branches_have_a_model_of_their_own():
    def branches(trial):
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return (trial.suggest_float("a", 0, 1) - 0.3) ** 2 + (trial.suggest_float("b", 0, 1) - 0.8) ** 2
        return 1 + trial.suggest_float("c", 0, 1)

    assert sum(run(20, branches, seed=seed).best_value for seed in range(3)) < 0.01
