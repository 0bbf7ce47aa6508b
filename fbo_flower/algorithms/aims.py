"""What an agent wants of its evaluations: objectives to maximise or minimise, and limits to hold.

An objective function returns one number, or a dict of numbers by name, its outputs. Inside the package larger
is better in every output: one that is minimised or has a largest value has its sign changed. So a limit is a
least value. The first objective is the trial's value, as the only one is.

Notation: `O` outputs, the objectives first, then the limited outputs that are no objectives; `n` trials.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError, did_you_mean, kind_of
from fbo_flower.numerics.arrays import Array, BoolArray
from fbo_flower.space.checks import as_real, check_flag

DIRECTIONS = {"max": 1.0, "min": -1.0}
SIDES = {">=": 1.0, "<=": -1.0}
MOST_OBJECTIVES, MOST_OUTPUTS, LONGEST_NAME = 3, 20, 100
Limit = float | str  # 20.0 is the largest allowed value; ">= 0.9" and "<= 20" say the side
_LIMIT = re.compile(r"\s*(.*?)\s*(<=|>=)\s*(\S+)\s*")  # the name may be missing


@dataclass(frozen=True)
class Aims:
    """Objectives and limits. Without names, the objective returns a number, larger is better.

    Parameters
    ----------
    objectives : name and direction, "max" or "min", of each; the name is "" for a plain number
    limits : name, side (">=" or "<=") and bound of each; the bound is NaN where it is not known, because the
        bounds of a device do not leave it
    reference : name and value from which improvement of an objective counts, with several objectives. It is
        no limit: worse configurations are feasible, and gain nothing
    private : names of outputs whose values do not leave the agent; its operator's, and no part of the text of
        `to_json`
    """

    objectives: tuple[tuple[str, str], ...] = (("", "max"),)
    limits: tuple[tuple[str, str, float], ...] = ()
    reference: tuple[tuple[str, float], ...] = ()
    private: tuple[str, ...] = ()

    @staticmethod
    def of(
        minimize: object = False,
        objectives: Mapping[str, str] | str | None = None,
        limits: Mapping[str, Limit] | str | None = None,
        reference: Mapping[str, float] | None = None,
    ) -> Aims:
        """Return the aims that a user writes down.

        Parameters
        ----------
        objectives, limits : by name, or as text: "accuracy max, kilobytes min" and "latency_ms <= 20"

        Raises
        ------
        ConfigError
            If an argument has the wrong type, a name, direction or limit is malformed, or they contradict
            each other.
        """
        minimize = check_flag("minimize", minimize)
        if objectives is None:
            if limits is not None or reference is not None:
                raise ConfigError(
                    'limits: expected objectives beside them, as in objectives={"accuracy": "max"}, got none'
                )
            return Aims((("", "min"),)) if minimize else Aims()
        if minimize:
            raise ConfigError(
                'objectives: expected no minimize beside them; write objectives={"loss": "min"}'
            )
        given: Any = objectives
        if isinstance(objectives, str):
            parts = [part.strip().rpartition(" ") for part in objectives.split(",")]
            objectives = {name.strip(): way for name, _, way in parts} if all(p[0] for p in parts) else given
        if not isinstance(objectives, Mapping) or not 1 <= len(objectives) <= MOST_OBJECTIVES:
            raise ConfigError(
                f"objectives: expected a dict of 1 to {MOST_OBJECTIVES} names, each with 'max' or 'min', or "
                f"text such as 'accuracy max, kilobytes min', got {given!r:.200}; leave them out "
                "if there is one number: larger is better, or pass minimize=True"
            )
        _check_names("objectives", objectives)
        for name, direction in objectives.items():
            if not isinstance(direction, str) or direction not in DIRECTIONS:
                hint = did_you_mean(direction, DIRECTIONS, "objectives")
                raise ConfigError(f"objectives: {name}: expected 'max' or 'min', got {direction!r}{hint}")
        start = _reference(objectives, reference)
        bounds = tuple((n, *read_limit(n, v)) for n, v in _items(limits))
        aims = Aims(tuple(objectives.items()), bounds, start)
        for name, side, _ in aims.limits:
            if name in objectives and SIDES[side] != DIRECTIONS[objectives[name]]:
                raise ConfigError(
                    f"limits: {name}: expected {'>=' if side == '<=' else '<='}, because it is an objective "
                    f"with {objectives[name]!r}, got {side}"
                )
        if len(aims.names) > MOST_OUTPUTS:
            raise ConfigError(f"limits: expected at most {MOST_OUTPUTS} outputs, got {len(aims.names)}")
        return aims

    def with_limits(self, own: Mapping[str, Limit] | str | None) -> Aims:
        """Return these aims with some bounds replaced; ConfigError if a name or a side is another one.

        Parameters
        ----------
        own : name -> limit, or the same as text, "latency_ms <= 15, recall >= 0.9"
        """
        new = {name: read_limit(name, limit) for name, limit in _items(own)}
        if not new:
            return self
        sides = {name: side for name, side, _ in self.limits}
        for name, (side, _) in new.items():
            if sides.get(name) != side:
                known = ", ".join(f"{name} {side} ..." for name, side in sides.items()) or "none"
                raise ConfigError(
                    f"limits: expected other bounds for limits of the study ({known}), got {name} {side} "
                    "...; what one agent limits needs a limit of the study too"
                )
        bounds = tuple((n, *new.get(n, (side, b))) for n, side, b in self.limits)
        return Aims(self.objectives, bounds, self.reference, self.private)

    def keeping(self, private: Iterable[str] | str | None) -> Aims:
        """Return these aims with some outputs kept private; ConfigError if there is no such output.

        Parameters
        ----------
        private : their names, or the same as text, "latency_ms, watts"
        """
        names = [name.strip() for name in private.split(",")] if isinstance(private, str) else private or ()
        known = self.names if self.has_outputs else ()
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ConfigError(
                f"private: expected some of several outputs ({', '.join(known) or 'none'}), got "
                f"{', '.join(map(str, unknown[:5]))}"
            )
        kept = tuple(dict.fromkeys(names))
        return self if kept == self.private else replace(self, private=kept)

    # -- the outputs -----------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the `O` outputs; () for a plain number."""
        named = [name for name, _ in self.objectives if name]
        return tuple(dict.fromkeys(named + [name for name, _, _ in self.limits]))

    @cached_property
    def has_outputs(self) -> bool:
        """Whether a trial has more than its value: several objectives, or limits."""
        return len(self.objectives) > 1 or bool(self.limits)

    @cached_property
    def minimize(self) -> bool:
        """Whether smaller values of the first objective are better."""
        return self.objectives[0][1] == "min"

    @cached_property
    def signs(self) -> Array:
        """What outputs as measured are multiplied by so that larger is better, `(O,)`."""
        found = {name: SIDES[side] for name, side, _ in self.limits}
        found |= {name: DIRECTIONS[direction] for name, direction in self.objectives}
        return _frozen([found[name] for name in self.names])

    @cached_property
    def least(self) -> Array:
        """The limits as least values, `(O,)`; -inf for an output without one."""
        bounds = {name: SIDES[side] * bound for name, side, bound in self.limits}
        return _frozen([bounds.get(name, -math.inf) for name in self.names])

    @cached_property
    def start(self) -> Array:
        """The reference of each objective, `(K,)`, larger is better; NaN where there is none."""
        known = dict(self.reference)
        return _frozen([DIRECTIONS[way] * known.get(name, math.nan) for name, way in self.objectives])

    def feasible(self, outputs: Array) -> BoolArray:
        """Return which rows of `outputs (n, O)` hold all limits, `(n,)`; a failed trial does not."""
        return np.asarray((outputs >= self.least).all(axis=1), dtype=np.bool_)

    def nearest(self, outputs: Array) -> int:
        """Return the row of `outputs (n, O)` that breaks the limits least, in standard deviations of each."""
        scale = np.nanstd(outputs, axis=0)
        broken = np.maximum(self.least - outputs, 0.0) / np.where(scale > 0.0, scale, 1.0)
        return int(np.nanargmin(broken.sum(axis=1)))

    def measured(self, row: Iterable[float]) -> dict[str, float]:
        """Return a row of outputs `(O,)` by name, as the user measures them; empty if the trial failed."""
        values = [float(sign * value) + 0.0 for sign, value in zip(self.signs, row, strict=True)]
        return dict(zip(self.names, values, strict=True)) if all(map(math.isfinite, values)) else {}

    def observed(self, values: Array | Mapping[str, Array]) -> tuple[Array, Array | None]:
        """Return values `(n,)` and outputs `(n, O)` of observations as measured, larger is better.

        A row with a NaN or an infinity counts as failed.

        Parameters
        ----------
        values : `(n,)`; with several objectives or limits name -> `(n,)`, other names are left out

        Raises
        ------
        ConfigError
            If outputs are missing, or differ in length.
        """
        if not self.has_outputs and not isinstance(values, Mapping):
            numbers = np.asarray(values, dtype=np.float64)
            return (-numbers if self.minimize else numbers), None
        if not isinstance(values, Mapping) or not set(self.names) <= set(values) or not self.names:
            got = f"outputs {', '.join(map(str, values))}" if isinstance(values, Mapping) else "one number"
            raise ConfigError(
                f"prior: expected observations of {', '.join(self.names) or 'one number'}, got {got}"
            )
        try:
            outputs = self.signs * np.array([values[name] for name in self.names], dtype=np.float64).T
        except ValueError as error:
            raise ConfigError(f"prior: expected arrays of one length for {', '.join(self.names)}") from error
        outputs[~np.isfinite(outputs).all(axis=1)] = np.nan
        return outputs[:, 0].copy(), outputs if self.has_outputs else None

    # -- who may know what -----------------------------------------------------------------------

    def to_json(self, *, bounds: bool = False) -> str:
        """Return the aims as JSON; without `bounds`, which a server need not know."""
        limits = {name: [side, bound] if bounds else [side] for name, side, bound in self.limits}
        said = {"objectives": dict(self.objectives), "limits": limits}
        return json.dumps({**said, **({"reference": dict(self.reference)} if self.reference else {})})

    @staticmethod
    @lru_cache(maxsize=16)  # most agents have the same aims
    def from_json(text: str) -> Aims:
        """Return the aims of a text that `to_json` wrote, or that an agent sent; ConfigError if malformed."""
        try:
            found: Any = json.loads(text)
            objectives, limits = dict(found["objectives"]), dict(found["limits"])
            if set(objectives) == {""} and not limits:
                return Aims((("", {"max": "max", "min": "min"}[objectives[""]]),))
            sides = {
                name: f"{parts[0]} {parts[1] if len(parts) > 1 else 0.0}" for name, parts in limits.items()
            }
            aims = Aims.of(False, objectives, sides, found.get("reference"))
            known = {name: len(parts) > 1 for name, parts in limits.items()}
            bounds = tuple((n, s, b if known[n] else math.nan) for n, s, b in aims.limits)
            return Aims(aims.objectives, bounds, aims.reference)
        except (ValueError, LookupError, TypeError, RecursionError) as error:  # ConfigError is a ValueError
            raise ConfigError(f"aims: expected objectives and limits as JSON, got {text[:80]!r}") from error

    def settings(self) -> dict[str, object]:
        """Return what `study.json` says of them; no bounds. Several objectives have no best value."""
        is_loss = self.minimize and len(self.objectives) == 1
        said: dict[str, object] = {"minimize": True} if is_loss else {}
        if self.names:
            said["objectives"] = [list(objective) for objective in self.objectives]  # in their order
        if self.reference:
            said["reference"] = dict(self.reference)
        if self.limits:
            said["limits"] = {name: side for name, side, _ in self.limits}
        return said

    def __str__(self) -> str:
        """Return the aims in words, without bounds."""
        texts = [f"{name or 'value'} {direction}" for name, direction in self.objectives]
        return ", ".join(texts + [f"{name} {side} ..." for name, side, _ in self.limits])


def _frozen(numbers: list[float]) -> Array:
    """Return numbers as an array that nobody can write, because equal aims share it; see `space.frozen`."""
    array = np.array(numbers, dtype=np.float64)
    array.setflags(write=False)
    return array.view()


NUMBER = Aims()  # of an objective that returns one number, larger is better


def read_limit(name: str, limit: object) -> tuple[str, float]:
    """Return side and bound of a limit; ConfigError if it is neither a number nor such as ">= 0.9"."""
    side, number = "<=", limit
    if isinstance(limit, str) and (match := _LIMIT.fullmatch(limit)) and not match[1]:
        side, number = match[2], match[3]
    try:
        bound = as_real(float(number) if isinstance(number, str) and number is not limit else number)
    except ValueError:
        bound = None
    if bound is None or not math.isfinite(bound):
        raise ConfigError(
            f"limits: {name}: expected the largest value allowed, or a text such as '>= 0.9', got {limit!r}"
        )
    return side, float(bound)


def _reference(
    objectives: Mapping[str, str], reference: Mapping[str, float] | None
) -> tuple[tuple[str, float], ...]:
    """Return the checked reference in the order of the objectives."""
    given: Any = {} if reference is None else reference
    numbers = (
        {name: as_real(value) for name, value in given.items()} if isinstance(given, Mapping) else {"": None}
    )
    found = {
        name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)
    }
    if len(found) < len(numbers) or not found.keys() <= objectives.keys() or (found and len(objectives) == 1):
        raise ConfigError(
            f"reference: expected numbers for some of several objectives, of {', '.join(objectives)}, got "
            f"{reference!r:.200}"
        )
    return tuple((name, found[name]) for name in objectives if name in found)


def _items(limits: Mapping[str, Limit] | str | None) -> Iterable[tuple[str, Limit]]:
    if limits is None:
        return ()
    if isinstance(limits, str):
        parts = [_LIMIT.fullmatch(part) for part in limits.split(",")]
        found = {match[1]: f"{match[2]} {match[3]}" for match in parts if match and match[1]}
        if len(found) < len(parts):
            raise ConfigError(
                f"limits: expected text such as 'latency_ms <= 15, recall >= 0.9', got {limits[:100]!r}"
            )
        limits = found
    if not isinstance(limits, Mapping):
        raise ConfigError(f'limits: expected a dict such as {{"latency_ms": 20.0}}, got {kind_of(limits)}')
    _check_names("limits", limits)
    return limits.items()


def _check_names(argument: str, names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise ConfigError(
                f"{argument}: expected names of 1 to {LONGEST_NAME} printable characters, got {name!r:.80}"
            )
