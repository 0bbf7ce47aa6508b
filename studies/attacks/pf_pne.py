"""Attack PF-PNE: the server chose the cells, so it knows the points; the mean of one pull is the value."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from fbo_flower.algorithms.bandits.base import branching
from fbo_flower.numerics.bandits import partition
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import PFPNE, FedPNE, TuningStrategy
from studies.attacks.records import AttackResult, compared, overhear

NUM_AGENTS = 4
BUDGET = 100


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack four agents of PF-PNE and of Fed-PNE on the function `garland`."""
    for kind in (PFPNE, FedPNE):
        yield from _findings(kind.__name__, kind(num_agents=NUM_AGENTS, seed=seed, budget=BUDGET), seed)


def _findings(name: str, server: TuningStrategy, seed: int) -> Iterator[AttackResult]:
    """Yield the error of the reported means against each agent's values at the centres of the cells."""
    problem = make_problem("garland", NUM_AGENTS, seed, {})
    space = problem.space
    study, heard = overhear(problem, server, None, seed)
    spread = float(np.std(np.asarray(study.trials["value"], dtype=np.float64)))
    tasks = {(o.agent, o.round): o for o in heard.told("cells")}
    own: dict[tuple[str, bytes], list[tuple[int, float]]] = {}
    for row in study.trials:
        place = space.encode(row["config"]).round(12).tobytes()
        own.setdefault((row["agent"], place), []).append((row["pulls"], row["value"]))
    errors: dict[bool, list[float]] = {True: [], False: []}
    for report in heard.sent("means"):
        task = tasks.get((report.agent, report.round))
        if task is None:
            continue
        values = json.loads(str(task.config["values"]))
        depth, cells = int(values["depth"]), np.asarray(task.arrays["cells"], dtype=np.int64)
        arity = branching(str(server.algorithm.options()["arity"]), space.dimension)
        centres = space.snap(partition.centre(depth, cells, space.dimension, arity))
        for centre, mean, count in zip(centres, report.arrays["means"], report.arrays["counts"], strict=True):
            seen = own.get((report.agent, centre.round(12).tobytes()), [])
            pulled = sum(pulls for pulls, _ in seen)
            if int(count) > 0 and pulled == int(count):
                truth = sum(pulls * value for pulls, value in seen) / pulled
                errors[int(count) == 1].append(float(mean) - truth)
    for single, text in ((True, "values in cells of one pull"), (False, "means of cells of several pulls")):
        if errors[single]:
            what, how = f"{name}: {text}, at known points", "the mean of all values"
            yield compared(what, errors[single], spread, "the objective's own", how)
