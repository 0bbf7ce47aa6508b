"""What an agent has spent: how often it released sums, with how much noise.

An account is a small JSON value, so that an agent can keep it with its memory. It holds settings and counts,
no epsilon: epsilons of single releases add up to much more than the releases cost together.

Noise and sampling rates must be fixed in advance, or chosen without looking at what was released. Earlier
releases may shape what is released next, but not with how much noise. Releases without sampling are an
exception: an agent may choose their noise as it goes, as long as it stops at a total fixed in advance
[Koskela2023].

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
from fbo_flower.numerics.privacy_loss import (
    LARGEST_MULTIPLIER,
    SMALLEST_RATE,
    compose,
    epsilon,
    gaussian_loss,
    grid_step,
)

MOST_ENTRIES = 64
MOST_RELEASES = 1_000_000
# less noise hides nothing; 0 says that there was none
LEAST_MULTIPLIER = 1e-6

_loss = lru_cache(maxsize=4 * MOST_ENTRIES)(gaussian_loss)


@dataclass(frozen=True)
class Account:
    """Gaussian releases of an agent.

    Parameters
    ----------
    releases : (noise multiplier, sampling rate) -> how often. A multiplier of 0 is a release without noise

    Raises
    ------
    ConfigError
        If a multiplier is neither 0 nor from 1e-6 to 1e9, a rate is not from 1e-6 to 1, a count is not
        positive, or there are more than 64 different entries or a million releases.
    """

    releases: Mapping[tuple[float, float], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (multiplier, rate), count in self.releases.items():
            _check_number("noise_multiplier", multiplier, LEAST_MULTIPLIER, LARGEST_MULTIPLIER, zero=True)
            _check_number("sampling_rate", rate, SMALLEST_RATE, 1.0)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ConfigError(f"account: expected a positive number of releases, got {count!r}")
        if len(self.releases) > MOST_ENTRIES:
            raise ConfigError(
                f"account: expected at most {MOST_ENTRIES} different pairs of noise multiplier and sampling "
                f"rate, got {len(self.releases)}; use fewer different ones"
            )
        if sum(self.releases.values()) > MOST_RELEASES:
            raise ConfigError(f"account: expected at most {MOST_RELEASES} releases")

    def add(self, noise_multiplier: float, sampling_rate: float = 1.0, count: int = 1) -> Account:
        """Return the account after `count` more releases.

        Sampling lowers the cost only if nobody learns who was sampled. An agent that answers a request of the
        server knows that the server knows: it adds its messages with a sampling rate of 1.
        """
        key = (float(noise_multiplier), float(sampling_rate))
        return Account({**self.releases, key: self.releases.get(key, 0) + count})

    def epsilon(self, delta: float) -> float:
        """Return the `epsilon` of all releases together; infinite if one had no noise.

        It is never too low. Usually it is at most 1 % too high; for a `delta` of about 1e-10 or below the
        bound by Renyi divergences is used, which is looser.

        >>> account = Account().add(2.0).add(3.0).add(1.0, 0.35, count=10)
        >>> round(account.epsilon(1e-3), 1)
        5.7
        """
        if not 0.0 < delta < 1.0:
            raise ConfigError(f"delta: expected a number between 0 and 1, got {delta}")
        if not self.releases:
            return 0.0
        if any(multiplier == 0.0 for multiplier, _ in self.releases):
            return math.inf
        parts = self._parts()
        step = grid_step(parts)
        loss = compose([_loss(z, q, step) for z, q, _ in parts], [count for _, _, count in parts])
        found = epsilon(loss, delta)
        if max(loss.remove.infinity, loss.add.infinity) < 0.01 * delta:
            return found
        return min(found, _renyi_epsilon(parts, delta))

    def to_json(self) -> dict[str, list[list[float]]]:
        """Return the account as a value for JSON, entries in order."""
        return {"releases": [[z, q, count] for (z, q), count in sorted(self.releases.items())]}

    @staticmethod
    def from_json(value: object) -> Account:
        """Return the account of a value that `to_json` made and JSON carried.

        Raises
        ------
        ConfigError
            If the value is damaged. An account that cannot be read must not be replaced by an empty one.
        """
        rows = value.get("releases") if isinstance(value, dict) and set(value) == {"releases"} else None
        if not isinstance(rows, list):
            raise ConfigError(
                'account: expected {"releases": [[noise multiplier, sampling rate, count], ...]}'
            )
        if len(rows) > MOST_ENTRIES:
            raise ConfigError(f"account: expected at most {MOST_ENTRIES} entries, got {len(rows)}")
        releases: dict[tuple[float, float], int] = {}
        for row in rows:
            if not isinstance(row, list) or len(row) != 3:
                raise ConfigError("account: expected rows of noise multiplier, sampling rate and count")
            _check_number("noise_multiplier", row[0], LEAST_MULTIPLIER, LARGEST_MULTIPLIER, zero=True)
            _check_number("sampling_rate", row[1], SMALLEST_RATE, 1.0)
            key = (float(row[0]), float(row[1]))
            if key in releases:
                raise ConfigError(f"account: expected each pair once, got {key} twice")
            releases[key] = row[2]
        return Account(releases)

    def _parts(self) -> list[tuple[float, float, int]]:
        """Return releases to compose; those without sampling are one: `1/z^2 = sum_i count_i / z_i^2`."""
        sampled = [(z, q, count) for (z, q), count in sorted(self.releases.items()) if q < 1.0]
        precision = math.fsum(count / z**2 for (z, q), count in self.releases.items() if q == 1.0)
        return [*sampled, (1 / math.sqrt(precision), 1.0, 1)] if precision else sampled


def _renyi_epsilon(parts: list[tuple[float, float, int]], delta: float) -> float:
    from fbo_flower.numerics.privacy import epsilon_of

    return epsilon_of(np.sum([count * _log_moments(q, z) for z, q, count in parts], axis=0), delta)


@lru_cache(maxsize=4 * MOST_ENTRIES)
def _log_moments(sampling_rate: float, noise_multiplier: float) -> Array:
    from fbo_flower.numerics.privacy import log_moments

    return log_moments(sampling_rate, noise_multiplier)


def _check_number(name: str, value: object, least: float, largest: float, *, zero: bool = False) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and (least <= value <= largest or (zero and value == 0)):  # type: ignore[operator]
        return
    raise ConfigError(
        f"account: {name}: expected a number from {least:g} to {largest:g}{' or 0' * zero}, got {value!r:.50}"
    )
