"""What the README's first study gains, over seeds, and its picture.

    python -m studies.benchmarks.first_example --seeds 12

Runs the first Python block of the README up to its loop, so it measures what is printed there. Then each
algorithm of `ROWS` tunes the same sites with each seed. Shown is the loss of each site's best configuration
so far, as a mean over the sites, and its difference from tuning alone; standard errors are over seeds. Writes
`docs/results/first-study.png` and `studies/results/first-study.csv`.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import simulate
from fbo_flower.storage import atomic_file
from studies.benchmarks.bench import ROOT, options
from studies.report import band, mean_and_error, panels, write_csv

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
    drawing, (ax,) = panels(1, 1, 7.0, 3.6)
    evaluations = np.arange(2, BUDGET + 1)
    for colour, (algorithm, text) in zip(COLOURS, ROWS.items(), strict=True):
        band(ax, evaluations, found[algorithm][:, 1:], text, colour)
    ax.set_xlabel("evaluations of each site")
    ax.set_ylabel("log loss of the best model so far")
    ax.set_xticks([2, *range(3, BUDGET + 1, 2)])
    ax.legend(frameon=False)
    return drawing


def main() -> None:
    given = options(__doc__, seeds=12)
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
    rows = []
    for algorithm, values in found.items():
        for n in SHOWN:
            pairs = *mean_and_error(values), *mean_and_error(values - found["ei"])
            rows.append([algorithm, n, given.seeds, *(f"{column[n - 1]:.4f}" for column in pairs)])
    columns = ["algorithm", "evaluations", "seeds", "mean", "error", "minus ei", "error of that"]
    write_csv(ROOT / "studies/results/first-study.csv", columns, rows)
    picture = io.BytesIO()
    figure(found).savefig(picture, format="png", dpi=150)
    with atomic_file(ROOT / "docs/results/first-study.png") as file:
        file.write(picture.getvalue())


if __name__ == "__main__":
    main()
