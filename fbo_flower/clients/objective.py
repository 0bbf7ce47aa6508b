"""Call the user's objective: return a finite number, or raise `ObjectiveError` with the reason.

`call` does it for a row of trials and returns the row with values, or with the reason.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import Trials
from fbo_flower.clients.pruning import Curve, columns_of
from fbo_flower.errors import (
    ConfigError,
    NotInTimeError,
    ObjectiveError,
    WrongTypeError,
    kind_of,
    printable,
    with_article,
)
from fbo_flower.numerics import finite
from fbo_flower.space.checks import as_real
from fbo_flower.space.copies import copies
from fbo_flower.space.space import SearchSpace, check_space

MAX_REASON = 300  # characters
_MOST_CHARACTERS = 500  # of a line of a traceback


@copies("node_config", "run_config")
@dataclass(frozen=True)
class ObjectiveContext:
    """The second argument of an objective: which trial of which agent it evaluates.

    Parameters
    ----------
    agent : id of the agent, the same in all studies
    partition : the agent's partition of a simulated data set; -1 on a device without one
    trial : id of the trial, counted per agent from 0
    server_round : the round in which it is evaluated
    rng : random generator of this trial; a noisy objective that uses it gives the same value when repeated
    node_config : settings of the device's operator, such as paths of data
    run_config : Flower's run config
    curve : the values that the trial has reported so far, and when it should stop
    study : id of the study
    """

    agent: str
    partition: int
    trial: int
    server_round: int
    rng: np.random.Generator
    node_config: Mapping[str, Any] = field(default_factory=dict)
    run_config: Mapping[str, Any] = field(default_factory=dict)
    curve: Curve = field(default_factory=Curve, compare=False)
    study: str = ""

    def report(self, step: int, value: float) -> None:
        """Report the objective's value after a step of training, such as an epoch.

        Parameters
        ----------
        step : an integer from 0, larger than the last one
        value : finite, and measured as the value that the objective returns: a loss if it returns a loss

        Raises
        ------
        ObjectiveError
            If the step or the value is not as described; uncaught, the trial fails with this reason.
        """
        self.curve.report(step, value)

    def should_stop(self) -> bool:
        """Return whether the trial is worse than earlier ones were at the last reported step.

        When it is true, return or raise an exception: what the objective returns then is ignored, and the
        trial's value is the last one that it has reported. See `Pruning` for the rule.
        """
        return self.curve.should_stop()


class ContextOfTrial(ObjectiveContext):
    """An `ObjectiveContext` whose generator and curve are made when they are asked for; few objectives do."""

    def __init__(
        self, make_rng: Callable[[], np.random.Generator], make_curve: Callable[[], Curve], **fields: Any
    ) -> None:
        self.__dict__.update(fields, _make={"rng": make_rng, "curve": make_curve})

    def __getattr__(self, name: str) -> Any:
        make = self.__dict__.get("_make", {}).get(name)
        if make is None:
            raise AttributeError(name)
        made = self.__dict__[name] = make()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectiveContext, tuple(getattr(self, field.name) for field in fields(ObjectiveContext))


# returns a number, or its outputs by name
Objective = Callable[[dict[str, Any], ObjectiveContext], float | Mapping[str, float]]


def check_objective(objective: object, space: object, second: str) -> None:
    """Raise ConfigError unless `objective` is a function of two arguments and `space` is a `SearchSpace`.

    Parameters
    ----------
    second : name of the objective's second argument, for the message
    """
    if isinstance(objective, SearchSpace) and callable(space):
        raise ConfigError(
            "objective, space: expected the objective first, got them in the other order; swap them"
        )
    if not callable(objective):
        raise ConfigError(
            f"objective: expected a function f(config, {second}) that returns a number, "
            f"got {kind_of(objective)}"
        )
    try:
        signature = inspect.signature(objective)
    except (TypeError, ValueError):  # some functions written in C have no signature
        signature = None
    if signature is not None:
        further = {"context": None} if second != "context" and takes_context(objective) else {}
        try:
            signature.bind({}, None, **further)
        except TypeError:
            name = getattr(objective, "__name__", "f")
            raise ConfigError(
                f"objective: expected a function of two arguments, f(config, {second}), got "
                f"{name}{signature}; give it exactly these two"
            ) from None
    check_space(space)


def takes_context(objective: object) -> bool:
    """Return whether a function `f(config, data)` also has a parameter `context`, after the first two."""
    try:
        names = list(inspect.signature(objective).parameters)  # type: ignore[arg-type]  # not a function
    except (TypeError, ValueError):
        return False
    return "context" in names[2:]


def evaluate(
    objective: Objective, config: dict[str, Any], context: ObjectiveContext, aims: Aims = NUMBER
) -> tuple[float, ...]:
    """Return the objective's value, or its outputs in the order of `aims.names`; larger is better.

    A stopped trial has the last value that it reported.

    Raises
    ------
    ObjectiveError
        If the objective raised an exception or returned NaN or an infinity.
    WrongTypeError
        If it returned something that is no real number, or not a dict with exactly the names of `aims`.
    NotInTimeError
        If the objective is a site's process that told no value yet: the trial has not failed.
    """
    try:
        value = objective(dict(config), context)  # calls share one, and the user may change it
    except NotInTimeError:  # nothing was evaluated
        raise
    except BaseException as error:  # the user's code may raise anything: the trial fails, the agent goes on
        if _ends_process(error):
            raise
        if "curve" in vars(context) and context.curve.stopped:
            return (context.curve.values[-1],)
        if type(error) is ObjectiveError and error.__cause__ is None:  # a reason, no error to look for
            raise ObjectiveError(str(error)[:MAX_REASON]) from None
        raise ObjectiveError(_reason(error)) from error
    if "curve" in vars(context) and context.curve.stopped:
        return (context.curve.values[-1],)
    if not aims.names:
        if type(value) is float and math.isfinite(value):  # the checks take longer than a small objective
            return (-value if aims.minimize else value,)
        number = _number(value)
        return (-number if aims.minimize else number,)
    found: Any = value
    wanted = f"a dict of {', '.join(aims.names)}"
    if not isinstance(found, Mapping):
        raise WrongTypeError(_type_of(found), _shown(repr, found)[:80], wanted)
    if set(found) != set(aims.names):
        names = _shown(lambda names: ", ".join(map(str, names)), found)[:80]  # type: ignore[call-overload]
        raise WrongTypeError(f"a dict of {names or 'nothing'}", "", wanted)
    found = [_number(found[name], name, wanted) for name in aims.names]
    return tuple((aims.signs * found).tolist())


def _number(value: Any, name: str = "", wanted: str = WrongTypeError.NUMBER) -> float:
    """Return a number that an objective has returned, of the output `name`; "" is its only one."""
    number = as_real(value)
    if number is None:
        kind = f"{_type_of(value)} for {name}" if name else _type_of(value)
        raise WrongTypeError(kind, _shown(repr, value)[:80], wanted)
    if not math.isfinite(number):
        raise ObjectiveError(f"{f'{name}: ' if name else ''}expected a finite number, got {number}")
    return float(number)


def _type_of(value: object) -> str:
    """Return the type of a value, in words that tell nothing else of it."""
    if value is None:
        return "None"
    try:
        hint = ", whose item() is a number" if as_real(value.item()) is not None else ""  # type: ignore[attr-defined]
    except Exception:  # most have no such method, and tensors of several numbers raise
        hint = ""
    return with_article(type(value).__name__) + hint


def _ends_process(error: BaseException) -> bool:
    """Return whether an exception is to end this process, and so is no failure of the objective.

    That is Ctrl-C, and what a signal's handler raises, which appears within the objective: one that is
    installed, or that of Flower or Ray, which is no longer installed when it raises SystemExit.
    """
    if isinstance(error, Exception):
        return False
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return True
    handlers = {getattr(signal.getsignal(n), "__code__", None) for n in signal.valid_signals()} - {None}
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    owner = str(frames[-1].f_globals.get("__name__")).partition(".")[0]
    return owner in ("flwr", "ray") or any(frame.f_code in handlers for frame in frames)


def _reason(error: BaseException) -> str:
    """Return why a trial failed that raised an exception."""
    hint = " (the objective called sys.exit)" if isinstance(error, SystemExit) else ""
    return f"{type(error).__name__}: {_shown(str, error)}{hint}"[:MAX_REASON]


def _shown(write: Callable[[object], str], value: object) -> str:
    """Return `write(value)`, or "..." if the class of `value` raises."""
    try:
        return write(value)
    except Exception:
        return "..."


def can_repeat(objective: Objective) -> bool:
    """Return whether an objective has a method `repeated(config, context, repeats) -> (repeats,)` values.

    One such call replaces `repeats` calls of the objective and has one generator. Bandits need it, because
    they evaluate a point thousands of times.
    """
    return callable(getattr(objective, "repeated", None))


def evaluate_repeatedly(
    objective: Objective, config: dict[str, Any], context: ObjectiveContext, repeats: int, aims: Aims = NUMBER
) -> npt.NDArray[np.float64]:
    """Return the values of one call of `objective.repeated`, `(repeats,)`; larger is better.

    Raises
    ------
    ObjectiveError
        If `repeated` raised an exception or returned a NaN or an infinity.
    WrongTypeError
        If it did not return `(repeats,)` numbers.
    """
    repeatable: Any = objective  # has the method, see `can_repeat`
    try:
        returned = repeatable.repeated(dict(config), context, repeats)
    except BaseException as error:  # the user's code may raise anything
        if _ends_process(error):
            raise
        raise ObjectiveError(_reason(error)) from error
    try:
        values = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError):
        raise WrongTypeError(
            f"{_type_of(returned)} in place of {repeats}", _shown(repr, returned)[:80]
        ) from None
    if values.shape != (repeats,):
        raise WrongTypeError(f"an array of shape {values.shape} in place of ({repeats},)")
    if not np.isfinite(values).all():
        raise ObjectiveError(f"repeated: expected ({repeats},) finite numbers, got a NaN or an infinity")
    return -values if aims.minimize else values


# -- a row of trials ------------------------------------------------------------------------------------

# a checksum of an error's type and of the line that raised it, and its traceback in indented lines
FoundError = tuple[str, str]


def describe(error: BaseException) -> FoundError:
    """Return an error in texts, which can be passed between processes."""
    frames = traceback.extract_tb(error.__traceback__)
    name = " ".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in frames[-1:])])
    lines = ["Traceback (most recent call last):", *"".join(traceback.format_list(frames)).splitlines()]
    # the text of an error is one line, so that it cannot look like lines of the log
    lines.append("".join(traceback.format_exception_only(error)).rstrip())
    if error.__cause__ is not None:
        lines.append(f"caused by {''.join(traceback.format_exception_only(error.__cause__)).rstrip()}")
    text = "".join(f"\n  {printable(line)[:_MOST_CHARACTERS]}" for line in lines)
    return hashlib.sha256(name.encode()).hexdigest()[:16], text


class Job(NamedTuple):
    """The evaluation of a row of trials: one call of the objective, or several in turn.

    Parameters
    ----------
    row : trials of one point, without values. One call stands for all of them if there is only one context
    config : first argument of the objective, the row's point
    contexts : its second argument, one per call
    repeats : whether the call is one of `objective.repeated`, which evaluates every trial of the row
    aims : what the objective returns
    """

    row: Trials
    config: dict[str, Any]
    contexts: Sequence[ObjectiveContext]
    repeats: bool = False
    aims: Aims = NUMBER

    def parts(self) -> list[Job]:
        """Return a job for each call, so that workers can share them."""
        if len(self.contexts) == 1:
            return [self]
        points, values, trials = self.row.points, self.row.values, self.row.trials
        rows = [Trials(points, values, trials + k) for k in range(len(self.contexts))]
        return [self._replace(row=r, contexts=[c]) for r, c in zip(rows, self.contexts, strict=True)]


Ended = tuple[Trials, FoundError | None]  # the row of a job with its values, and the objective's first error


def call(objective: Objective, job: Job) -> Ended:
    """Call the objective in this process; WrongTypeError if it returns no number, as it would again."""
    started, before = time.time(), time.perf_counter()
    row, config, contexts, repeats, aims = job
    values: list[float] = []
    failure, error = "", None
    for context in contexts:
        try:
            if repeats:
                values += evaluate_repeatedly(objective, config, context, row.num_trials, aims).tolist()
            else:
                values += evaluate(objective, config, context, aims)
        except WrongTypeError:
            raise
        except ObjectiveError as raised:
            if not failure:
                failure = str(raised)
                error = None if raised.__cause__ is None else describe(raised.__cause__)
    if not repeats:
        values *= row.num_trials // len(contexts)
    times = started, started + time.perf_counter() - before
    return with_values(row, values, failure, times, aims, vars(contexts[0]).get("curve")), error


def with_values(
    row: Trials,
    values: Sequence[float],
    failure: str,
    times: tuple[float, float],
    aims: Aims = NUMBER,
    curve: Curve | None = None,
) -> Trials:
    """Return a row of trials after its evaluation.

    Parameters
    ----------
    values : larger is better: one number per trial that has not failed, or the outputs of the only one
    failure : the reason of the first trial that failed; "" if none did
    times : when it began and ended, in seconds since 1970
    aims : what the objective returned
    curve : what the only trial has reported; None: nothing
    """
    columns = {} if curve is None else columns_of(curve)
    if aims.has_outputs:
        columns["outputs"] = np.array([values or [np.nan] * len(aims.names)]) + 0.0  # no -0.0
        values = values[:1]
    value, square = values[0] + 0.0 if values else np.nan, 0.0
    if len(values) > 1:
        observed = np.array(values)
        value = finite.mean(observed) + 0.0
        with np.errstate(over="ignore"):  # the square of a huge value is infinite
            square = float(np.sum(np.square(observed - value)))
    if row.pulls is not None:
        columns |= {"counts": np.array([len(values)]), "deviations": np.array([square])}
    if failure:
        columns["failures"] = np.array([failure], dtype=object)
    points, trials, pulls = row.points, row.trials, row.pulls
    return Trials(points, np.array([value]), trials, pulls=pulls, times=np.array([times]), **columns)


def join_parts(row: Trials, parts: Sequence[Ended]) -> Ended:
    """Return how a job has ended whose calls were shared, see `Job.parts`."""
    if len(parts) == 1:
        return parts[0]
    table = parts[0][0].concat(*(part for part, _ in parts[1:]))
    assert table.times is not None
    values, failures = table.values[np.isfinite(table.values)].tolist(), [*table.reasons.values()]
    error = next((error for part, error in parts if part.failures is not None), None)
    times = float(table.times[:, 0].min()), float(table.times[:, 1].max())
    return with_values(row, values, failures[0] if failures else "", times), error
