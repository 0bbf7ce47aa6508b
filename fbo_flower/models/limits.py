"""Limits on the size of a received model and on the time and memory of its predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fbo_flower.errors import ConfigError

MIB = 2**20
FREE_RATIO = 8 * MIB  # the ratio limit applies above this size: a small schema alone compresses fifty-fold


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that a site's operator sets for models received from other sites.

    For scale: a forest of 500 trees on 600 rows takes 0.8 MB on the wire and 8 MB decompressed; one of 5000
    trees on 2000 rows takes about ten times as much.

    Parameters
    ----------
    max_bytes : largest size on the wire
    max_inflated : largest decompressed size of all parts together
    max_ratio : largest ratio of decompressed to sent size, for models above 8 MiB decompressed
    max_entries : largest number of files in the archive
    seconds : wall-clock and processor time for loading and predicting
    memory_bytes : memory for loading and predicting beyond the worker's own (on Linux; elsewhere unlimited)
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
        """Return the largest decompressed size allowed for an archive of `num_bytes`."""
        return min(self.max_inflated, max(FREE_RATIO, int(self.max_ratio * num_bytes)))
