"""Measure the time that the server of RFMS needs for one proposal, by method and learner.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.rfms_proposal

A state has sixty trials at random configurations with losses like those of small sites: smooth, rounded to
whole rows, and .5 for half of the trials, where the classifier is constant. CPU time of `Method.propose` over
20 such states.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fbo_flower.algorithms.rfms.state import Method, ModelTrial, RFMSState, SiteReply
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import make_learner
from fbo_flower.space import SearchSpace
from studies.benchmarks.bench import cpu_ms, say
from studies.report import head

NUM_TRIALS, NUM_STATES, NUM_CURATORS = 60, 20, 3
METHODS = (Method("lso", 0.5), Method("fso", 0.5), Method("fmo", 0.5), Method("ehvi", 0.5))
LEARNERS = (("elastic-net", False), ("svm", False), ("svm", True), ("forest", False))


def state(space: SearchSpace, rng: np.random.Generator, num_trials: int = NUM_TRIALS) -> RFMSState:
    """Return a state with all its trials done."""
    points = space.snap(rng.random((num_trials, space.dimension)))
    losses = [_losses(points, num_rows, rng) for num_rows in (100, 60, 90, 120)]
    trials = tuple(ModelTrial(i, x, SiteReply(float(losses[0][i]), 100)) for i, x in enumerate(points))
    answers = {
        i: {str(k): SiteReply(float(losses[k][i]), 60 + 30 * (k - 1)) for k in range(1, NUM_CURATORS + 1)}
        for i in range(num_trials)
    }
    curators = tuple(str(k) for k in range(1, NUM_CURATORS + 1))
    return RFMSState(space, "0", curators, (), points[:20], trials, answers)


def _losses(points: Array, num_rows: int, rng: np.random.Generator) -> Array:
    optimum = rng.uniform(0.3, 0.7, points.shape[1])
    smooth = 0.2 + np.square(points - optimum).sum(axis=1)
    return np.round(np.where(points[:, 0] < np.median(points[:, 0]), 0.5, smooth) * num_rows) / num_rows


def main() -> None:
    """Print median and longest CPU time in milliseconds."""
    print(head(["learner", "dimensions", *(m.name for m in METHODS)]))
    for name, class_weight in LEARNERS:
        space = make_learner(name, class_weight).space
        cells = []
        for method in METHODS:
            times = []
            for repeat in range(NUM_STATES):
                seen, rng = state(space, generator(repeat, "state")), generator(repeat, "propose")
                times.append(cpu_ms(partial(method.propose, seen, rng), 1)[0])
            cells.append(f"{np.median(times[1:]):.1f} (max {max(times[1:]):.1f})")
        title = name + (", class weight" if class_weight else "")
        say(title, space.dimension, *cells)


if __name__ == "__main__":
    with single_thread():
        main()
