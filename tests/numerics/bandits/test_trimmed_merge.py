"""Robust centres of what the clients say of a cell."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fbo_flower.algorithms import make_algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination


@pytest.mark.parametrize("num_clients", [1, 2, 3, 4, 9, 10])
@pytest.mark.parametrize("trim", [0.0, 0.1, 0.2, 0.34, 0.5])
def test_a_centre_is_that_of_scipy(num_clients: int, trim: float) -> None:
    means = np.random.default_rng(num_clients).normal(size=(num_clients, 7))
    counts = np.full(means.shape, 3)
    merged = elimination.merge(means, counts, trim)
    expected = np.median(means, axis=0) if trim == 0.5 else stats.trim_mean(means, trim, axis=0)
    np.testing.assert_allclose(merged.mean, expected, atol=1e-12)


def test_only_clients_that_pulled_a_cell_have_a_say() -> None:
    means, counts = np.array([[1.0], [5.0], [900.0], [2.0]]), np.array([[1], [1], [0], [1]])
    merged = elimination.merge(means, counts, 0.5)
    assert merged.mean.tolist() == [2.0]
    assert merged.num_clients.tolist() == [3]
    assert np.isnan(elimination.merge(means, 0 * counts, 0.5).mean).all()


@pytest.mark.parametrize(("trim", "num_liars"), [(0.2, 2), (0.5, 4)])
def test_liars_that_are_left_out_cannot_move_the_centre_out_of_the_truth(trim: float, num_liars: int) -> None:
    truth = np.linspace(0.0, 1.0, 10)[:, np.newaxis]
    truth[-num_liars:] = 1e9
    merged = elimination.merge(truth, np.ones((10, 1), dtype=int), trim)
    assert 0.0 <= merged.mean[0] <= 1.0
    assert elimination.merge(truth, np.ones((10, 1), dtype=int)).mean[0] > 1e8


@pytest.mark.parametrize("trim", [0.1, 0.2, 0.4, 0.5])
def test_efficiency_is_that_of_many_draws(trim: float) -> None:
    draws = np.random.default_rng(1).normal(size=(20_000, 101))
    centres = np.median(draws, axis=1) if trim == 0.5 else stats.trim_mean(draws, trim, axis=1)
    assert elimination.efficiency(trim) == pytest.approx(1 / 101 / centres.var(), rel=0.04)


def test_a_robust_centre_counts_fewer_pulls() -> None:
    means, counts = np.zeros((4, 1)), np.full((4, 1), 10)
    assert elimination.merge(means, counts).count.tolist() == [40.0]
    assert elimination.merge(means, counts, 0.5).count[0] == pytest.approx(80 / np.pi)
    with pytest.raises(ConfigError, match="trim"):
        elimination.merge(means, counts, 0.6)


def test_aggregate_is_an_option_of_the_literal_variant() -> None:
    assert make_algorithm("pf-pne", {"aggregate": "median"}).options()["aggregate"] == "median"
    for options in ({"aggregate": "mode"}, {"trim": 0.7}, {"variant": "racing", "aggregate": "median"}):
        with pytest.raises(ConfigError):
            make_algorithm("pf-pne", options)
