"""Schemas of tasks and reports; `wire` rejects every message that does not fit its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ArraySpec:
    """The shape, type and bounds of one array.

    Parameters
    ----------
    shape : length of each axis; None allows any length up to `max_length`
    dtype : NumPy's name of the type
    low, high : inclusive bounds of every entry
    max_length : largest length of an axis whose length is None in `shape`
    """

    shape: tuple[int | None, ...]
    dtype: str = "float64"
    low: float = -1e12
    high: float = 1e12
    max_length: int = 4096


@dataclass(frozen=True)
class Schema:
    """The arrays and values that a task or a report may hold.

    Parameters
    ----------
    arrays : name -> shape, type and bounds
    values : name -> Python type
    """

    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    values: Mapping[str, type] = field(default_factory=dict)
