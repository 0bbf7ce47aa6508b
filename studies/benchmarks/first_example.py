"""What the README's first study gains, over seeds, and its picture.

    python -m studies.benchmarks.first_example --seeds 16

Runs the README's first study up to its loop, so it measures what is printed there. Then each algorithm of
`ROWS` tunes the same sites with each seed. Shown is the accuracy of each site's best configuration so far, as
a mean over the sites, its difference from tuning alone, and how accurate the same model is on the images of
all other sites; standard errors are over seeds. Writes `docs/results/first-study.png` and
`studies/results/first-study.csv`.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from sklearn import svm

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
BUDGET, SHOWN = 15, (5, 6, 8, 10, 15)  # evaluations
FIRST_SEED = 200  # the example was chosen with others


def first_study() -> dict[str, Any]:
    """Return the names that the README's first study defines before its loop."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*?)^for algorithm", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def measured(names: dict[str, Any], algorithm: str, seed: int) -> Array:
    """Return means over the sites after 1 to `BUDGET` evaluations, `(2, BUDGET)`.

    First the best accuracy so far, then that of its configuration on the other sites' images.
    """
    sites, images, digits = names["sites"], names["images"], names["digits"]
    study = simulate(
        names["accuracy"], names["space"], sites,
        algorithm=algorithm, num_trials=BUDGET, seed=seed, engine="inline",
    )  # fmt: skip
    found = np.empty((len(sites), 2, BUDGET))
    for agent, rows in enumerate(sites):
        trials = study.trials.where(agent=str(agent))
        values = trials["value"]
        others = np.ones(len(images), dtype=bool)
        others[rows] = False
        elsewhere: dict[int, float] = {}  # trial -> accuracy on the other sites' images
        for number in range(BUDGET):
            best = int(np.nanargmax(values[: number + 1]))
            if best not in elsewhere:
                model = svm.SVC(**dict(trials["config"][best])).fit(images[rows], digits[rows])
                elsewhere[best] = model.score(images[others], digits[others])
            found[agent, :, number] = values[best], elsewhere[best]
    return found.mean(axis=0)


def figure(found: dict[str, Array]) -> Any:
    """Return a figure of mean losses with bands of one standard error."""
    drawing, (ax,) = panels(1, 1, 7.0, 3.6)
    evaluations = np.arange(SHOWN[0], BUDGET + 1)
    for colour, (algorithm, text) in zip(COLOURS, ROWS.items(), strict=True):
        band(ax, evaluations, found[algorithm][:, evaluations - 1], text, colour)
    ax.set_xlabel("evaluations of each site")
    ax.set_ylabel("accuracy of the best model so far")
    ax.set_xticks(SHOWN)
    ax.legend(frameon=False)
    return drawing


def main() -> None:
    given = options(__doc__, seeds=16)
    names = first_study()
    runs: dict[str, list[Array]] = {algorithm: [] for algorithm in ROWS}
    for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
        for algorithm, values in runs.items():
            values.append(measured(names, algorithm, seed))
        shown = {a: values[-1][0, [k - 1 for k in SHOWN]].round(3).tolist() for a, values in runs.items()}
        print(f"seed {seed}", shown, flush=True)
    found = {algorithm: np.array(values) for algorithm, values in runs.items()}
    rows = []
    for algorithm, values in found.items():
        own, elsewhere = values[:, 0], values[:, 1]
        pairs = mean_and_error(own), mean_and_error(own - found["ei"][:, 0]), mean_and_error(elsewhere)
        for n in SHOWN:
            numbers = (f"{column[n - 1]:.4f}" for pair in pairs for column in pair)
            rows.append([algorithm, n, given.seeds, *numbers])
    columns = ["algorithm", "evaluations", "seeds", "mean", "error", "minus ei", "error of that"]
    columns += ["on other sites", "error on other sites"]
    write_csv(ROOT / "studies/results/first-study.csv", columns, rows)
    picture = io.BytesIO()
    figure({algorithm: values[:, 0] for algorithm, values in found.items()}).savefig(
        picture, format="png", dpi=150
    )
    with atomic_file(ROOT / "docs/results/first-study.png") as file:
        file.write(picture.getvalue())


if __name__ == "__main__":
    main()
