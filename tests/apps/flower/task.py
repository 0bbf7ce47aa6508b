"""Data that scikit-learn bundles, and a softmax regression in NumPy, for the apps beside this file."""

import random
from functools import cache

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from sklearn import datasets

SEED = 0  # of the split; measure.py sets it


@cache
def all_rows(name):
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def rows_of(name):
    """Return all rows, of at most 1, in the order of the seed, and their labels."""
    x, y = all_rows(name)
    order = np.random.default_rng(SEED).permutation(len(y))
    return x[order] / x.max(), y[order]


def load_test(name="digits"):
    """Return the quarter of the rows that no client has."""
    x, y = rows_of(name)
    return x[: len(y) // 4], y[: len(y) // 4]


def load_data(context, name="digits"):
    """Return a client's rows and labels for training, and for validation; half of them have few labels."""
    partition, number = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    x, y = (part[len(part) // 4 :] for part in rows_of(name))
    by_label = np.argsort(y[::2], kind="stable") * 2
    own = [np.array_split(by_label, number)[partition], np.arange(1, len(y), 2)[partition::number]]
    rows = np.random.default_rng(SEED).permutation(np.concatenate(own))
    train, valid = rows[len(rows) // 4 :], rows[: len(rows) // 4]
    return x[train], y[train], x[valid], y[valid]


def probabilities(weights, x):
    """Return the probability of every label for each row."""
    scores = x @ weights[:-1] + weights[-1]
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)


def fit(weights, x, y, lr, epochs, proximal_mu=0.0):
    """Return the weights `(features + 1, labels)` after gradient descent with batches of 32 rows."""
    start = weights
    for _ in range(epochs):
        order = random.sample(range(len(y)), len(y))
        for batch in (order[first : first + 32] for first in range(0, len(y), 32)):
            errors = probabilities(weights, x[batch]) - np.eye(weights.shape[1])[y[batch]]
            slopes = np.column_stack([x[batch], np.ones(len(batch))]).T @ errors / len(batch)
            weights = weights - lr * (slopes + proximal_mu * (weights - start))
    return weights


def accuracy(weights, x, y):
    """Return the share of rows with the right label."""
    return float(np.mean(probabilities(weights, x).argmax(axis=1) == y))


def reply(message, number, arrays=None, **metrics):
    """Return a client's reply: arrays of a model if there are any, and metrics of a number of rows."""
    records = {"metrics": MetricRecord({"num-examples": number, **metrics})}
    if arrays is not None:
        records["arrays"] = ArrayRecord(arrays)
    return Message(RecordDict(records), reply_to=message)


def zeros():
    return ArrayRecord([np.zeros((65, 10))])


def train(strategy, grid, context):
    """Train with the values of the run config, and print the accuracy on the rows that no client has."""
    config = ConfigRecord({name: context.run_config[name] for name in ("lr", "local-epochs")})
    result = strategy.start(grid, zeros(), context.run_config["num-server-rounds"], train_config=config)
    print(accuracy(result.arrays.to_numpy_ndarrays()[0], *load_test()))
