"""What early stopping saves and costs: no pruning, the agent's own median, and pooled medians.

Agents tune four hyperparameters of a small network on their own digits, trained by epochs with scikit-learn's
`partial_fit`. Images are dealt by a Dirichlet distribution over classes. An objective reports its accuracy on
held-out images after every epoch. The final value of an agent is the last accuracy of its recommended
configuration, trained to the end with another seed and judged on images that tuning did not see.

`python benchmarks/pruning.py` writes the tables of docs/results/pruning.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.clients import Pruning
from fbo_flower.simulation import simulate
from fbo_flower.study import Study

NUM_AGENTS, NUM_LATE, NUM_EPOCHS, NUM_TRIALS = 5, 2, 15, 12
SPACE = SearchSpace(
    {
        "rate": Float(1e-4, 1.0, log=True),
        "decay": Float(1e-6, 1.0, log=True),
        "width": Int(4, 64, log=True),
        "batch": Int(4, 64, log=True),
    }
)
RULES = {
    "no pruning": Pruning("off"),
    "own median": Pruning(),
    "own median, warm-up": Pruning(warmup_steps=5),
    "pooled medians": Pruning("federated"),
    "pooled medians, warm-up": Pruning("federated", warmup_steps=5),
}


@cache
def images(seed: int) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]:
    """Return x, y and the part (0 train, 1 validate, 2 test) of each agent's images."""
    rng = np.random.default_rng([seed, 23])
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    owners = np.empty(len(y), dtype=int)
    for label in range(10):
        rows = np.flatnonzero(y == label)
        owners[rows] = rng.choice(NUM_AGENTS, len(rows), p=rng.dirichlet(np.ones(NUM_AGENTS)))
    held = []
    for agent in range(NUM_AGENTS):
        rows = rng.permutation(np.flatnonzero(owners == agent))
        held.append((x[rows], y[rows], np.arange(len(rows)) % 3))
    return tuple(held)


def epochs(config: dict[str, Any], data: tuple[int, int], part: int, start: int) -> Any:
    """Train and yield the accuracy on one part of the agent's images after each epoch."""
    x, y, parts = images(data[0])[data[1]]
    train, judged = parts == 0, parts == part
    model = MLPClassifier(
        (config["width"],), solver="sgd", learning_rate_init=config["rate"], alpha=config["decay"],
        batch_size=min(config["batch"], int(train.sum())), random_state=start,
    )  # fmt: skip
    for _ in range(NUM_EPOCHS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", RuntimeWarning)  # large learning rates diverge
            model.partial_fit(x[train], y[train], classes=np.arange(10))
            try:
                yield float(model.score(x[judged], y[judged]))
            except ValueError:  # the weights are not finite
                yield 0.0


@dataclass
class Counted:
    """An objective that counts its epochs."""

    num_epochs: int = 0

    def __call__(self, config: dict[str, Any], data: tuple[int, int], context: Any) -> float:
        value = 0.0
        for epoch, value in enumerate(epochs(config, data, 1, int(context.rng.integers(2**31)))):
            self.num_epochs += 1
            context.report(epoch, value)
            if context.should_stop():
                break
        return value


def final_values(study: Study, seed: int) -> list[float]:
    """Return each agent's accuracy on unseen images with its recommended configuration."""
    found = []
    for agent, best in study.best.items():
        *_, value = epochs(best["config"], (seed, int(agent)), 2, 10**6 + seed)
        found.append(value)
    return found


def run(rule: str, seed: int, late: bool) -> dict[str, float]:
    """Return the numbers of one study.

    Parameters
    ----------
    late : whether two agents take part in half of the rounds only, so that others are ahead of them
    """
    objective, shares = Counted(), [1.0] * (NUM_AGENTS - NUM_LATE) + [0.5] * NUM_LATE
    before = time.process_time()
    study = simulate(
        objective=objective, space=SPACE, agents=[(seed, agent) for agent in range(NUM_AGENTS)], seed=seed,
        num_rounds=NUM_TRIALS, engine="inline", pruning=RULES[rule], participation=shares if late else None,
        options={"num_initial": 1, "num_candidates": 128},
    )  # fmt: skip
    stopped = np.isfinite(study.trials["stopped_at"]) if "stopped_at" in study.trials.columns else np.array(0)
    finals = final_values(study, seed)
    return {
        "trials": len(study.trials),
        "stopped": int(stopped.sum()),
        "epochs": objective.num_epochs,
        "final": float(np.mean(finals)),
        "validated": float(np.mean([best["value"] for best in study.best.values()])),
        "kB sent": float(study.rounds["bytes_up"].sum()) / 1e3,
        "seconds": time.process_time() - before,
    }


def table(num_seeds: int, late: bool) -> None:
    """Print the means over seeds, with differences from no pruning and their standard errors."""
    rows: dict[str, list[dict[str, float]]] = {rule: [] for rule in RULES}
    for seed in range(num_seeds):
        for rule in RULES:
            rows[rule].append(run(rule, seed, late))
            print(f"# late={late} seed {seed} {rule}: {rows[rule][-1]}", flush=True)
    print("| rule | trials | stopped | epochs | epochs saved | final accuracy | difference | CPU s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    base = rows["no pruning"]
    for rule, found in rows.items():
        mean = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
        saved = 1 - mean["epochs"] / float(np.mean([row["epochs"] for row in base]))
        gaps = [row["final"] - other["final"] for row, other in zip(found, base, strict=True)]
        error = np.std(gaps, ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
        print(
            f"| {rule} | {mean['trials']:.0f} | {mean['stopped']:.0f} | {mean['epochs']:.0f} | {saved:.0%} | "
            f"{mean['final']:.4f} | {np.mean(gaps):+.4f} ± {error:.4f} | {mean['seconds']:.0f} |"
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", choices=["together", "late"], default=None)
    given = parser.parse_args()
    for name, late in (("together", False), ("late", True)):
        if given.only in {None, name}:
            table(given.seeds, late)


if __name__ == "__main__":
    main()
