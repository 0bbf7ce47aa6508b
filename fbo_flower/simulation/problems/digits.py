"""Tune models on handwritten digits, distributed over the agents with label skew.

`DigitsSVM` tunes an RBF support vector machine, `DigitsTrees` extra-trees: the best model that is small and
quick enough for a device. Size and work are counted, not timed, so they are the same on every machine.

The 1797 digits come from scikit-learn. Each agent has a different mix of classes and a different number of
rows. Pixels are divided by their known maximum, so no statistic is computed across agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fbo_flower.algorithms.aims import Aims
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.partitioners import dirichlet, train_validation
from fbo_flower.simulation.problems.base import Config, Problem, number
from fbo_flower.space import Float, Int, SearchSpace

NUM_ROWS = 1797
NUM_CLASSES = 10
SVM_SPACE = SearchSpace({"C": Float(1e-3, 1e3, log=True), "gamma": Float(1e-6, 10.0, log=True)})


@dataclass(frozen=True)
class Digits(Problem):
    """The digits, distributed over the agents; subclasses say which model learns them.

    Attributes
    ----------
    concentration : concentration of the Dirichlet distribution of the classes; smaller means more skew
    min_size : smallest number of rows of an agent; above ten, so that a class has a row for validation
    train_fraction : share of each agent's rows, class by class, that train; the others validate
    """

    concentration: float = 0.5
    min_size: int = 40
    train_fraction: float = 0.6

    metric: ClassVar[str] = "validation accuracy"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("concentration", self.concentration > 0, "a positive number")
        self.expect("min_size", self.min_size > NUM_CLASSES, f"more than {NUM_CLASSES} rows")
        self.expect("train_fraction", 0 < self.train_fraction < 1, "a number between 0 and 1")
        most = NUM_ROWS // self.min_size
        self.expect(
            "num_agents", self.num_agents <= most, f"at most {most} agents with min_size={self.min_size}"
        )


@dataclass(frozen=True)
class DigitsSVM(Digits):
    """Validation accuracy of an RBF SVM in `C` and `gamma`; deterministic."""

    name: ClassVar[str] = "digits-svm"
    default_agents: ClassVar[int] = 20

    @property
    def space(self) -> SearchSpace:
        return SVM_SPACE

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        from sklearn.svm import SVC  # takes a second to import, so only evaluations import it

        self.check_partition(partition)
        agent = agent_of(self, partition)
        model = SVC(C=number(config, "C"), gamma=number(config, "gamma"))
        model.fit(agent.x_train, agent.y_train)
        return float(np.mean(model.predict(agent.x_validation) == agent.y_validation))


class SplitRows(NamedTuple):
    """Pixels and digits of an agent's rows, and which of them validate."""

    x_train: NDArray[np.float64]
    y_train: NDArray[np.intp]
    x_validation: NDArray[np.float64]
    y_validation: NDArray[np.intp]


@lru_cache(maxsize=1)
def _digits() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    return np.ascontiguousarray(pixels / 16.0), digits.astype(np.intp)


@lru_cache(maxsize=8)
def _parts(problem: Digits) -> list[NDArray[np.intp]]:
    rng = generator(problem.seed, problem.name, "parts")
    labels = _digits()[1]
    return dirichlet(
        labels, problem.num_agents, problem.concentration, rng, min_size=problem.min_size, min_classes=2
    )


@lru_cache(maxsize=4096)
def agent_of(problem: Digits, partition: int) -> SplitRows:
    """Return an agent's own rows."""
    pixels, digits = _digits()
    rows = _parts(problem)[partition]
    rng = generator(problem.seed, problem.name, "split", partition)
    train, validation = train_validation(digits[rows], problem.train_fraction, rng)
    return SplitRows(
        pixels[rows[train]], digits[rows[train]], pixels[rows[validation]], digits[rows[validation]]
    )


NODE_BYTES = 16  # of a tree: pixel, threshold, two children, each of four bytes
OUTPUTS = ("accuracy", "kilobytes", "comparisons")
TREES_SPACE = SearchSpace(
    {"trees": Int(1, 64, log=True), "depth": Int(1, 12), "pixels": Float(0.02, 1.0, log=True)}
)


@dataclass(frozen=True)
class DigitsTrees(Digits):
    """Validation accuracy, kilobytes of the nodes, and mean comparisons of a prediction; deterministic.

    Attributes
    ----------
    objectives, limits : which outputs count, such as "accuracy max" and "kilobytes <= 20, comparisons <= 50"
    """

    objectives: str = "accuracy max, kilobytes min"
    limits: str = ""

    name: ClassVar[str] = "digits-trees"
    default_agents: ClassVar[int] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := sorted(set(self.aims.names) - set(OUTPUTS)):
            raise ConfigError(
                f"{self.name}: expected outputs of {', '.join(OUTPUTS)}, got {', '.join(unknown)}"
            )

    @property
    def space(self) -> SearchSpace:
        return TREES_SPACE

    @property
    def aims(self) -> Aims:
        return Aims.of(False, self.objectives, self.limits or None)

    def __call__(self, config: Config, context: ObjectiveContext) -> Any:
        from sklearn.ensemble import ExtraTreesClassifier

        self.check_partition(context.partition)
        agent = agent_of(self, context.partition)
        model = ExtraTreesClassifier(
            int(number(config, "trees")), max_depth=int(number(config, "depth")),
            max_features=number(config, "pixels"), random_state=self.seed,
        ).fit(agent.x_train, agent.y_train)  # fmt: skip
        paths, _ = model.decision_path(agent.x_validation)
        rows = len(agent.x_validation)
        found = {
            "accuracy": float(np.mean(model.predict(agent.x_validation) == agent.y_validation)),
            "kilobytes": sum(tree.tree_.node_count for tree in model.estimators_) * NODE_BYTES / 1024,
            "comparisons": paths.nnz / rows - len(model.estimators_),  # a leaf compares nothing
        }
        return {name: found[name] for name in self.aims.names}

    def true_value(self, config: Config, partition: int) -> None:
        """Return None, because a dict of outputs has no regret."""
