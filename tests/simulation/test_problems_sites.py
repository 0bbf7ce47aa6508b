from dataclasses import replace

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import needs_data
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.models import carries_rows, pack, unpack
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import PROBLEMS, BreastCancerSites, SitesProblem, learners, make_problem
from fbo_flower.simulation.problems.learners import LEARNERS, PenalisedLikelihood, make_learner, solve

NAMES = [name for name, problem in PROBLEMS.items() if issubclass(problem, SitesProblem)]
CASES = [pytest.param(name, marks=() if name == "breast-cancer-5sites" else needs_data) for name in NAMES]
ALL_ROWS = {
    "heart-4sites": 920, "breast-cancer-5sites": 569, "madelon-5sites": 2000, "fri-5sites": 500,
    "semeion-5sites": 1593, "gravier-5sites": 168,
}  # fmt: skip


def context(partition):
    return ObjectiveContext(str(partition), partition, 0, 1, generator(0))


@pytest.mark.parametrize("name", CASES)
def test_sites_have_roles_and_bags_with_each_row_once_and_four_fifths_of_each_class(name):
    problem = make_problem(name, None, 0, {})
    problem.check_data()
    roles = [problem.role(k) for k in range(problem.num_agents)]
    assert sorted(roles) == ["curator"] * (problem.num_agents - 2) + ["lockbox", "openbox"]
    with pytest.raises(ConfigError, match="partition"):
        problem.role(problem.num_agents)
    total = 0
    for k in range(problem.num_agents):
        inbag, outbag = problem.site(k)
        total += len(inbag.y) + len(outbag.y)
        for label in (0, 1):
            inside, outside = int(np.sum(inbag.y == label)), int(np.sum(outbag.y == label))
            assert abs(inside - 0.8 * (inside + outside)) <= 1
    assert total == ALL_ROWS[name]


def test_as_a_problem_each_site_sees_the_cross_validated_accuracy_of_its_own_inbag():
    problem = BreastCancerSites(5, 0, split="srs")
    config = {"alpha": 0.5, "lambda": 0.01}
    trained = problem.site_objective().train(config, context(1))
    assert problem(config, context(1)) == 1 - trained.loss > 0.9
    outbag = problem.site_objective().judge(trained.model.predict, "outbag", context(1))
    assert outbag.num_rows == len(problem.site(1).outbag.y)
    assert outbag.loss < 0.2


def test_a_site_of_one_class_cannot_be_the_openbox():
    problem = BreastCancerSites(5, 7, openbox=4)
    assert problem.site(4).inbag.y.sum() == 0
    with pytest.raises(
        ConfigError, match=r"openbox: expected a site .* both classes \(0, 1, 2, 3\), got 4 with 78 negative"
    ):
        problem.check_data()
    assert [problem.can_train(k) for k in range(5)] == [True, True, True, True, False]
    replace(problem, openbox=3).check_data()


X, Y = load_breast_cancer(return_X_y=True)
TRAIN, TEST = slice(0, 120), slice(120, None)
CONFIGS = {
    "elastic-net": {"alpha": 0.4, "lambda": 0.01},
    "svm": {"C": 10.0, "sigma": 0.01},
    "forest": {"trees": 100, "min_node_size": 5, "sample_fraction": 0.5},
}


def fitted(name, x=X[TRAIN], y=Y[TRAIN], **more):
    return make_learner(name, class_weight=bool(more)).make_model({**CONFIGS[name], **more}).fit(x, y)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_corner_of_a_space_can_be_fitted(name):
    learner = make_learner(name, class_weight=True, max_trees=101)
    for corner in np.ndindex(*(1 if name == "forest" else 2,) * learner.space.dimension):
        model = learner.make_model(learner.space.decode(np.array(corner, dtype=float))).fit(X[:40], Y[:40])
        assert set(np.unique(model.predict(X[TEST]))) <= {0, 1}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_is_the_same_pipeline_built_by_hand(name):
    by_hand = {
        "elastic-net": saga(0.01, 0.4, 120),
        "svm": SVC(C=10.0, gamma=0.01),
        "forest": RandomForestClassifier(100, min_samples_split=6, max_samples=60, random_state=0),
    }
    expected = make_pipeline(StandardScaler(), by_hand[name]).fit(X[TRAIN], Y[TRAIN]).predict(X[TEST])
    model = fitted(name)
    assert type(model) is Pipeline
    assert np.mean(model.predict(X[TEST]) == expected) == 1.0
    holes = X[TEST].copy()
    holes[::3, ::2] = np.nan
    filled = np.where(np.isnan(holes), np.median(X[TRAIN], axis=0), holes)
    assert np.array_equal(model.predict(holes), model.predict(filled)), "a missing cell is the median"


@pytest.mark.parametrize("name", LEARNERS)
def test_a_column_that_is_empty_or_constant_at_the_openbox_is_without_effect_elsewhere(name):
    train, test = (np.pad(x, ((0, 0), (0, 2)), constant_values=7.0) for x in (X[TRAIN], X[TEST]))
    train[:, -1], test[:, -2:] = np.nan, 1e6
    assert np.array_equal(fitted(name, train).predict(test), fitted(name).predict(X[TEST]))


@pytest.mark.parametrize("name", LEARNERS)
def test_training_repeats_and_a_model_crosses_the_wire_and_says_whether_it_holds_rows(name):
    model = fitted(name)
    packed = pack(model, 2**30)
    assert packed.tobytes() == pack(fitted(name), 2**30).tobytes()
    assert np.array_equal(unpack(packed).predict(X[TEST]), model.predict(X[TEST]))
    assert bool(carries_rows(model, X[TRAIN])) == make_learner(name).carries_rows


@pytest.mark.parametrize("name", LEARNERS)
def test_odds_of_one_change_nothing_and_high_odds_find_more_of_the_positive_class(name):
    noisy = generator(0, "flip").permutation(Y)[TRAIN]  # hard to tell, so that weights matter
    plain, even, low, high = (
        fitted(name, X[TRAIN], noisy, **odds).predict(X[TEST])
        for odds in ({}, {"odds": 1.0}, {"odds": 1 / 16}, {"odds": 16.0})
    )
    if name != "forest":  # whose rows are drawn by their weights, with other draws if there are any
        assert np.array_equal(plain, even)
    assert low.sum() < high.sum()


def problem(n, d, strength, mix, seed=0, odds=1.0):
    rng = generator(seed, "elastic-net")
    x = rng.normal(size=(n, d))
    y = (x[:, 0] - 0.5 * x[:, -1] + rng.normal(size=n) > 0.4).astype(float)
    y[:2] = 0.0, 1.0
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    weights = np.where(y == 1, odds, 1.0)
    return PenalisedLikelihood(x, y, weights / weights.mean(), strength, mix)


def saga(strength, mix, n):
    return LogisticRegression(C=1 / (n * strength), l1_ratio=mix, solver="saga", tol=1e-9, max_iter=200_000)


@pytest.mark.parametrize(("n", "d", "strength", "mix"), [(80, 5, 0.1, 0.0), (30, 60, 2**-5, 0.3)])
def test_coefficients_are_those_of_scikit_learns_solver_once_it_has_converged(n, d, strength, mix):
    p = problem(n, d, strength, mix, odds=3.0)
    fit = solve(p)
    theirs = saga(strength, mix, n).fit(p.x, p.y, sample_weight=p.weights)
    b, b0 = theirs.coef_[0], float(theirs.intercept_[0])
    assert fit.residual <= learners.TOLERANCE
    assert p.x @ fit.coefficients + fit.intercept == pytest.approx(p.x @ b + b0, abs=0.05)
    assert fit.coefficients == pytest.approx(b, abs=2e-3)


@given(
    n=st.integers(4, 60),
    d=st.integers(1, 40),
    log_strength=st.floats(-10, 10),
    mix=st.floats(0, 1),
    log_odds=st.floats(-4, 4),
    seed=st.integers(0, 50),
)
@settings(max_examples=examples(60, 15), deadline=None)
def test_every_fit_of_the_space_satisfies_the_optimality_conditions(n, d, log_strength, mix, log_odds, seed):
    fit = solve(problem(n, d, 2.0**log_strength, mix, seed, 2.0**log_odds))
    assert np.isfinite(fit.coefficients).all()
    assert fit.residual <= learners.TOLERANCE * (20 if fit.num_steps < learners.MAX_NEWTON_STEPS else 100)
