"""`SiteObjective`: train models on a site's rows and compute losses [Sun2019, 2.1 and 4.1].

A site divides its rows into two bags. The search uses losses on the *inbag* only; the *outbag* is for the
final report. `train` and `judge` return a loss (smaller is better) and a number of rows. No row leaves the
site.

The user writes two functions. `make_model(config)` returns an estimator whose `fit(x, y)` returns the fitted
model, like every estimator and pipeline of scikit-learn. `load_data(context)` returns the two bags; it is
called for every training and judgement, so a slow `load_data` should cache its result.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.options import Settings, choice, integer
from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients.objective import MAX_REASON, ObjectiveContext
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.models.formats import EXPORTED, FORMATS, SKOPS
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.copies import own

Rows = npt.NDArray[np.intp]
T = TypeVar("T")
Config = Mapping[str, Any]
Predict = Callable[[Any], Any]
Scorer = Callable[[Any, Any], float]
Export = Callable[[Any, Any], bytes]  # `export(model, x) -> bytes`

BAGS = {"inbag": ("inbag",), "outbag": ("outbag",), "all": ("inbag", "outbag")}


class Bag(NamedTuple):
    """Rows of a site: features `x` `(n, d)` and targets `y` `(n,)`."""

    x: Any
    y: Any


class SiteData(NamedTuple):
    """The rows of a site in two bags; a lockbox judges models on both."""

    inbag: Bag
    outbag: Bag


class Shipment(NamedTuple):
    """A trained model and its loss.

    Parameters
    ----------
    loss : cross-validated on the inbag
    num_rows : number of rows of the inbag
    model : the model fitted to the whole inbag; to be sent it is packed, `(n,)` uint8
    carries : names of the packed model's parts that contain rows of the inbag
    """

    loss: float
    num_rows: int
    model: Any
    carries: tuple[str, ...] = ()


class Judgement(NamedTuple):
    """The loss of a model on some rows, and their number."""

    loss: float
    num_rows: int


def _balanced_error(y_true: AnyArray, y_pred: AnyArray) -> float:
    """Return the mean, over the classes in `y_true`, of the fraction of wrong labels."""
    return float(np.mean([np.mean(y_pred[y_true == label] != label) for label in np.unique(y_true)]))


SCORERS: dict[str, Scorer] = {
    "misclassification": lambda y_true, y_pred: float(np.mean(y_true != y_pred)),
    "balanced-error": _balanced_error,
    "squared-error": lambda y_true, y_pred: float(
        np.mean(np.square(np.subtract(y_true, y_pred, dtype=float)))
    ),
    "absolute-error": lambda y_true, y_pred: float(np.mean(np.abs(np.subtract(y_true, y_pred, dtype=float)))),
}


@dataclass(frozen=True)
class SiteObjective(Settings):
    """Train and judge models on the rows of one site.

    Called as an objective, it returns minus the cross-validated loss: so a site can also tune alone.

    Parameters
    ----------
    make_model : `make_model(config)` returns an unfitted estimator or pipeline
    load_data : `load_data(context) -> SiteData`
    scorer : a name in `SCORERS`, or `scorer(y_true, y_pred) -> loss`, smaller is better
    folds : number of folds of the cross-validation; fewer if a class has fewer rows. Floating-point targets
        are divided at random, all others class by class
    seed : seed of the folds, which are the same for every configuration, method and study
    format : format in which models are sent: "skops" for scikit-learn's, "onnx", "xgboost-json" or
        "lightgbm-text"
    export : `export(model, x)` returns the fitted model in that format as bytes; `x` are the rows it was
        fitted on. Needed for "onnx"; the two boosters have a default

    Raises
    ------
    ConfigError
        If the scorer or the format is unknown, `folds` is less than 2, or `export` does not fit.
    """

    make_model: Callable[[Config], Any]
    load_data: Callable[[ObjectiveContext], SiteData]
    scorer: str | Scorer = "misclassification"
    folds: int = integer(10, 2)
    seed: int = integer(0, 0)
    format: str = choice(SKOPS, FORMATS)
    export: Export | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format == SKOPS and self.export is not None:
            raise ConfigError("export: expected with another format than skops, such as format='onnx'")
        if self.format != SKOPS and self.exporter is None:
            raise ConfigError(f"export: expected a function export(model, x) -> bytes for {self.format}")
        if isinstance(self.scorer, str) and self.scorer not in SCORERS:
            raise ConfigError(f"scorer: expected one of {', '.join(SCORERS)}, got {self.scorer!r}")
        if not isinstance(self.scorer, str) and not callable(self.scorer):
            raise ConfigError(f"scorer: expected a name or a function, got {self.scorer!r}")

    @property
    def exporter(self) -> Export | None:
        """Return the function that exports a model; None for skops."""
        return self.export or (None if self.format == SKOPS else EXPORTED[self.format].export)

    @property
    def is_rate(self) -> bool:
        """Whether the loss is a fraction of the rows, so that one row changes it by at most `1/n`."""
        return self.scorer == "misclassification"

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        """Return minus the cross-validated loss on the inbag, which a site that tunes alone maximises."""
        (bag,) = self._bags("inbag", context)
        return -self.cross_validate(config, bag)

    def train(
        self, config: Config, context: ObjectiveContext, approve: Callable[[Any, Any], None] | None = None
    ) -> Shipment:
        """Return the cross-validated loss, and the model fitted on the whole inbag.

        Parameters
        ----------
        approve : called with the model and the inbag's features before the folds are fitted; what it raises
            spares the trial those fits

        Raises
        ------
        ObjectiveError
            If the rows cannot be loaded or used, or a fit or its loss fails; the text says why.
        """
        (bag,) = self._bags("inbag", context)
        model = self._fit(config, copy(bag.x), copy(bag.y))  # some estimators work in place
        if approve is not None:
            approve(model, bag.x)
        return Shipment(self.cross_validate(config, bag), len(bag.y), model)

    def cross_validate(self, config: Config, bag: Bag) -> float:
        """Return the mean loss over the folds of a bag; it raises the same errors as `train`."""
        x, y = bag
        losses = []
        for train, test in splits(y, self.folds, self.seed):
            model = self._fit(config, _rows(x, train), y[train])
            held_out = Bag(_rows(x, test), y[test])
            losses.append(self._loss(held_out.y, [_predicted(model.predict, held_out)]))
        return float(np.mean(losses))

    def judge(self, predict: Predict, rows: str, context: ObjectiveContext) -> Judgement:
        """Return the loss of a model on the site's rows.

        Parameters
        ----------
        predict : `predict(x)` returns the model's `(n,)` predictions
        rows : "inbag", "outbag" or "all"

        Raises
        ------
        ObjectiveError
            If the rows cannot be loaded, or the predictions fail or have no finite loss.
        """
        bags = self._bags(rows, context)
        y = np.concatenate([bag.y for bag in bags])
        predictions = [_predicted(predict, Bag(copy(bag.x), bag.y)) for bag in bags]
        return Judgement(self._loss(y, predictions), len(y))

    def _bags(self, rows: str, context: ObjectiveContext) -> list[Bag]:
        if rows not in BAGS:
            raise ObjectiveError(f"rows: expected one of {', '.join(BAGS)}, got {rows!r}")
        data = _call_user_code("load_data", lambda: SiteData(*self.load_data(context)))
        return [_checked(name, getattr(data, name)) for name in BAGS[rows]]

    def _fit(self, config: Config, x: Any, y: Any) -> Any:
        return _call_user_code("fit", lambda: self.make_model(own(config)).fit(x, y))

    def _loss(self, y: Any, predictions: list[Any]) -> float:
        scorer = SCORERS[self.scorer] if isinstance(self.scorer, str) else self.scorer
        loss = _call_user_code("scorer", lambda: float(scorer(y, np.concatenate(predictions))))
        if not math.isfinite(loss):
            raise ObjectiveError(f"scorer: expected a finite loss, got {loss}")
        return loss


def splits(y: npt.ArrayLike, num_folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Return the training rows and test rows of each fold.

    Every class is divided evenly: its numbers of rows in two folds differ by at most one, and so do the sizes
    of the folds. If the smallest class has fewer rows than `num_folds`, there are as many folds as it has
    rows.

    Parameters
    ----------
    y : `(n,)`; floating-point targets count as one class

    Raises
    ------
    ObjectiveError
        If the targets are labels of a single class, or a class has a single row.
    """
    targets = np.asarray(y)
    continuous = targets.dtype.kind == "f"
    labels, codes = np.unique(np.zeros(targets.size) if continuous else targets, return_inverse=True)
    counts = np.bincount(codes)
    if counts.size == 0 or counts.min() < 2 or (labels.size < 2 and not continuous):
        row_counts = dict(zip(labels[:5].tolist(), counts[:5].tolist(), strict=True))
        raise ObjectiveError(
            f"inbag: expected two classes or more of two rows or more, got rows per class {row_counts}"
        )
    num_folds = min(num_folds, int(counts.min()))
    rng = generator(seed, "folds")
    order = np.concatenate([rng.permutation(np.flatnonzero(codes == code)) for code in range(labels.size)])
    fold = np.empty(targets.size, dtype=np.intp)
    fold[order] = np.arange(targets.size) % num_folds
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(num_folds)]


def _checked(name: str, bag: Any) -> Bag:
    x, y = bag
    y = np.asarray(y)
    if y.ndim != 1 or not y.size or len(x) != y.size:
        raise ObjectiveError(
            f"{name}: expected at least one row, and as many rows of features as targets, "
            f"got {len(x)} rows and targets of shape {y.shape}"
        )
    return Bag(x, y)


def _predicted(predict: Predict, bag: Bag) -> Any:
    predicted = np.asarray(_call_user_code("predict", lambda: predict(bag.x)))
    if predicted.shape != bag.y.shape:
        raise ObjectiveError(f"predict: expected {bag.y.shape} predictions, got {predicted.shape}")
    return predicted


def _rows(x: Any, rows: Rows) -> Any:
    return x.iloc[rows] if hasattr(x, "iloc") else np.asarray(x)[rows]


def _call_user_code(what: str, work: Callable[[], T]) -> T:
    """Return `work()`; turn any exception of the user's code into an ObjectiveError with its reason."""
    try:
        return work()
    except ObjectiveError:
        raise
    except Exception as error:
        raise ObjectiveError(f"{what}: {type(error).__name__}: {error}"[:MAX_REASON]) from error
