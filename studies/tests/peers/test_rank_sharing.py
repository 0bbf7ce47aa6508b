"""Rank dissimilarities against SciPy's Spearman, and averages of hyperparameters by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from fbo_flower.errors import ConfigError
from studies.peers.fmtbo import dissimilarities, ranks_of, shared_hyperparameters


def test_ranks_are_those_of_scipy():
    values = np.random.default_rng(0).standard_normal(40)
    np.testing.assert_array_equal(ranks_of(values), rankdata(values) - 1)
    assert ranks_of(np.zeros(3)).tolist() == [0, 1, 2]


def test_the_dissimilarity_is_half_of_one_minus_spearmans_correlation():
    drawn = np.random.default_rng(1).standard_normal((6, 30))
    ranks = np.array([ranks_of(row) for row in drawn])
    expected = [(1 - spearmanr(row, drawn[0]).statistic) / 2 for row in drawn]
    np.testing.assert_allclose(dissimilarities(ranks, ranks[0]), expected, atol=1e-12)
    assert dissimilarities(ranks[:1], ranks[0])[0] == 0
    assert dissimilarities(29 - ranks[:1], ranks[0])[0] == 1


def test_agents_that_rank_no_better_than_chance_have_no_weight():
    theta = np.array([[0.0, 0.0], [1.0, 2.0], [9.0, 9.0], [9.0, 9.0]])
    mean, weights = shared_hyperparameters(theta, np.array([0.0, 0.25, 0.5, 0.9]))
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(mean, [1 / 3, 2 / 3])


def test_shapes_are_checked():
    with pytest.raises(ConfigError, match="ranks"):
        dissimilarities(np.zeros((2, 3), dtype=np.int64), np.zeros(4, dtype=np.int64))
