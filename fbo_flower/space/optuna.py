"""Convert search spaces to and from Optuna's distributions (extra `fbo-flower[optuna]`).

Optuna has no ordered choices and no conditions: an `Ordinal` becomes categorical, and a parameter that is
inactive in a configuration is missing from the trial. Bounds, log scales, steps and choices are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError
from fbo_flower.lazy import required
from fbo_flower.space.parameters import Categorical, Float, Int, Parameter
from fbo_flower.space.space import SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_EXACT = 2**53  # Optuna stores integers as floats, which are exact up to here


def require_optuna(caller: str) -> Any:  # the module, whose API is used in several rooms
    """Return the module optuna; ConfigError says what to install if there is none."""
    return required("optuna", caller, "Optuna")


def to_distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return the distribution of each parameter."""
    require_optuna("space")
    return {name: _distribution(name, parameter) for name, parameter in space.parameters.items()}


def from_distributions(distributions: Mapping[str, BaseDistribution]) -> SearchSpace:
    """Return the search space of distributions, with their parameters in the same order.

    Raises
    ------
    ConfigError
        If Optuna is not installed, there is no parameter, or a parameter cannot have such a range or choices.
    """
    require_optuna("space")
    parameters: dict[str, Parameter] = {}
    for name, distribution in distributions.items():
        try:
            parameters[name] = _parameter(distribution)
        except ConfigError as error:  # it begins with the kind ("Float: ...")
            raise ConfigError(f"{name}: {str(error).partition(': ')[2]}") from None
    return SearchSpace(parameters)


def _distribution(name: str, parameter: Parameter) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match parameter:
        case Float():
            return FloatDistribution(parameter.low, parameter.high, parameter.log, parameter.step)
        case Int():
            if max(abs(parameter.low), abs(parameter.high)) > _EXACT:
                raise ConfigError(
                    f"{name}: expected integers up to 2**53, which Optuna stores exactly, got {parameter}"
                )
            return IntDistribution(parameter.low, parameter.high, parameter.log, parameter.step)
        case _:
            return CategoricalDistribution(tuple(parameter.choices))


def _parameter(distribution: BaseDistribution) -> Parameter:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match distribution:
        case CategoricalDistribution():
            return Categorical(list(distribution.choices))
        case FloatDistribution() | IntDistribution() if distribution.low == distribution.high:
            return Categorical([distribution.low])
        case FloatDistribution():
            return Float(distribution.low, distribution.high, distribution.log, step=distribution.step)
        case IntDistribution():
            return Int(distribution.low, distribution.high, distribution.log, step=distribution.step)
    raise ConfigError(f"Optuna: expected a float, integer or categorical, got {type(distribution).__name__}")
