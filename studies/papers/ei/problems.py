"""The problems of the comparison: related functions with known shapes, and two real ones.

The agents of a `ShiftedFunction` have one function each, on the unit cube: a common function, moved by a
random shift, scaled and offset. So neither the place of the optimum nor the units are the same. `score` is
the common function's value without scale and offset, which can be averaged over agents.

Sources: [Surjanovic] Surjanovic and Bingham, Virtual library of simulation experiments; [Picheny2013] for the
standardised Branin function.

The agents of a `ModelChoice` hold a part of the breast cancer data each, cut along a feature, so that the
parts differ in size and in kind. A configuration names a model and the hyperparameters of that model only.
The score is the mean log likelihood in three-fold cross-validation, which does not saturate as accuracy does.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.simulation.problems import Config, Problem, make_problem
from fbo_flower.space import Categorical, Float, Int, Parameter, SearchSpace
from studies.problems import functions

Name = Literal[
    "hartmann-6", "hartmann-3", "branin", "ackley-5", "levy-4", "rastrigin-10", "styblinski-5",
    "rosenbrock-4", "draws", "mixed",
]  # fmt: skip


def valley(v: Array) -> float:
    """Return minus a bowl of `v (D,)` with ripples; the maximum is 0, at 0."""
    return float(-(v * v + 0.1 * (1 - np.cos(4 * np.pi * v))).mean() * 10)


def styblinski(v: Array) -> float:
    """Return minus the mean of Styblinski and Tang's function of `v (D,)` in [-5, 5] [Surjanovic]."""
    return float(-0.5 * (v**4 - 16 * v**2 + 5 * v).mean() / 10)


def rosenbrock(v: Array) -> float:
    """Return minus Rosenbrock's function of `v (D,)` over 1000 [Surjanovic]; the maximum is 0, at 1."""
    return float(-(100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2).sum() / 1000)


# dimension, the function of `u (D,)` in the cube; None: each agent has its own
FUNCTIONS: dict[str, tuple[int, Callable[[Array], float] | None]] = {
    "hartmann-6": (6, lambda u: float(functions.hartmann(u))),
    "hartmann-3": (3, lambda u: float(functions.hartmann(u))),
    "branin": (2, lambda u: float((54.81 - functions.branin(u)) / 51.95)),  # standardised [Picheny2013]
    "ackley-5": (5, lambda u: float(functions.ackley(30 * (u - np.array([0.9, 0.1, 0.9, 0.1, 0.9]))))),
    "levy-4": (4, lambda u: float(functions.levy(20 * (u - np.array([0.9, 0.1, 0.9, 0.1]))))),
    "rastrigin-10": (10, lambda u: valley(2 * (u - np.linspace(0.2, 0.8, 10)))),
    "styblinski-5": (5, lambda u: styblinski(10 * u - 5)),
    "rosenbrock-4": (4, lambda u: rosenbrock(15 * u - 5)),
    "draws": (4, None),
    "mixed": (6, None),
}
MIXED: dict[str, Parameter] = {
    "depth": Int(1, 16),
    "rate": Float(0.0, 1.0),
    "rows": Float(0.0, 1.0),
    "booster": Categorical(["trees", "dart", "linear"]),
    "drop": Float(0.0, 1.0, active_when={"booster": "dart"}),
    "weight": Int(1, 100),
}


@dataclass(frozen=True)
class ShiftedFunction(Problem):
    """One function per agent: a common one, shifted, scaled and offset.

    Attributes
    ----------
    function : name of the common function. "draws": each agent has a draw of a Gaussian process
        "mixed": a function of integers, categories and a conditional parameter
    shift : largest shift along each axis of the unit cube
    common : of "draws", the share of variance that all agents have in common
    mirrored : whether every second agent's function is mirrored at the centre of the cube
    noise : standard deviation of the observations, relative to the scale
    """

    function: Name = "hartmann-6"
    shift: float = 0.1
    mirrored: bool = False
    noise: float = 0.0
    common: float = 0.0

    name: ClassVar[str] = "shifted-function"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = 10

    @property
    def space(self) -> SearchSpace:
        if self.function == "mixed":
            return SearchSpace(MIXED)
        return SearchSpace({f"x{i}": Float(0.0, 1.0) for i in range(FUNCTIONS[self.function][0])})

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        scale, offset = _units(self.seed, context.partition)
        value = self.score(config, context.partition) + self.noise * context.rng.standard_normal()
        return scale * value + offset

    def true_value(self, config: Config, partition: int) -> float:
        scale, offset = _units(self.seed, partition)
        return scale * self.score(config, partition) + offset

    def score(self, config: Config, partition: int) -> float:
        """Return the agent's value before scale and offset."""
        self.check_partition(partition)
        moved = self.shift * (2 * generator(self.seed, "shift", str(partition)).random(6 + 6) - 1)
        if self.function == "mixed":
            return _boosting(config, moved)
        u = np.array([float(str(config[name])) for name in self.space.names])
        if self.mirrored and partition % 2:
            u = 1 - u
        _, function = FUNCTIONS[self.function]
        if function is None:
            own = _draw(self.seed, f"{partition}", len(u))(u)
            shared = _draw(self.seed, "group 0", len(u))(u - moved[: len(u)])
            return float(np.sqrt(self.common) * shared + np.sqrt(1 - self.common) * own)
        return function(u - moved[: len(u)])


def _units(seed: int, partition: int) -> tuple[float, float]:
    rng = generator(seed, "units", str(partition))
    return float(np.exp(rng.uniform(-1, 1))), float(rng.uniform(-5, 5))


@functools.lru_cache(maxsize=256)
def _draw(seed: int, name: str, dimension: int) -> Callable[[Array], float]:
    """Return a draw of a Gaussian process with lengthscale .4."""
    rng = generator(seed, "draw", name)
    features = draw_features(500, 0.4, dimension, rng)
    weights = np.sqrt(2 / 500) * rng.standard_normal(500)
    return lambda u: float(features.cosines(u[None, :])[0] @ weights)


def _boosting(config: Config, moved: Array) -> float:
    """Return a function in the manner of boosting: a booster, its own parameters, and interactions."""
    depth, weight = (float(str(config["depth"])) - 1) / 15, (float(str(config["weight"])) - 1) / 99
    rate, rows = float(str(config["rate"])), float(str(config["rows"]))
    booster = config["booster"]
    value = -4 * (rate - 0.35 - moved[0] + 0.5 * (depth - 0.4)) ** 2 - (rows - 0.8 - moved[1]) ** 2
    value -= (weight - 0.15 - moved[2]) ** 2 * (1 + depth)
    if booster == "linear":
        return float(value - 0.6 - moved[3])
    value -= 2 * (depth - 0.4 - moved[4]) ** 2
    if booster == "dart":
        value += 0.15 - 3 * (float(str(config["drop"])) - 0.1 - 0.5 * moved[5]) ** 2
    return float(value)


# -- a choice of models ------------------------------------------------------------------------

MODELS = SearchSpace(
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
        return MODELS

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


# -- all of them -------------------------------------------------------------------------------


def shifted(function: Name, **more: Any) -> Callable[[int, int], Problem]:
    """Return a problem of shifted functions, made from the number of agents and a seed."""
    return lambda agents, seed: replace(ShiftedFunction(agents, seed, function), **more)


Made = Callable[[int, int], Problem]
SEVERAL = 8  # agents, where nothing else is said
# label -> the problem of a number of agents and a seed
PROBLEMS: dict[str, Made] = {
    "Hartmann-6": shifted("hartmann-6"),
    "Hartmann-3": shifted("hartmann-3"),
    "Branin": shifted("branin"),
    "Ackley-5": shifted("ackley-5"),
    "Levy-4": shifted("levy-4"),
    "Styblinski-5": shifted("styblinski-5"),
    "Rosenbrock-4": shifted("rosenbrock-4"),
    "10-D": shifted("rastrigin-10"),
    "mixed and conditional": shifted("mixed"),
    "Hartmann-6, half mirrored": shifted("hartmann-6", mirrored=True),
    "draws, .64 in common": shifted("draws", common=0.64),
    "draws, unrelated": shifted("draws"),
    "Styblinski-5, noise": shifted("styblinski-5", noise=0.7),
    "draws, .64, noise": shifted("draws", common=0.64, noise=0.6),
    "digits": lambda agents, seed: make_problem("digits-svm", agents, seed),
    "choice of a model": ModelChoice,
    "landmine linear": lambda agents, seed: make_problem("landmine-svm", agents, seed),
    "landmine log": lambda agents, seed: make_problem("landmine-svm", agents, seed, {"scale": "log"}),
}
