"""What the options of FTS beyond its paper change: the table in `docs/papers/fts.md`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.simulation import Fault, InProcessGrid, problem_app
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import FTS
from studies.experiment import Arrays, Experiment, Part, evaluations, run

CENTRES = (0.3, 0.4, 0.5)  # of the three agents' functions
JOINED = {"digits-svm": 8, "gp-samples": 8, "landmine-svm": 29}  # problem -> number of agents
SCALES = {"0.5": lambda dimension: 0.5, "dimension": lambda dimension: 0.35 * dimension**0.5}
TRANSFORMS = ("standardise", "winsorise", "rank", "clip")
SQUARE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
INTEGERS = SearchSpace({**{f"n{i}": Int(1, 64) for i in range(3)}, "x": Float(0, 1)})


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the four parts; quick: one seed, no landmine."""

    def seeds(most: int) -> range:
        return range(1 if quick else most)

    problems = [name for name in JOINED if not quick or name == "gp-samples"]
    joined = [f"{advice}, {design}" for advice in ("single", "portfolio") for design in ("random", "advised")]
    messages = [f"{dimension} features" for dimension in (2, 5, 10, 20)]
    transforms = [f"{algorithm}, {name}" for algorithm in ("ts", "fts") for name in TRANSFORMS]
    return [
        Part("late joiner", joined_late, problems, joined, seeds(4), at=(1, 3, 8)),
        Part("lengthscale", correlation, messages, list(SCALES), seeds(10)),
        Part("diverged", diverged, ["smooth", "diverging"], transforms, seeds(6)),
        Part("integers", integers, ["bowl"], ["integer_moves=False", "integer_moves=True"], seeds(6)),
    ]


EXPERIMENT = Experiment("What the options of FTS beyond its paper change", parts)


def joined_late(problem: str, row: str, seed: int) -> Arrays:
    """Return the best values `(1, 8)` of an agent that joins after 8 rounds of the others."""
    count, (advice, design) = JOINED[problem], row.split(", ")
    joiner, made = seed % count, make_problem(problem, count, seed, {})
    strategy = FTS(num_agents=count - 1, seed=seed, advice=advice, initial_design=design)
    late = {joiner: Fault("down", rounds=range(9))}
    grid = InProcessGrid(problem_app(made, strategy.algorithm, seed), count, faults=late)
    values = strategy.start(grid, num_rounds=17).study.trials.where(agent=str(joiner))["value"]
    return {"best": np.fmax.accumulate(values)[None, :8]}


def correlation(label: str, row: str, seed: int) -> Arrays:
    """Return the rank correlation of a message with its agent's function."""
    dimension = int(label.split(maxsplit=1)[0])
    rng = np.random.default_rng(seed)
    centre, x, test = rng.random(dimension), rng.random((30, dimension)), rng.random((1000, dimension))
    y = standardise(-((x - centre) ** 2).sum(axis=1))
    features = rff.draw_features(100, SCALES[row](dimension), dimension, rng)
    message = rff.sample_weights([features], x[None], y[None], 1e-2, [rng])[0]
    true = -((test - centre) ** 2).sum(axis=1)
    return {"rank correlation": np.array(spearmanr(features(test) @ message, true).statistic)}


def regret(
    objective: Any, space: SearchSpace, algorithm: str, rounds: int, seed: int, **options: Any
) -> Arrays:
    """Return the regret of each agent at the end; the largest value is 0."""
    study = run(objective, algorithm, options, rounds, seed, space=space, agents=CENTRES)
    return {"regret": -np.array([np.fmax.reduce(evaluations(study, agent)[1]) for agent in range(3)])}


def diverged(label: str, row: str, seed: int) -> Arrays:
    """Return the regret with a transform, on a function of which a corner diverges or on one without."""

    def objective(config: dict[str, float], centre: float) -> float:
        if label == "diverging" and config["x"] + config["y"] > 1.5:
            return -1e9
        return -((config["x"] - centre) ** 2) - (config["y"] - 0.6) ** 2

    algorithm, transform = row.split(", ")
    return regret(objective, SQUARE, algorithm, 20, seed, y_transform=transform)


def integers(label: str, row: str, seed: int) -> Arrays:
    """Return the regret with or without moves of integers."""

    def bowl(config: dict[str, float], centre: float) -> float:
        steps = sum((config[f"n{i}"] / 64 - centre - 0.1 * i) ** 2 for i in range(3))
        return -steps - (config["x"] - centre) ** 2

    return regret(bowl, INTEGERS, "ts", 22, seed, integer_moves=row.endswith("True"))
