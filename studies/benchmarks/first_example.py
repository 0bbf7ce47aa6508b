"""What the README's first study gains, over seeds, and its picture.

    python -m studies.benchmarks.first_example --seeds 12

Runs the first Python block of the README up to its loop, so it measures what is printed there. Then each
algorithm of `ROWS` tunes the same sites with each seed. Shown is the loss of each site's best configuration
so far, as a mean over the sites, and its difference from tuning alone; standard errors are over seeds. Writes
`docs/results/first-study.png` and `studies/results/first-study.csv`.
"""

from __future__ import annotations

import argparse
import csv
import io
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import simulate
from fbo_flower.storage import atomic_file

ROOT = Path(__file__).parents[2]
ROWS = {
    "fed-ei": "together (fed-ei)",
    "share-best": "copying another site's best",
    "ei": "each site alone (ei)",
    "random": "random search",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#999999")
BUDGET, SHOWN = 15, (3, 4, 5, 10, 15)  # evaluations


def first_block() -> dict[str, Any]:
    """Return the names that the README's first Python block defines before its loop."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)^for algorithm", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def best_losses(names: dict[str, Any], algorithm: str, seed: int) -> Array:
    """Return the mean over the sites of the best loss so far, after 1 to `BUDGET` evaluations."""
    study = simulate(
        names["loss"], names["space"], names["sites"],
        algorithm=algorithm, num_rounds=BUDGET, minimize=True, seed=seed, engine="inline",
    )  # fmt: skip
    return np.mean(
        [np.fmin.accumulate(study.trials.where(agent=site)["value"])[:BUDGET] for site in names["sites"]], 0
    )


def figure(found: dict[str, Array]) -> Any:
    """Return a figure of mean losses with bands of one standard error."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7.0, 3.6), layout="constrained")
    ax = drawing.add_subplot()
    evaluations = np.arange(2, BUDGET + 1)
    for colour, (algorithm, text) in zip(COLOURS, ROWS.items(), strict=True):
        mean, error = (row[1:] for row in mean_and_error(found[algorithm]))
        ax.fill_between(evaluations, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        ax.plot(evaluations, mean, color=colour, label=text)
    ax.set_xlabel("evaluations of each site")
    ax.set_ylabel("log loss of the best model so far")
    ax.set_xticks([2, *range(3, BUDGET + 1, 2)])
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return drawing


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Return mean and standard error over seeds, the first axis."""
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=12)
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    names = first_block()
    runs: dict[str, list[Array]] = {algorithm: [] for algorithm in ROWS}
    for seed in range(given.seeds):
        for algorithm, values in runs.items():
            values.append(best_losses(names, algorithm, seed))
        print(
            f"seed {seed}",
            {a: values[-1][[4, 9]].round(4).tolist() for a, values in runs.items()},
            flush=True,
        )
    found = {algorithm: np.array(values) for algorithm, values in runs.items()}
    with atomic_file(ROOT / "studies/results/first-study.csv", text=True) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["algorithm", "evaluations", "seeds", "mean", "error", "minus ei", "error of that"])
        for algorithm, values in found.items():
            for n in SHOWN:
                both = *mean_and_error(values), *mean_and_error(values - found["ei"])
                table.writerow([algorithm, n, given.seeds, *(f"{column[n - 1]:.4f}" for column in both)])
    picture = io.BytesIO()
    figure(found).savefig(picture, format="png", dpi=150)
    with atomic_file(ROOT / "docs/results/first-study.png") as file:
        file.write(picture.getvalue())


if __name__ == "__main__":
    main()
