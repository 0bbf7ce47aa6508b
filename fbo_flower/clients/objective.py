"""The edge of the user's objective: a plain function in, one finite number or a reason out."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ObjectiveError

MAX_REASON = 300  # characters


@dataclass(frozen=True)
class ObjectiveContext:
    """What an objective is told beside its configuration.

    Parameters
    ----------
    agent : stable id of the agent
    partition : the agent's partition of a simulated data set; -1 on a device without one
    trial : id of the trial, counted per agent from 0
    server_round : the round in which it is evaluated
    rng : the trial's own generator: a noisy objective that uses it repeats exactly
    node_config : what the device's operator configured (paths of data, for instance)
    run_config : what the run was started with
    """

    agent: str
    partition: int
    trial: int
    server_round: int
    rng: np.random.Generator
    node_config: Mapping[str, Any] = field(default_factory=dict)
    run_config: Mapping[str, Any] = field(default_factory=dict)


Objective = Callable[[dict[str, Any], ObjectiveContext], float]


def evaluate(objective: Objective, config: dict[str, Any], context: ObjectiveContext) -> float:
    """Return the objective's value; larger is better.

    Raises
    ------
    ObjectiveError
        If the objective raised or returned anything but a finite real number, with the reason.
    """
    try:
        value = objective(config, context)
    except Exception as error:  # the user's code may raise anything; it costs this trial, not the agent
        raise ObjectiveError(f"{type(error).__name__}: {_shown(str, error)}"[:MAX_REASON]) from error
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        shown = _shown(repr, value)[:80]
        raise ObjectiveError(f"returned {shown} ({type(value).__name__}), expected a finite number")
    try:
        number = float(value)
    except OverflowError:  # an int or a fraction beyond the largest float
        number = math.inf
    if not math.isfinite(number):
        raise ObjectiveError(f"returned {number}, expected a finite number")
    return number


def _shown(write: Callable[[object], str], value: object) -> str:
    """Return a text for `value`, also if its class cannot write itself."""
    try:
        return write(value)
    except Exception:
        return "..."


def can_repeat(objective: Objective) -> bool:
    """Return whether an objective has a method `repeated(config, context, repeats) -> (repeats,)` values.

    It stands for as many evaluations one after the other, in one call and with one generator: bandits
    evaluate a point thousands of times.
    """
    return callable(getattr(objective, "repeated", None))


def evaluate_repeatedly(
    objective: Objective, config: dict[str, Any], context: ObjectiveContext, repeats: int
) -> npt.NDArray[np.float64]:
    """Return the values of one call of `objective.repeated`, `(repeats,)`.

    Raises
    ------
    ObjectiveError
        If it raised or returned anything but finite numbers of that shape.
    """
    many: Any = objective  # has the method, see `can_repeat`
    try:
        values = np.asarray(many.repeated(config, context, repeats), dtype=np.float64)
    except Exception as error:  # the user's code may raise anything
        raise ObjectiveError(f"{type(error).__name__}: {_shown(str, error)}"[:MAX_REASON]) from error
    if values.shape != (repeats,) or not np.isfinite(values).all():
        raise ObjectiveError(f"repeated: returned shape {values.shape}, expected ({repeats},) finite numbers")
    return values
