"""The nodes' data: handwritten digits, which every node sees with a mix of labels of its own."""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


@dataclass(frozen=True)
class Data:
    """One node's rows, halved for training and for the score."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(partition: int, num_partitions: int, concentration: float = 1.0) -> Data:
    """Return a node's rows; Dirichlet laws divide the labels, less equally if `concentration` is small."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(2020)  # the same split at every node
    own: list[int] = []
    for label in range(10):
        rows = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(num_partitions, concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        own += np.split(rows, cuts)[partition].tolist()
    rows = np.array(own)
    train, test = train_test_split(rows, test_size=0.5, random_state=partition)
    return Data(x[train] / 16, y[train], x[test] / 16, y[test])
