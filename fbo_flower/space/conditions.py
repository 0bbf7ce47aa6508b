"""Which parameters are active: the graph that `active_when` forms, and the configurations that it allows.

A parent is a parameter that another one's `active_when` names. Axes are positions in the search space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from fbo_flower.errors import ConfigError
from fbo_flower.space.checks import show
from fbo_flower.space.parameters import Float, Parameter

# conditional axis -> pairs (axis of a parent, indices of the parent's values that activate it)
Rules: TypeAlias = dict[int, tuple[tuple[int, frozenset[int]], ...]]


def check_parents(parameters: Mapping[str, Parameter]) -> None:
    """Raise ConfigError if a condition names an unknown or continuous parameter, or an unknown value."""
    for name, parameter in parameters.items():
        for parent, values in parameter.conditions.items():
            other = parameters.get(parent)
            if other is None:
                raise ConfigError(f"{name}: expected active_when to name parameters, got {show(parent)}")
            if isinstance(other, Float):
                raise ConfigError(
                    f"{name}: expected active_when to name discrete parameters, got Float {parent}"
                )
            for value in values:
                other.index_of(value, f"{name}: active_when {parent}")


def order_of(parameters: Mapping[str, Parameter]) -> tuple[int, ...]:
    """Return all axes, each after its parents and soon after the last of them; ConfigError for a cycle."""
    axis_of = {name: axis for axis, name in enumerate(parameters)}
    sorter = TopologicalSorter({name: tuple(p.conditions) for name, p in parameters.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise ConfigError(f"search space: expected active_when without cycles, got {cycle[:200]}") from None
    ready, order = list(sorter.get_ready()), []
    while ready:
        name = ready.pop()
        order.append(axis_of[name])
        sorter.done(name)
        ready.extend(sorter.get_ready())
    return tuple(order)


def rules_of(parameters: Mapping[str, Parameter], order: Sequence[int]) -> Rules:
    """Return the rules of all conditional axes, parents before children.

    Parameters
    ----------
    order : as `order_of` returns it
    """
    names = tuple(parameters)
    axis_of = {name: axis for axis, name in enumerate(names)}
    rules: Rules = {}
    for axis in order:
        conditions = parameters[names[axis]].conditions
        if conditions:
            rules[axis] = tuple(
                (axis_of[name], frozenset(parent.index_of(value, name) for value in values))
                for name, values in conditions.items()
                if not isinstance(parent := parameters[name], Float)
            )
    return rules


def count_configs(parameters: Sequence[Parameter], order: Sequence[int], rules: Rules) -> int:
    """Return the number of different configurations of discrete parameters.

    Parameters
    ----------
    parameters : of all axes
    order, rules : as `order_of` and `rules_of` return them
    """
    # Dynamic programming over the axes. A state is the set of conditions (parent, child) that hold and
    # whose child is still to be visited; the cost depends on how many are open at the same time.
    opens: dict[int, dict[int, set[tuple[int, int]]]] = {}  # parent -> index -> conditions
    for child, pairs in rules.items():
        for parent, allowed in pairs:
            for index in allowed:
                opens.setdefault(parent, {}).setdefault(index, set()).add((parent, child))
    counts: Counter[frozenset[tuple[int, int]]] = Counter({frozenset(): 1})
    for axis in order:
        parameter = parameters[axis]
        assert not isinstance(parameter, Float), "a Float has infinitely many values"
        opened = Counter(frozenset(conditions) for conditions in opens.get(axis, {}).values())
        opened[frozenset()] += parameter.num_values - opened.total()
        needed = frozenset((parent, axis) for parent, _ in rules.get(axis, ()))
        following: Counter[frozenset[tuple[int, int]]] = Counter()
        for state, count in counts.items():
            for conditions, multiplicity in opened.items() if needed <= state else [(frozenset(), 1)]:
                following[(state - needed) | conditions] += count * multiplicity
        counts = following
    return counts.total()
