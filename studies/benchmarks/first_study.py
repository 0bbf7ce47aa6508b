"""The README's first study, up to its loop, with other seeds.

It also measures how accurate each site's best model is on the images of all other sites.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.simulation import simulate
from studies.experiment import Arrays, Experiment, Part

README = Path(__file__).parents[2] / "README.md"


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 1 seed, 5 evaluations."""
    seeds = range(200, 201 if quick else 216)  # the example was chosen with others
    rows, size = ["fed-ei", "share-best", "ei", "random"], {"budget": 5 if quick else 15}
    return [
        Part(
            "first study", first, ["digits"], rows, seeds, size, "ei", at=(5, 6, 8, 10, 15),
            drawn="accuracy", how="mean",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("The README's first study with other seeds", parts)


@cache
def example() -> dict[str, Any]:
    """Return the names that the README's first study defines before its loop."""
    text = README.read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*?)^for algorithm", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def first(label: str, algorithm: str, seed: int, budget: int) -> Arrays:
    """Return each site's best accuracy so far, and that of the same model on the other sites' images."""
    from sklearn import svm

    names = example()
    sites, images, digits = names["sites"], names["images"], names["digits"]
    study = simulate(
        names["accuracy"], names["space"], sites,
        algorithm=algorithm, num_trials=budget, seed=seed, engine="inline",
    )  # fmt: skip
    found = np.empty((2, len(sites), budget))
    for agent, rows in enumerate(sites):
        trials = study.trials.where(agent=str(agent))
        others = np.ones(len(images), dtype=bool)
        others[rows] = False
        elsewhere: dict[int, float] = {}  # trial -> accuracy on the other sites' images
        for number in range(budget):
            best = int(np.nanargmax(trials["value"][: number + 1]))
            if best not in elsewhere:
                model = svm.SVC(**dict(trials["config"][best])).fit(images[rows], digits[rows])
                elsewhere[best] = model.score(images[others], digits[others])
            found[:, agent, number] = trials["value"][best], elsewhere[best]
    return {"accuracy": found[0], "accuracy on other sites": found[1]}
