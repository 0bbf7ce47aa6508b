"""Convert search spaces to and from Optuna's distributions (extra `fbo-flower[optuna]`).

Optuna has no ordered choices and no conditions: an `Ordinal` becomes categorical, and a parameter that is
inactive in a configuration is missing from the trial. Bounds, log scales and choices are the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError
from fbo_flower.space.space import Categorical, Float, Int, Ordinal, Parameter, SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

MAX_STEPS = 10_000  # values of a distribution with a step, which becomes an Ordinal
_EXACT = 2**53  # Optuna stores integers as floats, which are exact up to here


def require_optuna(caller: str) -> Any:  # the module, whose API is used in several rooms
    """Return the module optuna.

    Raises
    ------
    ConfigError
        If Optuna is not installed; the message says what to install.
    """
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            f"{caller}: Optuna is not installed; run pip install 'fbo-flower[optuna]'"
        ) from error
    return optuna


def to_distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return the distribution of each parameter.

    Raises
    ------
    ConfigError
        If Optuna is not installed, or an integer is too large for it.
    """
    require_optuna("space")
    return {name: _distribution(name, parameter) for name, parameter in space.parameters.items()}


def from_distributions(distributions: Mapping[str, BaseDistribution]) -> SearchSpace:
    """Return the search space of distributions, with their parameters in the same order.

    A distribution with a step becomes an `Ordinal` of its values, unless its step is 1.

    Raises
    ------
    ConfigError
        If Optuna is not installed, a step makes too many values, or there is no parameter.
    """
    require_optuna("space")
    return SearchSpace({name: _parameter(name, found) for name, found in distributions.items()})


def _distribution(name: str, parameter: Parameter) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match parameter:
        case Float():
            return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
        case Int():
            if max(abs(parameter.low), abs(parameter.high)) > _EXACT:
                raise ConfigError(
                    f"{name}: expected integers up to 2**53, which Optuna stores exactly, got {parameter}"
                )
            return IntDistribution(parameter.low, parameter.high, log=parameter.log)
        case Categorical() | Ordinal():
            return CategoricalDistribution(tuple(parameter.choices))


def _parameter(name: str, distribution: BaseDistribution) -> Parameter:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match distribution:
        case CategoricalDistribution():
            return Categorical(list(distribution.choices))
        case FloatDistribution() | IntDistribution() if distribution.low == distribution.high:
            return Categorical([distribution.low])
        case FloatDistribution(step=None):
            return Float(distribution.low, distribution.high, log=distribution.log)
        case IntDistribution(step=1):
            return Int(distribution.low, distribution.high, log=distribution.log)
        case FloatDistribution(step=float(step)) | IntDistribution(step=int(step)):
            number = round((distribution.high - distribution.low) / step) + 1
            if number > MAX_STEPS:
                raise ConfigError(f"{name}: expected at most {MAX_STEPS} steps, got {number}")
            return Ordinal([distribution.low + i * step for i in range(number)])
    raise ConfigError(f"{name}: expected a float, integer or categorical, got {type(distribution).__name__}")
