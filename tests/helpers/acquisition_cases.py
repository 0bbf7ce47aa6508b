"""Beliefs on finite sets for the tests of acquisitions, and plain versions of what they compute."""

import itertools
import math

import numpy as np
from scipy.stats import norm


def gaussian_process(points, lengthscale, num_observations, noise_variance, rng):
    """Posterior mean and factor on the points, of an RBF kernel and draws from its prior."""
    distance = np.square(points[:, None] - points[None]).sum(axis=-1)
    prior = np.exp(-0.5 * distance / lengthscale**2)
    values, vectors = np.linalg.eigh(
        prior
    )  # the symmetric root is the same on every machine, a factor is not
    truth = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T @ rng.standard_normal(len(points))
    seen = rng.integers(len(points), size=num_observations)
    y = truth[seen] + math.sqrt(noise_variance) * rng.standard_normal(num_observations)
    gain = np.linalg.solve(prior[np.ix_(seen, seen)] + noise_variance * np.eye(len(seen)), prior[seen]).T
    return gain @ y, root(prior - gain @ prior[seen])


def slopes(function, z, step=1e-6):
    """The gradients `(n, F)` of a function of rows `z (n, F)`, by central differences."""
    moves = step * np.eye(z.shape[1])
    return np.stack([(function(z + move) - function(z - move)) / (2 * step) for move in moves], axis=1)


def mesh(per_axis):
    axis = np.linspace(0, 1, per_axis)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def root(covariance):
    """A factor, `(S, r)`, cut at `1e-10` of the largest eigenvalue."""
    values, vectors = np.linalg.eigh(covariance)
    keep = values > 1e-10 * values[-1]
    return vectors[:, keep] * np.sqrt(values[keep])


def random_belief(seed, num_points):
    """A belief of one of three kinds: smooth, of low rank, independent; mean, factor, noise variance."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        points = rng.random((num_points, 2))
        return *gaussian_process(points, rng.uniform(0.1, 0.5), int(rng.integers(1, 8)), 0.02, rng), 0.02
    if seed % 3 == 1:
        rank = int(rng.integers(1, num_points + 1))
        factor = rng.standard_normal((num_points, rank)) / math.sqrt(rank)
        return rng.standard_normal(num_points) * rng.choice([0.0, 0.3, 1.0]), factor, 0.1
    return 0.5 * rng.standard_normal(num_points), np.diag(rng.random(num_points)), 0.05


def frazier(mean, slopes):
    """[Frazier, Powell, Dayanik 2009, Algorithm 1 and Eq. 14], one scalar at a time."""
    order = sorted(range(len(mean)), key=lambda z: (slopes[z], mean[z]))
    a, b = [], []
    for z in order:  # of lines with one slope the highest
        if b and b[-1] == slopes[z]:
            a[-1] = mean[z]
        else:
            a.append(mean[z])
            b.append(slopes[z])
    envelope, crossings = [0], [math.inf]
    for i in range(1, len(a)):
        while True:
            j = envelope[-1]
            crossing = (a[j] - a[i]) / (b[i] - b[j])
            if len(envelope) > 1 and crossing <= crossings[-2]:
                envelope.pop()
                crossings.pop()
                continue
            crossings[-1] = crossing
            break
        envelope.append(i)
        crossings.append(math.inf)
    total = 0.0
    for (i, j), c in zip(itertools.pairwise(envelope), crossings, strict=False):
        total += (b[j] - b[i]) * (norm.pdf(c) - abs(c) * norm.cdf(-abs(c)))
    return total


def fantasies(mean, covariance, noise_variance, design, draws):
    """Posterior means after observations at a batch, `(M, S)`: Eqs. 7 and 9 as they stand."""
    joint = covariance[np.ix_(design, design)] + noise_variance * np.eye(len(design))
    columns = np.linalg.solve(np.linalg.cholesky(joint), covariance[design])  # (n, S), rows s_n
    return mean + draws @ columns


def every_batch(acquisition, num_agents):
    """All batches `(S^N, N)` and their values."""
    num_points = acquisition.num_points
    candidates = np.arange(num_points)
    batches, values = [], []
    for rest in itertools.product(range(num_points), repeat=num_agents - 1):
        design = np.array([0, *rest])
        values.append(acquisition.values(design, 0, candidates))
        batches.append(np.column_stack([candidates, np.tile(rest, (num_points, 1))]))
    return np.concatenate(batches).astype(np.int64), np.concatenate(values)
