"""Softmax regression on scikit-learn's digits, trained by gradient descent."""

import numpy as np
from sklearn.datasets import load_digits

NUM_CLASSES = 10


def load_data(node_config):
    """Return the node's own rows: `(x, y)` to train on, `(x, y)` held out."""
    x, y = load_digits(return_X_y=True)
    own = slice(node_config["partition-id"], None, node_config["num-partitions"])
    x, y = x[own] / 16, y[own]
    return (x[::2], y[::2]), (x[1::2], y[1::2])


def new_model():
    return [np.zeros((64, NUM_CLASSES)), np.zeros(NUM_CLASSES)]


def train(model, data, learning_rate, epochs, batch=16):
    (x, y), (weights, bias) = data, [np.array(part, dtype=np.float64) for part in model]
    for _ in range(epochs):
        for i in range(0, len(y), batch):
            error = _probabilities(x[i : i + batch], weights, bias)
            error[np.arange(len(error)), y[i : i + batch]] -= 1
            weights -= learning_rate * x[i : i + batch].T @ error / len(error)
            bias -= learning_rate * error.mean(axis=0)
    return [weights, bias]


def accuracy(model, data):
    x, y = data
    return float(np.mean(_probabilities(x, *model).argmax(axis=1) == y))


def _probabilities(x, weights, bias):
    scores = x @ weights + bias
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)
