"""The bridge to ConfigSpace, in the extra `fbo-flower[configspace]`.

What both sides can say crosses exactly: uniform floats and integers, unweighted categories, ordinals, and
conditions of equality and membership, also joined by "and". What only ConfigSpace can say is refused instead
of being dropped: priors, weights, forbidden clauses, other conditions. Default values have no counterpart.

ConfigSpace sorts its parameters, so their order, and with it the digest of the space, survives the way there
and back only if it was sorted. Agents that must agree should build the space in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError
from fbo_flower.space.space import Categorical, Choice, Float, Int, Ordinal, Parameter, SearchSpace

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace
    from ConfigSpace.hyperparameters import Hyperparameter

    # Generic in the types of its values, which differ from one to the next.
    AnyHyperparameter = Hyperparameter[Any, Any]

Conditions = dict[str, tuple[Choice, ...]]


def from_configspace(cs: ConfigurationSpace) -> SearchSpace:
    """Return the search space that allows what `cs` allows; its parameters in the order of `cs`.

    Raises
    ------
    ConfigError
        If ConfigSpace is not installed, or `cs` has something that a search space cannot express.
    """
    _require_configspace()
    if cs.forbidden_clauses:
        raise ConfigError(f"ConfigSpace: expected no forbidden clauses, got {_line(cs.forbidden_clauses[0])}")
    conditions: dict[str, Conditions] = {}
    for condition in cs.conditions:
        for child, parent, values in _literals(condition):
            known = conditions.setdefault(child, {})
            # Two conditions on one parent: both must hold.
            known[parent] = tuple(value for value in values if value in known.get(parent, values))
            if not known[parent]:
                raise ConfigError(
                    f"{child}: expected conditions that can hold together, got {_line(condition)}"
                )
    return SearchSpace({name: _parameter(name, cs[name], conditions.get(name)) for name in cs})


def to_configspace(space: SearchSpace) -> ConfigurationSpace:
    """Return the ConfigSpace that allows what `space` allows.

    Raises
    ------
    ConfigError
        If ConfigSpace is not installed.
    """
    _require_configspace()
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


def _require_configspace() -> None:
    try:
        import ConfigSpace  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"ConfigSpace: expected the package to be installed, got {error}; "
            "try pip install 'fbo-flower[configspace]'"
        ) from error


def _hyperparameter(name: str, parameter: Parameter) -> AnyHyperparameter:
    from ConfigSpace import hyperparameters as hp

    match parameter:
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
        # What the parameter says of its kind is said of its name, which is known here.
        _, _, problem = str(error).partition(": ")
        raise ConfigError(f"{name}: {problem}") from None
    kind = type(hyperparameter).__name__
    raise ConfigError(f"{name}: expected a uniform, categorical, ordinal or constant parameter, got {kind}")


def _literals(condition: object) -> Iterator[tuple[str, str, tuple[Choice, ...]]]:
    """Yield (child, parent, values of the parent) for each part of an "and"."""
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
