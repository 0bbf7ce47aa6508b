"""`ModelSite`: train models on a site's rows, pack them, and judge packed models [Sun2019, 2.1 and 4.1].

A site divides its rows into two bags. The search uses losses on the *inbag* only; the *outbag* is for the
final report. `train` and `judge` return a loss (smaller is better) and a number of rows. No row leaves the
site.

The user writes two functions. `make_model(config)` returns an estimator whose `fit(x, y)` returns the fitted
model, like every estimator and pipeline of scikit-learn. `load_data(context)` returns the two bags; it is
called for every training and judgement, so a slow `load_data` should cache its result. Models of other sites
are judged in a child process without network and files.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from logging import INFO, WARNING
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from flwr.common.logger import log

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import AnyArray
from fbo_flower.algorithms.rfms.site import MAX_MODEL_BYTES
from fbo_flower.clients.objective import MAX_REASON, ObjectiveContext
from fbo_flower.errors import ConfigError, ModelError, ObjectiveError
from fbo_flower.models import (
    Limits,
    carries_rows,
    carries_rows_in_bytes,
    check_trust,
    confinement,
    pack,
    pack_exported,
    predict,
)
from fbo_flower.models.formats import EXPORTED, FORMATS, SETUP, SKOPS
from fbo_flower.numerics.seeding import generator

_NO_LIMIT = 2**62
_NUM_CHECKED = 100  # rows on which a packed model is compared with the model
_FEW, _TOLERANCE = 0.05, 1e-3  # single precision moves a row across a threshold now and then
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


class Trained(NamedTuple):
    """The cross-validated loss, the model fitted on the whole inbag, and the number of rows of the inbag."""

    loss: float
    model: Any
    num_rows: int


class Shipment(NamedTuple):
    """A trained model, packed to be sent, and its loss.

    Parameters
    ----------
    loss : cross-validated on the inbag
    num_rows : number of rows of the inbag
    model : the model fitted to the whole inbag, packed, `(n,)` uint8
    carries : names of the model's parts that contain rows of the inbag
    """

    loss: float
    num_rows: int
    model: AnyArray
    carries: tuple[str, ...] = ()


class Judgement(NamedTuple):
    """The loss of a model on some rows, and their number."""

    loss: float
    num_rows: int


def misclassification(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Return the fraction of wrong labels."""
    return float(np.mean(np.asarray(y_true) != np.asarray(y_pred)))


def balanced_error(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Return the mean, over the classes in `y_true`, of the fraction of wrong labels."""
    true, wrong = np.asarray(y_true), np.asarray(y_true) != np.asarray(y_pred)
    return float(np.mean([np.mean(wrong[true == label]) for label in np.unique(true)]))


def squared_error(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Return the mean squared difference."""
    return float(np.mean(np.square(np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float))))


def absolute_error(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Return the mean absolute difference."""
    return float(np.mean(np.abs(np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float))))


SCORERS: dict[str, Scorer] = {
    "misclassification": misclassification,
    "balanced-error": balanced_error,
    "squared-error": squared_error,
    "absolute-error": absolute_error,
}


@dataclass(frozen=True)
class SiteObjective:
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
        """Whether the loss is a fraction of the rows, so that one row changes it by at most `1/n`."""
        return self.scorer == "misclassification"

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        """Return minus the cross-validated loss on the inbag, which a site that tunes alone maximises."""
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
            If the rows cannot be loaded or used, or a fit or its loss fails; the text says why.
        """
        (bag,) = self._bags("inbag", context)
        model = self._fit(config, bag.x, bag.y)
        if approve is not None:
            approve(model, bag.x)
        return Trained(self.cross_validate(config, bag), model, len(bag.y))

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
        return Judgement(self._loss(y, [_predicted(predict, bag) for bag in bags]), len(y))

    def _bags(self, rows: str, context: ObjectiveContext) -> list[Bag]:
        if rows not in BAGS:
            raise ObjectiveError(f"rows: expected one of {', '.join(BAGS)}, got {rows!r}")
        data = _call_user_code("load_data", lambda: SiteData(*self.load_data(context)))
        return [_checked(name, getattr(data, name)) for name in BAGS[rows]]

    def _fit(self, config: Config, x: Any, y: Any) -> Any:
        return _call_user_code("fit", lambda: self.make_model(config).fit(x, y))

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
    """Return some rows of an array or a data frame."""
    return x.iloc[rows] if hasattr(x, "iloc") else np.asarray(x)[rows]


def _call_user_code(what: str, work: Callable[[], T]) -> T:
    """Return `work()`; turn any exception of the user's code into an ObjectiveError with its reason."""
    try:
        return work()
    except ObjectiveError:
        raise
    except Exception as error:
        raise ObjectiveError(f"{what}: {type(error).__name__}: {error}"[:MAX_REASON]) from error


@dataclass(frozen=True)
class SiteOptions:
    """The options of a site's operator; each is a key of `node_config`.

    Parameters
    ----------
    allow_models_with_data : openbox: send models that contain rows of its data, for example support vectors
    max_model_bytes : largest packed model that is sent or judged
    models : openbox: directory for the final models, in the format in which they are sent; "": do not save
    trusted : full names of types, separated by commas, that a model may contain in addition to the types
        that are known to be harmless
    model_seconds, model_memory_bytes : time and memory that another site's model may use to load and predict
    in_process : judge models in this process, without these two limits; for simulations
    require_confinement : judge no model unless the child process has no network, files and processes
    query_budget : curator, lockbox: largest number of answers in all studies together, counted separately
        for the search and for the final report; 0: no limit
    lockbox_answers : lockbox: number of final lists of models (manifests) that it judges in its lifetime
    answer_noise_epsilon : curator, lockbox: add discrete Laplace noise to the number of wrong rows of
        every answer, which must be a misclassification rate; 0: no noise
    """

    allow_models_with_data: bool = False
    max_model_bytes: int = MAX_MODEL_BYTES
    models: str = ""
    trusted: str = ""
    model_seconds: float = 60.0
    model_memory_bytes: int = 2 * 2**30
    in_process: bool = False
    require_confinement: bool = False
    query_budget: int = 200
    lockbox_answers: int = 1
    answer_noise_epsilon: float = 0.0

    def __post_init__(self) -> None:
        for name in ("allow_models_with_data", "in_process", "require_confinement"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        for name in ("models", "trusted"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name}: expected a string, got {getattr(self, name)!r}")
        check_number("model_seconds", self.model_seconds, 1e-3)
        check_number("model_memory_bytes", self.model_memory_bytes, 1, integer=True)
        check_number("max_model_bytes", self.max_model_bytes, 1, MAX_MODEL_BYTES, integer=True)
        check_number("query_budget", self.query_budget, 0, integer=True)
        check_number("lockbox_answers", self.lockbox_answers, 1, integer=True)
        check_number("answer_noise_epsilon", self.answer_noise_epsilon, 0)

    @property
    def trusted_types(self) -> tuple[str, ...]:
        """Return the names in `trusted` as a tuple."""
        return tuple(name.strip() for name in self.trusted.split(",") if name.strip())

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """Return option -> its default value."""
        return {f.name: f.default for f in fields(cls)}

    @classmethod
    def read(cls, node_config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Self:
        """Return the options in `node_config`; `defaults` replace those that it does not set."""
        values = {**defaults, **node_config}
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class ModelSite:
    """Train, pack and judge models on the rows of one site.

    Parameters
    ----------
    objective : loads the rows, makes models and computes losses
    options : what the site's operator allows
    """

    objective: SiteObjective
    options: SiteOptions

    @property
    def is_rate(self) -> bool:
        """Whether a loss is a misclassification rate."""
        return self.objective.is_rate

    def train(self, config: dict[str, Any], context: ObjectiveContext) -> Shipment:
        """Return the cross-validated loss `J_l`, and the model fitted to the whole inbag, packed.

        Before the folds are fitted, the model passes the checks that other sites will make.

        Raises
        ------
        ModelError
            If this site would refuse the model itself; the text says nothing of the rows.
        """
        packed: list[tuple[AnyArray, tuple[str, ...]]] = []

        def approve(model: Any, x: Any) -> None:
            payload, carries = self._packed(model, x)
            try:
                check_trust(payload, self.options.trusted_types)
                if context.trial == 0 or self.objective.exporter is not None:
                    self._check_predictions(model, payload, x)
            except ModelError as error:
                log(WARNING, "this site refuses its own model: %s", error)  # in full, a report is cut
                raise
            packed.append((payload, carries))

        trained = self.objective.train(config, context, approve)
        return Shipment(trained.loss, trained.num_rows, *packed[0])

    def judge(self, model: AnyArray, rows: str, context: ObjectiveContext) -> Judgement:
        """Return the loss of a packed model on some of the rows.

        Raises
        ------
        ModelError
            If the model is refused for every input; the text holds nothing about the site's rows.
        ObjectiveError
            If the model fails on this site's rows.
        """
        refusals: list[ModelError] = []

        def predictions(x: Any) -> AnyArray:
            try:
                return self._predict(model, np.asarray(x))
            except ModelError:
                refusals.extend(self._refusal_without_rows(model, np.asarray(x)))
                raise

        try:
            return self.objective.judge(predictions, rows, context)
        except ObjectiveError as error:
            if refusals:
                raise refusals[0] from error
            raise

    def _packed(self, model: Any, x: Any) -> tuple[AnyArray, tuple[str, ...]]:
        """Return a model as bytes, and the names of its parts that hold rows."""
        export = self.objective.exporter
        if export is None:
            return pack(model, _NO_LIMIT), tuple(carries_rows(model, x))
        try:
            body = export(model, x)
        except Exception as error:  # the user's code, or a library's
            raise ObjectiveError(f"export: {type(error).__name__}: {error}") from error
        classes = getattr(model, "classes_", None)
        payload = pack_exported(body, self.objective.format, x.shape[1], classes, _NO_LIMIT)
        return payload, tuple(carries_rows_in_bytes(payload, x))

    def _check_predictions(self, model: Any, payload: AnyArray, x: Any) -> None:
        """Refuse a packed model that does not predict what the model does on some of its own rows."""
        some = x.iloc[:_NUM_CHECKED] if hasattr(x, "iloc") else x[:_NUM_CHECKED]
        rows = np.asarray(some)
        try:
            got = self._predict(payload, rows)
        except ModelError as error:
            fails_on_rows = ModelError(
                f"{SETUP}the packed model fails on rows that the model itself predicts"
            )
            raise next(iter(self._refusal_without_rows(payload, rows)), fails_on_rows) from error
        expected = np.asarray(model.predict(some))
        if got.shape != expected.shape:
            differ = len(rows)
        elif expected.dtype.kind == "f" and got.dtype.kind == "f":
            scale = float(np.ptp(expected)) + 1e-12
            differ = int(np.count_nonzero(np.abs(got - expected) > _TOLERANCE * scale))
        else:
            differ = int(np.count_nonzero(got != expected))
        if differ > _FEW * len(rows):
            raise ModelError(
                f"{SETUP}the packed model predicts otherwise than the model itself on {differ} of "
                f"{len(rows)} rows; check export, and that classes_ are the labels in the order of its scores"
            )

    def _predict(self, model: AnyArray, x: AnyArray) -> AnyArray:
        options = self.options
        limits = Limits(
            seconds=options.model_seconds,
            memory_bytes=options.model_memory_bytes,
            max_bytes=options.max_model_bytes,
        )
        payload = np.asarray(model, dtype=np.uint8)
        if not options.in_process:
            _announce()
            missing = confinement().missing
            if options.require_confinement and missing:
                raise ModelError(
                    f"worker: expected a child without {', '.join(missing)}, as require_confinement = true "
                    "demands; this system does not deny it"
                )
        return predict(payload, x, limits, options.trusted_types, in_process=options.in_process)

    def _refusal_without_rows(self, model: AnyArray, x: AnyArray) -> list[ModelError]:
        """Return the model's error on a row of zeros; an empty list if it has none.

        A library's error message may quote rows ("unknown categories [63.0]"), and a hostile model can
        provoke that. So the site sends only an error that also occurs without its rows.
        """
        try:
            self._predict(model, np.zeros((1, *x.shape[1:]), dtype=x.dtype))
        except ModelError as error:
            return [error]
        return []


@functools.cache  # once per process
def _announce() -> None:
    held = confinement()
    log(WARNING if held.missing else INFO, "models are judged in a child process; %s", held)
