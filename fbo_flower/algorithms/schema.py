"""What the arrays and values of a task or a report must look like; `wire` lets nothing else through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ArraySpec:
    """The form of one array.

    Parameters
    ----------
    shape : one entry per axis; None allows any length up to `max_length`
    low, high : inclusive bounds of every entry
    max_length : longest axis whose length is not fixed
    """

    shape: tuple[int | None, ...]
    dtype: str = "float64"
    low: float = -1e12
    high: float = 1e12
    max_length: int = 4096


@dataclass(frozen=True)
class Schema:
    """The arrays and values that a task or a report may hold, by name."""

    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    values: Mapping[str, type] = field(default_factory=dict)
