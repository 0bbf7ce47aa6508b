"""How much a model may weigh, and how much its predictions may cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fbo_flower.errors import ConfigError

MIB = 2**20
FREE_RATIO = 8 * MIB  # below it a good ratio harms nobody: a schema alone deflates fifty-fold


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a site grants to a model that came from elsewhere; set by the site's operator.

    A forest of 500 trees on 600 rows is 0.8 MB on the wire and 8 MB inflated, one of 5000 trees on 2000 rows
    some ten times as much.

    Parameters
    ----------
    max_bytes : on the wire
    max_inflated : of all parts together, inflated
    max_ratio : inflated over sent, for what inflates to more than 8 MiB
    max_entries : files in the archive
    seconds : for loading and predicting, of the wall clock and of the processor
    memory_bytes : that loading and predicting may take beyond the worker's own (Linux; elsewhere unlimited)
    """

    max_bytes: int = 32 * MIB
    max_inflated: int = 256 * MIB
    max_ratio: float = 100.0
    max_entries: int = 30_000
    seconds: float = 60.0
    memory_bytes: int = 2048 * MIB

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_inflated", "max_entries", "memory_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name}: expected a positive integer, got {value!r}")
        for name in ("max_ratio", "seconds"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"{name}: expected a positive number, got {value!r}")

    def inflated(self, num_bytes: int) -> int:
        """Bytes that an archive of `num_bytes` may inflate to."""
        return min(self.max_inflated, max(FREE_RATIO, int(self.max_ratio * num_bytes)))
