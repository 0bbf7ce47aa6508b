"""What the options of FTS beyond its paper change: the table in `docs/papers/fts.md`.

Run one part, or all of them (about ten minutes on one core)::

    python -m studies.benchmarks.fts_options late-joiner lengthscale diverged integers
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.simulation import Fault, InProcessGrid, problem_app
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import FTS
from fbo_flower.study import Study
from studies.runs import run

CENTRES = (0.3, 0.4, 0.5)  # of the three agents' functions


def best_so_far(study: Study, agent: str) -> Array:
    """Return an agent's best value after each of its evaluations, `(n,)`."""
    return np.fmax.accumulate(study.trials.where(agent=agent)["value"])


def joined_late(problem: str, num_agents: int, seed: int, **options: Any) -> Array:
    """Return the best values of an agent that joins after 8 rounds of the others."""
    joiner, made = seed % num_agents, make_problem(problem, num_agents, seed, {})
    strategy = FTS(num_agents=num_agents - 1, seed=seed, **options)
    late = {joiner: Fault("down", rounds=range(9))}
    grid = InProcessGrid(problem_app(made, strategy.algorithm, seed), num_agents, faults=late)
    return best_so_far(strategy.start(grid, num_rounds=17).study, str(joiner))


def late_joiner() -> None:
    """Print the joiner's mean best value after 1, 3 and 8 evaluations, over 4 seeds."""
    for problem, num_agents in (("digits-svm", 8), ("gp-samples", 8), ("landmine-svm", 29)):
        for advice in ("single", "portfolio"):
            for design in ("random", "advised"):
                options = {"advice": advice, "initial_design": design}
                runs = [joined_late(problem, num_agents, seed, **options)[:8] for seed in range(4)]
                print(problem, advice, design, np.mean(runs, axis=0)[[0, 2, 7]].round(4), flush=True)


def lengthscale() -> None:
    """Print the rank correlation of a message with its agent's function, over 10 seeds."""
    for dimension in (2, 5, 10, 20):
        for name, scale in (("0.5", 0.5), ("dimension", 0.35 * dimension**0.5)):
            found = [_correlation(dimension, scale, seed) for seed in range(10)]
            print(f"{dimension} features, lengthscale {name}: {np.mean(found):.3f}", flush=True)


def _correlation(dimension: int, scale: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    centre, x, test = rng.random(dimension), rng.random((30, dimension)), rng.random((1000, dimension))
    y = standardise(-((x - centre) ** 2).sum(axis=1))
    features = rff.draw_features(100, scale, dimension, rng)
    message = rff.sample_weights([features], x[None], y[None], 1e-2, [rng])[0]
    return float(spearmanr(features(test) @ message, -((test - centre) ** 2).sum(axis=1)).statistic)


def regret(objective: Any, space: SearchSpace, algorithm: str, num_rounds: int, **options: Any) -> float:
    """Return the mean regret at the end over 6 seeds and 3 agents; the largest value is 0."""
    finals = []
    for seed in range(6):
        study = run(objective, algorithm, options, num_rounds, seed, space=space, agents=CENTRES)
        finals += [best_so_far(study, agent)[-1] for agent in ("0", "1", "2")]
    return -float(np.mean(finals))


def diverged() -> None:
    """Print the regret of every transform, on a function of which a corner diverges and on one without."""
    space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})

    def smooth(config: dict[str, float], centre: float) -> float:
        return -((config["x"] - centre) ** 2) - (config["y"] - 0.6) ** 2

    def diverging(config: dict[str, float], centre: float) -> float:
        return -1e9 if config["x"] + config["y"] > 1.5 else smooth(config, centre)

    for algorithm in ("ts", "fts"):
        for name in ("standardise", "winsorise", "rank", "clip"):
            found = [regret(f, space, algorithm, 20, y_transform=name) for f in (smooth, diverging)]
            print(f"{algorithm}, {name}: smooth {found[0]:.6f}, diverging {found[1]:.6f}", flush=True)


def integers() -> None:
    """Print the regret with and without moves of integers."""
    space = SearchSpace({**{f"n{i}": Int(1, 64) for i in range(3)}, "x": Float(0, 1)})

    def bowl(config: dict[str, float], centre: float) -> float:
        steps = sum((config[f"n{i}"] / 64 - centre - 0.1 * i) ** 2 for i in range(3))
        return -steps - (config["x"] - centre) ** 2

    for moves in (False, True):
        print(f"integer_moves={moves}: {regret(bowl, space, 'ts', 22, integer_moves=moves):.6f}", flush=True)


PARTS = {"late-joiner": late_joiner, "lengthscale": lengthscale, "diverged": diverged, "integers": integers}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
