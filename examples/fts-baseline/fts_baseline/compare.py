"""Print the table of README.md: `python -m fts_baseline.compare [--seeds 10] [--agents 20] [--rounds 13]`.

Every algorithm begins at the same random points. A cell is the mean over nodes and seeds of the best accuracy
so far, and its difference to `ts` with the standard error over seeds.
"""

import argparse
import logging

import numpy as np

from fbo_flower import simulate
from fbo_flower.algorithms import make_algorithm
from fts_baseline.dataset import load
from fts_baseline.model import SPACE, accuracy

ALGORITHMS = {
    "random": ("random", {}),
    "ts": ("ts", {}),
    "fts": ("fts", {}),
    "fts-portfolio": ("fts", {"advice": "portfolio"}),
}
AFTER = (3, 5, 10, 15)


def best_so_far(study) -> np.ndarray:
    """Return the mean over agents of the best value after each evaluation."""
    values = {}
    for agent, value in zip(study.trials["agent"].tolist(), study.trials["value"].tolist(), strict=True):
        values.setdefault(agent, []).append(value)
    return np.mean([np.maximum.accumulate(curve) for curve in values.values()], axis=0)


def row(name: str, found: np.ndarray, alone: np.ndarray, after: list[int]) -> str:
    """Return an algorithm's row; `found` and the curves of `ts` are `(seeds, evaluations)`."""
    cells = [name]
    for t in after:
        mine, difference = found[:, t - 1], (found - alone)[:, t - 1]
        error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
        against = "" if name == "ts" else f" ({difference.mean():+.4f} ± {error:.4f})"
        cells.append(f"{mine.mean():.4f}{against}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=13, help="the first has three evaluations")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel("WARNING")
    data = [load(agent, given.agents) for agent in range(given.agents)]
    curves = {name: [] for name in ALGORITHMS}
    for seed in range(given.seeds):
        for name, (algorithm, options) in ALGORITHMS.items():
            study = simulate(
                lambda config, agent: accuracy(config, data[agent]),
                space=SPACE,
                agents=given.agents,
                algorithm=make_algorithm(algorithm, options),
                num_rounds=given.rounds,
                seed=seed,
                engine="inline",
            )
            curves[name].append(best_so_far(study))
        print(f"seed {seed + 1} of {given.seeds} done", flush=True)
    after = [t for t in AFTER if t <= given.rounds + 2]
    print("| algorithm | " + " | ".join(f"after {t}" for t in after) + " |")
    print("|---|" + "---|" * len(after))
    for name, found in curves.items():
        print(row(name, np.array(found), np.array(curves["ts"]), after))


if __name__ == "__main__":
    main()
