"""A site whose models are scikit-learn's: trained here, packed for the wire, judged in a sandbox."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import Judged, SiteObjective
from fbo_flower.clients.site_agent import Shipment
from fbo_flower.clients.site_options import SiteOptions
from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models import Limits, carries_rows, confinement, pack, predict

_NO_LIMIT = 2**62


@dataclass(frozen=True)
class ModelSite:
    """Train, pack and judge models on the rows of one site.

    Parameters
    ----------
    objective : the rows, the learner and the loss
    options : the operator's
    """

    objective: SiteObjective
    options: SiteOptions

    @property
    def is_rate(self) -> bool:
        """Whether a loss is a misclassification rate."""
        return self.objective.is_rate

    def train(self, config: dict[str, Any], context: ObjectiveContext) -> Shipment:
        """Return `J_l`, and the model fitted to the whole inbag as bytes."""
        trained = self.objective.train(config, context)
        rows = self.objective.load_data(context).inbag.x
        carries = tuple(carries_rows(trained.model, rows))
        return Shipment(trained.loss, trained.num_rows, pack(trained.model, _NO_LIMIT), carries)

    def judge(self, model: AnyArray, rows: str, context: ObjectiveContext) -> Judged:
        """Return the loss of a packed model on some of the rows.

        Raises
        ------
        ModelError
            If the model is refused whatever the rows are; the text says nothing of them.
        ObjectiveError
            If it fails on these rows.
        """
        refusals: list[ModelError] = []

        def predictions(x: Any) -> AnyArray:
            try:
                return self._predict(model, np.asarray(x))
            except ModelError:
                refusals.extend(self._without_rows(model, np.asarray(x)))
                raise

        try:
            return self.objective.judge(predictions, rows, context)
        except ObjectiveError as error:
            if refusals:
                raise refusals[0] from error
            raise

    def _predict(self, model: AnyArray, x: AnyArray) -> AnyArray:
        own = self.options
        limits = Limits(
            seconds=own.model_seconds, memory_bytes=own.model_memory_bytes, max_bytes=own.max_model_bytes
        )
        payload = np.asarray(model, dtype=np.uint8)
        if not own.in_process:
            _announce()
            missing = confinement().missing
            if own.require_confinement and missing:
                raise ModelError(
                    f"worker: expected a child without {', '.join(missing)}, as require_confinement = true "
                    "demands; this system does not deny it"
                )
        return predict(payload, x, limits, own.trusted_types, in_process=own.in_process)

    def _without_rows(self, model: AnyArray, x: AnyArray) -> list[ModelError]:
        """Return why the model fails on a row of zeros, if it does.

        What a library says of rows may quote them ("unknown categories [63.0]"), and a model can be made so
        that it does: only an error that comes without the site's rows may leave it.
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
