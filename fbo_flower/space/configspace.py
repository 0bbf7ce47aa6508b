"""Convert search spaces to and from ConfigSpace (extra `fbo-flower[configspace]`).

Supported in both directions: uniform floats and integers, unweighted categories, ordinals, and conditions of
equality and membership, also joined by "and". Features that only ConfigSpace has (priors, weights, forbidden
clauses, other conditions) raise ConfigError. Default values are dropped. Steps become ordinals.

ConfigSpace sorts its parameters by name. So a space that is converted there and back keeps its order, and
with it its digest, only if its parameters were sorted. Agents that must agree on a space should all build it
in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.lazy import required
from fbo_flower.space.checks import Choice
from fbo_flower.space.parameters import Categorical, Float, Int, Ordinal, Parameter
from fbo_flower.space.space import SearchSpace, check_space

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace
    from ConfigSpace.hyperparameters import Hyperparameter

    # The class is generic in its value types, which differ from parameter to parameter.
    AnyHyperparameter = Hyperparameter[Any, Any]

Conditions = dict[str, tuple[Choice, ...]]
MAX_STEPS = 10_000  # values of a parameter with a step, which becomes an ordinal


def from_configspace(cs: ConfigurationSpace) -> SearchSpace:
    """Return the search space equivalent to `cs`, with its parameters in the order of `cs`.

    Raises
    ------
    ConfigError
        If ConfigSpace is not installed, or `cs` has a feature that a search space does not support.
    """
    if not isinstance(cs, required("ConfigSpace", "from_configspace").ConfigurationSpace):
        raise ConfigError(f"cs: expected a ConfigurationSpace, got {kind_of(cs)}")
    if cs.forbidden_clauses:
        raise ConfigError(f"ConfigSpace: expected no forbidden clauses, got {_line(cs.forbidden_clauses[0])}")
    conditions: dict[str, Conditions] = {}
    for condition in cs.conditions:
        for child, parent, values in _literals(condition):
            known = conditions.setdefault(child, {})
            # Two conditions on the same parent must both hold: intersect their values.
            known[parent] = tuple(value for value in values if value in known.get(parent, values))
            if not known[parent]:
                raise ConfigError(
                    f"{child}: expected conditions that can hold together, got {_line(condition)}"
                )
    return SearchSpace({name: _parameter(name, cs[name], conditions.get(name)) for name in cs})


def to_configspace(space: SearchSpace) -> ConfigurationSpace:
    """Return the ConfigSpace equivalent to `space`.

    Raises
    ------
    ConfigError
        If ConfigSpace is not installed.
    """
    check_space(space)
    required("ConfigSpace", "to_configspace")
    from ConfigSpace import AndConjunction, ConfigurationSpace, EqualsCondition, InCondition

    cs = ConfigurationSpace()
    cs.add([_hyperparameter(name, parameter) for name, parameter in space.parameters.items()])
    for name, parameter in space.parameters.items():
        literals = [
            EqualsCondition(cs[name], cs[parent], values[0])
            if len(values) == 1
            else InCondition(cs[name], cs[parent], list(values))
            for parent, values in parameter.conditions.items()
        ]
        if literals:
            cs.add(literals[0] if len(literals) == 1 else AndConjunction(*literals))
    return cs


def _hyperparameter(name: str, parameter: Parameter) -> AnyHyperparameter:
    from ConfigSpace import hyperparameters as hp

    match parameter:
        case Float(step=float()) | Int() if parameter.step != 1:  # ConfigSpace has no steps
            if parameter.num_values > MAX_STEPS:
                raise ConfigError(
                    f"{name}: expected at most {MAX_STEPS} steps, got {parameter.num_values}; ConfigSpace "
                    "lists them"
                )
            values = [parameter.value_at(index) for index in range(parameter.num_values)]
            return hp.OrdinalHyperparameter(name, values)
        case Float():
            return hp.UniformFloatHyperparameter(name, parameter.low, parameter.high, log=parameter.log)
        case Int():
            return hp.UniformIntegerHyperparameter(name, parameter.low, parameter.high, log=parameter.log)
        case Categorical():
            return hp.CategoricalHyperparameter(name, list(parameter.choices))
        case Ordinal():
            return hp.OrdinalHyperparameter(name, list(parameter.choices))


def _parameter(name: str, hyperparameter: AnyHyperparameter, active_when: Conditions | None) -> Parameter:
    from ConfigSpace import hyperparameters as hp

    try:
        match hyperparameter:
            case hp.UniformFloatHyperparameter(lower=low, upper=high, log=log):
                return Float(float(low), float(high), log=bool(log), active_when=active_when)
            case hp.UniformIntegerHyperparameter(lower=low, upper=high, log=log):
                return Int(int(low), int(high), log=bool(log), active_when=active_when)
            case hp.CategoricalHyperparameter(choices=choices, weights=weights):
                if weights is not None and len(set(weights)) > 1:
                    raise ConfigError(f"Categorical: expected equal weights, got {_line(weights)}")
                return Categorical(list(choices), active_when=active_when)
            case hp.OrdinalHyperparameter(sequence=sequence):
                return Ordinal(list(sequence), active_when=active_when)
            case hp.Constant(value=value):
                return Categorical([value], active_when=active_when)
    except ConfigError as error:
        # The message begins with the kind ("Float: ..."); replace it by the parameter's name.
        _, _, problem = str(error).partition(": ")
        raise ConfigError(f"{name}: {problem}") from None
    kind = type(hyperparameter).__name__
    raise ConfigError(f"{name}: expected a uniform, categorical, ordinal or constant parameter, got {kind}")


def _literals(condition: object) -> Iterator[tuple[str, str, tuple[Choice, ...]]]:
    """Yield (child, parent, allowed values of the parent) for each part of a conjunction."""
    from ConfigSpace import AndConjunction, EqualsCondition, InCondition

    match condition:
        case AndConjunction(components=components):
            for component in components:
                yield from _literals(component)
        case InCondition(child=child, parent=parent, values=values):
            yield child.name, parent.name, tuple(values)
        case EqualsCondition(child=child, parent=parent, value=value):
            yield child.name, parent.name, (value,)
        case _:
            raise ConfigError(f"ConfigSpace: expected conditions with == or in, got {_line(condition)}")


def _line(value: object) -> str:
    return " ".join(str(value).split())
