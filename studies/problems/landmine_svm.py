"""Tune an RBF support vector machine to find landmines, one radar field per agent.

The first real experiment of the federated Thompson sampling paper: 29 fields on two terrains, nine radar
features, about 6 % mines. Each field is halved once, class by class; the score is the area under the ROC
curve on the second half, from `SVC.decision_function` (probabilities would add noise and can change
the order).

References
----------
[Dai2020] Dai, Low, Jaillet. Federated Bayesian optimization via Thompson sampling. NeurIPS 2020, Sec. 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from fbo_flower.clients import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems import Config, Problem, number
from fbo_flower.space import Float, SearchSpace
from studies.problems.data import LANDMINE_FILE, NUM_LANDMINE_FIELDS, Rows, data_file

SPACES = {
    "linear": SearchSpace({"C": Float(1e-4, 10.0), "gamma": Float(1e-2, 10.0)}),
    "log": SearchSpace({"C": Float(1e-4, 10.0, log=True), "gamma": Float(1e-2, 10.0, log=True)}),
}


@dataclass(frozen=True)
class LandmineSVM(Problem):
    """Validation ROC-AUC of an RBF SVM in `C` and `gamma`; deterministic, and the same for every seed.

    Attributes
    ----------
    scale : scale of both axes; the paper uses "linear"
    """

    scale: Literal["linear", "log"] = "linear"

    name: ClassVar[str] = "landmine-svm"
    metric: ClassVar[str] = "validation ROC-AUC"
    default_agents: ClassVar[int] = NUM_LANDMINE_FIELDS
    max_agents: ClassVar[int | None] = NUM_LANDMINE_FIELDS

    def check_data(self) -> None:
        data_file(LANDMINE_FILE)

    @property
    def space(self) -> SearchSpace:
        return SPACES[self.scale]

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        from sklearn.svm import SVC  # takes a second to import, so only evaluations import it

        self.check_partition(partition)
        train, test = _fields(str(data_file(LANDMINE_FILE)))[partition]
        model = SVC(C=number(config, "C"), gamma=number(config, "gamma"))
        model.fit(*train)
        return roc_auc(test.y, model.decision_function(test.x))


def roc_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: `P(score+ > score-) + P(score+ = score-) / 2` over all pairs.

    Parameters
    ----------
    labels : `(n,)`, 1 for positive, anything else negative; both must occur
    scores : `(n,)`
    """
    positive = np.asarray(labels) == 1
    count, others = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(np.asarray(scores))[positive].sum()
    above = 2.0 * ranks - count * (count + 1)  # twice the pairs of which the positive has the larger score
    return float(above / count / (2 * others))


@lru_cache(maxsize=2)
def _fields(path: str) -> list[tuple[Rows, Rows]]:
    with np.load(path, allow_pickle=False) as data:
        try:
            halves = [[data[f"{name}_{half}"] for name in ("X", "y", "field")] for half in ("train", "test")]
        except KeyError as error:
            raise ConfigError(
                f"{path}: expected arrays as `studies data landmine` writes them: {error}"
            ) from error
    fields = range(NUM_LANDMINE_FIELDS)
    if any(np.unique(field).tolist() != list(fields) for _, _, field in halves):
        raise ConfigError(f"{path}: expected fields 0..{NUM_LANDMINE_FIELDS - 1} in both halves")
    train, test = (
        [Rows(x[field == k].astype(np.float64, order="C"), y[field == k].astype(np.intp)) for k in fields]
        for x, y, field in halves
    )
    return list(zip(train, test, strict=True))
