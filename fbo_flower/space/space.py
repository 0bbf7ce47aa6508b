"""A search space: named parameters, and their mapping to the unit cube.

Algorithms work on points `(n, D)` in `[0, 1]^D`, one axis per parameter. Objectives receive configurations,
dicts from names to plain Python values. The space converts between three representations:

- `decode` and `encode` convert a point to its configuration and back;
- `snap` moves points to one representative per configuration (bin centres for discrete parameters, 0.5 for
  inactive ones); meshes, partitions and histories store such points;
- `features` returns the inputs of the kernels, in which unordered categories are codes, see
  `numerics.categories`.

A parameter with `active_when` is active if each of its parents is active and has one of the listed values.
Inactive parameters are missing from configurations.

Notation: D parameters, n points.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbo_flower.errors import ConfigError, explains_names, kind_of
from fbo_flower.numerics.categories import FIRST_CATEGORY, breadth
from fbo_flower.space.checks import Choice, show
from fbo_flower.space.json import MAX_JSON_LENGTH, read, write
from fbo_flower.space.parameters import (
    Array,
    Categorical,
    Float,
    Indices,
    Parameter,
    Rules,
    check_parents,
    count_configs,
    is_continuous,
    order_of,
    rules_of,
)

Config: TypeAlias = dict[str, Choice]

MAX_NAME_LENGTH = 256
_least, _largest = np.minimum.reduce, np.maximum.reduce  # NaN if there is one


@explains_names
@dataclass(frozen=True, eq=False, repr=False)
class SearchSpace:
    """Named parameters with conditions, mapped to the unit cube.

    Parameters
    ----------
    parameters : name -> `Float`, `Int`, `Categorical` or `Ordinal`, in the order of the axes

    Raises
    ------
    ConfigError
        If there is no parameter, a name is invalid, or a condition names an unknown parameter or forms a
        cycle.

    Examples
    --------
    >>> from fbo_flower import Categorical, Float
    >>> space = SearchSpace({
    ...     "C": Float(1e-3, 1e3, log=True),
    ...     "kernel": Categorical(["rbf", "linear"]),
    ...     "gamma": Float(1e-4, 10, log=True, active_when={"kernel": "rbf"}),
    ... })
    >>> space.decode([1.0, 0.9, 0.2])
    {'C': 1000.0, 'kernel': 'linear'}
    >>> space.snap([[1.0, 0.9, 0.2]])
    array([[1.  , 0.75, 0.5 ]])
    """

    parameters: Mapping[str, Parameter]

    def __post_init__(self) -> None:
        if not isinstance(self.parameters, Mapping):
            raise ConfigError(
                "search space: expected a dict from names to parameters, as in SearchSpace("
                f'{{"x": Float(0, 1)}}), got {kind_of(self.parameters)}'
            )
        if not self.parameters:
            raise ConfigError(f"search space: expected at least one parameter, got {show(self.parameters)}")
        for name, parameter in self.parameters.items():
            if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_NAME_LENGTH:
                raise ConfigError(
                    f"search space: expected names of 1 to 256 printable characters, got {show(name)}"
                )
            if type(parameter) not in get_args(Parameter):  # subclasses cannot be written as JSON
                raise ConfigError(
                    f"{name}: expected a Float, Int, Categorical or Ordinal, got {show(parameter)}"
                )
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        check_parents(self.parameters)
        self._order  # noqa: B018  # computed here, so that the constructor reports cycles
        if len(self.to_json()) > MAX_JSON_LENGTH:
            raise ConfigError(
                f"search space: expected at most 1 MiB of JSON, got {len(self.to_json())} bytes"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of the axes."""
        return tuple(self.parameters)

    @cached_property
    def dimension(self) -> int:
        """Number of parameters D."""
        return len(self.parameters)

    @cached_property
    def num_configs(self) -> int | None:
        """Number of different configurations; None if a continuous one makes it infinite."""
        if any(is_continuous(parameter) for parameter in self.parameters.values()):
            return None
        return count_configs(tuple(self.parameters.values()), self._order, self._rules)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal; equal spaces have equal digests."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()

    @cached_property
    def continuous(self) -> Indices:
        """Axes `(c,)` of the continuous parameters; read-only."""
        return frozen([axis for axis, p in enumerate(self.parameters.values()) if is_continuous(p)])

    @cached_property
    def categorical(self) -> Indices:
        """Axes `(c,)` of the Categorical parameters; read-only."""
        return frozen([a for a, p in enumerate(self.parameters.values()) if isinstance(p, Categorical)])

    @property
    def breadth(self) -> int:
        """How many parameters that are numbers are as broad as these, see `numerics.categories`."""
        return breadth(self.dimension, len(self.categorical))

    @property
    def whole(self) -> SearchSpace:
        """The shared space that an agent's own is part of, see `space.held`; here this space itself."""
        return self

    def decode(self, point: ArrayLike) -> Config:
        """Return the configuration at a point `(D,)`, without inactive parameters.

        Raises
        ------
        ConfigError
            If `point` is not a point of the unit cube.
        """
        checked = self._checked(point, ndim=1)
        if self._floats:
            coordinates = (checked + 0.0).tolist()
            floats = zip(self._floats.items(), coordinates, strict=True)
            return {name: parameter.value(x) for (name, parameter), x in floats}
        snapped, index, active = self._resolve(checked[np.newaxis])
        return {
            name: p.value(float(snapped[0, axis])) if is_continuous(p) else p.value_at(int(index[0, axis]))
            for axis, (name, p) in enumerate(self.parameters.items())
            if active[0, axis]
        }

    def encode(self, config: Mapping[str, object]) -> Array:
        """Return the point `(D,)` of a configuration; `snap` does not change it.

        Raises
        ------
        ConfigError
            If a name is unknown, an active parameter is missing, an inactive one is given, or a value is
            outside its parameter's range or choices.
        """
        if not isinstance(config, Mapping):
            raise ConfigError(f"config: expected a dict of {show(list(self.names))}, got {show(config)}")
        for name in config:
            if name not in self.parameters:
                raise ConfigError(
                    f"{show(name)}: expected one of {show(list(self.names))}, got an unknown name"
                )
        point = np.full(self.dimension, 0.5)
        chosen: dict[int, int] = {}  # axis -> index of its value, of active discrete parameters
        for axis in self._order:
            name = self.names[axis]
            parameter = self.parameters[name]
            if not all(chosen.get(parent) in allowed for parent, allowed in self._rules.get(axis, ())):
                if name in config:
                    raise ConfigError(
                        f"{name}: expected no value because it is inactive, got {show(config[name])}"
                    )
            elif name not in config:
                raise ConfigError(f"{name}: expected a value because it is active, got none")
            elif is_continuous(parameter):
                point[axis] = parameter.unit(config[name], name)
            else:
                chosen[axis] = parameter.index_of(config[name], name)
                point[axis] = parameter.centre_of(np.array([chosen[axis]]))[0]
        return point

    def snap(self, points: ArrayLike) -> Array:
        """Return the representatives `(n, D)` of the configurations at points `(n, D)`.

        Active Float coordinates do not change by a bit, discrete ones move to the centre of their bin,
        inactive ones to 0.5. `snap(snap(points))` equals `snap(points)`.
        """
        checked = self._checked(points, ndim=2)
        return checked + 0.0 if self._floats else self._resolve(checked)[0]

    def features(self, points: ArrayLike) -> Array:
        """Return the kernel inputs `(n, D)` of points `(n, D)`.

        Float, Int and Ordinal have their snapped coordinate, 0.5 if they are inactive. A Categorical has the
        code of its choice, or of being inactive, as a further category. Different codes are at distance 1.
        """
        checked = self._checked(points, ndim=2)
        if self._floats:
            return checked + 0.0
        snapped, index, active = self._resolve(checked)
        axes = self.categorical
        snapped[:, axes] = FIRST_CATEGORY + np.where(active[:, axes], 1 + index[:, axes], 0)
        return snapped

    def active(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each parameter is active at points `(n, D)`: `(n, D)`."""
        checked = self._checked(points, ndim=2)
        return self._resolve(checked)[2] if self._rules else np.ones(checked.shape, dtype=np.bool_)

    def to_json(self) -> str:
        """Return the canonical JSON: ASCII, sorted keys, parameters as a list in the order of the axes."""
        return self._json

    @classmethod
    def from_json(cls, text: str) -> SearchSpace:
        """Return the space that `to_json` wrote; `text` may come from an untrusted sender.

        Raises
        ------
        WireError
            If `text` is too long, not JSON or not the JSON of a search space.
        ConfigError
            If the JSON is well-formed but the space is invalid.
        """
        return cls(read(text))

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, SearchSpace) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"SearchSpace({dict(self.parameters)!r})"

    def __reduce__(self) -> tuple[type[SearchSpace], tuple[dict[str, Parameter]]]:
        return SearchSpace, (dict(self.parameters),)

    @cached_property
    def _json(self) -> str:
        return write(self.parameters)

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """All axes, each after its parents and soon after the last of them."""
        return order_of(self.parameters)

    @cached_property
    def _rules(self) -> Rules:
        """Conditional axis -> pairs (axis of a parent, indices of the parent's values that activate it)."""
        return rules_of(self.parameters, self._order)

    @cached_property
    def _floats(self) -> dict[str, Float]:
        """The parameters by name, if all are continuous and always active; else an empty dict."""
        floats = {name: p for name, p in self.parameters.items() if is_continuous(p)}
        return floats if len(floats) == self.dimension and not self._rules else {}

    def _checked(self, points: ArrayLike, ndim: int) -> Array:
        try:
            array = np.asarray(points)
        except ValueError:  # ragged
            raise ConfigError(f"points: expected {self._shape(ndim)} numbers, got {show(points)}") from None
        if array.ndim != ndim or array.shape[-1] != len(self.parameters) or array.dtype.kind not in "fiu":
            raise ConfigError(
                f"points: expected {self._shape(ndim)} numbers, got {array.shape} {array.dtype}"
            )
        # a comparison with NaN is False
        if array.size and not (_least(array, axis=None) >= 0 and _largest(array, axis=None) <= 1):
            outside = ~((array >= 0) & (array <= 1))
            raise ConfigError(f"points: expected coordinates in [0, 1], got {show(array[outside][0].item())}")
        return array.astype(np.float64, copy=False)

    def _shape(self, ndim: int) -> str:
        return f"(n, {self.dimension})" if ndim == 2 else f"({self.dimension},)"

    def _resolve(self, points: Array) -> tuple[Array, Indices, NDArray[np.bool_]]:
        """Return snapped points, indices (0 if continuous) and which parameters are active, all `(n, D)`."""
        snapped = points + 0.0  # a copy without negative zeros
        index = np.zeros(points.shape, dtype=np.int64)
        active = np.ones(points.shape, dtype=np.bool_)
        for axis, parameter in enumerate(self.parameters.values()):
            if not is_continuous(parameter):
                # Contiguous, so that NumPy computes one point and a thousand by the same code.
                column = parameter.bin_of(np.ascontiguousarray(points[:, axis]))
                index[:, axis] = column
                snapped[:, axis] = parameter.centre_of(column)
        for axis, rules in self._rules.items():  # parents before children
            for parent, allowed in rules:
                active[:, axis] &= active[:, parent] & np.isin(index[:, parent], list(allowed))
        snapped[~active] = 0.5
        return snapped, index, active


def check_space(space: object) -> None:
    """Raise ConfigError unless `space` is a `SearchSpace`."""
    if not isinstance(space, SearchSpace):
        hint = "; wrap it: SearchSpace({...})" if isinstance(space, Mapping) else ""
        raise ConfigError(f"space: expected a SearchSpace, got {kind_of(space)}{hint}")


def frozen(numbers: ArrayLike) -> Indices:
    """Return numbers as an array that nobody can write: the view of one that is read-only itself."""
    array = np.array(numbers, dtype=np.int64)
    array.setflags(write=False)
    return array.view()
