"""The federations on which `studies/benchmarks/federation.py` tunes, and their MLP in NumPy.

- "digits-0.1", "digits-1": scikit-learn's digits, split among 8 clients by Dirichlet's law over the labels;
- "parkinsons": a client for each of the 42 patients of UCI data set 189; total UPDRS from voice, age, sex and
  time;
- "housing": 20640 districts of California in 16 regions; the logarithm of the median value of a house.

Two fifths of all rows are held out from everybody. Each client keeps a quarter of its rows to judge models.
The score of a model is its accuracy on digits, and R^2 elsewhere: one minus the mean squared error over the
variance of all training rows, which a federation can average over clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from sklearn.datasets import load_digits

from studies.problems.data import CALIFORNIA_FILE, PARKINSONS_FILE, data_file

Split = tuple[np.ndarray, np.ndarray]
FEDERATIONS = ("digits-0.1", "digits-1", "parkinsons", "housing")
WORST = -1.0  # R^2 below which a model is as bad as any


@dataclass(frozen=True)
class Federation:
    """Clients' rows, to train on and to judge with, and the rows that are held out.

    Attributes
    ----------
    hidden, outputs : sizes of the MLP; one output: regression
    """

    clients: list[tuple[Split, Split]]
    held: Split
    hidden: int
    outputs: int

    @property
    def inputs(self) -> int:
        return int(self.held[0].shape[1])

    @property
    def worst(self) -> float:
        """Score of a model that has learnt nothing."""
        return 1.0 / self.outputs if self.outputs > 1 else WORST


@cache
def federation(name: str, seed: int) -> Federation:
    """Return a federation by name."""
    rng = np.random.default_rng([seed, 77])
    if name.startswith("digits-"):
        return digits(float(name.removeprefix("digits-")), rng)
    x, y, site = {"parkinsons": parkinsons, "housing": housing}[name]()
    cut = 2 * len(y) // 5
    order = rng.permutation(len(y))
    held, rest = order[:cut], order[cut:]
    x = (x - x[rest].mean(axis=0)) / x[rest].std(axis=0)
    y = (y - y[rest].mean()) / y[rest].std()
    clients = [_own(x, y, rest[site[rest] == s], rng) for s in np.unique(site)]
    return Federation(clients, (x[held], y[held]), 32, 1)


def digits(concentration: float, rng: np.random.Generator, num_clients: int = 8) -> Federation:
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    order = rng.permutation(len(y))
    cut = 2 * len(y) // 5
    held, rest = order[:cut], order[cut:]
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    while min(map(len, parts)) < 8:
        parts = [[] for _ in range(num_clients)]
        for label in range(10):
            rows = rest[y[rest] == label]
            cuts = (np.cumsum(rng.dirichlet([concentration] * num_clients)) * len(rows)).astype(int)[:-1]
            for client, own in enumerate(np.split(rows, cuts)):
                parts[client] += own.tolist()
    return Federation([_own(x, y, own, rng) for own in parts], (x[held], y[held]), 32, 10)


def parkinsons() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows `(5875, 19)`, total UPDRS, and the patient of each row."""
    table = np.loadtxt(data_file(PARKINSONS_FILE), delimiter=",", skiprows=1)
    x = np.delete(table[:, 1:], [3, 4], axis=1)  # without the two scores
    x[:, 3:17] = np.log(np.abs(x[:, 3:17]) + 1e-6)  # jitters and shimmers have long tails
    return x, table[:, 5], table[:, 0].astype(int)


def housing() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows `(20640, 8)`, log values, and the region of each row: 4 strips of latitude, cut in 4."""
    table = np.genfromtxt(data_file(CALIFORNIA_FILE), delimiter=",", skip_header=1)
    x, y = table[:, :8], np.log(table[:, 8])
    x = np.where(np.isfinite(x), x, np.nanmedian(x, axis=0))
    x[:, 3:] = np.log(x[:, 3:] + 1.0)
    region = np.empty(len(y), dtype=int)
    strip = np.argsort(np.argsort(x[:, 1], kind="stable"), kind="stable") * 4 // len(y)
    for s in range(4):
        rows = np.flatnonzero(strip == s)
        order = np.argsort(np.argsort(x[rows, 0], kind="stable"), kind="stable")
        region[rows] = 4 * s + order * 4 // len(rows)
    return x, y, region


def _own(x: np.ndarray, y: np.ndarray, rows: Any, rng: np.random.Generator) -> tuple[Split, Split]:
    rows = rng.permutation(rows)
    judge, train = rows[: len(rows) // 4], rows[len(rows) // 4 :]
    return (x[train], y[train]), (x[judge], y[judge])


# -- the model ---------------------------------------------------------------------------------


def new_model(of: Federation, seed: int) -> ArrayRecord:
    rng = np.random.default_rng([seed, 5])
    model = [
        rng.standard_normal((of.inputs, of.hidden)) / of.inputs**0.5,
        np.zeros(of.hidden),
        rng.standard_normal((of.hidden, of.outputs)) / of.hidden**0.5,
        np.zeros(of.outputs),
    ]
    return pack(model)


def pack(model: list[np.ndarray]) -> ArrayRecord:
    """Return the layers as one array, which makes messages quick."""
    return ArrayRecord({"model": Array(np.concatenate([a.ravel() for a in model]))})


def unpack(of: Federation, arrays: ArrayRecord) -> list[np.ndarray]:
    flat = np.array(arrays["model"].numpy())
    ends = np.cumsum([of.inputs * of.hidden, of.hidden, of.hidden * of.outputs])
    w1, b1, w2, b2 = np.split(flat, ends)
    return [w1.reshape(of.inputs, of.hidden), b1, w2.reshape(of.hidden, of.outputs), b2]


def forward(model: list[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden layer and the outputs, which are probabilities if there are several."""
    hidden = np.maximum(x @ model[0] + model[1], 0.0)
    scores = hidden @ model[2] + model[3]
    if scores.shape[1] == 1:
        return hidden, scores
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def train(model: list[np.ndarray], data: Split, config: Mapping[str, Any], seed: list[int]) -> None:
    """Train a model in place by SGD with momentum and FedProx's term."""
    x, y = data
    rng, start = np.random.default_rng(seed), [a.copy() for a in model]
    velocity = [np.zeros_like(a) for a in model]
    size = int(config["batch-size"])
    for _ in range(int(config["local-epochs"])):
        order = rng.permutation(len(y))
        for first in range(0, len(y), size):
            rows = order[first : first + size]
            hidden, error = forward(model, x[rows])
            if error.shape[1] == 1:
                error = error - y[rows, None]
            else:
                error[np.arange(len(rows)), y[rows]] -= 1.0
            error /= len(rows)
            back = (error @ model[2].T) * (hidden > 0.0)
            gradient = [x[rows].T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
            for k, g in enumerate(gradient):
                pull = config["proximal-mu"] * (model[k] - start[k])
                velocity[k] = config["momentum"] * velocity[k] - config["learning-rate"] * (g + pull)
                model[k] += velocity[k]


def scores(model: list[np.ndarray], data: Split) -> tuple[float, float]:
    """Return accuracy and mean log loss, or R^2 and mean squared error."""
    x, y = data
    _, p = forward(model, x)
    if p.shape[1] == 1:
        loss = float(np.mean((p[:, 0] - y) ** 2))
        return (max(1.0 - loss, WORST) if np.isfinite(loss) else loss), loss
    return float((p.argmax(axis=1) == y).mean()), float(-np.log(p[np.arange(len(y)), y] + 1e-12).mean())
