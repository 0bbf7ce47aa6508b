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

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.elastic_net import logistic_regression
from fbo_flower.simulation.problems.base import Config, number
from fbo_flower.space.space import Float, Int, Parameter, SearchSpace

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


def make_learner(name: str, class_weight: bool = False, max_trees: int = MAX_TREES) -> Learner:
    """Return the learner "elastic-net", "svm" or "forest".

    Parameters
    ----------
    class_weight : also tune the weight of a positive row relative to a negative row, from 1/16 to 16; the
        labels must be 0 and 1
    max_trees : largest number of trees of a forest; the paper uses 5000

    Raises
    ------
    ConfigError
        If there is no such learner, or `max_trees` is not above 100.
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
    """Logistic regression with an elastic-net penalty; see `elastic_net`."""

    strength: float
    mix: float
    odds: float

    def fit(self, x: Any, y: Any) -> Any:
        """Return a fitted `sklearn.linear_model.LogisticRegression`."""
        return logistic_regression(x, y, self.strength, self.mix, self.odds)


def elastic_net(config: Config) -> ElasticNet:
    """Return the classifier of a configuration."""
    return ElasticNet(number(config, "lambda"), number(config, "alpha"), _odds(config))


def svm(config: Config) -> Any:
    """Return an SVM with this configuration; once fitted, it holds training rows as support vectors."""
    from sklearn.svm import SVC

    return SVC(C=number(config, "C"), gamma=number(config, "sigma"), class_weight=_class_weight(config))


@dataclass(frozen=True)
class Forest:
    """A random forest whose trees see a share of the rows; `unfitted` holds its other options."""

    unfitted: Any
    sample_fraction: float

    def fit(self, x: Any, y: Any) -> Any:
        """Return a fitted `sklearn.ensemble.RandomForestClassifier`."""
        num_drawn = max(1, round(self.sample_fraction * len(y)))
        return self.unfitted.set_params(max_samples=num_drawn).fit(x, y)


def forest(config: Config) -> Forest:
    """Return the classifier of a configuration."""
    from sklearn.ensemble import RandomForestClassifier

    unfitted = RandomForestClassifier(
        int(number(config, "trees")),
        min_samples_split=int(number(config, "min_node_size")) + 1,
        class_weight=_class_weight(config),
        random_state=FOREST_SEED,
    )
    return Forest(unfitted, number(config, "sample_fraction"))


def _odds(config: Config) -> float:
    return number(config, "odds") if "odds" in config else 1.0


def _class_weight(config: Config) -> dict[int, float] | None:
    return {0: 1.0, 1: _odds(config)} if "odds" in config else None


LEARNERS: dict[str, tuple[dict[str, Parameter], Callable[[Config], Any]]] = {
    "elastic-net": ({"alpha": Float(0.0, 1.0), "lambda": Float(2.0**-10, 2.0**10, log=True)}, elastic_net),
    "svm": (
        {"C": Float(2.0**-15, 2.0**15, log=True), "sigma": Float(2.0**-15, 2.0**15, log=True)},
        svm,
    ),
    "forest": (
        {
            "trees": Int(MIN_TREES, MAX_TREES, log=True),
            "min_node_size": Int(1, 50),
            "sample_fraction": Float(0.1, 1.0),
        },
        forest,
    ),
}
