"""Discrete noise: all paths through the samplers against the formulas, draws against the probabilities."""

from __future__ import annotations

import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from fbo_flower.errors import ConfigError
from fbo_flower.numerics import discrete_noise
from fbo_flower.numerics.discrete_noise import (
    LARGEST_SCALE,
    Uniform,
    discrete_gaussian,
    discrete_gaussians,
    discrete_laplace,
    noisy_count,
    uniform_from,
)

Mass = dict[int, float]
LEVEL = 1e-3  # of the chi-squared tests; seeds are fixed


def seeded(seed: int) -> Uniform:
    return uniform_from(np.random.default_rng(seed))


def laplace_mass(scale: float, largest: int) -> Mass:
    """Return `P(x)` for `|x| <= largest` by the closed form."""
    ratio = math.exp(-1 / scale)
    return {x: (1 - ratio) / (1 + ratio) * ratio ** abs(x) for x in range(-largest, largest + 1)}


def gaussian_mass(variance: float, largest: int) -> Mass:
    """Return `P(x)` for `|x| <= largest`, normalised over a much wider range."""
    wide = range(-20 * largest, 20 * largest + 1)
    total = math.fsum(math.exp(-(x**2) / (2 * variance)) for x in wide)
    return {x: math.exp(-(x**2) / (2 * variance)) / total for x in range(-largest, largest + 1)}


# -- every path through the samplers ------------------------------------------------------------------


class Branch(Exception):  # noqa: N818
    """A sampler asks for a decision that the script does not hold."""

    def __init__(self, weights: Mass) -> None:
        self.weights = weights


class Restart(Exception):  # noqa: N818
    """A sampler rejected a draw and begins anew."""


def one_in(n: int) -> Mass:
    return {value: 1 / n for value in range(n)}


class Script:
    """Decisions to hand out, one after another; the first one again means that the sampler restarts."""

    def __init__(self, decisions: tuple[int, ...]) -> None:
        self.decisions = iter(decisions)
        self.first: tuple[str, int] | None = None

    def __call__(self, n: int) -> int:
        return self.decide(("uniform", n), one_in(n))

    def coin(self, gamma: Fraction) -> bool:
        heads = math.exp(-gamma)
        return bool(self.decide(("coin", 0), {1: heads, 0: 1 - heads} if gamma else {1: 1.0}))

    def decide(self, kind: tuple[str, int], weights: Mass) -> int:
        if kind == self.first:
            raise Restart
        self.first = self.first or kind
        return self.draw(weights)

    def draw(self, weights: Mass) -> int:
        for decision in self.decisions:
            return decision
        raise Branch(weights)


def enumerate_paths(sampler: Callable[[Script], int]) -> Mass:
    """Return the probability of every result of a sampler that restarts until it accepts."""
    found: Mass = defaultdict(float)
    restarts, missing = 0.0, 0.0
    todo: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while todo:
        decisions, weight = todo.pop()
        if weight < 1e-11:
            missing += weight
            continue
        try:
            found[sampler(Script(decisions))] += weight
        except Branch as branch:
            todo += [((*decisions, value), weight * p) for value, p in branch.weights.items()]
        except Restart:
            restarts += weight
    assert missing < 1e-6
    return {result: weight / (1 - restarts) for result, weight in found.items()}


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 2), Fraction(2, 3), Fraction(1), Fraction(5, 2)])
def test_the_coin_of_every_gamma_has_probability_exp_minus_gamma(gamma: Fraction) -> None:
    found = enumerate_paths(
        lambda script: discrete_noise._bernoulli_exp(gamma, lambda n: script.draw(one_in(n)))
    )
    assert found[True] == pytest.approx(math.exp(-gamma), abs=1e-6)


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(3), Fraction(1, 2), Fraction(5, 3)])
def test_all_paths_of_the_laplace_sampler_add_up_to_the_formula(
    scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discrete_noise, "_bernoulli_exp", lambda gamma, script: script.coin(gamma))
    found = enumerate_paths(lambda script: discrete_laplace(scale, script))
    for x, p in laplace_mass(float(scale), 20).items():
        assert found.get(x, 0.0) == pytest.approx(p, abs=1e-6), x


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40)])
def test_all_paths_of_the_gaussian_sampler_add_up_to_the_formula(
    variance: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    def laplace(scale: Fraction, script: Script) -> int:
        return script.decide(("laplace", 0), laplace_mass(float(scale), 200))

    monkeypatch.setattr(discrete_noise, "_bernoulli_exp", lambda gamma, script: script.coin(gamma))
    monkeypatch.setattr(discrete_noise, "discrete_laplace", laplace)
    found = enumerate_paths(lambda script: discrete_gaussian(variance, script))
    for x, p in gaussian_mass(float(variance), 30).items():
        assert found.get(x, 0.0) == pytest.approx(p, abs=1e-6), x


# -- draws --------------------------------------------------------------------------------------------


def fit(draws: np.ndarray | list[int], mass: Mass) -> float:
    """Return the p-value of chi-squared for draws; values with fewer than 10 expected share a bin."""
    counts = Counter(np.asarray(draws).tolist())
    kept = [x for x, p in mass.items() if p * len(draws) >= 10]
    observed = [counts[x] for x in kept]
    expected = [mass[x] * len(draws) for x in kept]
    rest = len(draws) - sum(observed), len(draws) - sum(expected)
    return float(chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue)


@pytest.mark.parametrize(
    ("mass", "parameter"),
    [
        *((laplace_mass, Fraction(*scale)) for scale in ((1, 2), (10, 7), (12, 1))),
        *((gaussian_mass, Fraction(*variance)) for variance in ((1, 4), (5, 2), (150, 1))),
    ],
)
def test_draws_follow_the_formula_and_another_parameter_is_told_apart(
    mass: Callable[[float, int], Mass], parameter: Fraction
) -> None:
    uniform, laplace = seeded(1), mass is laplace_mass
    draw = discrete_laplace if laplace else discrete_gaussian
    draws = [draw(parameter, uniform) for _ in range(5000)]
    assert fit(draws, mass(float(parameter), 100)) > LEVEL
    assert fit(draws, mass(1.2 * float(parameter), 100)) < LEVEL
    if not laplace:  # [Canonne2020, Cor. 9]
        exact = sum(p * x * x for x, p in mass(float(parameter), 100).items())
        assert exact <= float(parameter) * (1 + 1e-12)


def test_a_zero_that_counts_twice_and_rounded_normals_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    twice = rng.choice([-1, 1], 5000) * (rng.geometric(1 - math.exp(-0.7), 5000) - 1)
    assert fit(twice, laplace_mass(10 / 7, 100)) < LEVEL
    rounded = np.rint(rng.normal(scale=math.sqrt(0.25), size=5000)).astype(int)
    assert fit(rounded, gaussian_mass(0.25, 100)) < LEVEL


def test_arrays_hold_the_single_draws() -> None:
    uniform = seeded(6)
    single = [discrete_gaussian(Fraction(7), uniform) for _ in range(20)]
    array = discrete_gaussians(Fraction(7), 20, seeded(6))
    assert array.dtype == np.int64
    assert array.tolist() == single
    assert discrete_gaussians(Fraction(7), 0, seeded(6)).shape == (0,)


def test_scales_beyond_any_float_are_drawn_exactly_and_the_operating_systems_generator_serves_too() -> None:
    draw = discrete_laplace(Fraction(10**400 + 1, 3), secrets.randbelow)
    assert 10**390 < abs(draw) < 10**402
    assert discrete_laplace(Fraction(1, 10**400), seeded(7)) == 0


# -- numbers below n ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 2**63, 2**63 + 1, 3 * 2**64, 10**40])
def test_seeded_integers_are_uniform_below_n_of_any_size(n: int) -> None:
    uniform = seeded(8)
    draws = [uniform(n) for _ in range(1000)]
    assert all(0 <= draw < n for draw in draws)
    cells = min(n, 10)
    counts = np.bincount([draw * cells // n for draw in draws], minlength=cells)
    assert cells == 1 or chisquare(counts).pvalue > LEVEL
    if n >= 2**62:  # low bits too
        assert chisquare(np.bincount([draw % 16 for draw in draws], minlength=16)).pvalue > LEVEL


# -- what the noise promises --------------------------------------------------------------------------


def count_mass(count: int, n: int, epsilon: float) -> list[float]:
    """Return the probability of every answer of `noisy_count`: the ends hold the tails."""
    ratio = math.exp(-epsilon)
    inner = [(1 - ratio) / (1 + ratio) * ratio ** abs(x - count) for x in range(n + 1)]
    if n == 0:
        return [1.0]
    return [ratio**count / (1 + ratio), *inner[1:-1], ratio ** (n - count) / (1 + ratio)]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_neighbouring_counts_give_every_answer_with_a_ratio_of_at_most_exp_epsilon(epsilon: float) -> None:
    n = 12
    ratios = []
    for count in range(n):
        first, second = count_mass(count, n, epsilon), count_mass(count + 1, n, epsilon)
        assert math.fsum(first) == pytest.approx(1.0, rel=1e-12)
        ratios += [math.log(a / b) for a, b in zip(first, second, strict=True)]
    assert max(map(abs, ratios)) == pytest.approx(epsilon, rel=1e-9)  # and no answer is above it
    # counts that differ by two are not covered
    far = [math.log(a / b) for a, b in zip(count_mass(0, n, epsilon), count_mass(2, n, epsilon), strict=True)]
    assert max(map(abs, far)) > 1.5 * epsilon


def test_answers_follow_the_mass_that_the_promise_is_about() -> None:
    uniform = seeded(9)
    answers = [noisy_count(2, 12, Fraction(1, 2), uniform) for _ in range(3000)]
    expected = np.array(count_mass(2, 12, 0.5)) * len(answers)
    assert chisquare(np.bincount(answers, minlength=13), expected).pvalue > LEVEL
    other = np.array(count_mass(3, 12, 0.5)) * len(answers)
    assert chisquare(np.bincount(answers, minlength=13), other).pvalue < LEVEL


def certain_of_zero(answer: float, n: int) -> bool:
    """Return whether the last bits of a noisy rate prove that the count is 0 and not 1 [Mironov2012].

    With count 1 an answer near 0 is `1 / n - noise`. Both are floats above `1 / 2n`, so their difference is
    a multiple of the spacing of floats there. With count 0 the answer is the noise, with all its finer bits.
    """
    spacing = math.ulp(1 / (2 * n)) / 2
    return 0 < answer < 1 / (4 * n) and not (answer / spacing).is_integer()


def test_last_bits_give_floating_point_noise_away_and_say_nothing_here() -> None:
    n, epsilon, tries = 100, Fraction(1), 1000
    rng, uniform = np.random.default_rng(10), seeded(11)

    def by_floats(count: int) -> float:
        return float(np.clip(count / n + rng.laplace(scale=1 / (n * float(epsilon))), 0.0, 1.0))

    def by_integers(count: int) -> float:
        return noisy_count(count, n, epsilon, uniform) / n

    caught = [sum(certain_of_zero(by_floats(count), n) for _ in range(tries)) for count in (0, 1)]
    assert caught[0] > tries / 50  # certainty, in a share of the answers that epsilon forbids ...
    assert caught[1] == 0  # ... and without one wrong verdict: no epsilon holds
    caught = [sum(certain_of_zero(by_integers(count), n) for _ in range(tries)) for count in (0, 1)]
    assert caught == [0, 0]
    # both counts reach the same floats
    reached = [{by_integers(count) for _ in range(tries)} for count in (0, 1)]
    common = {k / n for k in range(4)}
    assert common <= reached[0] & reached[1]
    assert reached[0] | reached[1] <= {k / n for k in range(n + 1)}


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, Fraction(-1, 2), 0.5, math.nan, True, "1", None])
def test_parameters_that_are_not_positive_rationals_are_refused(value: object) -> None:
    for draw, before, after in (
        (discrete_laplace, (), ()), (discrete_gaussian, (), ()), (discrete_gaussians, (), (3,)),
        (noisy_count, (1, 2), ()),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=r"scale|variance|epsilon"):
            draw(*before, value, *after, seeded(12))


def test_counts_out_of_range_and_arrays_beyond_int64_are_refused() -> None:
    uniform = seeded(13)
    for count, n in ((-1, 5), (6, 5), (0, -1), (1.0, 5), (True, 5), (1, 5.0)):
        with pytest.raises(ConfigError, match=r"count|n:"):
            noisy_count(count, n, Fraction(1), uniform)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="int64"):
        discrete_gaussians(Fraction(LARGEST_SCALE**2 + 1), 1, uniform)
    with pytest.raises(ConfigError, match="draws"):
        discrete_gaussians(Fraction(1), -1, uniform)
    with pytest.raises(ConfigError, match="uniform"):
        uniform(0)
