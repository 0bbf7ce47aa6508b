"""Softmax regression on scikit-learn's digits, split among clients so that each has its own mix of labels."""

import numpy as np
from sklearn.datasets import load_digits

NUM_CLASSES = 10


def load_data(node_config, concentration):
    """Return the node's own rows: `(x, y)` to train on, `(x, y)` held out."""
    x, y = load_digits(return_X_y=True)
    x, rng = x / 16, np.random.default_rng(1)  # all nodes draw the same split
    owner = np.empty(len(y), dtype=int)
    for label in range(NUM_CLASSES):
        shares = rng.dirichlet([concentration] * node_config["num-partitions"])
        owner[y == label] = rng.choice(len(shares), (y == label).sum(), p=shares)
    owner[: 4 * len(shares)] = np.tile(np.arange(len(shares)), 4)  # nobody is left with nothing
    own = rng.permutation(np.flatnonzero(owner == node_config["partition-id"]))
    held_out, train = own[: len(own) // 4], own[len(own) // 4 :]
    return (x[train], y[train]), (x[held_out], y[held_out])


def new_model():
    return [np.zeros((64, NUM_CLASSES)), np.zeros(NUM_CLASSES)]


def train(model, data, learning_rate, epochs, batch):
    (x, y), (weights, bias) = data, [np.array(part, dtype=np.float64) for part in model]
    for _ in range(epochs):
        for i in range(0, len(y), batch):
            error = probabilities(x[i : i + batch], weights, bias)
            error[np.arange(len(error)), y[i : i + batch]] -= 1
            weights -= learning_rate * x[i : i + batch].T @ error / len(error)
            bias -= learning_rate * error.mean(axis=0)
    return [weights, bias]


def accuracy(model, data):
    x, y = data
    return float(np.mean(probabilities(x, *model).argmax(axis=1) == y))


def probabilities(x, weights, bias):
    scores = x @ weights + bias
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)
