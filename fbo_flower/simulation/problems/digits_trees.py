"""Tune extra-trees on the digits of `digits_svm`: the best model that is small and quick enough for a device.

Size and work are counted, not timed, so they are the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fbo_flower.algorithms.aims import Aims
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems.base import Config, number
from fbo_flower.simulation.problems.digits_svm import Digits, agent_of
from fbo_flower.space.space import Float, Int, SearchSpace

NODE_BYTES = 16  # of a tree: pixel, threshold, two children, each of four bytes
OUTPUTS = ("accuracy", "kilobytes", "comparisons")
SPACE = SearchSpace(
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
        return SPACE

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
