"""A site's own edge: train a model on its rows, and judge a model on them [Sun2019, sections 2.1 and 4.1].

A site keeps its rows in two bags. A search sees losses on the *inbag* only; the *outbag* is for the report at
the end. What `train` and `judge` return is a loss, smaller is better, and a number of rows: no row leaves.

The user's part: `make_model(config)` returns something whose `fit(x, y)` returns a fitted model, as every
estimator and pipeline of scikit-learn does, and `load_data(context)` returns the two bags. Nothing is kept
between calls; a `load_data` that is slow should keep its own result.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fbo_flower.clients.objective import MAX_REASON, ObjectiveContext
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.models.formats import EXPORTED, FORMATS, SKOPS
from fbo_flower.numerics.seeding import generator

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
    """A site's rows, each in one bag; a lockbox is judged on both."""

    inbag: Bag
    outbag: Bag


class Trained(NamedTuple):
    """What training gave: the cross-validated loss, the model fitted on the whole inbag, and its rows."""

    loss: float
    model: Any
    num_rows: int


class Judged(NamedTuple):
    """A model's loss on some rows, and their number."""

    loss: float
    num_rows: int


def misclassification(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Share of wrong labels."""
    return float(np.mean(np.asarray(y_true) != np.asarray(y_pred)))


def balanced_error(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Mean over the classes in `y_true` of their shares of wrong labels."""
    true, wrong = np.asarray(y_true), np.asarray(y_true) != np.asarray(y_pred)
    return float(np.mean([np.mean(wrong[true == label]) for label in np.unique(true)]))


def squared_error(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Mean squared difference."""
    return float(np.mean(np.square(np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float))))


def absolute_error(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Mean absolute difference."""
    return float(np.mean(np.abs(np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float))))


SCORERS: dict[str, Scorer] = {
    "misclassification": misclassification,
    "balanced-error": balanced_error,
    "squared-error": squared_error,
    "absolute-error": absolute_error,
}


@dataclass(frozen=True)
class SiteObjective:
    """Train and judge models on one site's rows; called as an objective, it is the site's own view.

    Parameters
    ----------
    make_model : `make_model(config)` returns an unfitted estimator or pipeline
    load_data : `load_data(context) -> SiteData`
    scorer : a name in `SCORERS`, or `scorer(y_true, y_pred) -> loss`, smaller is better
    folds : of the cross-validation; fewer where a class has fewer rows. Targets of a floating type are
        dealt to the folds at random, anything else class by class
    seed : of the folds, which are the same for every configuration, method and study
    format : in which models travel: "skops" for scikit-learn's, "onnx", "xgboost-json" or "lightgbm-text"
    export : `export(model, x)` returns the fitted model in that format as bytes, `x` being the rows it was
        fitted on; needed for "onnx", and has a default for the two boosters

    Raises
    ------
    ConfigError
        If the scorer or the format is unknown, there are fewer than two folds, or `export` does not fit.
    """

    make_model: Callable[[Config], Any]
    load_data: Callable[[ObjectiveContext], SiteData]
    scorer: str | Scorer = "misclassification"
    folds: int = 10
    seed: int = 0
    format: str = SKOPS
    export: Export | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError(f"format: expected one of {', '.join(FORMATS)}, got {self.format!r}")
        if self.format == SKOPS and self.export is not None:
            raise ConfigError("export: expected with another format than skops, such as format='onnx'")
        if self.format != SKOPS and self.exporter is None:
            raise ConfigError(f"export: expected a function export(model, x) -> bytes for {self.format}")
        if isinstance(self.scorer, str) and self.scorer not in SCORERS:
            raise ConfigError(f"scorer: expected one of {', '.join(SCORERS)}, got {self.scorer!r}")
        if not isinstance(self.scorer, str) and not callable(self.scorer):
            raise ConfigError(f"scorer: expected a name or a function, got {self.scorer!r}")
        if isinstance(self.folds, bool) or not isinstance(self.folds, int) or self.folds < 2:
            raise ConfigError(f"folds: expected an integer of at least 2, got {self.folds!r}")

    @property
    def exporter(self) -> Export | None:
        """Return the function that exports a model; None for skops."""
        return self.export or (None if self.format == SKOPS else EXPORTED[self.format].export)

    @property
    def is_rate(self) -> bool:
        """Whether a loss is a share of the rows, so that one row moves it by `1/n` at most."""
        return self.scorer == "misclassification"

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        """Return minus the cross-validated loss on the inbag: what a site alone would maximise."""
        (bag,) = self._bags("inbag", context)
        return -self.cross_validate(config, bag)

    def train(
        self, config: Config, context: ObjectiveContext, approve: Callable[[Any, Any], None] | None = None
    ) -> Trained:
        """Return the cross-validated loss, and the model fitted on the whole inbag.

        Parameters
        ----------
        approve : called with the model and the inbag's features before the folds are fitted; what it raises
            spares the trial those fits

        Raises
        ------
        ObjectiveError
            If the rows cannot be loaded or used, or a fit or its loss fails; the reason is in it.
        """
        (bag,) = self._bags("inbag", context)
        model = self._fit(config, bag.x, bag.y)
        if approve is not None:
            approve(model, bag.x)
        return Trained(self.cross_validate(config, bag), model, len(bag.y))

    def cross_validate(self, config: Config, bag: Bag) -> float:
        """Return the mean loss over the folds of a bag; errors as `train`."""
        x, y = bag
        losses = []
        for train, test in splits(y, self.folds, self.seed):
            model = self._fit(config, _rows(x, train), y[train])
            held_out = Bag(_rows(x, test), y[test])
            losses.append(self._loss(held_out.y, [_predicted(model.predict, held_out)]))
        return float(np.mean(losses))

    def judge(self, predict: Predict, rows: str, context: ObjectiveContext) -> Judged:
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
        return Judged(self._loss(y, [_predicted(predict, bag) for bag in bags]), len(y))

    def _bags(self, rows: str, context: ObjectiveContext) -> list[Bag]:
        if rows not in BAGS:
            raise ObjectiveError(f"rows: expected one of {', '.join(BAGS)}, got {rows!r}")
        data = _reported("load_data", lambda: SiteData(*self.load_data(context)))
        return [_checked(name, getattr(data, name)) for name in BAGS[rows]]

    def _fit(self, config: Config, x: Any, y: Any) -> Any:
        return _reported("fit", lambda: self.make_model(config).fit(x, y))

    def _loss(self, y: Any, predictions: list[Any]) -> float:
        scorer = SCORERS[self.scorer] if isinstance(self.scorer, str) else self.scorer
        loss = _reported("scorer", lambda: float(scorer(y, np.concatenate(predictions))))
        if not math.isfinite(loss):
            raise ObjectiveError(f"scorer: expected a finite loss, got {loss}")
        return loss


def splits(y: npt.ArrayLike, num_folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Return the rows to train on and to test on, fold by fold.

    Classes are dealt out one after the other, so that a class and the whole are spread over the folds with a
    difference of one row at most. There are as many folds as the smallest class has rows, if that is fewer.

    Parameters
    ----------
    y : `(n,)`; of a floating type: one class with all rows

    Raises
    ------
    ObjectiveError
        If there are classes but not two, or a class has a single row.
    """
    targets = np.asarray(y)
    continuous = targets.dtype.kind == "f"
    labels, codes = np.unique(np.zeros(targets.size) if continuous else targets, return_inverse=True)
    counts = np.bincount(codes)
    if counts.size == 0 or counts.min() < 2 or (labels.size < 2 and not continuous):
        found = dict(zip(labels[:5].tolist(), counts[:5].tolist(), strict=True))
        raise ObjectiveError(f"inbag: expected two classes or more of two rows or more, got {found}")
    num_folds = min(num_folds, int(counts.min()))
    rng = generator(seed, "folds")
    dealt = np.concatenate([rng.permutation(np.flatnonzero(codes == code)) for code in range(labels.size)])
    fold = np.empty(targets.size, dtype=np.intp)
    fold[dealt] = np.arange(targets.size) % num_folds
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(num_folds)]


def _checked(name: str, bag: Any) -> Bag:
    x, y = bag
    y = np.asarray(y)
    if y.ndim != 1 or not y.size or len(x) != y.size:
        raise ObjectiveError(
            f"{name}: expected a row of features per target and at least one, "
            f"got {len(x)} rows and targets of shape {y.shape}"
        )
    return Bag(x, y)


def _predicted(predict: Predict, bag: Bag) -> Any:
    predicted = np.asarray(_reported("predict", lambda: predict(bag.x)))
    if predicted.shape != bag.y.shape:
        raise ObjectiveError(f"predict: expected {bag.y.shape} predictions, got {predicted.shape}")
    return predicted


def _rows(x: Any, rows: Rows) -> Any:
    """Return rows of an array, or of a data frame."""
    return x.iloc[rows] if hasattr(x, "iloc") else np.asarray(x)[rows]


def _reported(what: str, work: Callable[[], T]) -> T:
    """Do what the user's code does; whatever it raises costs the trial and says why."""
    try:
        return work()
    except ObjectiveError:
        raise
    except Exception as error:
        raise ObjectiveError(f"{what}: {type(error).__name__}: {error}"[:MAX_REASON]) from error
