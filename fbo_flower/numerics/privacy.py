"""Differential privacy of noisy sums (Gaussian mechanism): clipping, epsilon, and what an agent has spent.

A release adds `N(0, (z D)^2 I)` to a sum to which one participant contributes a vector of norm at most `D`
(the sensitivity); `z` is the noise multiplier. Neighbouring data sets differ by one participant. With Poisson
sampling each participant is in the sum with probability `q`.

Releases without sampling are together one Gaussian release with `1 / z^2 = sum_i 1 / z_i^2`, of which epsilon
is known in closed form [Balle2018, Dong2022]. Sampled releases are for the library dp-accounting, which
composes distributions of privacy losses [Doroshenko2022].

[Balle2018] Balle, Wang: Improving the Gaussian mechanism for differential privacy, Theorem 8.
[Dong2022] Dong, Roth, Su: Gaussian differential privacy, Corollary 3.3.
[Doroshenko2022] Doroshenko, Ghazi, Kamath, Kumar, Manurangsi: Connect the dots, PoPETs 2022.
[Koskela2023] Koskela, Tobaben, Honkela: Individual privacy accounting with Gaussian differential privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

MOST_ENTRIES = 64
MOST_RELEASES = 1_000_000
# less noise hides nothing; 0 says that there was none
LEAST_MULTIPLIER, LARGEST_MULTIPLIER = 1e-6, 1e9
LEAST_SAMPLED = 0.1  # with less noise, sampling is not counted: the losses need too long a grid
COARSEST = 5e-3  # of the grid of losses


def clip_norm(vector: Array, bound: float) -> Array:
    """Return the vector, scaled to norm `bound` if its norm is larger."""
    norm = float(np.linalg.norm(vector))
    return vector if norm <= bound else vector * (bound / norm)


def gaussian_epsilon(precision: float, delta: float) -> float:
    """Return the smallest `epsilon >= 0` of Gaussian releases without sampling.

    `delta = Phi(m / 2 - epsilon / m) - exp(epsilon) Phi(-m / 2 - epsilon / m)` with `m^2` the precision.

    Parameters
    ----------
    precision : `sum_i 1 / z_i^2` over the releases
    delta : in `(0, 1)`

    >>> round(gaussian_epsilon(10.0, 1e-5), 2)
    17.86
    """
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta: expected a number between 0 and 1, got {delta}")
    if precision == 0.0:
        return 0.0
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    m = math.sqrt(precision)

    def excess(epsilon: float) -> float:
        first, second = log_ndtr(m / 2 - epsilon / m), epsilon + log_ndtr(-m / 2 - epsilon / m)
        return float(np.exp(first) - np.exp(second)) - delta

    if excess(0.0) <= 0.0:
        return 0.0
    # at this epsilon, of concentrated privacy, delta is smaller
    above = m * m / 2 + m * math.sqrt(2 * math.log(1 / delta))
    return float(brentq(excess, 0.0, above, xtol=1e-12 * above, rtol=1e-12)) * (1 + 1e-11)


@lru_cache(maxsize=1024)
def sampled_epsilon(noise_multiplier: float, sampling_rate: float, count: int, delta: float) -> float:
    """Return an upper bound of the smallest `epsilon` of `count` equal releases; infinite without noise.

    >>> round(sampled_epsilon(1.0, 0.35, 20, 1e-3), 1)
    7.7
    """
    z, q = noise_multiplier, sampling_rate
    if not (z >= 0.0 and 0.0 < q <= 1.0 and math.isfinite(z) and count >= 0):
        raise ConfigError(
            f"privacy: expected z >= 0, 0 < q <= 1 and a count from 0, got z = {z}, q = {q}, {count} releases"
        )
    if count == 0:
        return 0.0
    if z < LEAST_MULTIPLIER:
        return math.inf
    without = gaussian_epsilon(count / z**2, delta)
    if q == 1.0 or z < LEAST_SAMPLED:
        return without
    try:
        from dp_accounting import dp_event
        from dp_accounting.pld import PLDAccountant
    except ImportError as error:
        raise ConfigError(
            "sampling_rate: expected 1, because the library that counts sampled releases is not installed, "
            f"got {q}; pip install 'fbo-flower[dp]', or set sampling_rate=1"
        ) from error
    accountant = PLDAccountant(value_discretization_interval=min(COARSEST, 0.02 / z))
    accountant.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z)), count)
    return min(without, float(accountant.get_epsilon(delta)))


@dataclass(frozen=True)
class Account:
    """What an agent has spent on Gaussian releases: how often it released sums, with how much noise.

    An agent keeps it with its memory as a small JSON value. It holds noise multipliers and counts, no
    epsilon: epsilons of single releases add up to much more than the releases cost together. An agent may
    choose the noise of a release as it goes, as long as it stops at a total fixed in advance [Koskela2023].
    Sampling does not count: an agent that answers a request of the server knows that the server knows.

    Parameters
    ----------
    releases : noise multiplier -> how often. A multiplier of 0 is a release without noise
    """

    releases: Mapping[float, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for multiplier, count in self.releases.items():
            _check_multiplier(multiplier)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ConfigError(f"account: expected a positive number of releases, got {count!r}")
        if len(self.releases) > MOST_ENTRIES:
            raise ConfigError(
                f"account: expected at most {MOST_ENTRIES} different noise multipliers, got "
                f"{len(self.releases)}; use fewer different ones"
            )
        if sum(self.releases.values()) > MOST_RELEASES:
            raise ConfigError(f"account: expected at most {MOST_RELEASES} releases")

    def add(self, noise_multiplier: float, count: int = 1) -> Account:
        """Return the account after `count` more releases."""
        key = float(noise_multiplier)
        return Account({**self.releases, key: self.releases.get(key, 0) + count})

    def epsilon(self, delta: float) -> float:
        """Return the `epsilon` of all releases together; infinite if one had no noise.

        >>> round(Account().add(2.0).add(3.0).epsilon(1e-3), 2)
        1.69
        """
        noisy = {z: count for z, count in self.releases.items() if z}
        epsilon = gaussian_epsilon(math.fsum(count / z**2 for z, count in noisy.items()), delta)
        return epsilon if len(noisy) == len(self.releases) else math.inf

    def to_json(self) -> dict[str, list[list[float]]]:
        """Return the account as a value for JSON, entries in order."""
        return {"releases": [[z, count] for z, count in sorted(self.releases.items())]}

    @staticmethod
    def from_json(value: object) -> Account:
        """Return the account of a value that `to_json` made and JSON carried.

        A damaged value raises ConfigError, because an empty account must not replace it.
        """
        rows = value.get("releases") if isinstance(value, dict) and set(value) == {"releases"} else None
        if not isinstance(rows, list):
            raise ConfigError('account: expected {"releases": [[noise multiplier, count], ...]}')
        if len(rows) > MOST_ENTRIES:
            raise ConfigError(f"account: expected at most {MOST_ENTRIES} entries, got {len(rows)}")
        releases: dict[float, int] = {}
        for row in rows:
            if not isinstance(row, list) or len(row) != 2:
                raise ConfigError("account: expected rows of noise multiplier and count")
            _check_multiplier(row[0])
            if float(row[0]) in releases:
                raise ConfigError(f"account: expected each noise multiplier once, got {row[0]} twice")
            releases[float(row[0])] = row[1]
        return Account(releases)


def _check_multiplier(value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and (LEAST_MULTIPLIER <= value <= LARGEST_MULTIPLIER or value == 0):  # type: ignore[operator]
        return
    raise ConfigError(
        f"account: noise_multiplier: expected a number from {LEAST_MULTIPLIER:g} to {LARGEST_MULTIPLIER:g} "
        f"or 0, got {value!r:.50}"
    )
