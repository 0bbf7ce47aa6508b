from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import needs_data

from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.data import CALIFORNIA_FILE, DATA_VARIABLE, data_file
from fbo_flower.simulation.problems import (
    PROBLEMS,
    DigitsSVM,
    GPSamples,
    LandmineSVM,
    ParkinsonsLR,
    Problem,
    make_problem,
)
from fbo_flower.simulation.problems.california import districts, features_and_values, regions
from fbo_flower.simulation.problems.digits_svm import _parts
from fbo_flower.simulation.problems.gp_samples import sample_on_grid
from fbo_flower.simulation.problems.landmine_svm import roc_auc
from fbo_flower.simulation.problems.parkinsons_lr import fit_logistic_regression

FIVE_SITES = ("breast-cancer-5sites", "madelon-5sites", "fri-5sites", "semeion-5sites", "gravier-5sites")
CALIFORNIA = ("california-mlp", "california-trees")
NEED_DATA = ("landmine-svm", "parkinsons-lr", *CALIFORNIA, "heart-4sites", *FIVE_SITES[1:])
OPTIONS = {name: {"split": "srs"} for name in FIVE_SITES}  # each site has both classes, at once
ALL = [pytest.param(name, marks=needs_data if name in NEED_DATA else ()) for name in PROBLEMS]


@dataclass(frozen=True)
class Context:
    partition: int
    rng: np.random.Generator


def context(partition: int, seed: int = 0) -> Context:
    return Context(partition, generator(seed, "evaluation", partition))


def five_agents(name: str) -> Problem:
    return make_problem(name, min(5, PROBLEMS[name].max_agents or 5), 1, OPTIONS.get(name))


def some_config(problem: Problem, seed: int = 0) -> dict[str, object]:
    return dict(problem.space.decode(generator(seed, "config").random(problem.space.dimension)))


# every problem


@pytest.mark.parametrize("name", ALL)
def test_a_problem_evaluates_to_the_same_finite_number_again_and_after_pickling(name: str) -> None:
    problem = five_agents(name)
    for partition in range(min(examples(5, 2), problem.num_agents)):
        config = some_config(problem, partition)
        value = problem(config, context(partition))
        assert type(value) is float
        assert np.isfinite(value)
        assert problem(config, context(partition)) == value
        copy = pickle.loads(pickle.dumps(problem))
        assert copy == problem
        assert hash(copy) == hash(problem)
        assert copy(config, context(partition)) == value


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, float]:
    """The value of a configuration of every problem whose data are there, evaluated in a new process."""
    names = [name for name in PROBLEMS if name not in NEED_DATA or os.environ.get(DATA_VARIABLE)]
    problems = {name: five_agents(name) for name in names}
    program = (
        "import pickle, sys; from fbo_flower.numerics.seeding import generator;"
        "c = lambda: type('C', (), {'partition': 3, 'rng': generator(0, 'evaluation', 3)});"
        "given = pickle.load(sys.stdin.buffer);"
        "print(repr({name: problem(config, c()) for name, (problem, config) in given.items()}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps({name: (problem, some_config(problem)) for name, problem in problems.items()}),
        capture_output=True,
        check=True,
    )
    return dict(ast.literal_eval(run.stdout.decode()))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.xdist_group("elsewhere")  # one process starts the new one
def test_a_problem_gives_the_same_value_in_a_new_process(name: str, elsewhere: dict[str, float]) -> None:
    problem = five_agents(name)
    assert elsewhere[name] == problem(some_config(problem), context(3))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_says_its_name_metric_space_and_number_of_agents(name: str) -> None:
    problem = make_problem(name, None, 0, {})
    assert problem.name == name
    assert problem.metric
    assert problem.space.dimension >= 1
    natural = {"digits-svm": 20, "landmine-svm": 29, "parkinsons-lr": 42, "gp-samples": 50}
    natural["california-trees"] = 32
    natural |= dict.fromkeys(("f1", "rosenbrock", "breast-cancer-mlp", "california-mlp", "heart-4sites"), 4)
    natural |= dict.fromkeys(FIVE_SITES, 5)
    assert problem.num_agents == natural.get(name, 10)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_cannot_be_changed_and_travels_as_a_few_bytes(name: str) -> None:
    problem = make_problem(name, 3, 0, {})
    with pytest.raises(FrozenInstanceError):
        problem.seed = 1  # type: ignore[misc]
    assert len(pickle.dumps(problem)) < 400


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_does_not_take_part_is_refused(name: str, partition: int) -> None:
    problem = make_problem(name, 3, 0, {})
    with pytest.raises(ConfigError, match=r"partition: expected 0 <= partition < 3"):
        problem(some_config(problem), context(partition))
    with pytest.raises(ConfigError, match="partition"):
        problem.optimum(partition)


@pytest.mark.parametrize("name", ALL)
def test_a_parameter_that_is_missing_is_an_error_of_the_objective(name: str) -> None:
    problem = make_problem(name, 3, 0, OPTIONS.get(name))
    with pytest.raises(ObjectiveError, match="expected a number in the configuration, got None"):
        problem({}, context(0))


@pytest.mark.parametrize("name", ["digits-svm", "breast-cancer-mlp", *NEED_DATA])
def test_the_optimum_of_a_problem_on_real_data_is_unknown(name: str) -> None:
    assert make_problem(name, 3, 0, {}).optimum(1) is None


@pytest.mark.parametrize(("name", "natural"), [("landmine-svm", 29), ("parkinsons-lr", 42)])
@pytest.mark.parametrize("extra", [1, 11])
def test_more_agents_than_the_data_has_are_refused(name: str, natural: int, extra: int) -> None:
    message = f"^{name}: expected at most {natural} agents, got {natural + extra}$"
    with pytest.raises(ConfigError, match=message):
        make_problem(name, natural + extra, 0, {})


@needs_data
@pytest.mark.parametrize("name", ["landmine-svm", "parkinsons-lr"])
def test_fewer_agents_are_the_first_ones(name: str) -> None:
    few, many = make_problem(name, 2, 0, {}), make_problem(name, None, 0, {})
    config = some_config(few)
    assert few.true_value(config, 1) == many.true_value(config, 1)


@pytest.mark.parametrize("name", NEED_DATA)
def test_without_data_the_evaluation_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    problem = make_problem(name, 3, 0, {})
    with pytest.raises(ConfigError, match="FBO_FLOWER_DATA, which is not set"):
        problem(some_config(problem), context(0))


def test_an_unknown_problem_is_refused_with_a_list_of_what_there_is() -> None:
    with pytest.raises(
        ConfigError, match=r"digits-svm, landmine-svm, .*, gravier-5sites, table:FILE, got 'mnist'"
    ):
        make_problem("mnist", None, 0, {})


def test_an_unknown_option_is_refused_with_a_list_of_options_and_defaults() -> None:
    with pytest.raises(ConfigError, match=r"landmine-svm: expected options among scale='linear'; got scales"):
        make_problem("landmine-svm", None, 0, {"scales": "log"})


@pytest.mark.parametrize("option", ["seed", "num_agents", "name"])
def test_what_is_not_an_option_is_not_taken_as_one(option: str) -> None:
    with pytest.raises(ConfigError, match="expected options among"):
        make_problem("gp-samples", None, 0, {option: 1})


@pytest.mark.parametrize(
    ("name", "option", "value", "expected"),
    [
        ("digits-svm", "concentration", "0.5", "a finite number"),
        ("digits-svm", "concentration", float("nan"), "a finite number"),
        ("digits-svm", "concentration", 0, "a positive number"),
        ("digits-svm", "min_size", 40.0, "an integer"),
        ("digits-svm", "min_size", 10, "more than 10 rows"),
        ("digits-svm", "min_size", 90, "at most 19 agents with min_size=90"),
        ("digits-svm", "train_fraction", 1.0, "between 0 and 1"),
        ("landmine-svm", "scale", "cubic", "'linear' or 'log'"),
        ("parkinsons-lr", "noisy", 1, "true or false"),
        ("parkinsons-lr", "num_epochs", True, "an integer"),
        ("parkinsons-lr", "num_epochs", 0, "at least 1"),
        ("parkinsons-lr", "train_fraction", 0.0, "between 0 and 1"),
        ("parkinsons-lr", "target", "age", "'total_UPDRS' or 'motor_UPDRS'"),
        ("gp-samples", "difference", -0.1, "a non-negative number"),
        ("gp-samples", "dimension", 3, "1 or 2"),
        ("gp-samples", "dimension", True, "1 or 2"),
        ("gp-samples", "offset", None, "'sign' or 'smooth'"),
        ("gp-samples", "unrelated_fraction", 1.5, "between 0 and 1"),
        ("gp-samples", "noise_variance", -1.0, "a non-negative number"),
        ("gp-samples", "lengthscale", 0.0, "a positive number"),
        ("gp-samples", "function_seed", 1.5, "an integer or None"),
        ("gp-samples", "function_seed", -1, "None or a non-negative int"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(
    name: str, option: str, value: object, expected: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: .*expected .*{expected}.*, got"):
        make_problem(name, None, 0, {option: value})


@pytest.mark.parametrize(("num_agents", "seed"), [(0, 0), (-2, 0), (2.0, 0), (2, -1), (2, 0.5), (True, 0)])
def test_an_unusable_number_of_agents_or_seed_is_refused(num_agents: int, seed: int) -> None:
    with pytest.raises(ConfigError, match="gp-samples: "):
        make_problem("gp-samples", num_agents, seed, {})


def test_an_integer_serves_as_a_number() -> None:
    assert make_problem("gp-samples", 3, 0, {"difference": 0}) == GPSamples(3, 0, difference=0.0)


def test_importing_the_problems_imports_no_scikit_learn() -> None:
    program = (
        "import sys, fbo_flower.simulation.problems.base, fbo_flower.simulation.problems.digits_svm as d\n"
    )
    program += "import fbo_flower.simulation.problems; print('sklearn' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert run.stdout.strip() == "False"


# digits-svm


@pytest.mark.parametrize("num_agents", [1, 20, 44])
def test_every_digits_agent_has_enough_rows_of_two_classes(num_agents: int) -> None:
    from sklearn.datasets import load_digits

    labels = load_digits().target
    parts = _parts(DigitsSVM(num_agents, 0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1797))
    assert min(len(part) for part in parts) >= 40
    assert min(len(np.unique(labels[part])) for part in parts) >= 2


def test_digits_accuracy_is_that_of_scikit_learn_on_the_agents_rows() -> None:
    from sklearn.datasets import load_digits
    from sklearn.svm import SVC

    from fbo_flower.simulation.partitioners import train_validation

    problem = DigitsSVM(20, 7)
    pixels, labels = load_digits(return_X_y=True)
    rows = _parts(problem)[4]
    train, validation = train_validation(labels[rows], 0.6, generator(7, "digits-svm", "split", 4))
    model = SVC(C=2.0, gamma=0.02).fit(pixels[rows][train] / 16, labels[rows][train])
    expected = model.score(pixels[rows][validation] / 16, labels[rows][validation])
    assert problem.true_value({"C": 2.0, "gamma": 0.02}, 4) == expected


def test_only_part_of_the_digits_space_is_good() -> None:
    problem = DigitsSVM(20, 0)
    configs = [problem.space.decode(point) for point in generator(0, "points").random((60, 2))]
    for partition in (0, 10, 19):
        values = np.array([problem(config, context(partition)) for config in configs])
        assert values.max() - values.min() > 0.2
        assert np.mean(values >= values.max() - 0.01) < 0.35


def test_digits_agents_differ_between_seeds() -> None:
    first, second = _parts(DigitsSVM(20, 0)), _parts(DigitsSVM(20, 1))
    assert [len(part) for part in first] != [len(part) for part in second]


# landmine-svm


@given(
    labels=st.lists(st.booleans(), min_size=2, max_size=40),
    scores=st.lists(st.integers(-3, 3), min_size=40, max_size=40),
)
@settings(deadline=None, max_examples=200)
def test_roc_auc_agrees_with_scikit_learn_with_and_without_ties(
    labels: list[bool], scores: list[int]
) -> None:
    from sklearn.metrics import roc_auc_score

    labels = [True, False, *labels]
    tied = np.array(scores[: len(labels)], dtype=float)
    labels = labels[: len(tied)]
    distinct = tied + np.linspace(0, 0.5, len(tied))
    for values in (tied, distinct):
        assert roc_auc(labels, values) == pytest.approx(roc_auc_score(labels, values), abs=1e-12)


def test_roc_auc_of_hand_worked_rankings() -> None:
    assert roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75
    assert roc_auc([0, 1], [0.5, 0.5]) == 0.5
    assert roc_auc([1, 1, 0], [3, 2, 1]) == 1.0
    assert roc_auc([1, 1, 0], [1, 2, 3]) == 0.0


def test_roc_auc_of_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="expected both classes, got 3 positive and 0 negative"):
        roc_auc([1, 1, 1], [1, 2, 3])


def test_the_linear_landmine_space_is_the_papers() -> None:
    assert LandmineSVM(29, 0).space.decode([0.5, 0.5]) == pytest.approx(
        {"C": 0.5 * (10 - 1e-4) + 1e-4, "gamma": 0.5 * (10 - 1e-2) + 1e-2}
    )


def test_the_logarithmic_landmine_space_has_the_same_bounds() -> None:
    space = LandmineSVM(29, 0, scale="log").space
    assert space.decode([0, 0]) == pytest.approx({"C": 1e-4, "gamma": 1e-2})
    assert space.decode([1, 1]) == pytest.approx({"C": 10, "gamma": 10})
    assert space.decode([0.5, 0.5]) == pytest.approx({"C": 10**-1.5, "gamma": 10**-0.5})


@needs_data
def test_landmine_scores_are_those_of_scikit_learn_on_the_authors_split() -> None:
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    with np.load(Path(os.environ[DATA_VARIABLE]) / "landmine_authors_split.npz") as data:
        train, test = data["field_train"] == 6, data["field_test"] == 6
        model = SVC(C=3.0, gamma=0.7).fit(data["X_train"][train], data["y_train"][train])
        expected = roc_auc_score(data["y_test"][test], model.decision_function(data["X_test"][test]))
    value = LandmineSVM(29, 0).true_value({"C": 3.0, "gamma": 0.7}, 6)
    assert value == pytest.approx(expected, abs=1e-12)


@needs_data
def test_landmine_values_do_not_depend_on_the_seed_or_the_scale() -> None:
    config = {"C": 3.0, "gamma": 0.7}
    problem = LandmineSVM(29, 0)
    assert problem.true_value(config, 2) == replace(problem, seed=5).true_value(config, 2)
    assert problem.true_value(config, 2) == replace(problem, scale="log").true_value(config, 2)


@pytest.mark.parametrize("drop", ["y_test", "field"])
def test_a_landmine_file_of_another_content_is_refused(
    drop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = ("train", "test")
    arrays = {f"{name}_{half}": np.arange(28.0) for name in ("X", "y", "field") for half in halves}
    arrays.pop(drop, None)
    np.savez(tmp_path / "landmine_authors_split.npz", allow_pickle=False, **arrays)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"landmine_authors_split\.npz: expected (the arrays y_test|fields 0)"
    ):
        LandmineSVM(29, 0).true_value({"C": 1.0, "gamma": 1.0}, 0)


# parkinsons-lr


def test_batches_of_all_rows_descend_the_gradient_of_the_loss() -> None:
    rng = generator(0, "data")
    x, y = rng.standard_normal((30, 4)), (rng.random(30) < 0.5).astype(float)

    def loss(parameters: np.ndarray) -> float:
        margins = (2 * y - 1) * (x @ parameters[:4] + parameters[4])
        return float(np.logaddexp(0, -margins).mean() + 0.5 * 0.1 * parameters[:4] @ parameters[:4])

    expected = np.zeros(5)
    for _ in range(3):
        steps = 1e-6 * np.eye(5)
        gradient = np.array([(loss(expected + s) - loss(expected - s)) / 2e-6 for s in steps])
        expected = expected - 0.05 * gradient
    weights, intercept = fit_logistic_regression(
        x, y, batch_size=30, l2=0.1, learning_rate=0.05, num_epochs=3, rng=generator(1)
    )
    assert np.append(weights, intercept) == pytest.approx(expected, abs=1e-9)


def test_many_full_batches_reach_the_optimum_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = generator(0, "data")
    x = rng.standard_normal((60, 3))
    y = (x[:, 0] + rng.standard_normal(60) > 0.3).astype(float)
    model = LogisticRegression(C=1 / (60 * 0.1), tol=1e-10).fit(x, y)
    weights, intercept = fit_logistic_regression(
        x, y, batch_size=60, l2=0.1, learning_rate=0.5, num_epochs=2000, rng=generator(1)
    )
    assert weights == pytest.approx(model.coef_[0], abs=1e-5)
    assert intercept == pytest.approx(model.intercept_[0], abs=1e-5)


def test_the_size_of_a_batch_matters_and_margins_do_not_overflow() -> None:
    rng = generator(0, "data")
    x, y = 1e4 * rng.standard_normal((50, 2)), (rng.random(50) < 0.5).astype(float)
    with np.errstate(all="raise"):
        fits = [
            fit_logistic_regression(
                x, y, batch_size=b, l2=0.01, learning_rate=0.1, num_epochs=5, rng=generator(1)
            )[0]
            for b in (20, 50)
        ]
    assert not np.allclose(fits[0], fits[1])


@needs_data
def test_every_parkinsons_subject_has_balanced_classes_of_its_own() -> None:
    from fbo_flower.simulation.problems.parkinsons_lr import _subject

    for target in ("total_UPDRS", "motor_UPDRS"):
        problem = make_problem("parkinsons-lr", None, 0, {"target": target})
        assert isinstance(problem, ParkinsonsLR)
        path = str(data_file("parkinsons_updrs.csv.gz"))
        for partition in range(42):
            subject = _subject(problem, path, partition)
            assert subject.x_train.shape[1] == subject.x_validation.shape[1] == 17
            assert 0.35 < subject.y_train.mean() < 0.65
            assert 0.35 < subject.y_validation.mean() < 0.65
            assert np.allclose(subject.x_train.mean(axis=0), 0)
            assert np.allclose(subject.x_train.std(axis=0), 1)


@needs_data
def test_noise_comes_from_the_context_only_when_asked_for() -> None:
    plain, noisy = ParkinsonsLR(42, 0), ParkinsonsLR(42, 0, noisy=True)
    config = {"batch_size": 20, "l2": 1e-6, "learning_rate": 0.1}
    assert len({plain(config, context(9, seed)) for seed in range(10)}) == 1
    assert len({noisy(config, context(9, seed)) for seed in range(10)}) > 1
    assert plain.true_value(config, 9) == plain(config, context(9))
    assert noisy.true_value(config, 9) is None


# california-trees


@needs_data
def test_regions_of_california_are_compact_and_share_out_all_districts() -> None:
    table = districts(str(data_file(CALIFORNIA_FILE)))
    parts = regions(table, 5)
    assert {len(part) for part in parts} == {645}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(table)))
    spread = np.mean([table[part, :2].var(axis=0).sum() for part in parts])
    assert spread < 0.1 * table[:, :2].var(axis=0).sum()


@needs_data
def test_an_ensemble_of_trees_is_the_one_that_its_configuration_names() -> None:
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor

    x, y = features_and_values(districts(str(data_file(CALIFORNIA_FILE))))
    rows = regions(districts(str(data_file(CALIFORNIA_FILE))), 5)[4]
    order = rows[generator(1, "california-trees", "split", 4).permutation(645)]
    shared = {"num_trees": 7, "max_depth": 3, "max_features": 0.5, "min_leaf": 2}
    named = {"n_estimators": 7, "max_depth": 3, "max_features": 0.5, "min_samples_leaf": 2, "random_state": 4}
    boosting = {"ensemble": "boosting", "learning_rate": 0.3, "subsample": 0.8}
    for config, model in (
        (boosting, GradientBoostingRegressor(learning_rate=0.3, subsample=0.8, **named)),
        ({"ensemble": "forest", "max_samples": 0.6}, RandomForestRegressor(max_samples=0.6, **named)),
    ):
        model.fit(x[order[:200]], y[order[:200]])
        found = make_problem("california-trees", None, 1).true_value({**config, **shared}, 4)
        assert found == pytest.approx(model.score(x[order[200:]], y[order[200:]]))


# gp-samples


@pytest.mark.parametrize(
    ("dimension", "lengthscale", "wrong"),
    [(1, 0.03, 0.1), (1, 0.3, 0.1), (1, 2.0, 0.7), (2, 0.03, 0.1), (2, 0.3, 0.1)],
)
def test_samples_have_the_covariance_of_the_kernel(dimension: int, lengthscale: float, wrong: float) -> None:
    num_draws, size = 4000, 11
    draws = np.stack(
        [
            sample_on_grid(size, dimension, lengthscale, generator(0, "draw", i)).ravel()
            for i in range(num_draws)
        ]
    )
    axes = np.meshgrid(*[np.linspace(0, 1, size)] * dimension, indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=1)
    squares = ((grid[:, None] - grid[None]) ** 2).sum(axis=2)
    covariance = np.exp(-0.5 * squares / lengthscale**2)
    # an entry of the sample covariance has a standard deviation of at most sqrt(2 / num_draws) = .022
    assert np.abs(draws.T @ draws / num_draws - covariance).max() < 5 * 0.0224
    control = np.exp(-0.5 * squares / wrong**2)  # the same check fails for another kernel
    assert np.abs(draws.T @ draws / num_draws - control).max() > 5 * 0.0224
    assert np.abs(draws.mean(axis=0)).max() < 5 / np.sqrt(num_draws)


@pytest.mark.parametrize("options", [{}, {"dimension": 2, "lengthscale": 0.2, "offset": "smooth"}])
def test_the_optimum_is_attained_and_never_exceeded(options: dict[str, object]) -> None:
    problem = make_problem("gp-samples", 6, 3, {**options, "unrelated_fraction": 0.4})
    assert isinstance(problem, GPSamples)
    for partition in range(6):
        values = problem.values(partition)
        best = np.unravel_index(int(values.argmax()), values.shape)
        names = ("x",) if values.ndim == 1 else ("x0", "x1")
        config = {name: int(i) / (size - 1) for name, i, size in zip(names, best, values.shape, strict=True)}
        assert problem.true_value(config, partition) == problem.optimum(partition) == values.max()
        others = [problem.true_value(some_config(problem, seed), partition) for seed in range(50)]
        assert max(others) <= problem.optimum(partition)


def test_a_query_is_answered_at_the_nearest_grid_point() -> None:
    problem = GPSamples(1, 0)
    values = problem.values(0)
    assert problem.true_value({"x": 0.0}, 0) == values[0]
    assert problem.true_value({"x": 1.0}, 0) == values[999]
    assert problem.true_value({"x": 500.4 / 999}, 0) == values[500]
    assert problem.true_value({"x": 500.6 / 999}, 0) == values[501]


@pytest.mark.parametrize("x", [-0.01, 1.01, float("nan")])
def test_a_query_outside_of_the_domain_is_an_error(x: float) -> None:
    with pytest.raises(ObjectiveError, match=r"expected a number in \[0, 1\]"):
        GPSamples(1, 0).true_value({"x": x}, 0)


def test_the_target_is_scaled_to_the_unit_interval() -> None:
    values = GPSamples(3, 0).values(0)
    assert (values.min(), values.max()) == (0.0, 1.0)


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_related_agent_differs_from_the_target_by_d_n_at_every_point(dimension: int) -> None:
    problem = GPSamples(4, 0, difference=0.3, dimension=dimension, lengthscale=0.2)  # type: ignore[arg-type]
    for partition in (1, 2, 3):
        offset = problem.values(partition) - problem.values(0)
        assert np.abs(offset) == pytest.approx(0.3)
        assert 0.4 < np.mean(offset > 0) < 0.6


def test_a_smooth_offset_reaches_d_n_and_is_smooth() -> None:
    problem = GPSamples(4, 0, difference=0.3, offset="smooth")
    for partition in (1, 2, 3):
        offset = problem.values(partition) - problem.values(0)
        assert np.abs(offset).max() == pytest.approx(0.3)
        assert np.abs(np.diff(offset)).max() < 0.1


def test_the_unrelated_share_counts_from_the_last_agent_and_spares_the_target() -> None:
    problem = GPSamples(11, 0, unrelated_fraction=0.3)
    assert [problem.is_related(k) for k in range(11)] == [True] * 8 + [False] * 3
    for partition in range(1, 11):
        distance = np.abs(problem.values(partition) - problem.values(0)).max()
        assert (distance < 0.021) == problem.is_related(partition)
    assert GPSamples(11, 0, unrelated_fraction=1.0).is_related(0)
    assert not np.array_equal(problem.values(9), problem.values(10))


def test_noise_has_the_variance_asked_for_and_repeats_with_the_generator() -> None:
    problem = GPSamples(2, 0, noise_variance=0.04)
    true = problem.true_value({"x": 0.3}, 1)
    draws = np.array([problem({"x": 0.3}, context(1, seed)) for seed in range(2000)]) - true
    # the variance of 2000 draws is chi-squared: standard deviation .04 sqrt(2 / 2000) = .0013
    assert draws.var() == pytest.approx(0.04, abs=5 * 0.0013)
    assert draws.mean() == pytest.approx(0.0, abs=5 * 0.2 / np.sqrt(2000))
    assert replace(problem, noise_variance=0)({"x": 0.3}, context(1)) == true


def test_functions_follow_the_function_seed_and_otherwise_the_seed() -> None:
    assert np.array_equal(
        GPSamples(3, 0, function_seed=4).values(2), GPSamples(3, 1, function_seed=4).values(2)
    )
    assert np.array_equal(GPSamples(3, 4).values(2), GPSamples(3, 1, function_seed=4).values(2))
    assert not np.array_equal(GPSamples(3, 0).values(0), GPSamples(3, 1).values(0))


def test_a_related_agents_function_does_not_depend_on_how_many_take_part() -> None:
    assert np.array_equal(GPSamples(3, 0).values(2), GPSamples(50, 0).values(2))


def test_values_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        GPSamples(1, 0).values(0)[0] = 1.0
