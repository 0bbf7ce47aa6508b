"""A search space in which an agent holds some parameters at values of its own, and tunes the others.

Points keep all coordinates, so messages over the shared features mean the same at every agent. `snap` puts
the held coordinates to the agent's values: every proposal, candidate and advised point passes through it.
Only the free coordinates are `continuous`, so climbing leaves the others where they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.space.copies import copies
from fbo_flower.space.parameters import Array, Indices, is_continuous
from fbo_flower.space.space import SearchSpace, frozen


@copies("fixed")
class HeldSpace(SearchSpace):
    """A shared search space, some of whose parameters have fixed values.

    Parameters
    ----------
    whole : the shared search space
    fixed : name -> value of every parameter that is not tuned

    Examples
    --------
    >>> from fbo_flower.space.parameters import Float
    >>> space = HeldSpace(SearchSpace({"x": Float(0, 1), "y": Float(0, 10)}), {"y": 2.5})
    >>> space.snap([[0.3, 0.9]])
    array([[0.3 , 0.25]])
    """

    fixed: Mapping[str, object]
    _whole: SearchSpace

    def __init__(self, whole: SearchSpace, fixed: Mapping[str, object]) -> None:
        if not isinstance(fixed, Mapping):
            raise ConfigError(f"fixed: expected a dict from parameters to values, got {kind_of(fixed)}")
        super().__init__(whole.parameters)
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "_whole", whole)
        check_names(whole, tuple(fixed))
        held: dict[int, float] = {}
        for name, value in fixed.items():
            parameter, axis = self.parameters[name], whole.names.index(name)
            if is_continuous(parameter):
                held[axis] = float(parameter.unit(value, f"fixed: {name}"))
            else:
                index = np.array([parameter.index_of(value, f"fixed: {name}")])
                held[axis] = float(parameter.centre_of(index)[0])
        object.__setattr__(self, "_held", held)

    @property
    def whole(self) -> SearchSpace:
        """The shared search space, in which nothing is fixed."""
        return self._whole

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the shared space and the fixed values; only for use at the agent."""
        held = json.dumps(sorted(self._held.items()))
        return hashlib.sha256(f"{self.to_json()} {held}".encode("ascii")).hexdigest()

    @cached_property
    def continuous(self) -> Indices:
        """Axes `(c,)` of the continuous parameters that are tuned."""
        axes = self._whole.continuous
        return frozen(axes[~np.isin(axes, list(self._held))])

    def snap(self, points: ArrayLike) -> Array:
        """Return the representatives `(n, D)` of points `(n, D)`, with the agent's own fixed values."""
        held = self._checked(points, ndim=2) + 0.0
        held[:, list(self._held)] = list(self._held.values())
        return super().snap(held)

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldSpace, (self._whole, self.fixed)

    _held: dict[int, float]  # axis -> its coordinate


def held_space(space: SearchSpace, fixed: Mapping[str, object] | str | None) -> SearchSpace:
    """Return the space in which an agent tunes; the shared one if nothing is fixed.

    Parameters
    ----------
    fixed : name -> value, or the same as text, "depth=3, kernel=rbf"
    """
    if isinstance(fixed, str):
        fixed = _of_text(fixed) if fixed else None
    if not isinstance(fixed, Mapping | None):
        raise ConfigError(f"fixed: expected a dict of parameters and their values, got {kind_of(fixed)}")
    if not fixed:
        return space
    try:
        return _kept(space, tuple(fixed.items()), tuple(map(type, fixed.values())))
    except TypeError:  # a value that cannot be a key, which no parameter has
        return HeldSpace(space, fixed)


def _of_text(text: str) -> dict[str, object]:
    fixed: dict[str, object] = {}
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not name or name in fixed:
            raise ConfigError(f"fixed: expected text such as 'depth=3, kernel=rbf', got {text[:100]!r}")
        try:
            fixed[name] = json.loads(value)
        except ValueError:
            fixed[name] = value
    return fixed


@lru_cache(maxsize=1024)
def _kept(space: SearchSpace, items: tuple[tuple[str, object], ...], types: tuple[type, ...]) -> SearchSpace:
    """Return one space for all tasks of an agent; `types` tells 1 from True."""
    return HeldSpace(space, dict(items))


def check_names(space: SearchSpace, names: Collection[str]) -> None:
    """Raise ConfigError unless these are some of a space's parameters, but not all."""
    unknown = [name for name in names if name not in space.parameters]
    if unknown:
        raise ConfigError(
            f"fixed: expected parameters of the search space ({', '.join(space.names)[:200]}), got "
            f"{str(unknown[0])[:100]!r}"
        )
    if len(set(names)) != len(names) or len(names) >= space.dimension:
        raise ConfigError(
            f"fixed: expected at least one of {space.dimension} parameters to tune, got {len(set(names))} "
            "fixed; leave one of them out"
        )
