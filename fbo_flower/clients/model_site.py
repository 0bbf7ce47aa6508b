"""`ModelSite`: pack the models that a site trains, and judge packed ones [Sun2019, 2.1 and 4.1].

Models of other sites are judged in a child process without network and files.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields
from logging import INFO, WARNING
from typing import Any, Self

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.options import Settings, bounded, flag, integer
from fbo_flower.algorithms.records import AnyArray
from fbo_flower.algorithms.rfms.site import MAX_MODEL_BYTES
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import Judgement, Shipment, SiteObjective
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
from fbo_flower.models.formats import SETUP

_NO_LIMIT = 2**62
_NUM_CHECKED = 100  # rows on which a packed model is compared with the model
_FEW, _TOLERANCE = 0.05, 1e-3  # single precision moves a row across a threshold now and then


@dataclass(frozen=True)
class SiteOptions(Settings):
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

    allow_models_with_data: bool = flag(False)
    max_model_bytes: int = integer(MAX_MODEL_BYTES, 1, MAX_MODEL_BYTES)
    models: str = ""
    trusted: str = ""
    model_seconds: float = bounded(60.0, 1e-3)
    model_memory_bytes: int = integer(2 * 2**30, 1)
    in_process: bool = flag(False)
    require_confinement: bool = flag(False)
    query_budget: int = integer(200, 0)
    lockbox_answers: int = integer(1, 1)
    answer_noise_epsilon: float = bounded(0.0, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("models", "trusted"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name}: expected a string, got {getattr(self, name)!r}")

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
    """Train, pack and judge models on the rows of one site, as far as its operator's `options` allow."""

    objective: SiteObjective
    options: SiteOptions

    @property
    def is_rate(self) -> bool:
        """Whether a loss is a misclassification rate."""
        return self.objective.is_rate

    def train(self, config: dict[str, Any], context: ObjectiveContext) -> Shipment:
        """Return the cross-validated loss `J_l`, and the model fitted to the whole inbag, packed.

        Before the folds are fitted, the model passes the checks that other sites will make.

        ModelError if this site would refuse the model itself; the text says nothing of the rows.
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
        model, carries = packed[0]
        return trained._replace(model=model, carries=carries)

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
            body = export(model, copy(x))
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
        expected = np.asarray(model.predict(copy(some)))
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
        most = {"memory_bytes": options.model_memory_bytes, "max_bytes": options.max_model_bytes}
        limits = Limits(seconds=options.model_seconds, **most)
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
