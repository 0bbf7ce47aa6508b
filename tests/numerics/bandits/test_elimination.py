import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination
from fbo_flower.numerics.bandits.elimination import NEVER, Constants, transition_depth


def test_constants_of_the_paper_are_the_formulas():
    constants = Constants(budget=20000, delta=0.1)
    assert constants.log_term == pytest.approx(math.log(200000))
    # c^2 L = .12206: one pull as long as 4^h stays below 8.19
    assert [constants.pulls(h) for h in range(8)] == [1, 1, 2, 8, 32, 125, 500, 2000]
    assert constants.pulls_per_client(5, 10) == 13
    assert float(constants.radius(4)) == pytest.approx(0.1 * math.sqrt(math.log(200000) / 4))
    assert math.isinf(float(constants.radius(0)))


@given(st.floats(0.05, 5), st.floats(0.05, 0.95), st.integers(1, 10**6), st.integers(0, 60))
@settings(deadline=None)
def test_the_pulls_of_a_depth_bring_the_radius_below_its_variation(nu, rho, budget, depth):
    constants = Constants(budget, 0.1, nu=nu, rho=rho)
    pulls = constants.pulls(depth)
    if pulls < elimination.MAX_PULLS:
        assert float(constants.radius(pulls)) <= constants.variation(depth) * (1 + 1e-12)
        assert pulls == 1 or float(constants.radius(pulls - 1)) > constants.variation(depth) * (1 - 1e-6)


def test_transition_depths():
    assert transition_depth(1.0, 0.5, 0.01) == 6
    assert transition_depth(1.0, 0.5, 0.01, "ceil") == 7
    assert transition_depth(1.0, 0.5, 0.125) == 3  # equality counts
    assert transition_depth(1.0, 0.5, 0.125, "ceil") == 3
    assert transition_depth(1.0, 0.5, 1.5) == -1
    assert transition_depth(1.0, 0.5, 0.0) == NEVER
    assert transition_depth(1.0, 0.5, 0.0, "ceil") == NEVER
    with pytest.raises(ConfigError, match="h0"):
        transition_depth(1.0, 0.5, 0.1, "floor")


def test_elimination_is_strict_and_measured_from_the_first_best():
    mean = np.array([0.0, 1.0, 1.0, 0.25])
    radius = np.array([0.25, 0.125, 0.5, 0.25])
    # the first best is cell 1: lower bound .875; cell 0 reaches .875 with variation .625, exactly
    assert elimination.eliminated(mean, radius, 0.625).tolist() == [False] * 4
    assert elimination.eliminated(mean, radius, 0.624).tolist() == [True, False, False, False]
    # were cell 2 the reference, its lower bound .5 would let cell 3 live
    assert elimination.eliminated(mean, radius, 0.25).tolist() == [True, False, False, True]
    protected = np.array([True, False, False, False])
    assert elimination.eliminated(mean, radius, 0.25, protected).tolist() == [False, False, False, True]
    assert elimination.eliminated(np.empty(0), np.empty(0), 1.0).tolist() == []


@given(st.integers(1, 40), st.integers(0, 10**6))
@settings(deadline=None)
def test_elimination_agrees_with_the_criterion_written_out(n, seed):
    rng = np.random.default_rng(seed)
    mean, radius, variation = rng.integers(0, 6, n) / 5, rng.random(n) / 5, rng.random() / 3
    best = max(range(n), key=lambda k: (mean[k], -k))
    expected = [mean[k] + radius[k] + variation < mean[best] - radius[best] for k in range(n)]
    out = elimination.eliminated(mean, radius, variation)
    assert out.tolist() == expected
    assert not out[best]


def test_merging_equal_counts_is_the_plain_mean_with_the_sum_of_counts():
    merged = elimination.merge([[0.2, 0.4], [0.4, 1.0]], [[3, 5], [3, 5]])
    np.testing.assert_allclose(merged.mean, [0.3, 0.7])
    assert merged.count.tolist() == [6, 10]
    assert merged.num_clients.tolist() == [2, 2]


def test_merging_with_drop_outs_counts_what_the_variance_is_worth():
    merged = elimination.merge(
        [[0.2, 9.0, 9.0], [0.4, 1.0, 9.0], [0.6, 0.5, 9.0]], [[1, 0, 0], [2, 4, 0], [4, 4, 0]]
    )
    np.testing.assert_allclose(merged.mean[:2], [0.4, 0.75])
    np.testing.assert_allclose(merged.count, [9 / (1 + 1 / 2 + 1 / 4), 8, 0])
    assert merged.num_clients.tolist() == [3, 2, 0]
    assert np.isnan(merged.mean[2])
    with pytest.raises(ConfigError, match="counts"):
        elimination.merge([[0.1]], [[1, 2]])


def test_effective_counts_are_those_of_the_variance_of_the_mean():
    rng = np.random.default_rng(0)
    counts = np.array([[2], [7], [30]])
    means = rng.standard_normal((20000, 3)) / np.sqrt(counts.T)
    effective = elimination.merge(means[0][:, np.newaxis], counts).count[0]
    # s.e. of a variance of 20000 draws: 1 %
    assert means.mean(axis=1).var() == pytest.approx(1 / effective, rel=0.05)
    assert means.mean(axis=1).var() != pytest.approx(1 / counts.sum(), rel=0.2)  # the naive sum is wrong


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 400))
@settings(deadline=None)
def test_asking_for_the_missing_pulls_once_is_enough(counts, pulls):
    column = np.array(counts)[:, np.newaxis]
    before = elimination.merge(np.zeros(column.shape), column).count
    owed = elimination.missing_pulls(before, pulls, len(counts))
    after = elimination.merge(np.zeros(column.shape), column + owed).count
    assert after[0] >= pulls - 1e-9


def test_membership_in_ascending_sets():
    active = np.array([2, 5, 9])
    assert elimination.contains(active, np.array([1, 2, 9, 10])).tolist() == [False, True, True, False]
    assert elimination.contains(np.empty(0, dtype=np.int64), np.array([1])).tolist() == [False]
    assert elimination.positions(active, np.array([9, 2])).tolist() == [2, 0]


def test_recommendations_are_by_the_lower_bound():
    assert elimination.recommend(np.array([0.9, 0.8, 0.8]), np.array([0.5, 0.1, 0.1])) == 1


@pytest.mark.parametrize(
    "bad", [{"budget": 0}, {"delta": 0.0}, {"nu": -1.0}, {"rho": 1.0}, {"c": 0.0}, {"c1": 1e-9}]
)
def test_bad_constants_are_named(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Constants(**{"budget": 10, "delta": 0.1, **bad})


def test_transition_depth_by_logarithms_is_the_count_of_the_definition():
    def counted(nu, rho, gap, rule):
        depth = 0
        while nu * rho**depth >= gap if rule == "literal" else nu * rho**depth > gap:
            depth += 1
            if nu * rho**depth == 0.0:
                return NEVER
        return depth - 1 if rule == "literal" else depth

    for nu in (1e-3, 0.5, 1.0, 8.0, 1e6):
        for rho in (1e-6, 0.1, 0.25, 0.5, 2**-0.25, 0.9, 0.999):
            for gap in (0.0, 5e-324, 1e-300, 0.01, 0.125, 0.25, 0.5, 1.0, 8.0, 2e6):
                for rule in ("literal", "ceil"):
                    assert transition_depth(nu, rho, gap, rule) == counted(nu, rho, gap, rule)


def test_transition_depth_near_rho_one_is_exact():
    rho = 1 - 1e-9
    depth = transition_depth(1.0, rho, 0.01)
    assert rho**depth >= 0.01 > rho ** (depth + 1)
    assert depth > 4e9
