"""Check the replies of clients before a strategy sees them; a bad one costs its own update, not the round.

A strategy of Flower trusts replies: one NaN among four makes FedAvg's model NaN, and one with another name
ends the run. So a reply is used only if its arrays have the names and shapes of the ones that were sent, and
the dtypes that most replies have; if its metrics have the names that most replies have; and if no number is
larger than what a sum or a square can hold. Arrays that are not floating-point numbers (serialised trees, for
instance) may change their shape.

Flower's strategies also believe every number that is well-formed: one client that reports a million times the
rows of the others decides the model alone, and one that reports an accuracy of 1e9 decides which trial is the
best. Three guards more, each an option of its own:

- *bounds* of a metric: a reply with a value outside is left out, as one with NaN is;
- *max_weight*: a reply that reports more rows than this multiple of its half-round's median counts with that
  multiple. The lower median is taken, so of two clients the larger one is lowered;
- *judging by the median*: a trial's value is the weighted median of the clients' own values. It lies between
  values of honest clients as long as liars have less than half of the weight.

A liar within the bounds still moves a mean by its share of the weight, and a median to a neighbouring value.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from fbo_flower.algorithms.options import Settings, bounded, checked, choice, flag, integer
from fbo_flower.errors import ConfigError, WireError, kind_of, printable
from fbo_flower.space.checks import as_real, show
from fbo_flower.space.copies import own

MetricLike = str | Callable[[Mapping[str, Any]], float]
Bounds = tuple[float, float]  # least and largest value of a metric
LARGEST = 1e18  # number in a model or a metric; the square of a larger one overflows in single precision
MOST_ROWS = 1e12  # weight of a reply; no client has more rows
JUDGES = ("mean", "median")
_PLACE = re.compile(r"(.+)\[(-?\d+)\]")  # an entry of a list: loss[-1]
ALL, SHARE = "all", "share"  # who evaluates a trial


@dataclass(frozen=True)
class Checked:
    """The replies of a half-round."""

    used: list[Message]  # valid ones
    refused: list[str]  # why the others were not used
    not_finite: int = 0  # how many of them held a number that is not finite, as models do that diverged
    raised: int = 0  # how many were the error of a ClientApp
    asked: int = 0  # number of messages that were sent


class Metric:
    """Finds a trial's value among its metrics.

    Parameters
    ----------
    given : "accuracy"; "loss[-1]", the last number of a list; or a function of the metrics, a mapping from
        names to numbers and lists of numbers, that returns a number
    """

    def __init__(self, given: MetricLike) -> None:
        if not (callable(given) or (isinstance(given, str) and given)):
            raise ConfigError(
                "metric: expected the name of a metric such as 'accuracy' or 'loss[-1]', or a function of "
                f"the metrics, got {given!r}"
            )
        self._given = given
        name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        self.name = "metric" if name == "<lambda>" else name

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
            there = ", ".join(
                f"{name} (a list of {len(value)} numbers: choose '{name}[-1]')"
                if isinstance(value, list | tuple)
                else name
                for name, value in ((printable(key), metrics[key]) for key in sorted(metrics))
            )
            raise ConfigError(
                f"metric: expected {error} among the metrics of aggregate_evaluate, aggregate_train and "
                f"evaluate_fn, got {there or 'none'}; return it in the MetricRecord of @app.evaluate(), "
                "evaluate with a positive fraction_evaluate, or pass evaluate_fn"
            ) from error

    def _value(self, metrics: Mapping[str, Any]) -> float:
        """Return the value, or raise ConfigError with what was expected."""
        if not isinstance(self._given, str):
            try:
                return _number(self._given(own(dict(metrics))))
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


def _number(value: Any) -> float:
    if isinstance(value, np.generic | np.ndarray) and value.size == 1:
        value = value.item()
    if not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {kind_of(value)}")
    return float(value)


def check_replies(
    sent: Sequence[Message],
    replies: Sequence[Message | None],
    weighted_by: str | None = None,
    bounds: tuple[Metric, Bounds] | None = None,
) -> Checked:
    """Return the valid replies to messages, in the order of the messages.

    Parameters
    ----------
    replies : one per message; None: no reply in time
    weighted_by : metric by which the strategy weights replies, which must be positive; None: there is none
    bounds : a metric, and its least and largest value that are believed
    """
    used, refused, reasons = [], [], Counter[str]()
    for message, reply in zip(sent, replies, strict=True):
        try:
            if reply is None:
                raise WireError("no reply in time", "late")
            _check(message, reply, weighted_by, bounds)
            used.append(reply)
        except WireError as error:
            refused.append(f"client {message.metadata.dst_node_id}: {error}")
            reasons[error.reason] += 1
    forms_of: dict[str, Callable[[Message], tuple[str, ...]]] = {
        "metrics": lambda reply: tuple(sorted(client_metrics(reply))),
        "dtypes": lambda reply: tuple(f"{n}: {a.dtype}" for n, a in sorted(_trained(reply).items())),
    }
    for what, form in forms_of.items():
        forms = Counter(form(reply) for reply in used)
        common = max(sorted(forms), key=lambda name: forms[name]) if forms else ()
        for reply in used:
            if form(reply) != common:
                refused.append(
                    f"client {reply.metadata.src_node_id}: expected the {what} {', '.join(common)}, as most "
                    f"clients sent them, got {printable(', '.join(form(reply)))[:500]}"
                )
        used = [reply for reply in used if form(reply) == common]
    return Checked(used, refused, reasons["not-finite"], reasons["raised"], len(sent))


def client_metrics(reply: Message) -> MetricRecord:
    """Return the only MetricRecord of a checked reply."""
    return next(iter(reply.content.metric_records.values()))


def is_number(value: object) -> bool:
    """Return whether a metric is one finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _trained(reply: Message) -> ArrayRecord:
    """Return the arrays of an update; those in an evaluation are not used."""
    return arrays_of(reply) if _trains(reply) else ArrayRecord()


def _trains(message: Message) -> bool:
    return message.metadata.message_type.split(".")[0] == "train"


def arrays_of(message: Message) -> ArrayRecord:
    """Return the first ArrayRecord of a message; an empty one if it has none."""
    return next(iter(message.content.array_records.values()), ArrayRecord())


def _check(
    sent: Message, reply: Message, weighted_by: str | None, bounds: tuple[Metric, Bounds] | None
) -> None:
    if reply.has_error():
        raised = reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        reason = f"error {reply.error.code}: {printable(str(reply.error.reason))[:500]}"
        raise WireError(reason, "raised" if raised else "error")
    if reply.metadata.src_node_id != sent.metadata.dst_node_id:
        raise WireError(f"expected a reply of this client, got one of {reply.metadata.src_node_id}", "agent")
    content = reply.content
    if len(content.metric_records) != 1:
        raise WireError(f"expected one MetricRecord, got {len(content.metric_records)}", "content")
    for name, value in client_metrics(reply).items():
        numbers = value if isinstance(value, list) else [value]
        if not all(abs(number) <= LARGEST for number in numbers):
            raise WireError(
                f"metric {printable(name)}: expected finite numbers of at most {LARGEST:g}, got {value}",
                "not-finite",
            )
    if bounds is not None:
        metric, (low, high) = bounds
        found = metric.of(client_metrics(reply))
        if found is not None and not low <= found <= high:
            raise WireError(
                f"metric {printable(metric.name)}: expected a value in [{low:g}, {high:g}], got {found:g}",
                "bounds",
            )
    weight = client_metrics(reply).get(weighted_by or "", 1)
    if isinstance(weight, list) or not 0 < weight <= MOST_ROWS:
        raise WireError(
            f"metric {weighted_by}: expected a positive number of at most {MOST_ROWS:g}, got {weight}",
            "bounds",
        )
    if _trains(sent):
        if len(content.array_records) != 1:
            raise WireError(f"expected one ArrayRecord, got {len(content.array_records)}", "content")
        _check_arrays(arrays_of(sent), arrays_of(reply))


def _check_arrays(sent: ArrayRecord, received: ArrayRecord) -> None:
    if list(sent) and set(sent) != set(received):
        raise WireError(f"expected the arrays {sorted(sent)[:9]}, got {sorted(received)[:9]}", "names")
    for name, array in received.items():
        try:
            values = array.numpy()
        except Exception as error:  # whatever a hostile serialisation makes NumPy raise
            raise WireError(f"array {printable(name)}: {type(error).__name__}", "encoding") from error
        known = sent.get(name)
        kind = values.dtype.kind if known is None else np.dtype(known.dtype).kind
        if values.dtype.kind not in "fiub" or values.dtype.kind != kind:
            raise WireError(f"array {printable(name)}: got the dtype {values.dtype}", "dtype")
        if known is not None and values.dtype.kind == "f" and tuple(known.shape) != values.shape:
            raise WireError(
                f"array {printable(name)}: expected {tuple(known.shape)}, got {values.shape}", "shape"
            )
        if values.dtype.kind == "f":
            largest = min(LARGEST, float(np.finfo(values.dtype).max))  # half precision ends at 65504
            if not (np.abs(values) <= largest).all():
                raise WireError(
                    f"array {printable(name)}: expected finite numbers of at most {largest:g}", "not-finite"
                )


def _bounds(value: object) -> Bounds:
    """Return two numbers in ascending order; ConfigError if the value is anything else."""
    numbers = [as_real(bound) for bound in value] if isinstance(value, tuple) else []
    if len(numbers) != 2 or None in numbers or not numbers[0] < numbers[1]:  # type: ignore[operator]  # no None
        raise ConfigError(f"bounds: expected (least, largest), got {show(value)}")
    return float(numbers[0]), float(numbers[1])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Judge(Settings):
    """How trials are judged by the clients' values of the metric, and which values are believed.

    Parameters
    ----------
    minimize : whether smaller values of the metric are better
    evaluate_on : "share": a trial is judged by the clients of its share; "all": by all clients, which
        costs them evaluations
    finalists : number of best trials whose models all clients judge at the end
    bounds : least and largest value that the metric can have, such as (0, 1); a client's reply with another
        one is left out. None: every finite number is believed
    max_weight : a client that reports more rows (`num-examples`) than this multiple of the others' median
        counts with that multiple; None: every number is believed
    by : "mean": trials are judged by the metric that the strategy aggregates; "median": by the weighted
        median of the clients' own values, which a few false ones cannot move far

    Raises
    ------
    ConfigError
        If the bounds are not two numbers in ascending order, or another setting cannot be used.
    """

    minimize: bool = flag(False)
    evaluate_on: str = choice(SHARE, (SHARE, ALL))
    finalists: int = integer(0, 0)
    bounds: Bounds | None = checked(None, _bounds)  # noqa: RUF009  # a field
    max_weight: float | None = bounded(None, 1.0)
    by: str = choice("mean", JUDGES)

    @property
    def sign(self) -> float:
        """-1 if smaller is better."""
        return -1.0 if self.minimize else 1.0

    def checked(
        self,
        metric: Metric | str,
        sent: Sequence[Message],
        replies: Sequence[Message | None],
        weighted_by: str | None,
        what: str,
    ) -> Checked:
        """Return the replies that a strategy may see, and warn about the others.

        Parameters
        ----------
        metric : that has the bounds
        sent, replies, weighted_by : see `check_replies`
        what : goes on without a refused reply, at the beginning of the warning: "Trial 3"
        """
        judged = metric if isinstance(metric, Metric) else Metric(metric)
        bounds = None if self.bounds is None else (judged, self.bounds)
        checked = check_replies(sent, replies, weighted_by, bounds)
        for line in self.lower_weights(checked.used, weighted_by):
            log(WARNING, "%s: %s", what, printable(line))
        for reason in checked.refused:
            log(WARNING, "%s goes on without a reply: %s", what, printable(reason))
        return checked

    def lower_weights(self, replies: Sequence[Message], weighted_by: str | None) -> list[str]:
        """Lower weights that are too large, in the replies themselves, and return a line for each."""
        if self.max_weight is None or weighted_by is None:
            return []
        having = [reply for reply in replies if weighted_by in client_metrics(reply)]
        weights: list[Any] = [client_metrics(reply)[weighted_by] for reply in having]  # checked: numbers
        if not weights:
            return []
        largest, lowered = self.max_weight * sorted(map(float, weights))[(len(weights) - 1) // 2], []
        for reply, weight in zip(having, weights, strict=True):
            if weight > largest:
                new = max(int(largest), 1) if isinstance(weight, int) else largest
                client_metrics(reply)[weighted_by] = new
                who = f"client {reply.metadata.src_node_id}"
                lowered.append(f"{who}: {printable(weighted_by)} {weight} was lowered to {new}")
        return lowered
