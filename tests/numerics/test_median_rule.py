"""The medians behind early stopping: against plain repetition, and against one agent that lies."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.numerics.median_rule import medians_of, pooled, summary_of, weighted_median


@pytest.mark.parametrize("seed", range(8))
def test_a_weighted_median_is_the_median_of_repeated_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    values, weights = rng.integers(0, 5, n).astype(float), rng.integers(1, 6, n).astype(float)
    expected = np.median(np.repeat(values, weights.astype(int)))
    assert weighted_median(values, weights) == expected


@pytest.mark.parametrize("seed", range(8))
def test_one_agent_moves_a_pooled_median_no_further_than_others_have_reported(seed: int) -> None:
    rng = np.random.default_rng(seed)
    honest = [np.array([[0.0, rng.integers(3, 20), rng.normal()]]) for _ in range(int(rng.integers(2, 6)))]
    medians = [summary[0, 2] for summary in honest]
    for lie in (1e300, -1e300):
        liar = np.array([[0.0, 1e9, lie]])
        assert min(medians) <= pooled([*honest, liar], 3, 9)[0, 2] <= max(medians)


def test_a_step_that_few_curves_or_agents_have_is_not_in_a_summary() -> None:
    summary = summary_of({0: [1.0, 2.0, 6.0], 1: [1.0, 2.0]}, least=3, most_rows=9)
    np.testing.assert_array_equal(summary, [[0.0, 3.0, 2.0]])
    more = np.array([[0.0, 3.0, 4.0], [1.0, 3.0, 4.0]])
    np.testing.assert_array_equal(pooled([summary, more, summary], 3, 9), [[0.0, 9.0, 2.0]])
    assert pooled([summary, more], 3, 9).shape == (0, 3)
    assert summary_of({}, 3, 9).shape == (0, 3)


def test_a_long_summary_keeps_its_first_and_its_last_step() -> None:
    summary = summary_of({step: [0.0] for step in range(1000)}, least=1, most_rows=10)
    assert (len(summary), summary[0, 0], summary[-1, 0]) == (10, 0, 999)
    assert (np.diff(summary[:, 0]) == 111).all()


def test_the_median_of_an_even_number_of_values_is_the_middle() -> None:
    assert medians_of({3: [4.0, 1.0, 2.0, 9.0], 5: [1.0]}) == {3: 3.0, 5: 1.0}
