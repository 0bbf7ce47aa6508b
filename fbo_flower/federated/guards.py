"""Guards against clients whose replies are well-formed but false, such as an accuracy of 1e9.

Flower's strategies believe every number: one client that reports a million times the rows of the others
decides the model alone, and one that reports an accuracy of 1e9 decides which trial is the best. Replies that
are malformed, or whose numbers are absurd, are always left out (`replies.py`). Three guards more, each an
option of its own:

- *bounds* of a metric: a reply with a value outside is left out, as one with NaN is;
- *max_weight*: a reply that reports more rows than this multiple of its half-round's median counts with that
  multiple. The lower median is taken, so of two clients the larger one is lowered;
- *judging by the median*: a trial's value is the weighted median of the clients' own values. It lies between
  values of honest clients as long as liars have less than half of the weight.

A liar within the bounds still moves a mean by its share of the weight, and a median to a neighbouring value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING

import numpy as np
from flwr.app import Message
from flwr.common.logger import log

from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.errors import ConfigError, printable
from fbo_flower.federated.replies import Bounds, Checked, check_replies, client_metrics
from fbo_flower.numerics.arrays import Array

JUDGES = ("mean", "median")


@dataclass(frozen=True)
class Guard:
    """The guards of a run.

    Parameters
    ----------
    metric : name of the metric that judges trials
    bounds : its least and largest value; None: any finite number is believed
    max_weight : see above; None: every weight is believed
    judge_by : "mean": as the strategy aggregates; "median": the weighted median of the clients' values
    """

    metric: str
    bounds: Bounds | None = None
    max_weight: float | None = None
    judge_by: str = "mean"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", check_bounds("bounds", self.bounds))
        if self.max_weight is not None:
            check_number("max_weight", self.max_weight, 1.0)
        check_choice("by", self.judge_by, JUDGES)

    @property
    def bounds_by_name(self) -> Mapping[str, Bounds]:
        """Metric -> its bounds."""
        return {} if self.bounds is None else {self.metric: self.bounds}

    @property
    def settings(self) -> dict[str, object]:
        """Those of the guards that are in use, as a journal keeps them."""
        found: dict[str, object] = {}
        if self.bounds is not None:
            found["metric_bounds"] = list(self.bounds)
        if self.max_weight is not None:
            found["max_weight"] = self.max_weight
        if self.judge_by != "mean":
            found["judge_by"] = self.judge_by
        return found

    def checked(
        self, sent: Sequence[Message], replies: Sequence[Message | None], weighted_by: str | None, what: str
    ) -> Checked:
        """Return the replies that a strategy may see, and warn about the others.

        Parameters
        ----------
        sent, replies, weighted_by : see `check_replies`
        what : goes on without a refused reply, at the beginning of the warning: "Trial 3"
        """
        checked = check_replies(sent, replies, weighted_by, self.bounds_by_name)
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
        if not having:
            return []
        weights = sorted(float(client_metrics(reply)[weighted_by]) for reply in having)  # type: ignore[arg-type]
        largest = self.max_weight * weights[(len(weights) - 1) // 2]
        lowered = []
        for reply in having:
            record = client_metrics(reply)
            weight = record[weighted_by]
            assert isinstance(weight, int | float)
            if weight > largest:
                record[weighted_by] = max(int(largest), 1) if isinstance(weight, int) else largest
                lowered.append(
                    f"client {reply.metadata.src_node_id}: {printable(weighted_by)} {weight} was lowered to "
                    f"{record[weighted_by]}"
                )
        return lowered


def check_bounds(name: str, bounds: Bounds | None) -> Bounds | None:
    """Return bounds as floats; ConfigError unless they are two numbers in ascending order."""
    if bounds is None:
        return None
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: expected (least, largest), got {bounds!r}") from error
    if math.isnan(low) or math.isnan(high) or low >= high:
        raise ConfigError(f"{name}: expected (least, largest), got {bounds!r}")
    return low, high


def weighted_median(values: Array, weights: Array) -> float:
    """Return the value that halves the weight; between two such values their mean.

    >>> weighted_median(np.array([3.0, 1.0, 1e9]), np.ones(3))
    3.0
    >>> weighted_median(np.array([1.0, 2.0]), np.ones(2))
    1.5
    """
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    half = sums[-1] / 2.0
    at = int(np.searchsorted(sums, half))
    if sums[at] == half and at + 1 < len(order):
        return float((values[order[at]] + values[order[at + 1]]) / 2.0)
    return float(values[order[at]])
