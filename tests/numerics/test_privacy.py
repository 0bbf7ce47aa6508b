"""Exact noise on integers and on a grid; costs of Gaussian releases against their definition; accounts."""

import json
import math
import sys
from collections import defaultdict
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import chisquare

from fbo_flower.errors import ConfigError
from fbo_flower.numerics import discrete_noise as dn
from fbo_flower.numerics import privacy
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.privacy import Account, gaussian_epsilon, sampled_epsilon
from fbo_flower.secure.fixed_point import RESOLUTION


def exact_delta(epsilon, precision):
    """Return the delta of the best threshold between `N(0, 1)` and `N(m, 1)`, in 60 digits."""
    with mpmath.workdps(60):
        m = mpmath.sqrt(mpmath.mpf(precision))
        cut = epsilon / m + m / 2
        return float(mpmath.ncdf(m - cut) - mpmath.exp(epsilon) * mpmath.ncdf(-cut))


@pytest.mark.parametrize(("z", "delta"), [(1e-4, 1e-3), (1.0, 0.4), (1.0, 1e-15), (1e4, 1e-3)])
def test_releases_together_cost_what_one_with_their_precision_costs(z, delta):
    epsilon = Account().add(z).add(2 * z, 2).epsilon(delta)
    precision = 1 / z**2 + 2 / (2 * z) ** 2
    assert epsilon == pytest.approx(gaussian_epsilon(precision, delta), rel=1e-12)
    assert exact_delta(epsilon, precision) <= delta * (1 + 1e-6)
    assert epsilon == 0.0 or exact_delta(epsilon * (1 - 1e-6), precision) > delta


def test_no_release_costs_nothing_and_little_noise_as_much_as_without_sampling():
    assert sampled_epsilon(1.0, 0.3, 0, 1e-4) == 0.0
    assert sampled_epsilon(0.0, 0.3, 1, 1e-4) == sampled_epsilon(1e-7, 0.3, 1, 1e-4) == math.inf
    assert sampled_epsilon(0.05, 0.3, 2, 1e-4) == sampled_epsilon(0.05, 1.0, 2, 1e-4)
    assert sampled_epsilon(1.0, 0.35, 20, 1e-15) <= gaussian_epsilon(20.0, 1e-15)


@pytest.mark.parametrize(("z", "q", "number"), [(4.0, 0.35, 40), (20.0, 0.1, 2)])
def test_epsilon_of_sampled_releases_is_that_of_a_fine_grid_within_one_percent(z, q, number):
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    fine = PLDAccountant(value_discretization_interval=1e-4)
    fine.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z)), number)
    exact = fine.get_epsilon(1e-3)
    assert exact * (1 - 1e-6) <= sampled_epsilon(z, q, number, 1e-3) <= 1.01 * exact


def test_without_the_library_sampled_releases_are_refused_and_others_counted(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"fbo-flower\[dp\]"):
        sampled_epsilon(1.0, 0.31, 20, 1e-3)
    assert sampled_epsilon(1.0, 1.0, 20, 1e-3) > 0
    assert Account().add(1.0).epsilon(1e-3) > 0


def test_clipping_shortens_long_vectors_and_leaves_short_ones():
    long, short = np.array([3.0, -4.0]), np.array([0.3, 0.4])
    np.testing.assert_allclose(privacy.clip_norm(long, 2.5), [1.5, -2.0], rtol=1e-15)
    assert privacy.clip_norm(short, 2.5) is short
    np.testing.assert_array_equal(privacy.clip_norm(np.zeros(3), 1.0), np.zeros(3))


# -- accounts ------------------------------------------------------------------------------------------


def test_an_account_adds_up_within_bounds_and_a_release_without_noise_costs_everything():
    assert Account().add(4.0, 2).add(4.0) == Account({4.0: 3})
    assert Account().epsilon(1e-3) == Account().add(1e9).epsilon(1e-3) == 0.0
    assert Account().add(1.0).add(0.0).epsilon(1e-3) == math.inf
    full = Account.from_json({"releases": [[1.0 + i, 1] for i in range(privacy.MOST_ENTRIES)]})
    assert math.isfinite(full.add(1.0).epsilon(1e-3)), "an entry that is there"


def test_json_returns_the_account_and_its_form_stays():
    account = Account().add(2, 3).add(1.0).add(0.0, 1000)
    text = json.dumps(account.to_json())
    assert text == '{"releases": [[0.0, 1000], [1.0, 1], [2.0, 3]]}'
    assert Account.from_json(json.loads(text)) == account


LEVEL = 1e-3  # of the chi-squared tests; seeds are fixed


def seeded(seed):
    return uniform_from(np.random.default_rng(seed))


def laplace_mass(scale, largest=200):
    """Return `P(x)` for `|x| <= largest` by the closed form."""
    ratio = math.exp(-1 / scale)
    return {x: (1 - ratio) / (1 + ratio) * ratio ** abs(x) for x in range(-largest, largest + 1)}


def gaussian_mass(variance, largest=200):
    """Return `P(x)` for `|x| <= largest`."""
    mass = {x: math.exp(-(x**2) / (2 * variance)) for x in range(-largest, largest + 1)}
    return {x: p / math.fsum(mass.values()) for x, p in mass.items()}


# -- every path through the samplers ------------------------------------------------------------------


class Branch(Exception):  # noqa: N818
    """A sampler asks for a decision that the script does not hold; carries the weights of its values."""


class Restart(Exception):  # noqa: N818
    """A sampler rejected a draw and begins anew."""


def one_in(n):
    return {value: 1 / n for value in range(n)}


class Script:
    """Decisions to hand out, one after another; the first one again means that the sampler restarts."""

    def __init__(self, decisions):
        self.decisions, self.first = iter(decisions), None

    def __call__(self, n):
        return self.decide(("uniform", n), one_in(n))

    def coin(self, gamma):
        heads = math.exp(-gamma)
        return bool(self.decide("coin", {1: heads, 0: 1 - heads} if gamma else {1: 1.0}))

    def decide(self, kind, weights):
        if kind == self.first:
            raise Restart
        self.first = self.first or kind
        return self.draw(weights)

    def draw(self, weights):
        for decision in self.decisions:
            return decision
        raise Branch(weights)


def enumerate_paths(sampler):
    """Return the probability of every result of a sampler that restarts until it accepts."""
    found, restarts, missing, todo = defaultdict(float), 0.0, 0.0, [((), 1.0)]
    while todo:
        decisions, weight = todo.pop()
        if weight < 1e-11:
            missing += weight
            continue
        try:
            found[sampler(Script(decisions))] += weight
        except Branch as branch:
            todo += [((*decisions, value), weight * p) for value, p in branch.args[0].items()]
        except Restart:
            restarts += weight
    assert missing < 1e-6
    return {result: weight / (1 - restarts) for result, weight in found.items()}


def scripted_laplace(scale, script):
    return script.decide("laplace", laplace_mass(float(scale)))


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(2, 3), Fraction(5, 2)])
def test_the_coin_of_every_gamma_has_probability_exp_minus_gamma(gamma):
    found = enumerate_paths(lambda script: dn._bernoulli_exp(gamma, lambda n: script.draw(one_in(n))))
    assert found[True] == pytest.approx(math.exp(-gamma), abs=1e-6)


@pytest.mark.parametrize(
    ("draw", "mass", "parameter"),
    [
        (dn.discrete_laplace, laplace_mass, Fraction(5, 3)),
        (dn.discrete_laplace, laplace_mass, Fraction(1, 2)),
        (dn.discrete_gaussian, gaussian_mass, Fraction(1, 3)),
        (dn.discrete_gaussian, gaussian_mass, Fraction(7, 2)),
    ],
)
def test_all_paths_of_a_sampler_add_up_to_the_formula(draw, mass, parameter, monkeypatch):
    monkeypatch.setattr(dn, "_bernoulli_exp", lambda gamma, script: script.coin(gamma))
    if draw is dn.discrete_gaussian:
        monkeypatch.setattr(dn, "discrete_laplace", scripted_laplace)
    found = enumerate_paths(lambda script: draw(parameter, script))
    for x, p in mass(float(parameter)).items():
        assert abs(x) > 20 or found.get(x, 0.0) == pytest.approx(p, abs=1e-6), x


@pytest.mark.parametrize("n", [1, 2**63, 2**63 + 1, 10**40])
def test_seeded_integers_are_uniform_below_n_of_any_size(n):
    uniform = seeded(8)
    draws = [uniform(n) for _ in range(1000)]
    assert all(0 <= draw < n for draw in draws)
    for cells in ([draw * 10 // n for draw in draws], [draw % 16 for draw in draws]):  # low bits too
        assert n == 1 or chisquare(np.bincount(cells)).pvalue > LEVEL


def test_noisy_counts_have_discrete_laplace_noise_whose_tails_are_at_the_ends(monkeypatch):
    assert dn.noisy_count(0, 0, Fraction(1, 2), seeded(9)) == 0
    monkeypatch.setattr(dn, "discrete_laplace", scripted_laplace)
    found = enumerate_paths(lambda script: dn.noisy_count(2, 12, Fraction(1, 2), script))
    expected = [0.0] * 13
    for x, p in laplace_mass(2.0).items():
        expected[min(max(2 + x, 0), 12)] += p
    assert [found[count] for count in range(13)] == pytest.approx(expected)


# -- noise on a grid -----------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.floats(1e-6, 1e6), st.floats(0, 1e6))
def test_rounding_makes_no_vector_longer_and_moves_it_by_less_than_a_step(values, bound, multiplier):
    step, vector = dn.grid_step(bound, multiplier), bound * np.array(values)
    rounded = dn.to_steps(vector, step) * step
    assert (np.abs(rounded) <= np.abs(vector)).all()
    assert (np.abs(rounded - vector) < step).all()
    np.testing.assert_array_equal(dn.to_steps(rounded, step) * step, rounded)  # it is on the grid


@given(st.floats(1e-6 / 16, 1e6), st.floats(0, 1e6))
def test_steps_are_powers_of_two_far_below_the_noise_and_secure_sums_hold_them(bound, multiplier):
    step = dn.grid_step(bound, multiplier)
    assert math.frexp(step)[0] == 0.5
    assert step >= RESOLUTION, "a secure sum rounds to its own grid, which must be finer"
    # sums, and noise of 50 standard deviations, are exact in float64
    assert (bound + 50 * 2 * max(1.0, multiplier) * bound) / step < 2**53
    if multiplier >= 1e-3:
        assert 2 * multiplier * bound / step > 2**30


def test_noise_has_the_variance_it_is_asked_for_and_lies_on_the_grid():
    step, stddev = dn.grid_step(1.0, 1.0), 0.7
    steps = dn.to_steps(np.linspace(-1, 1, 3000).reshape(30, 100), step)
    noisy = dn.add_noise(steps, stddev, step, uniform_from(np.random.default_rng(0)))
    assert noisy.shape == steps.shape
    np.testing.assert_array_equal(np.round(noisy / step) * step, noisy)
    drawn = np.ravel(noisy - steps * step) / stddev
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert stats.kstest(drawn * 1.2, "norm").pvalue < 1e-3  # negative control
    assert 0 <= dn.noise_variance(stddev, step) / (stddev / step) ** 2 - 1 < 1e-8, "rounded up"
    np.testing.assert_array_equal(dn.add_noise(steps, 0.0, step, lambda n: 1 // 0), steps * step)
