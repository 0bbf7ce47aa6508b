"""`ModelSite`: train models here, pack them for the wire, and judge packed models in a sandbox."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import Judgement, SiteObjective
from fbo_flower.clients.site_agent import Shipment
from fbo_flower.clients.site_options import SiteOptions
from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models import (
    Limits,
    carries_rows,
    carries_rows_in_bytes,
    check_trust,
    confinement,
    pack,
    pack_exported,
    predict,
)  # fmt: skip
from fbo_flower.models.formats import SETUP

_NO_LIMIT = 2**62
_NUM_CHECKED = 100  # rows on which a packed model is compared with the model
_FEW, _TOLERANCE = 0.05, 1e-3  # single precision moves a row across a threshold now and then


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
