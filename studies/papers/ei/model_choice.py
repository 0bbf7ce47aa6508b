"""Choose a model and its hyperparameters on the parts of a data set that scikit-learn bundles.

Each agent holds a part of the breast cancer data, cut along a feature, so that the parts differ in size and
in kind. A configuration names a model and the hyperparameters of that model only. The score is the mean log
likelihood in three-fold cross-validation, which does not saturate as accuracy does.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.space import Categorical, Float, Int, SearchSpace

SPACE = SearchSpace(
    {
        "model": Categorical(["logistic", "neighbours", "svm", "tree"]),
        "C": Float(1e-4, 1e3, log=True, active_when={"model": ["logistic", "svm"]}),
        "gamma": Float(1e-5, 1.0, log=True, active_when={"model": "svm"}),
        "k": Int(1, 20, log=True, active_when={"model": "neighbours"}),
        "p": Float(1.0, 4.0, active_when={"model": "neighbours"}),
        "depth": Int(1, 12, active_when={"model": "tree"}),
        "least": Int(1, 30, log=True, active_when={"model": "tree"}),
    }
)


@dataclass(frozen=True)
class ModelChoice(Problem):
    """One part of the breast cancer data per agent."""

    name: ClassVar[str] = "model-choice"
    metric: ClassVar[str] = "mean log likelihood"
    default_agents: ClassVar[int] = 8

    @property
    def space(self) -> SearchSpace:
        return SPACE

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        from sklearn.model_selection import cross_val_predict

        self.check_partition(partition)
        x, y = _part(self.num_agents, self.seed, partition)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model that has not converged is judged as it is
            found = cross_val_predict(_model(config), x, y, cv=3, method="predict_proba")
        chosen = np.clip(found[np.arange(len(y)), y], 1e-3, 1.0)
        return float(np.log(chosen).mean())


@functools.lru_cache(maxsize=256)
def _part(num_agents: int, seed: int, partition: int) -> tuple[Array, Array]:
    """Return the rows of an agent: sorted by a noisy feature, so that parts differ; at least 36."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    rng = generator(seed, "parts")
    feature = int(rng.integers(x.shape[1]))
    order = np.argsort(x[:, feature] / x[:, feature].std() + 1.5 * rng.standard_normal(len(x)))
    if num_agents * 36 > len(x):  # many agents share rows
        rows = generator(seed, "part", str(partition)).choice(order, 60, replace=False)
    else:
        cuts = np.sort(rng.choice(len(x) - 36 * num_agents + 1, num_agents - 1)) + 36 * np.arange(
            1, num_agents
        )
        rows = np.split(order, cuts)[partition]
    return x[rows], y[rows]


def _model(config: Config) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    c: dict[str, Any] = dict(config)
    models = {
        "logistic": lambda: LogisticRegression(C=c["C"], max_iter=200),
        "svm": lambda: SVC(C=c["C"], gamma=c["gamma"], probability=True, random_state=0),
        "neighbours": lambda: KNeighborsClassifier(c["k"], p=c["p"]),
        "tree": lambda: DecisionTreeClassifier(
            max_depth=c["depth"], min_samples_leaf=c["least"], random_state=0
        ),
    }
    return make_pipeline(StandardScaler(), models[c["model"]]())
