"""The built-in learners of restrictive federated model selection, with the paper's spaces [Sun2019, Table 3].

Every model is a pipeline of median imputer, scaler and classifier, all fitted on the openbox. The imputer is
fitted even if the openbox has no missing value, because a curator may have some. A column that is empty or
constant at the openbox is dropped: it carries no information there and could not be scaled elsewhere. A
fitted model consists of classes of scikit-learn only.

How options of the paper's R packages become options of scikit-learn:

- glmnet's objective is a *mean* loss plus `lambda` times the penalty, scikit-learn's `C` times a *sum* of
  losses plus the penalty: `C = 1 / (n lambda)`, where `n` is the number of rows that are fitted. For the same
  `lambda`, the `C` of a fold is therefore larger than that of the final fit.
- kernlab's `sigma` is scikit-learn's `gamma`: `exp(-sigma |x - x'|^2)`. Features are standardised here.
- ranger does not split a node of `min.node.size` rows or fewer: `min_samples_split` is one more. It draws
  `sample_fraction * n` rows with replacement.

The elastic net is fitted by proximal Newton steps with coordinate descent, as in glmnet. With a weak penalty,
scikit-learn's saga solver needs thousands of passes; a handful of weighted least-squares problems
[Friedman2010, section 3] gives the same coefficients. The fitted model is a plain `LogisticRegression`.

References
----------
[Friedman2010] Friedman, Hastie, Tibshirani. Regularization paths for generalized linear models via coordinate
descent. Journal of Statistical Software 33(1).
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems.base import Config, number
from fbo_flower.space import Float, Int, Parameter, SearchSpace

TOLERANCE = 1e-5  # of the residual, a gradient for features of unit variance
MAX_NEWTON_STEPS = 100
MAX_HALVINGS = 20
MIN_CURVATURE = 1e-5  # the smallest p (1 - p) of a row [Friedman2010, section 3]


@dataclass(frozen=True)
class ElasticNetFit:
    """The solution: coefficients `(d,)` and intercept, the number of steps, and the optimality residual."""

    coefficients: Array
    intercept: float
    num_steps: int
    residual: float


@dataclass(frozen=True)
class PenalisedLikelihood:
    """`min_{b, b0} 1/n sum_i w_i log(1 + exp(-s_i (x_i b + b0))) + lambda P(b)`, `s_i = 2 y_i - 1`.

    `P(b) = alpha |b|_1 + (1 - alpha) / 2 |b|_2^2` [Friedman2010, Eqs. 2 and 13].

    Parameters
    ----------
    x : `(n, d)`, standardised
    y : `(n,)`, 0 or 1; both occur
    weights : `(n,)`, positive, of mean 1
    strength : lambda, positive
    mix : alpha, in [0, 1]
    """

    x: Array
    y: Array
    weights: Array
    strength: float
    mix: float

    def value(self, b: Array, scores: Array) -> float:
        """Return the objective at coefficients `b` with `scores = x b + b0`."""
        loss = np.mean(self.weights * (np.logaddexp(0.0, scores) - self.y * scores))
        return float(loss + self.strength * (self.mix * np.abs(b).sum() + (1 - self.mix) / 2 * (b @ b)))

    def residual(self, b: Array, probabilities: Array) -> float:
        """Return the largest violation of the optimality conditions."""
        error = self.weights * (probabilities - self.y)
        gradient = self.x.T @ error / len(self.y) + self.strength * (1 - self.mix) * b
        bound = self.strength * self.mix
        violation = np.where(b != 0, np.abs(gradient + bound * np.sign(b)), np.abs(gradient) - bound)
        return float(max(violation.max(initial=0.0), abs(error.mean())))


def solve(problem: PenalisedLikelihood) -> ElasticNetFit:
    """Minimise the objective; the fit's residual says how close it is to the optimum."""
    b = np.zeros(problem.x.shape[1])
    rate = float(np.mean(problem.weights * problem.y))
    b0 = np.log(rate / (1 - rate))
    scores = np.full(len(problem.y), b0)
    value = problem.value(b, scores)
    residual, steps = np.inf, 0
    while True:
        probabilities = 0.5 + 0.5 * np.tanh(0.5 * scores)
        residual = problem.residual(b, probabilities)
        if not np.isfinite(residual):
            raise NumericalError(f"elastic net: expected a finite gradient, got {residual}")
        if residual <= TOLERANCE or steps == MAX_NEWTON_STEPS:
            break
        steps += 1
        new_b, new_b0 = _newton_step(problem, b, scores, probabilities, residual)
        direction = problem.x @ (new_b - b) + (new_b0 - b0)
        for halving in range(MAX_HALVINGS):
            step = 0.5**halving
            tried_b, tried = b + step * (new_b - b), scores + step * direction
            tried_value = problem.value(tried_b, tried)
            if tried_value <= value:
                break
        else:
            break  # the objective no longer decreases in this precision
        b, b0, scores, value = tried_b, b0 + step * (new_b0 - b0), tried, tried_value
    return ElasticNetFit(b, float(b0), steps, residual)


def _newton_step(
    problem: PenalisedLikelihood, b: Array, scores: Array, probabilities: Array, residual: float
) -> tuple[Array, float]:
    """Minimise the quadratic model of the loss at `b`, plus the penalty."""
    from sklearn.linear_model import enet_path

    curvature = problem.weights * np.maximum(probabilities * (1 - probabilities), MIN_CURVATURE)
    target = scores + problem.weights * (problem.y - probabilities) / curvature  # z, Eq. 17
    total = curvature.sum()
    mean_x, mean_target = curvature @ problem.x / total, float(curvature @ target / total)
    root = np.sqrt(curvature)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the next step continues one that stops early
        _, path, _ = enet_path(
            np.asfortranarray(root * (problem.x - mean_x)),
            root[:, 0] * (target - mean_target),
            l1_ratio=max(problem.mix, 1e-12),
            alphas=[problem.strength],
            coef_init=b.copy(),  # enet_path overwrites it
            precompute=False,
            check_input=False,
            tol=min(1e-4, residual * 1e-2),
            max_iter=1000,
        )
    new_b = path[:, 0]
    return new_b, float(mean_target - mean_x @ new_b)


def logistic_regression(x: Array, y: Any, strength: float, mix: float, odds: float) -> Any:
    """Return a fitted `sklearn.linear_model.LogisticRegression`.

    Parameters
    ----------
    x : `(n, d)`, standardised
    y : `(n,)`, of two classes; the second one is the positive class
    odds : weight of a positive row relative to a negative row; the weights are scaled to a mean of 1
    """
    from sklearn.linear_model import LogisticRegression

    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    if len(classes) != 2:
        raise ValueError(f"y: expected two classes, got {len(classes)}")
    weights = np.where(codes == 1, odds, 1.0)
    fit = solve(PenalisedLikelihood(x, codes.astype(np.float64), weights / weights.mean(), strength, mix))
    model = LogisticRegression(C=1.0 / (len(x) * strength), l1_ratio=mix, solver="saga")
    model.classes_ = classes
    model.coef_ = fit.coefficients[None, :]
    model.intercept_ = np.array([fit.intercept])
    model.n_features_in_ = x.shape[1]
    model.n_iter_ = np.array([fit.num_steps], dtype=np.int32)
    return model


MAX_TREES = 500  # the paper uses 5000, a model of 114 MB with 500 features
MIN_TREES = 100
MAX_ODDS = 2.0**4
FOREST_SEED = 0  # so that a configuration always gives the same forest


@dataclass(frozen=True)
class Learner:
    """A family of classifiers and its search space.

    Parameters
    ----------
    space : the paper's search space, with `odds` if class weights are tuned
    make_classifier : `make_classifier(config)` returns an unfitted classifier for complete, standardised
        rows; its `fit` returns the fitted classifier
    carries_rows : whether a fitted model holds rows of its training data
    """

    space: SearchSpace
    make_classifier: Callable[[Config], Any]
    carries_rows: bool = False

    def make_model(self, config: Config) -> Recipe:
        """Return an unfitted model."""
        return Recipe(self.make_classifier(config))


@dataclass(frozen=True)
class Recipe:
    """An unfitted pipeline whose `fit` returns a fitted pipeline."""

    classifier: Any

    def fit(self, x: Any, y: Any) -> Any:
        """Return a fitted `sklearn.pipeline.Pipeline`."""
        from sklearn.pipeline import Pipeline

        preparation = prepare(x)
        classifier = self.classifier.fit(preparation.transform(x), y)
        return Pipeline([*preparation.steps, ("classify", classifier)])


def prepare(x: Any) -> Any:
    """Return a pipeline, fitted to `x`, that imputes and standardises rows `(n, d)`."""
    from sklearn.feature_selection import VarianceThreshold
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    return Pipeline(
        [
            ("impute", SimpleImputer(strategy="median", keep_empty_features=True)),
            ("vary", VarianceThreshold()),
            ("scale", StandardScaler()),
        ]
    ).fit(x)


@lru_cache(maxsize=32)
def make_learner(name: str, class_weight: bool = False, max_trees: int = MAX_TREES) -> Learner:
    """Return the learner "elastic-net", "svm" or "forest".

    Parameters
    ----------
    class_weight : also tune the weight of a positive row relative to a negative row, from 1/16 to 16; the
        labels must be 0 and 1
    max_trees : largest number of trees of a forest; the paper uses 5000
    """
    if name not in LEARNERS:
        raise ConfigError(f"learner: expected one of {', '.join(LEARNERS)}, got {name!r}")
    if max_trees <= MIN_TREES:
        raise ConfigError(f"max_trees: expected more than {MIN_TREES}, got {max_trees}")
    space, make_classifier = LEARNERS[name]
    if name == "forest":
        space = space | {"trees": Int(MIN_TREES, max_trees, log=True)}
    if class_weight:
        space = space | {"odds": Float(1 / MAX_ODDS, MAX_ODDS, log=True)}
    return Learner(SearchSpace(space), make_classifier, carries_rows=name == "svm")


@dataclass(frozen=True)
class ElasticNet:
    """Logistic regression with an elastic-net penalty."""

    config: Config

    def fit(self, x: Any, y: Any) -> Any:
        """Return a fitted `sklearn.linear_model.LogisticRegression`."""
        strength, mix = number(self.config, "lambda"), number(self.config, "alpha")
        return logistic_regression(x, y, strength, mix, _odds(self.config))


def svm(config: Config) -> Any:
    """Return an SVM with this configuration; once fitted, it holds training rows as support vectors."""
    from sklearn.svm import SVC

    return SVC(C=number(config, "C"), gamma=number(config, "sigma"), class_weight=_class_weight(config))


@dataclass(frozen=True)
class Forest:
    """A random forest whose trees see a share of the rows."""

    config: Config

    def fit(self, x: Any, y: Any) -> Any:
        """Return a fitted `sklearn.ensemble.RandomForestClassifier`."""
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(
            int(number(self.config, "trees")),
            min_samples_split=int(number(self.config, "min_node_size")) + 1,
            class_weight=_class_weight(self.config),
            random_state=FOREST_SEED,
            max_samples=max(1, round(number(self.config, "sample_fraction") * len(y))),
        ).fit(x, y)


def _odds(config: Config) -> float:
    return number(config, "odds") if "odds" in config else 1.0


def _class_weight(config: Config) -> dict[int, float] | None:
    return {0: 1.0, 1: _odds(config)} if "odds" in config else None


LEARNERS: dict[str, tuple[dict[str, Parameter], Callable[[Config], Any]]] = {
    "elastic-net": ({"alpha": Float(0.0, 1.0), "lambda": Float(2.0**-10, 2.0**10, log=True)}, ElasticNet),
    "svm": ({"C": Float(2.0**-15, 2.0**15, log=True), "sigma": Float(2.0**-15, 2.0**15, log=True)}, svm),
    "forest": (
        {
            "trees": Int(MIN_TREES, MAX_TREES, log=True),
            "min_node_size": Int(1, 50),
            "sample_fraction": Float(0.1, 1.0),
        },
        Forest,
    ),
}
