"""The metric that judges trials: a name, an entry of a list of numbers, or a function of all metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError, kind_of, printable

MetricLike = str | Callable[[Mapping[str, Any]], float]
_PLACE = re.compile(r"(.+)\[(-?\d+)\]")


class Metric:
    """Finds a trial's value among its metrics.

    Parameters
    ----------
    given : "accuracy"; "loss[-1]", the last number of a list; or a function of the metrics, a mapping from
        names to numbers and lists of numbers, that returns a number

    Raises
    ------
    ConfigError
        If it is neither a text nor a function.
    """

    def __init__(self, given: MetricLike) -> None:
        if not (callable(given) or (isinstance(given, str) and given)):
            raise ConfigError(
                "metric: expected the name of a metric such as 'accuracy' or 'loss[-1]', or a function of "
                f"the metrics, got {given!r}"
            )
        self._given = given
        own = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        self.name = "metric" if own == "<lambda>" else own

    def of(self, metrics: Mapping[str, Any]) -> float | None:
        """Return the value; None if these metrics do not hold it."""
        try:
            return self._value(metrics)
        except ConfigError:
            return None

    def required(self, metrics: Mapping[str, Any]) -> float:
        """Return the value, or raise ConfigError with what the metrics hold."""
        try:
            return self._value(metrics)
        except ConfigError as error:
            there = ", ".join(_shown(name, metrics[name]) for name in sorted(metrics)) or "none"
            raise ConfigError(
                f"metric: expected {error} among the metrics of aggregate_evaluate, aggregate_train and "
                f"evaluate_fn, got {there}; return it in the MetricRecord of @app.evaluate(), evaluate with "
                "a positive fraction_evaluate, or pass evaluate_fn"
            ) from error

    def _value(self, metrics: Mapping[str, Any]) -> float:
        """Return the value, or raise ConfigError with what was expected."""
        if not isinstance(self._given, str):
            try:
                return _number(self._given(dict(metrics)))
            except Exception as error:  # of the user's function
                raise ConfigError(
                    f"what {self.name}(metrics) reads ({type(error).__name__}: {printable(str(error))[:200]})"
                ) from error
        found, place = metrics.get(self._given), _PLACE.fullmatch(self._given)
        if found is None and place and isinstance(metrics.get(place[1]), list | tuple):
            numbers = metrics[place[1]]
            if not -len(numbers) <= int(place[2]) < len(numbers):
                raise ConfigError(repr(self._given))
            found = numbers[int(place[2])]
        try:
            return _number(found)
        except TypeError as error:
            raise ConfigError(repr(self._given)) from error


def plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics with NumPy's numbers as Python's."""
    return {
        name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        for name, value in metrics.items()
    }


def _number(value: Any) -> float:
    if isinstance(value, np.generic | np.ndarray) and value.size == 1:
        value = value.item()
    if not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {kind_of(value)}")
    return float(value)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{printable(name)} (a list of {len(value)} numbers: choose '{printable(name)}[-1]')"
    return printable(name)
