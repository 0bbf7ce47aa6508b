"""Medians behind early stopping and forecasts from completed curves, against brute force."""

import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.numerics.curves import forecast, limit_of, medians_of, pooled, summary_of, weighted_median

numbers = st.floats(-1e6, 1e6)
curves = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12)


@given(curves, numbers)
def test_a_stopped_trial_gains_what_others_gained_on_average(known, value):
    gain = sum(Fraction(end) - Fraction(at) for at, end in known) / len(known)
    middle = statistics.median([Fraction(end) for _, end in known])
    values, finals = np.array(known).T
    slack = 1e-12 * max(np.abs(known).max(), abs(value))
    assert forecast(values, finals, value) == pytest.approx(float(min(value + gain, middle)), abs=slack)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12), st.floats(0, 4))
def test_a_limit_is_where_the_forecast_and_its_margin_reach_the_best_end(known, margin):
    values, finals = np.array(known).T
    gains = (finals - values).tolist()
    limit = limit_of(values, finals, margin)
    highest = limit + statistics.fmean(gains) + margin * statistics.stdev(gains)
    slack = 1e-9 * max(np.abs(known).max(), 1e-300)
    assert highest == pytest.approx(finals.max(), abs=slack)


def test_few_curves_give_no_limit_none_give_no_forecast_and_the_largest_floats_do_not_overflow():
    assert np.isnan(forecast(np.empty(0), np.empty(0), 0.25))
    assert forecast(np.array([0.5]), np.array([0.75]), 0.25) == 0.5
    assert limit_of(np.array([0.5]), np.array([0.75]), 1.0) == -np.inf
    largest = 1.7e308
    ends = np.array([largest, -largest])
    with np.errstate(over="raise"):
        assert forecast(ends, ends, -largest) == pytest.approx(-largest)
        assert limit_of(ends, ends, 1.0) == pytest.approx(largest)


# -- medians -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_weighted_median_is_the_median_of_repeated_values(seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.integers(0, 5, 3 + seed).astype(float), rng.integers(1, 6, 3 + seed)
    expected = np.median(np.repeat(values, weights))
    assert weighted_median(values, weights.astype(float)) == expected


@pytest.mark.parametrize("lie", [1e300, -1e300])
def test_one_agent_moves_a_pooled_median_no_further_than_others_have_reported(lie):
    honest = [np.array([[0.0, count, median]]) for count, median in ((3, 0.5), (19, -1.0), (4, 2.0))]
    assert -1.0 <= pooled([*honest, np.array([[0.0, 1e9, lie]])], 3, 9)[0, 2] <= 2.0


def test_a_step_that_few_curves_or_agents_have_is_not_in_a_summary():
    summary = summary_of({0: [1.0, 2.0, 6.0], 1: [1.0, 2.0]}, least=3, most_rows=9)
    np.testing.assert_array_equal(summary, [[0.0, 3.0, 2.0]])
    more = np.array([[0.0, 3.0, 4.0], [1.0, 3.0, 4.0]])
    np.testing.assert_array_equal(pooled([summary, more, summary], 3, 9), [[0.0, 9.0, 2.0]])
    assert pooled([summary, more], 3, 9).shape == (0, 3)
    assert summary_of({}, 3, 9).shape == (0, 3)
    assert medians_of({3: [4.0, 1.0, 2.0, 9.0], 5: [1.0]}) == {3: 3.0, 5: 1.0}
    # a long one keeps its first and its last step
    summary = summary_of({step: [0.0] for step in range(1000)}, least=1, most_rows=10)
    assert (len(summary), summary[0, 0], summary[-1, 0]) == (10, 0, 999)
    assert (np.diff(summary[:, 0]) == 111).all()
