"""Differential privacy of Gaussian sums by privacy-loss distributions: tighter than Renyi divergences.

A release is `x ~ N(0, z^2)` without a participant and `x ~ (1 - q) N(0, z^2) + q N(1, z^2)` with it, in units
of the sensitivity: `z` is the noise multiplier, `q` the chance of a participant to be in the sum (Poisson
sampling). Neighbours differ in one of two directions: the participant is removed (`P` is the mixture, `Q` the
plain Gaussian) or added (the other way round). An observer's evidence is the privacy loss

    L = log P(x) / Q(x),  x ~ P,      delta(epsilon) = E[max(0, 1 - exp(epsilon - L))]

Losses of adaptive releases add up, so their distributions are convolved [Sommer2019, Zhu2022], and the larger
delta of the two directions holds.

Losses are kept on a grid, and every approximation errs on the safe side, up to rounding of float64. A loss
between two grid points is split between them such that `P` and `Q` both keep their mass [Doroshenko2022]: the
observer learns more than before, never less, and delta is above the true one by a term of second order in the
step. What lies beyond the grid moves up, in the end to infinity, and so does a bound on the rounding of FFTs.

[Sommer2019] Sommer, Meiser, Mohammadi: Privacy loss classes, PoPETs 2019.
[Koskela2020] Koskela, Jälkö, Honkela: Computing tight differential privacy guarantees using FFT, 2020.
[Doroshenko2022] Doroshenko, Ghazi, Kamath, Kumar, Manurangsi: Connect the dots, PoPETs 2022.
[Zhu2022] Zhu, Dong, Wang: Optimal accounting of differential privacy via characteristic function, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

SMALLEST_MULTIPLIER, LARGEST_MULTIPLIER = 1e-9, 1e9
SMALLEST_RATE = 1e-6
MOST_POINTS = 2**15  # of one release, unless the step is given
_REACH = 8.3  # standard deviations of a release; 5e-17 of its mass lies beyond
_TAIL = 1e-13  # mass above the grid of a composition, moved to infinity
_TILTS = 2.0 ** np.arange(-20.0, 2.0)  # exponents of Chernoff bounds, per grid step
_FAR = 500.0  # losses above are rounded up: exp(-loss) nears the smallest float


@dataclass(frozen=True)
class LossDistribution:
    """Privacy losses in one direction: `P(L = step (offset + i)) = probabilities[i]`.

    Parameters
    ----------
    step : positive, between two grid points
    offset : index of the first grid point
    probabilities : `(n,)`, not negative
    infinity : `P(L = inf)`, the probability of giving a participant away
    """

    step: float
    offset: int
    probabilities: Array
    infinity: float

    def __post_init__(self) -> None:
        if not (self.step > 0.0 and math.isfinite(self.step)):
            raise ConfigError(f"step: expected a positive number, got {self.step}")
        if self.probabilities.ndim != 1 or not len(self.probabilities) or not np.all(self.probabilities >= 0):
            raise ConfigError("probabilities: expected a row of numbers from 0")
        if not 0.0 <= self.infinity <= 1.0:
            raise ConfigError(f"infinity: expected a probability, got {self.infinity}")

    @property
    def losses(self) -> Array:
        """The grid `(n,)`."""
        return self.step * (self.offset + np.arange(len(self.probabilities), dtype=np.float64))

    # what compositions need of a distribution, in grid steps; most are composed many times

    @cached_property
    def mean(self) -> float:
        """Mean loss over `step`, counted from `offset`."""
        return float(self.probabilities @ np.arange(len(self.probabilities), dtype=np.float64))

    @cached_property
    def norm(self) -> float:
        """Euclidean norm of the probabilities."""
        return float(np.linalg.norm(self.probabilities))

    @cached_property
    def log_moments(self) -> Array:
        """`log E exp(-t i)` and `log E exp(t i)`, `(2, n)`, for the `t` of `_TILTS`; `i` is centred."""
        logs = np.empty((2, len(_TILTS)))
        power = np.exp(_TILTS[0] * (np.arange(len(self.probabilities)) - self.mean))
        with np.errstate(all="ignore"):  # moments that overflow are infinite, and not used
            for k in range(len(_TILTS)):
                logs[:, k] = np.log([self.probabilities @ (1 / power), self.probabilities @ power])
                power = power**2
        return np.where(np.isfinite(logs), logs, np.inf)


@dataclass(frozen=True)
class PrivacyLoss:
    """Privacy losses where the participant is removed, and where it is added."""

    remove: LossDistribution
    add: LossDistribution


def gaussian_loss(
    noise_multiplier: float, sampling_rate: float = 1.0, step: float | None = None
) -> PrivacyLoss:
    """Return the privacy losses of one Gaussian release.

    Parameters
    ----------
    noise_multiplier : `z`, s.d. of the noise over the sensitivity, from 1e-9 to 1e9
    sampling_rate : `q`, from 1e-6 to 1
    step : of the grid; None takes `grid_step`. Losses are composed only if their steps are equal

    Raises
    ------
    ConfigError
        If a parameter is out of bounds, or the step needs a grid that is much too long.
    """
    z, q = _checked(noise_multiplier, sampling_rate)
    if step is None:
        step = grid_step([(z, q, 1)])
    if not step > 0.0 or _loss_range(z, q) > 64 * MOST_POINTS * step:
        raise ConfigError(f"step: expected a positive number that suits z = {z} and q = {q}, got {step}")
    remove = _discretise(z, q, step, removed=True)
    return PrivacyLoss(remove, remove if q == 1.0 else _discretise(z, q, step, removed=False))


def grid_step(releases: Iterable[tuple[float, float, int]]) -> float:
    """Return a step that suits a composition of `(noise_multiplier, sampling_rate, count)`.

    A grid adds about `step^2 / 6` to the variance of each loss. The step is at most a tenth of their root
    mean square standard deviation, so it adds less than 0.2 % to their sum's variance. Where losses are
    large it is at most 1/4, as long as that is cheap, because an error in `exp(-loss)` grows with the step.
    It is a power of two, so that losses which were computed before can be used again.
    """
    variance, number, longest = 0.0, 0, 0.0
    for noise_multiplier, sampling_rate, count in releases:
        z, q = _checked(noise_multiplier, sampling_rate)
        variance, number = variance + count * _loss_variance(z, q), number + count
        longest = max(longest, _loss_range(z, q))
    if number == 0:
        return 1.0
    stddev = math.sqrt(variance / number)
    step = max(min(0.1 * stddev, max(0.25, 0.01 * stddev)), longest / MOST_POINTS)
    return float(2.0 ** math.floor(math.log2(step)))


def compose(losses: Sequence[PrivacyLoss], counts: Sequence[int] | None = None) -> PrivacyLoss:
    """Return the privacy losses of several releases together.

    Parameters
    ----------
    losses : one or more, with equal steps
    counts : how often each happened; None: once

    Raises
    ------
    ConfigError
        If the steps differ, a count is negative, or there is nothing to compose.
    """
    counts = [1] * len(losses) if counts is None else counts
    if not losses or len(losses) != len(counts) or min(counts) < 0:
        raise ConfigError("compose: expected one or more losses, and for each a count from 0")
    steps = {part.step for loss in losses for part in (loss.remove, loss.add)}
    if len(steps) > 1:
        raise ConfigError(f"compose: expected losses with equal steps, got {sorted(steps)}")
    remove = _convolve([(loss.remove, count) for loss, count in zip(losses, counts, strict=True)])
    if all(loss.add is loss.remove for loss in losses):
        return PrivacyLoss(remove, remove)
    return PrivacyLoss(
        remove, _convolve([(loss.add, count) for loss, count in zip(losses, counts, strict=True)])
    )


def self_compose(loss: PrivacyLoss, count: int) -> PrivacyLoss:
    """Return the privacy losses of `count` equal releases.

    >>> round(epsilon(self_compose(gaussian_loss(1.0, 0.35), 20), 1e-3), 1)
    7.7
    """
    return compose([loss], [count])


def delta(loss: PrivacyLoss, epsilon: float) -> float:
    """Return the smallest `delta` that the losses show for this `epsilon >= 0`."""
    if not epsilon >= 0.0:
        raise ConfigError(f"epsilon: expected a number from 0, got {epsilon}")
    return max(_delta(part, epsilon) for part in _directions(loss))


def epsilon(loss: PrivacyLoss, delta: float) -> float:
    """Return the smallest `epsilon >= 0` that the losses show for this `delta`; infinite if there is none."""
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta: expected a number between 0 and 1, got {delta}")
    return max(_epsilon(part, delta) for part in _directions(loss))


def _directions(loss: PrivacyLoss) -> tuple[LossDistribution, ...]:
    return (loss.remove,) if loss.add is loss.remove else (loss.remove, loss.add)


def _delta(part: LossDistribution, epsilon: float) -> float:
    above = max(0, math.floor(epsilon / part.step) - part.offset)
    excess = np.maximum(0.0, -np.expm1(epsilon - part.losses[above:]))
    return min(1.0, part.infinity + float(excess @ part.probabilities[above:]))


def _epsilon(part: LossDistribution, delta: float) -> float:
    if part.infinity >= delta:
        return math.inf
    if _delta(part, 0.0) <= delta:
        return 0.0
    # delta falls with epsilon and is linear in exp(epsilon) between grid points: find the two around it
    low, high = max(0, -part.offset), len(part.probabilities) - 1
    losses = part.losses
    while low < high:
        middle = (low + high) // 2
        if _delta(part, float(losses[middle])) <= delta:
            high = middle
        else:
            low = middle + 1
    # delta = infinity + sum p - exp(epsilon) sum p exp(-loss) over the losses from here on
    tail = part.probabilities[low:]
    scaled = float(tail @ np.exp(losses[low] - losses[low:]))
    root = float(losses[low]) + math.log((part.infinity + float(tail.sum()) - delta) / scaled)
    return max(0.0, root)


# -- one release --------------------------------------------------------------------------------------


def _checked(noise_multiplier: float, sampling_rate: float) -> tuple[float, float]:
    z, q = float(noise_multiplier), float(sampling_rate)
    if not (SMALLEST_MULTIPLIER <= z <= LARGEST_MULTIPLIER and SMALLEST_RATE <= q <= 1.0):
        raise ConfigError(
            f"privacy: expected a noise multiplier from {SMALLEST_MULTIPLIER:g} to {LARGEST_MULTIPLIER:g} "
            f"and a sampling rate from {SMALLEST_RATE:g} to 1, got {noise_multiplier} and {sampling_rate}"
        )
    return z, q


def _loss_at(x: Array, z: float, q: float) -> Array:
    """Return `log(1 - q + q exp((2x - 1) / 2z^2))`, the loss of a removed participant at `x`."""
    ratio = (x - 0.5) / z**2
    if q == 1.0:
        return ratio
    near = np.log1p(q * np.expm1(np.minimum(ratio, 30.0)))
    return np.where(ratio < 30.0, near, np.logaddexp(math.log1p(-q), math.log(q) + ratio))


def _place_of(loss: Array, z: float, q: float) -> Array:
    """Return the `x` of a loss; `-inf` for losses that are too low for any."""
    if q == 1.0:
        return 0.5 + z**2 * loss
    with np.errstate(divide="ignore"):
        near = np.log1p(np.maximum(-1.0, np.expm1(np.minimum(loss, _FAR)) / q))
    return 0.5 + z**2 * np.where(loss < _FAR, near, loss - math.log(q))


@lru_cache(maxsize=1024)
def _loss_range(z: float, q: float) -> float:
    ends = _loss_at(np.array([-_REACH * z, 1.0 + _REACH * z]), z, q)
    return float(ends[1] - ends[0])


@lru_cache(maxsize=1024)
def _loss_variance(z: float, q: float) -> float:
    """Return the variance of the loss of a removed participant, by a sum over 321 points per Gaussian."""
    u = np.linspace(-8.0, 8.0, 321)
    weights = np.exp(-(u**2) / 2)
    weights /= weights.sum()
    plain, shifted = _loss_at(z * u, z, q), _loss_at(1.0 + z * u, z, q)
    mean = (1 - q) * (weights @ plain) + q * (weights @ shifted)
    return float((1 - q) * (weights @ (plain - mean) ** 2) + q * (weights @ (shifted - mean) ** 2))


def _discretise(z: float, q: float, step: float, *, removed: bool) -> LossDistribution:
    """Put the losses of one release on the grid, in one direction."""
    # x ~ P ends near 1 + z _REACH where P is the mixture, near z _REACH where it is the plain Gaussian
    ends = _loss_at(np.array([-_REACH * z, (1.0 if removed else 0.0) + _REACH * z]), z, q)
    low, high = (ends[0], ends[1]) if removed else (-ends[1], -ends[0])
    offset = math.floor(low / step)
    edges = step * np.arange(offset, max(math.ceil(high / step), offset + 1) + 1, dtype=np.float64)
    if removed:
        x = _place_of(edges, z, q)
        plain, shifted = _masses(x, 0.0, z), _masses(x, 1.0, z)
    else:  # the loss falls with x: bins from the last to the first
        x = _place_of(-edges, z, q)[::-1]
        plain, shifted = _masses(x, 0.0, z)[::-1], _masses(x, 1.0, z)[::-1]
    mixture = (1 - q) * plain + q * shifted
    upper, lower = (mixture, plain) if removed else (plain, mixture)  # P and Q: below, in the bins, above
    first, infinity, inner = float(upper[0]), float(upper[-1]), upper[1:-1]
    # a bin from a to a + step: mass w goes up such that (upper - w) exp(-a) + w exp(-a - step) = lower
    scaled = np.where(edges[:-1] < _FAR, lower[1:-1] * np.exp(np.minimum(edges[:-1], _FAR)), 0.0)
    gap = -math.expm1(-step)
    rounding = 8 * np.finfo(np.float64).eps * inner
    up = np.clip((inner - scaled + rounding) / gap, 0.0, inner)
    probabilities = np.zeros(len(edges))
    probabilities[:-1] = inner - up
    probabilities[1:] += up
    probabilities[0] += first
    return LossDistribution(step, offset, probabilities, infinity)


def _masses(x: Array, mean: float, stddev: float) -> Array:
    """Return the mass of a Gaussian below `x[0]`, between neighbours, and above `x[-1]`."""
    from scipy.special import ndtr

    u = np.concatenate([[-np.inf], (x - mean) / stddev, [np.inf]])
    below, above = ndtr(u), ndtr(-u)  # differences of the smaller two keep their digits
    masses: Array = np.where(u[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.maximum(masses, 0.0)


# -- composition --------------------------------------------------------------------------------------


def _convolve(parts: Sequence[tuple[LossDistribution, int]]) -> LossDistribution:
    """Return the distribution of the sum of independent losses, each repeated `counts` times."""
    from scipy.fft import irfft, next_fast_len, rfft

    step = parts[0][0].step
    parts = [(part, count) for part, count in parts if count]
    if not parts:
        return LossDistribution(step, 0, np.ones(1), 0.0)
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    start = sum(count * part.offset for part, count in parts)
    end = start + sum(count * (len(part.probabilities) - 1) for part, count in parts)
    low, high = _window(parts)
    low, infinity = max(low, start), 0.0 if high >= end else _TAIL
    high = min(high, end)
    length = next_fast_len(max(high - low + 1, *(len(part.probabilities) for part, _ in parts), 2), real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    norm = 0.0
    for part, count in parts:
        factor = rfft(part.probabilities, length)
        spectrum *= factor if count == 1 else factor**count
        norm += count * part.norm
    # losses outside [low, low + length) come out at the other end: those below are too high, which is safe,
    # those above are counted as infinite too
    total = np.roll(irfft(spectrum, length), -((low - start) % length))
    # an FFT of length n errs by eps log2(n) of the norm of its input, a power by that for every factor
    infinity += 4 * float(np.finfo(np.float64).eps) * math.log2(length) * math.sqrt(length) * norm
    infinity += 1 - math.prod((1 - part.infinity) ** count for part, count in parts)
    kept = total if low > start else total[: end - low + 1]  # nothing but rounding lies above the end
    return LossDistribution(step, low, np.maximum(kept, 0.0), min(1.0, infinity))


def _window(parts: Sequence[tuple[LossDistribution, int]]) -> tuple[int, int]:
    """Return grid indices around the sum of losses; above, and below, lies a mass of `_TAIL` at most.

    Chernoff: `P(sum > u) <= exp(-t u) prod_i M_i(t)^count` for every `t > 0`.
    """
    centre = sum(count * (part.offset + part.mean) for part, count in parts)
    logs = sum((count * part.log_moments for part, count in parts), np.zeros((2, len(_TILTS))))
    below, above = np.min((logs - math.log(_TAIL)) / _TILTS, axis=1)
    return math.floor(centre - below), math.ceil(centre + above)
