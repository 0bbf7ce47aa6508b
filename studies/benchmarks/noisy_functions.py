"""Measure Co-KG on noisy functions, shared or differing, beside pooled qLogNEI of BoTorch.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.noisy_functions co-kg --seeds 12 --out noisy.jsonl
    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.noisy_functions qlognei --seeds 12 --out noisy.jsonl
    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.noisy_functions table --out noisy.jsonl

Hartmann-3, Ackley-2 (on [-1, 2]^2) and Branin, scaled to [0, 1], with noise of s.d. .1: .16, .29
and .35 of the function's variance. Four agents with 24 evaluations each, the first 5 of their own. With
`--shift .3` every agent's function is moved by .3 in a direction of its own.

Regret is the difference between the optimum and the returned point, without noise, as a share of the
function's range. For shared functions the returned point is the server's; for differing ones each agent's own
recommendation counts, and the regrets are averaged over agents. Finished runs in `--out` are not repeated.

`qlognei` sees all observations of all agents in one Gaussian process (BoTorch's default priors) and chooses
four points per round by qLogNoisyExpectedImprovement; it returns the maximiser of the posterior mean.
It needs `pip install fbo-flower[bench]`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import Config, Problem, number
from studies.benchmarks.bench import say
from studies.problems.functions import ackley, branin, hartmann
from studies.report import head, shown
from studies.runs import run

NUM_AGENTS, NUM_INITIAL, NUM_TRIALS, NOISE = 4, 5, 24, 0.1
WAYS: dict[str, dict[str, object]] = {
    "co-kg": {},
    "co-kg product": {"central": "product"},
    "barycenter": {"refit": "doubling"},
    "recommended": {"central": "auto", "refit": "doubling"},
    "no collaboration": {"framework": "no-collaboration", "refit": "doubling"},
}

FUNCTIONS: dict[str, tuple[Callable[[Array], Array], int, float]] = {
    "hartmann3": (hartmann, 3, 3.86278),
    "ackley2": (lambda u: ackley(3.0 * u - 1.0), 2, 0.0),
    "branin": (lambda u: -branin(u), 2, -0.397887),
}  # function, dimension, maximum


@cache
def lowest(name: str) -> float:
    """Return the smallest value on 2^14 Sobol points."""
    function, dimension, _ = FUNCTIONS[name]
    return float(function(sobol(2**14, dimension, generator(0, "noisy", name))).min())


@dataclass(frozen=True)
class Noisy(Problem):
    """A function of `FUNCTIONS`, scaled to [0, 1], with noise.

    Attributes
    ----------
    function : its name
    shift : how far each agent's function is moved, reflected at the faces of the cube; 0: all share it
    """

    function: str = "branin"
    shift: float = 0.0

    name: ClassVar[str] = "noisy"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = NUM_AGENTS

    @property
    def space(self) -> SearchSpace:
        return SearchSpace({f"x{i}": Float(0.0, 1.0) for i in range(FUNCTIONS[self.function][1])})

    def true_value(self, config: Config, partition: int) -> float:
        function, dimension, highest = FUNCTIONS[self.function]
        u = np.array([number(config, f"x{i}") for i in range(dimension)])
        if self.shift:
            direction = generator(self.seed, "noisy", partition).standard_normal(dimension)
            u = np.abs(u + self.shift * direction / np.linalg.norm(direction))
            u = 1.0 - np.abs(1.0 - u)
        low = lowest(self.function)
        return float((function(u) - low) / (highest - low))

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition) + NOISE * float(context.rng.standard_normal())


def ours(problem: Noisy, options: dict[str, object]) -> dict[str, Any]:
    """Run Co-KG; return the regret of its recommendation and the noise that it estimated."""
    study = run(problem, "co-kg", options, NUM_TRIALS - NUM_INITIAL + 1, problem.seed)
    found = study.settings["runs"][0]["found"]
    told = study.recommendations
    assert told is not None
    own = [1.0 - problem.true_value(c, int(a)) for a, c in zip(told["agent"], told["config"], strict=True)]
    returned = 1.0 - problem.true_value(found["recommended"][-1]["config"], 0)
    noise = found["noise_variance"] * found["scale"] ** 2
    return {"regret": float(np.mean(own)) if problem.shift else returned, "noise": noise}


def pooled(problem: Noisy) -> dict[str, Any]:
    """Run qLogNEI on the observations of all agents."""
    import torch
    from botorch import fit_gpytorch_mll
    from botorch.acquisition import PosteriorMean
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(problem.seed)
    space, noise = problem.space, generator(problem.seed, "noisy", "noise")
    cube = torch.stack([torch.zeros(space.dimension), torch.ones(space.dimension)])

    def values(points: Array) -> Array:
        true = [problem.true_value(space.decode(point), 0) for point in points]
        return np.array(true) + NOISE * noise.standard_normal(len(points))

    def fitted(x: Array, y: Array) -> Any:
        model = SingleTaskGP(torch.tensor(x), torch.tensor(y)[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    start = generator(problem.seed, "noisy", "start")
    x = np.concatenate([sobol(NUM_INITIAL, space.dimension, start) for _ in range(NUM_AGENTS)])
    y = values(x)
    for _ in range(NUM_TRIALS - NUM_INITIAL):
        model = fitted(x, y)
        gain = qLogNoisyExpectedImprovement(model, torch.tensor(x), prune_baseline=True)
        batch, _ = optimize_acqf(
            gain,
            cube,
            q=NUM_AGENTS,
            num_restarts=4,
            raw_samples=128,
            sequential=True,
            options={"maxiter": 50},
        )
        x = np.concatenate([x, batch.detach().numpy()])
        y = np.concatenate([y, values(x[-NUM_AGENTS:])])
    model = fitted(x, y)
    best, _ = optimize_acqf(PosteriorMean(model), cube, q=1, num_restarts=10, raw_samples=512)
    variance = float(model.likelihood.noise.detach()) * float(np.var(y, ddof=1))
    return {"regret": 1.0 - problem.true_value(space.decode(best.detach().numpy()[0]), 0), "noise": variance}


def table(rows: list[dict[str, Any]]) -> None:
    """Print mean regrets, and differences to pooled qLogNEI or no collaboration on the same seeds."""
    print(head(["function", "shift", "way", "seeds", "regret", "difference", "to", "noise variance"]))
    done = {(r["function"], r["shift"], r["way"], r["seed"]): r for r in rows}
    for function, shift, way in dict.fromkeys(key[:3] for key in done):
        rival = "no collaboration" if shift else "qlognei"
        mine = {key[3]: row for key, row in done.items() if key[:3] == (function, shift, way)}
        others = {seed: done.get((function, shift, rival, seed)) for seed in mine}
        beyond = np.array(
            [r["regret"] - o["regret"] for r, o in zip(mine.values(), others.values(), strict=True) if o]
        )
        apart = shown(beyond, 3, "+") if len(beyond) > 1 and way != rival else "-"
        regrets = shown(np.array([row["regret"] for row in mine.values()]), 3)
        noise = np.exp(np.mean([np.log(row["noise"]) for row in mine.values()]))
        say(function, shift, way, len(mine), regrets, apart, rival, f"{noise:.4f}")


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description="Measure Co-KG on noisy functions.")
    parser.add_argument("way", choices=[*WAYS, "qlognei", "table"])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--shift", type=float, default=0.0)
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    parser.add_argument("--out", type=Path, default=Path("noisy.jsonl"))
    asked = parser.parse_args()
    lines = asked.out.read_text(encoding="utf-8").splitlines() if asked.out.exists() else []
    rows = [json.loads(line) for line in lines]
    if asked.way == "table":
        return table(rows)
    done = {(r["function"], r["shift"], r["way"], r["seed"]) for r in rows}
    for seed in range(asked.seeds):
        for function in asked.functions.split(","):
            key = (function, asked.shift, asked.way, seed)
            if key not in done:
                problem = Noisy(NUM_AGENTS, seed, function=function, shift=asked.shift)
                found = pooled(problem) if asked.way == "qlognei" else ours(problem, WAYS[asked.way])
                named = dict(zip(("function", "shift", "way", "seed"), key, strict=True))
                with asked.out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({**named, **found}) + "\n")
    return None


if __name__ == "__main__":
    with single_thread():
        main()
