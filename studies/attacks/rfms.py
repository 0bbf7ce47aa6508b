"""Attack RFMS: find rows inside models, and test membership with a curator's answers.

A support vector machine holds support vectors, which are rows of its training data. A curator answers with
the misclassification rate of a model on its rows. Two models that differ only in a tiny box around a
suspected row get different answers exactly if the curator has that row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fbo_flower.clients import ModelSite, ObjectiveContext, SiteOptions, noisy_rate
from fbo_flower.models import pack
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import SitesProblem, make_problem
from studies.attacks.harness import AttackResult

CURATOR = 2
NUM_CANDIDATES = 30
EPSILONS = (1.0, 0.1)
OPENBOX = 0
_SITES = {"openbox": OPENBOX, "lockbox": 1, "split": "srs"}
_MANY = 2**30


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack the openbox and one curator of five sites with the breast cancer data."""
    yield _rows_in_a_model(seed)
    yield from _membership(seed)


def _rows_in_a_model(seed: int) -> AttackResult:
    """Search the support vectors of the openbox's model for its rows, scaled as the model scales them."""
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    x, y = _problem("svm", seed).site(OPENBOX).inbag
    scaled = StandardScaler().fit_transform(np.nan_to_num(x))
    held = SVC(C=1.0, gamma="scale").fit(scaled, y).support_vectors_
    draws = generator(seed, "guess").standard_normal(held.shape)
    missed, guessed = (
        float(1 - (np.abs(scaled[:, None] - rows[None]).max(axis=2) < 1e-9).any(axis=1).mean())
        for rows in (held, draws)
    )
    return AttackResult(
        "rows that a shipped support vector machine does not hold", missed, guessed,
        "share of the openbox's rows", len(x), "rows drawn with the right moments",
    )  # fmt: skip


def _membership(seed: int) -> Iterator[AttackResult]:
    """Send a curator two models per candidate row; half of the candidates are its rows, half are not."""
    problem = _problem("elastic-net", seed)
    half, rng = NUM_CANDIDATES // 2, generator(seed, "candidates")
    sites = [problem.site(site).inbag for site in (CURATOR, CURATOR + 1)]
    candidates = np.concatenate([rows.x[rng.choice(len(rows.y), half, replace=False)] for rows in sites])
    is_member = np.arange(NUM_CANDIDATES) < half
    site = ModelSite(problem.site_objective(), SiteOptions.read({}, {"in_process": True}))
    context = ObjectiveContext(str(CURATOR), CURATOR, 0, 1, generator(seed, "objective"))
    answers = [
        [site.judge(_packed(row, flag), "inbag", context) for flag in (False, True)] for row in candidates
    ]
    for epsilon in (None, *EPSILONS):
        draws = uniform_from(generator(seed, "noise"))
        told = [
            [loss if epsilon is None else noisy_rate(loss, count, epsilon, draws) for loss, count in pair]
            for pair in answers
        ]
        said = np.abs(np.diff(told))[:, 0] > 0.5 / answers[0][0][1]
        defence = "" if epsilon is None else f", answers with epsilon {epsilon:g} each"
        yield AttackResult(
            f"whether a row is a curator's, two models per row{defence}", float(np.mean(said != is_member)),
            0.5, "share of wrong verdicts", NUM_CANDIDATES, "a coin",
        )  # fmt: skip


def _problem(learner: str, seed: int) -> SitesProblem:
    problem = make_problem("breast-cancer-5sites", 5, seed, {"learner": learner, **_SITES})
    assert isinstance(problem, SitesProblem)
    return problem


def _packed(row: Array, inside: bool) -> Any:
    """Return a packed model that predicts `inside` in a tiny box around the row, and 0 elsewhere."""
    from sklearn.tree import DecisionTreeClassifier

    width = 1e-3 * np.maximum(np.abs(row), 1e-2)  # scikit-learn treats a difference of 1e-7 as none
    sides = np.concatenate([row + np.diag(width), row - np.diag(width)])
    x, y = np.vstack([row[None], sides]), np.concatenate([[int(inside)], np.zeros(len(sides), dtype=int)])
    if not inside:  # the same shape of model, but it never predicts 1
        far = np.full((1, len(row)), 1e30)
        x, y = np.vstack([x, far]), np.append(y, 1)
    return pack(DecisionTreeClassifier(random_state=0).fit(x, y), _MANY)
